//! Measurements of the four walkers and of the peers, on values for which every peer has a type.

use std::error::Error;

use serde::de::DeserializeOwned;
use serde::Serialize;
use serde_json::Value as Tree;
use ssz_peers::peers::{ethereum_ssz, libssz, ssz_rs, JsonLibrary, PeerSszCodec};
use ssz_peers::resolve_peer_type;
use sszip_core::ssz::{
    self, check_ssz, hash_tree_root, json_to_ssz, locate_value_at_path, ssz_to_json,
};
use sszip_core::ssz::{Schema, SszToJson, TypeId};

use crate::case::{
    measure_all_cases, MeasuredImplementation, MeasurementPlan, OperationMeasurements, OURS,
};
use crate::state;

const IN_PIECES: &str = "sszip, in pieces";

/// A measured value in each of its formats, with its type.
struct BenchmarkInputValue {
    value: String,
    validators: usize,
    schema: &'static Schema,
    ty: TypeId,
    ssz: Vec<u8>,
    json: Vec<u8>,
    /// The JSON with white space, if that is measured too.
    indented: Option<Vec<u8>>,
    /// Path of a part that is read without the rest.
    path: Option<String>,
}

/// A type of a compared crate that reads and writes both SSZ and JSON.
trait PeerSszJsonCodec: PeerSszCodec + Serialize + DeserializeOwned {}

impl<T: PeerSszCodec + Serialize + DeserializeOwned> PeerSszJsonCodec for T {}

/// Usual maximum bytes of a block in SSZ.
const USUAL: usize = 150_000;

/// Measures a SignedBeaconBlock, and the same block without its longest transactions if it
/// exceeds the usual size.
pub fn measure_block_codecs(
    json: &Tree,
    plan: MeasurementPlan,
) -> Result<Vec<OperationMeasurements>, Box<dyn Error>> {
    let mut block: libssz::SignedBeaconBlock = serde_json::from_value(json.clone())?;
    let mut groups = measure_block(&block, "as it is", plan)?;
    let payload = &mut block.message.body.execution_payload;
    let mut transactions = std::mem::take(&mut payload.transactions).into_inner();
    let mut left: Vec<usize> = transactions.iter().map(|one| one.len()).collect();
    left.sort_unstable();
    let mut longest = 0;
    let mut budget = USUAL.saturating_sub(block.encode_ssz().len());
    for len in left {
        budget = budget.saturating_sub(len + 4);
        if budget == 0 {
            break;
        }
        longest = len;
    }
    transactions.retain(|one| one.len() <= longest);
    block.message.body.execution_payload.transactions = transactions.try_into()?;
    groups.extend(measure_block(&block, "of a usual length", plan)?);
    Ok(groups)
}

fn measure_block(
    block: &libssz::SignedBeaconBlock,
    which: &str,
    plan: MeasurementPlan,
) -> Result<Vec<OperationMeasurements>, Box<dyn Error>> {
    let (schema, ty) = resolve_peer_type("SignedBeaconBlock");
    let subject = BenchmarkInputValue {
        value: format!("SignedBeaconBlock, {which}"),
        validators: 0,
        schema,
        ty,
        ssz: block.encode_ssz(),
        // the peers' order of fields equals the order of the specs
        json: JsonLibrary::SerdeJson.serialize_to_json(block)?,
        indented: Some(serde_json::to_vec_pretty(block)?),
        path: None,
    };
    subject.measure_formats::<
        libssz::SignedBeaconBlock,
        ethereum_ssz::SignedBeaconBlock,
        ssz_rs::SignedBeaconBlock,
    >(plan)
}

/// Measures a BeaconState with this number of validators.
pub fn measure_beacon_state(
    validators: usize,
    plan: MeasurementPlan,
) -> Result<Vec<OperationMeasurements>, Box<dyn Error>> {
    let (schema, ty) = resolve_peer_type("BeaconState");
    let ssz = state::generate_state_ssz(validators)?;
    let subject = BenchmarkInputValue {
        value: "BeaconState".into(),
        validators,
        schema,
        ty,
        json: JsonLibrary::SerdeJson.serialize_to_json(&libssz::BeaconState::decode_ssz(&ssz)?)?,
        ssz,
        indented: None,
        path: Some(format!("validators[{}].pubkey", validators / 2)),
    };
    subject.measure_formats::<libssz::BeaconState, ethereum_ssz::BeaconState, ssz_rs::BeaconState>(
        plan,
    )
}

impl BenchmarkInputValue {
    fn measure_formats<L: PeerSszJsonCodec, E: PeerSszJsonCodec, R: PeerSszCodec>(
        &self,
        plan: MeasurementPlan,
    ) -> Result<Vec<OperationMeasurements>, Box<dyn Error>> {
        self.verify_equal_outputs::<L, E, R>()?;
        let mut groups = vec![self.measure_group("JSON to SSZ", &self.json, plan, {
            self.to_ssz::<L, E>(&self.json)
        })];
        if let Some(indented) = &self.indented {
            let cases = self.to_ssz::<L, E>(indented);
            groups.push(self.measure_group("indented JSON to SSZ", indented, plan, cases));
        }
        let cases = self.to_json::<L, E>();
        groups.push(self.measure_group("SSZ to JSON", &self.ssz, plan, cases));
        let cases = self.build_check_cases::<L, E, R>();
        groups.push(self.measure_group("check", &self.ssz, plan, cases));
        let (mut libssz, mut ethereum_ssz, mut ssz_rs) = self.decoded_values::<L, E, R>()?;
        let cases = vec![
            MeasuredImplementation::new("libssz", || libssz.encode_ssz()),
            MeasuredImplementation::new("ethereum_ssz", || ethereum_ssz.encode_ssz()),
            MeasuredImplementation::new("ssz_rs", || ssz_rs.encode_ssz()),
        ];
        groups.push(self.measure_group("encode", &self.ssz, plan, cases));
        let cases = vec![
            MeasuredImplementation::new(OURS, || hash_tree_root(self.schema, self.ty, &self.ssz)),
            MeasuredImplementation::new("libssz", || libssz.hash_root()),
            MeasuredImplementation::new("ethereum_ssz", || ethereum_ssz.hash_root()),
            MeasuredImplementation::new("ssz_rs", || ssz_rs.hash_root()),
        ];
        groups.push(self.measure_group("hash_tree_root", &self.ssz, plan, cases));
        if let Some(path) = &self.path {
            locate_value_at_path(self.schema, self.ty, &self.ssz, path)?;
            let whole = self.build_check_cases::<L, E, R>().into_iter().skip(1);
            let part = MeasuredImplementation::new(OURS, || {
                locate_value_at_path(self.schema, self.ty, &self.ssz, path)
            });
            let cases = std::iter::once(part).chain(whole).collect();
            groups.push(self.measure_group("one part", &self.ssz, plan, cases));
        }
        Ok(groups)
    }

    fn measure_group(
        &self,
        operation: &'static str,
        input: &[u8],
        plan: MeasurementPlan,
        cases: Vec<MeasuredImplementation>,
    ) -> OperationMeasurements {
        eprintln!("{} {}, {operation}", self.value, self.validators);
        OperationMeasurements {
            value: self.value.clone(),
            operation,
            validators: self.validators,
            bytes_in: input.len(),
            ways: measure_all_cases(cases, plan),
        }
    }

    fn to_ssz<'c, L: PeerSszJsonCodec, E: PeerSszJsonCodec>(
        &'c self,
        json: &'c [u8],
    ) -> Vec<MeasuredImplementation<'c>> {
        let mut cases = vec![MeasuredImplementation::new(OURS, || {
            json_to_ssz(self.schema, self.ty, json)
        })];
        for serde in JsonLibrary::ALL {
            let name = |peer| format!("{serde}, {peer}");
            cases.push(MeasuredImplementation::new(name("libssz"), move || {
                serde
                    .parse_peer_json::<L>(json)
                    .map(|value| value.encode_ssz())
            }));
            cases.push(MeasuredImplementation::new(
                name("ethereum_ssz"),
                move || {
                    serde
                        .parse_peer_json::<E>(json)
                        .map(|value| value.encode_ssz())
                },
            ));
        }
        cases
    }

    fn to_json<L: PeerSszJsonCodec, E: PeerSszJsonCodec>(&self) -> Vec<MeasuredImplementation<'_>> {
        let mut cases = vec![
            MeasuredImplementation::new(OURS, || ssz_to_json(self.schema, self.ty, &self.ssz)),
            MeasuredImplementation::new(IN_PIECES, || self.write_json_in_pieces()),
        ];
        for serde in JsonLibrary::ALL {
            let name = |peer| format!("{peer}, {serde}");
            cases.push(MeasuredImplementation::new(name("libssz"), move || {
                L::decode_ssz(&self.ssz).map(|value| serde.serialize_to_json(&value))
            }));
            cases.push(MeasuredImplementation::new(
                name("ethereum_ssz"),
                move || E::decode_ssz(&self.ssz).map(|value| serde.serialize_to_json(&value)),
            ));
        }
        cases
    }

    /// Writes JSON into one buffer repeatedly, as for a client; returns the number of bytes.
    fn write_json_in_pieces(&self) -> Result<usize, ssz::SszError> {
        let mut writer = SszToJson::new(self.schema, self.ty, &self.ssz)?;
        let mut room = vec![0; 64 << 10];
        let mut all = 0;
        loop {
            match std::hint::black_box(writer.write_next(&mut room)?) {
                0 => return Ok(all),
                len => all += len,
            }
        }
    }

    /// Returns the cases of a check; the peers decode.
    fn build_check_cases<L: PeerSszJsonCodec, E: PeerSszJsonCodec, R: PeerSszCodec>(
        &self,
    ) -> Vec<MeasuredImplementation<'_>> {
        vec![
            MeasuredImplementation::new(OURS, || check_ssz(self.schema, self.ty, &self.ssz)),
            MeasuredImplementation::new("libssz", || L::decode_ssz(&self.ssz)),
            MeasuredImplementation::new("ethereum_ssz", || E::decode_ssz(&self.ssz)),
            MeasuredImplementation::new("ssz_rs", || R::decode_ssz(&self.ssz)),
        ]
    }

    fn decoded_values<L: PeerSszCodec, E: PeerSszCodec, R: PeerSszCodec>(
        &self,
    ) -> Result<(L, E, R), String> {
        Ok((
            L::decode_ssz(&self.ssz)?,
            E::decode_ssz(&self.ssz)?,
            R::decode_ssz(&self.ssz)?,
        ))
    }

    /// Checks, before any measurement, that all implementations have the same output.
    fn verify_equal_outputs<L: PeerSszJsonCodec, E: PeerSszJsonCodec, R: PeerSszCodec>(
        &self,
    ) -> Result<(), Box<dyn Error>> {
        let same = |output: &str, one: &[u8], other: &[u8]| match one == other {
            true => Ok(()),
            false => Err(format!("{}: {output} of two coders differs", self.value)),
        };
        check_ssz(self.schema, self.ty, &self.ssz)?;
        let ours = json_to_ssz(self.schema, self.ty, &self.json)?;
        same("our SSZ", &ours, &self.ssz)?;
        if let Some(indented) = &self.indented {
            let ours = json_to_ssz(self.schema, self.ty, indented)?;
            same("our SSZ of indented JSON", &ours, &self.ssz)?;
        }
        let ours = ssz_to_json(self.schema, self.ty, &self.ssz)?;
        same("our JSON", &ours, &self.json)?;
        assert_eq!(self.write_json_in_pieces()?, ours.len());
        let root = hash_tree_root(self.schema, self.ty, &self.ssz)?;
        let (mut libssz, mut ethereum_ssz, mut ssz_rs) = self.decoded_values::<L, E, R>()?;
        same("the SSZ of ssz_rs", &ssz_rs.encode_ssz(), &self.ssz)?;
        same("the root of libssz", &libssz.hash_root(), &root)?;
        same("the root of ethereum_ssz", &ethereum_ssz.hash_root(), &root)?;
        same("the root of ssz_rs", &ssz_rs.hash_root(), &root)?;
        for serde in JsonLibrary::ALL {
            let ssz = serde.parse_peer_json::<L>(&self.json)?.encode_ssz();
            same("the SSZ of libssz", &ssz, &self.ssz)?;
            let ssz = serde.parse_peer_json::<E>(&self.json)?.encode_ssz();
            same("the SSZ of ethereum_ssz", &ssz, &self.ssz)?;
            same(
                "the JSON of libssz",
                &serde.serialize_to_json(&libssz)?,
                &self.json,
            )?;
            let json = serde.serialize_to_json(&ethereum_ssz)?;
            same("the JSON of ethereum_ssz", &json, &self.json)?;
        }
        Ok(())
    }
}
