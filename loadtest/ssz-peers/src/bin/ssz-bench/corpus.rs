//! Measured values: recorded ones if available, otherwise generated ones.

use std::error::Error;
use std::fs;
use std::path::Path;

use serde_json::{json, Value};
use ssz_peers::peers::{libssz, JsonLibrary, PeerSszCodec as _};
use ssz_peers::{resolve_peer_type, sample};

/// Returns a SignedBeaconBlock of deneb in JSON, and whether it is recorded; the signature of a
/// recorded one is generated.
pub fn load_beacon_block(corpus: &Path) -> Result<(Value, bool), Box<dyn Error>> {
    let recorded = corpus.join("beacon/block_deneb.json");
    if recorded.exists() {
        let message: Value = serde_json::from_slice(&fs::read(recorded)?)?;
        let signature = format!("0x{}", "5a".repeat(96));
        let block = json!({"message": message, "signature": signature});
        return Ok((block, true));
    }
    Ok((generate_block_json()?, false))
}

/// Generates a block of common length from a seed.
fn generate_block_json() -> Result<Value, Box<dyn Error>> {
    let (schema, ty) = resolve_peer_type("SignedBeaconBlock");
    let mut rng = fastrand::Rng::with_seed(1);
    let mut block =
        libssz::SignedBeaconBlock::decode_ssz(&sample::random_value_ssz(schema, ty, &mut rng))?;
    let body = &mut block.message.body;
    let lengths = (0..300).map(|n| 100 + n * n % 700);
    let transactions = lengths.map(|len| {
        let bytes: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        bytes.try_into().expect("short enough")
    });
    body.execution_payload.transactions = transactions.collect::<Vec<_>>().try_into()?;
    let (schema, ty) = resolve_peer_type("Attestation");
    let attestations: Result<Vec<_>, String> = (0..128)
        .map(|_| libssz::Attestation::decode_ssz(&sample::random_value_ssz(schema, ty, &mut rng)))
        .collect();
    body.attestations = attestations?.try_into()?;
    let json = JsonLibrary::SerdeJson.serialize_to_json(&block)?;
    Ok(serde_json::from_slice(&json)?)
}

/// The items of a witness's lists as hex text, from which larger witnesses are made.
pub struct WitnessHexItems {
    pub state: Vec<String>,
    pub keys: Vec<String>,
    pub codes: Vec<String>,
    pub headers: Vec<String>,
}

/// Returns items to repeat, and whether they are recorded.
pub fn load_witness_parts(corpus: &Path) -> Result<(WitnessHexItems, bool), Box<dyn Error>> {
    let recorded = corpus.join("witness/cache_hoodi_1265656.json");
    if recorded.exists() {
        let cache: Value = serde_json::from_slice(&fs::read(recorded)?)?;
        let of = |name: &str| -> Result<Vec<String>, serde_json::Error> {
            serde_json::from_value(cache["witness"][name].clone())
        };
        let parts = WitnessHexItems {
            state: of("state")?,
            keys: of("keys")?,
            codes: of("codes")?,
            headers: of("headers")?,
        };
        return Ok((parts, true));
    }
    let mut rng = fastrand::Rng::with_seed(2);
    let mut texts = |count: usize, longest: usize| -> Vec<String> {
        let mut one = || {
            let len = rng.usize(longest / 5..=longest);
            (0..len).map(|_| format!("{:02x}", rng.u8(..))).collect()
        };
        (0..count)
            .map(|_| one())
            .map(|hex: String| format!("0x{hex}"))
            .collect()
    };
    let parts = WitnessHexItems {
        state: texts(1700, 560),
        keys: texts(400, 32),
        codes: texts(22, 9000),
        headers: texts(6, 640),
    };
    Ok((parts, false))
}
