//! `light_client/updates`: not one SSZ value, but a list of updates (beacon-APIs), each with its
//! own fork. JSON has `[{"version", "data"}, ...]`. SSZ has for each update its length, four bytes
//! that identify its fork (`ForkDigest`), and the update. The length is a `uint64` and counts the
//! digest.
//!
//! A node sends at most 128 updates, of some 60 KB of JSON each, so they are converted when all of
//! them are present.

use super::chain_spec::{ForkDigests, PresetAndForkDigests};
use super::error::TranscodeError;
use super::values::{find_type_in_fork, parse_fork, write_ssz_as_json, ReserveCallback};
use crate::jsonrpc::scan::{JsonScanError, StrictJsonReader};
use crate::ssz::{
    locate_value_at_path, read_envelope_version, Fork, JsonEnvelopeForm, JsonToSsz, Preset, Schema,
    SszError, TypeId,
};

/// Name of the type of an update.
pub(super) const UPDATE_TYPE: &str = "LightClientUpdate";

const LENGTH_BYTES: usize = 8;
const DIGEST_BYTES: usize = 4;

/// Converts a list of light client updates from JSON to SSZ, of at most `most` bytes.
pub(super) fn updates_to_ssz(
    chain: &PresetAndForkDigests,
    most: u64,
    json: &[u8],
) -> Result<Vec<u8>, TranscodeError> {
    let digests = known_digests(chain)?;
    let mut octets = Vec::new();
    let mut scanner = StrictJsonReader::for_untrusted_text(json).map_err(update_list_error)?;
    let mut is_another = scanner.enter_array().map_err(update_list_error)?;
    let mut number = 0_u64;
    while is_another {
        let span = scanner.skip_value().map_err(update_list_error)?.span;
        let update = convert_update(chain.preset, digests, &json[span]);
        let (digest, update) = update.map_err(|why| error_in_update(why, number))?;
        let length = DIGEST_BYTES + update.len();
        if octets.len() as u64 + (LENGTH_BYTES + length) as u64 > most {
            return Err(TranscodeError::Length(most));
        }
        let room = octets.try_reserve(LENGTH_BYTES + length);
        room.map_err(|_| TranscodeError::Memory)?;
        octets.extend_from_slice(&(length as u64).to_le_bytes());
        octets.extend_from_slice(&digest);
        octets.extend_from_slice(&update);
        is_another = scanner.next_element().map_err(update_list_error)?;
        number += 1;
    }
    scanner.expect_end().map_err(update_list_error)?;
    Ok(octets)
}

/// Converts one light client update from JSON to SSZ, and returns it with the digest of its fork.
fn convert_update(
    preset: Preset,
    digests: &ForkDigests,
    json: &[u8],
) -> Result<([u8; DIGEST_BYTES], Vec<u8>), TranscodeError> {
    // may be before or after the value
    let version = read_envelope_version(json)?.ok_or(TranscodeError::NoVersion)?;
    let fork = parse_fork(version.as_bytes())?;
    let (schema, ty) = find_type_in_fork(UPDATE_TYPE, fork, preset)?;
    let mut reader = JsonToSsz::new(schema, ty, JsonEnvelopeForm::Enveloped);
    reader.feed_json_piece(json)?;
    let update = reader.finish()?;
    let slot = attested_slot(schema, ty, &update).ok_or(TranscodeError::Failed)?;
    match digests.digest_at_slot(slot) {
        Some((of, digest)) if of == fork => Ok((digest, update)),
        _ => Err(TranscodeError::ForkNotActive(fork, slot)),
    }
}

/// Reads the slot of the attested header, which determines the fork of an update.
fn attested_slot(schema: &Schema, ty: TypeId, update: &[u8]) -> Option<u64> {
    let (_, range) =
        locate_value_at_path(schema, ty, update, "attested_header.beacon.slot").ok()?;
    let slot = update.get(range)?.first_chunk()?;
    Some(u64::from_le_bytes(*slot))
}

/// Converts a list of light client updates from SSZ to JSON.
pub(super) fn updates_to_json(
    chain: &PresetAndForkDigests,
    octets: &[u8],
    may_take: ReserveCallback<'_>,
) -> Result<Vec<u8>, TranscodeError> {
    let digests = known_digests(chain)?;
    let mut body = Vec::new();
    body.try_reserve(octets.len())
        .map_err(|_| TranscodeError::Memory)?;
    body.push(b'[');
    let (mut rest, mut number) = (octets, 0_u64);
    while !rest.is_empty() {
        let at = octets.len() - rest.len();
        let wrong = |why: &str| {
            TranscodeError::Invalid(SszError::from_message(at, why).prepend_element(number))
        };
        let (length, after) = rest
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or_else(|| wrong("the input ends within the length of an update"))?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok();
        let (item, after) = length
            .and_then(|length| after.split_at_checked(length))
            .ok_or_else(|| wrong("an update is longer than the rest of the input"))?;
        let (digest, update) = item
            .split_first_chunk::<DIGEST_BYTES>()
            .ok_or_else(|| wrong("an update has no fork digest"))?;
        let fork = digests
            .fork_of_digest(*digest)
            .ok_or(TranscodeError::Digest(*digest))?;
        let (schema, ty) = find_type_in_fork(UPDATE_TYPE, fork, chain.preset)?;
        begin_update_envelope(&mut body, fork, number > 0)?;
        let written = write_ssz_as_json(schema, ty, update, &mut body, may_take);
        written.map_err(|why| error_in_update(why, number))?;
        // write_json leaves room for one byte
        body.push(b'}');
        rest = after;
        number += 1;
    }
    body.try_reserve(1).map_err(|_| TranscodeError::Memory)?;
    body.push(b']');
    Ok(body)
}

/// Appends the beginning of an update's envelope, which names its fork; `follows` is whether an
/// update precedes it.
fn begin_update_envelope(
    body: &mut Vec<u8>,
    fork: Fork,
    follows: bool,
) -> Result<(), TranscodeError> {
    let comma = if follows { "," } else { "" };
    let begin = format!("{comma}{{\"version\":\"{fork}\",\"data\":");
    body.try_reserve(begin.len())
        .map_err(|_| TranscodeError::Memory)?;
    body.extend_from_slice(begin.as_bytes());
    Ok(())
}

fn known_digests(chain: &PresetAndForkDigests) -> Result<&ForkDigests, TranscodeError> {
    chain.digests.as_deref().ok_or(TranscodeError::NoDigests)
}

fn update_list_error(error: JsonScanError) -> TranscodeError {
    TranscodeError::Invalid(SszError::from_message(error.offset, "not a JSON array"))
}

/// Adds the number of the update to the path of an invalid value's error; other errors stay
/// unchanged.
fn error_in_update(why: TranscodeError, number: u64) -> TranscodeError {
    match why {
        TranscodeError::Invalid(error) => TranscodeError::Invalid(error.prepend_element(number)),
        why => why,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{json, Value};

    use super::{updates_to_ssz, PresetAndForkDigests, TranscodeError};
    use crate::ssz::{Fork, Preset};
    use crate::transcode::chain_spec::NodeChainSpec;

    fn updates_to_json(
        chain: &PresetAndForkDigests,
        octets: &[u8],
    ) -> Result<Vec<u8>, TranscodeError> {
        super::updates_to_json(chain, octets, &mut |_| true)
    }

    const FORKS: [&str; 3] = ["altair", "capella", "fulu"];

    /// Altair at epoch 1, capella at 2, fulu at 3, another blob limit at 4.
    fn chain() -> PresetAndForkDigests {
        let spec = json!({"data": {
            "PRESET_BASE": "minimal", "GENESIS_FORK_VERSION": "0x00000001",
            "ALTAIR_FORK_VERSION": "0x01000001", "ALTAIR_FORK_EPOCH": "1",
            "BELLATRIX_FORK_VERSION": "0x02000001", "BELLATRIX_FORK_EPOCH": "2",
            "CAPELLA_FORK_VERSION": "0x03000001", "CAPELLA_FORK_EPOCH": "2",
            "DENEB_FORK_VERSION": "0x04000001", "DENEB_FORK_EPOCH": "3",
            "ELECTRA_FORK_VERSION": "0x05000001", "ELECTRA_FORK_EPOCH": "3",
            "FULU_FORK_VERSION": "0x06000001", "FULU_FORK_EPOCH": "3",
            "MAX_BLOBS_PER_BLOCK_ELECTRA": "9",
            "BLOB_SCHEDULE": [{"EPOCH": "4", "MAX_BLOBS_PER_BLOCK": "15"}],
        }});
        let forks = NodeChainSpec::parse_spec_body(spec.to_string().as_bytes())
            .unwrap()
            .forks;
        PresetAndForkDigests {
            preset: Preset::Minimal,
            digests: Some(Arc::new(forks.unwrap().compute_digests(&[7; 32]).unwrap())),
        }
    }

    /// An update of zeros, at a slot; epochs have eight slots.
    fn update(fork: &str, slot: u64) -> Value {
        let mut data = default_of(fork);
        data["attested_header"]["beacon"]["slot"] = json!(slot.to_string());
        json!({"version": fork, "data": data})
    }

    fn default_of(fork: &str) -> Value {
        let zeros = |bytes: usize| json!(format!("0x{}", "00".repeat(bytes)));
        let nodes = |count: usize| vec![zeros(32); count];
        let beacon = json!({"slot": "0", "proposer_index": "0", "parent_root": zeros(32),
            "state_root": zeros(32), "body_root": zeros(32)});
        let execution = json!({"parent_hash": zeros(32), "fee_recipient": zeros(20),
            "state_root": zeros(32), "receipts_root": zeros(32), "logs_bloom": zeros(256),
            "prev_randao": zeros(32), "block_number": "0", "gas_limit": "0", "gas_used": "0",
            "timestamp": "0", "extra_data": "0x01", "base_fee_per_gas": "0",
            "block_hash": zeros(32), "transactions_root": zeros(32),
            "withdrawals_root": zeros(32), "blob_gas_used": "0", "excess_blob_gas": "0"});
        let is_late = fork.parse::<Fork>().unwrap() >= Fork::Electra;
        let mut execution = execution;
        if fork == "capella" {
            execution
                .as_object_mut()
                .unwrap()
                .retain(|name, _| !name.contains("blob"));
        }
        let header = match fork {
            "altair" => json!({"beacon": beacon}),
            _ => json!({"beacon": beacon, "execution": execution, "execution_branch": nodes(4)}),
        };
        let (committee_depth, finality_depth) = if is_late { (6, 7) } else { (5, 6) };
        json!({
            "attested_header": header, "finalized_header": header,
            "next_sync_committee": {"pubkeys": vec![zeros(48); 32], "aggregate_pubkey": zeros(48)},
            "next_sync_committee_branch": nodes(committee_depth),
            "finality_branch": nodes(finality_depth),
            "sync_aggregate": {"sync_committee_bits": zeros(4), "sync_committee_signature": zeros(96)},
            "signature_slot": "1",
        })
    }

    fn octets(json: &Value) -> Result<Vec<u8>, TranscodeError> {
        updates_to_ssz(&chain(), 1 << 20, json.to_string().as_bytes())
    }

    #[test]
    fn updates_are_unchanged_after_conversion_to_ssz_and_back() {
        let slots = [
            (FORKS[0], 15),
            (FORKS[1], 16),
            (FORKS[2], 24),
            (FORKS[2], 40),
        ];
        let json = Value::Array(
            slots
                .iter()
                .map(|(fork, slot)| update(fork, *slot))
                .collect(),
        );
        let octets = octets(&json).unwrap();
        let again: Value =
            serde_json::from_slice(&updates_to_json(&chain(), &octets).unwrap()).unwrap();
        assert!(again == json, "{again}");
        // the two updates of fulu have different digests
        let mut digests = Vec::new();
        let mut rest = &octets[..];
        while let Some((length, after)) = rest.split_first_chunk() {
            let (item, after) = after.split_at(u64::from_le_bytes(*length) as usize);
            digests.push(item[..4].to_vec());
            rest = after;
        }
        assert_eq!(digests.len(), 4);
        assert_ne!(digests[2], digests[3]);
        assert_eq!(updates_to_ssz(&chain(), 0, b" [ ] "), Ok(Vec::new()));
        assert_eq!(updates_to_json(&chain(), b""), Ok(b"[]".to_vec()));
    }

    #[test]
    fn version_is_accepted_last_and_must_match_the_slot() {
        let last = update("altair", 9).to_string();
        assert!(last.starts_with("{\"data\""), "{last}");
        assert!(updates_to_ssz(&chain(), 1 << 20, format!("[{last}]").as_bytes()).is_ok());
        for (fork, slot) in [("altair", 7), ("altair", 16), ("capella", 15), ("fulu", 23)] {
            let json = json!([update("altair", 8), update(fork, slot)]);
            let expected = TranscodeError::ForkNotActive(fork.parse().unwrap(), slot);
            assert_eq!(octets(&json), Err(expected), "{fork} at {slot}");
        }
    }

    #[test]
    fn invalid_updates_are_reported_with_their_position() {
        let good = update("altair", 9);
        let mut without = good.clone();
        without["data"]["signature_slot"].take();
        let invalid = |json: &Value| match octets(json) {
            Err(TranscodeError::Invalid(error)) => error.to_string(),
            other => panic!("{other:?}"),
        };
        let message = invalid(&json!([good, without]));
        assert!(
            message.starts_with("[1].data.signature_slot, "),
            "{message}"
        );
        for json in [
            json!({"data": [good]}),
            json!("x"),
            json!({"code": 500, "message": "m"}),
        ] {
            assert!(invalid(&json).contains("not a JSON array"));
        }
        let mut unnamed = good.clone();
        unnamed.as_object_mut().unwrap().remove("version");
        assert_eq!(octets(&json!([unnamed])), Err(TranscodeError::NoVersion));
        let mut unknown = good.clone();
        unknown["version"] = json!("osaka");
        assert_eq!(
            octets(&json!([unknown])),
            Err(TranscodeError::Fork("osaka".into()))
        );
        let text = json!([good]).to_string();
        for end in 0..text.len() {
            let cut = updates_to_ssz(&chain(), 1 << 20, &text.as_bytes()[..end]);
            assert!(
                matches!(cut, Err(TranscodeError::Invalid(_))),
                "{end}: {cut:?}"
            );
        }
        let length = octets(&json!([good])).unwrap().len() as u64;
        let most = |most| updates_to_ssz(&chain(), most, text.as_bytes());
        assert_eq!(most(length - 1), Err(TranscodeError::Length(length - 1)));
        assert!(most(length).is_ok());
        let unlearnt = PresetAndForkDigests {
            digests: None,
            ..chain()
        };
        assert_eq!(
            updates_to_ssz(&unlearnt, 1 << 20, b"[]"),
            Err(TranscodeError::NoDigests)
        );
        assert_eq!(
            updates_to_json(&unlearnt, b""),
            Err(TranscodeError::NoDigests)
        );
    }

    #[test]
    fn invalid_ssz_of_updates_is_rejected() {
        let whole = octets(&json!([update("altair", 9), update("fulu", 30)])).unwrap();
        let first = 8 + u64::from_le_bytes(*whole.first_chunk().unwrap()) as usize;
        for end in 1..whole.len() {
            let made = updates_to_json(&chain(), &whole[..end]);
            assert_eq!(made.is_ok(), end == first, "{end}");
        }
        let mut other = whole.clone();
        other[8] ^= 1;
        assert!(matches!(
            updates_to_json(&chain(), &other),
            Err(TranscodeError::Digest(_))
        ));
        for length in [0, 3, u64::MAX] {
            let made = updates_to_json(&chain(), &[&length.to_le_bytes()[..], &[0; 8]].concat());
            assert!(matches!(made, Err(TranscodeError::Invalid(_))), "{length}");
        }
    }
}
