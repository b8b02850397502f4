//! The status of a payload with its witness. JSON-RPC has both in one object, the route nests the
//! status and has the witness next to it. The parts consist of the same bytes.

use crate::ssz::schema::OFFSET_LENGTH;
use crate::ssz::{self, check_ssz, locate_value_at_path, Preset, Schema, SszToJson};
use crate::transcode::error::TranscodeError;
use crate::transcode::format::BodyFormat;
use crate::transcode::values::{estimated_json_length, write_remaining_json, ReserveCallback};

/// Bytes that are reserved before the SSZ of JSON-RPC's type, because the route's type is longer.
pub const RESERVED_BYTES: usize = OFFSET_LENGTH;

/// Length of the fixed part of the route's status: one byte and the offsets of two parts.
const STATUS_FIXED_LENGTH: usize = 1 + 2 * OFFSET_LENGTH;

/// Converts the SSZ of JSON-RPC's type, which begins after [`RESERVED_BYTES`] bytes, to the route's
/// type in place. Returns `None` if the input is not valid; it is then unchanged.
pub fn payload_status_to_rest(ssz: &mut [u8]) -> Option<()> {
    let (head, parts) = ssz.split_at_mut_checked(2 * OFFSET_LENGTH + STATUS_FIXED_LENGTH)?;
    let offset = |at: usize| -> Option<usize> {
        let bytes = head.get(RESERVED_BYTES + at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let begin = STATUS_FIXED_LENGTH + OFFSET_LENGTH;
    let (hash, error) = (offset(1)?, offset(1 + OFFSET_LENGTH)?);
    let witness = offset(1 + 2 * OFFSET_LENGTH)?;
    let is_whole = hash == begin && hash <= error && error <= witness;
    if !is_whole || witness - begin > parts.len() {
        return None;
    }
    let status = head[RESERVED_BYTES];
    // all parts stay in place; the positions from which their offsets count have moved
    let fields = [
        (0, 2 * OFFSET_LENGTH),
        (OFFSET_LENGTH, witness + RESERVED_BYTES),
        (2 * OFFSET_LENGTH + 1, STATUS_FIXED_LENGTH),
        (2 * OFFSET_LENGTH + 1 + OFFSET_LENGTH, error - OFFSET_LENGTH),
    ];
    for (at, offset) in fields {
        let bytes = u32::try_from(offset).ok()?.to_le_bytes();
        head[at..at + OFFSET_LENGTH].copy_from_slice(&bytes);
    }
    head[2 * OFFSET_LENGTH] = status;
    Some(())
}

/// Converts the SSZ of a REST response to the result of the client's call: in SSZ, or in a JSON-RPC
/// response with the given id.
///
/// # Errors
/// The input is not valid, or memory is refused.
pub fn payload_status_to_result(
    preset: Preset,
    id: &[u8],
    format: BodyFormat,
    ssz: &[u8],
    may_take: ReserveCallback<'_>,
) -> Result<Vec<u8>, TranscodeError> {
    // these types are the same in every fork of the consensus layer
    let schema = Schema::for_fork(ssz::Fork::Phase0, preset);
    let first = ssz.first_chunk().copied().map(u32::from_le_bytes);
    let name = match first.and_then(|first| usize::try_from(first).ok()) {
        // has a key for each transaction, too, which the call's result lacks
        Some(first) if first == 3 * OFFSET_LENGTH => "PayloadStatusWithWitnessAndKeys",
        _ => "PayloadStatusWithWitness",
    };
    let ty = schema.find_type(name).ok_or(TranscodeError::Failed)?;
    check_ssz(schema, ty, ssz)?;
    let (status_type, status) = locate_value_at_path(schema, ty, ssz, "payload_status")?;
    let (_, witness) = locate_value_at_path(schema, ty, ssz, "witness")?;
    let (status, witness) = (&ssz[status], &ssz[witness]);
    let mut result = Vec::new();
    let reserve =
        |result: &mut Vec<u8>, more| result.try_reserve(more).map_err(|_| TranscodeError::Memory);
    if format == BodyFormat::Ssz {
        reserve(&mut result, OFFSET_LENGTH + status.len() + witness.len())?;
        let (head, parts) = status
            .split_at_checked(STATUS_FIXED_LENGTH)
            .ok_or(TranscodeError::Failed)?;
        let offset = |at: usize| -> Option<u32> {
            let bytes = head.get(at..)?.first_chunk()?;
            u32::from_le_bytes(*bytes).checked_add(OFFSET_LENGTH as u32)
        };
        result.push(head[0]);
        for offset in [
            offset(1),
            offset(1 + OFFSET_LENGTH),
            u32::try_from(status.len() + OFFSET_LENGTH).ok(),
        ] {
            result.extend_from_slice(&offset.ok_or(TranscodeError::Failed)?.to_le_bytes());
        }
        result.extend_from_slice(parts);
        result.extend_from_slice(witness);
        return Ok(result);
    }
    let likely = estimated_json_length(ssz.len() as u64).saturating_add(id.len());
    if !may_take(likely) {
        return Err(TranscodeError::Memory);
    }
    reserve(&mut result, likely)?;
    for part in [b"{\"jsonrpc\":\"2.0\",\"id\":", id, b",\"result\":"] {
        result.extend_from_slice(part);
    }
    write_remaining_json(
        SszToJson::new(schema, status_type, status)?,
        &mut result,
        may_take,
    )?;
    // the members of the status are members of the result
    result.pop();
    result.extend_from_slice(b",\"witness\":");
    let ty = schema
        .find_type("OptionalRlpWitness")
        .ok_or(TranscodeError::Failed)?;
    write_remaining_json(
        SszToJson::new(schema, ty, witness)?.with_empty_witness_keys(),
        &mut result,
        may_take,
    )?;
    reserve(&mut result, 2)?;
    result.extend_from_slice(b"}}");
    Ok(result)
}

/// Returns the response to a call whose versioned hashes do not match its payload's blobs: the
/// payload is invalid (execution-apis, src/engine/cancun.md).
pub fn blob_mismatch_result(id: &[u8]) -> Vec<u8> {
    const RESULT: &[u8] = b",\"result\":{\"status\":\"INVALID\",\"latestValidHash\":null,\
        \"validationError\":\"the versioned hashes are not those of the payload's transactions\"}}";
    [b"{\"jsonrpc\":\"2.0\",\"id\":", id, RESULT].concat()
}

#[cfg(test)]
mod tests {
    use super::{payload_status_to_rest, RESERVED_BYTES};
    use crate::ssz::{check_ssz, json_to_ssz, ssz_to_json, Fork, Preset, Schema};
    use crate::transcode::{BodyFormat, TranscodeError};

    const KEYS: &str = "0xcec1c0c7821234837890abc281ffc0";
    const WITNESS: &str = "0xcdc1c0c7821234837890abc281ff";

    fn route_status_to_result(
        preset: Preset,
        id: &[u8],
        format: BodyFormat,
        ssz: &[u8],
    ) -> Result<Vec<u8>, TranscodeError> {
        super::payload_status_to_result(preset, id, format, ssz, &mut |_| true)
    }

    #[test]
    fn status_with_witness_is_converted_in_both_directions() {
        let schema = Schema::for_fork(Fork::Phase0, Preset::Mainnet);
        let flat = schema.find_type("NewPayloadWithWitness").unwrap();
        let nested = schema.find_type("PayloadStatusWithWitness").unwrap();
        let hash = format!("\"0x{}\"", "5a".repeat(32));
        for (hash, error, witness) in [
            ("null", "null", "null"),
            (&*hash, "null", "null"),
            ("null", "\"no\"", "null"),
            (&*hash, "\"\"", &format!("\"{WITNESS}\"")),
        ] {
            let status =
                format!(r#""status":"INVALID","latestValidHash":{hash},"validationError":{error}"#);
            let json = format!("{{{status},\"witness\":{witness}}}");
            let ssz = json_to_ssz(schema, flat, json.as_bytes()).unwrap();
            let mut made = [&[0; RESERVED_BYTES][..], &ssz].concat();
            payload_status_to_rest(&mut made).unwrap();
            check_ssz(schema, nested, &made).unwrap();
            let text = String::from_utf8(ssz_to_json(schema, nested, &made).unwrap()).unwrap();
            let lists = match witness {
                "null" => "null",
                _ => r#"{"state":["0xff"],"codes":["0x1234","0x7890ab"],"headers":["0xc0"]}"#,
            };
            assert_eq!(
                text,
                format!("{{\"payloadStatus\":{{{status}}},\"witness\":{lists}}}")
            );
            // and back, with keys as a fourth list
            let back =
                |format| route_status_to_result(Preset::Mainnet, b"7", format, &made).unwrap();
            assert_eq!(back(BodyFormat::Ssz), ssz);
            let witness = witness.replace("0xcdc1c0c7821234837890abc281ff", KEYS);
            let json = format!("{{{status},\"witness\":{witness}}}");
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{json}}}");
            assert_eq!(String::from_utf8(back(BodyFormat::Json)).unwrap(), answer);
            // the keys of transactions are omitted
            let begin = u32::from_le_bytes(made[4..8].try_into().unwrap());
            let offsets = [12, begin + 4, made.len() as u32 + 4].map(u32::to_le_bytes);
            let keyed = [&offsets.concat(), &made[8..], &[4; 2 * 65]].concat();
            assert_eq!(
                route_status_to_result(Preset::Mainnet, b"7", BodyFormat::Ssz, &keyed),
                Ok(ssz.clone())
            );
            for wrong in [&made[1..], b"", &keyed[..keyed.len() - 1]] {
                for format in [BodyFormat::Json, BodyFormat::Ssz] {
                    assert!(route_status_to_result(Preset::Mainnet, b"7", format, wrong).is_err());
                }
            }
        }
    }

    #[test]
    fn invalid_status_is_left_unchanged() {
        let zeros = [0; 40];
        for wrong in [
            vec![],
            vec![1; 16],
            vec![0; 40],
            [&zeros[..5], &[13], &zeros[..20]].concat(),
        ] {
            let mut ssz = wrong.clone();
            assert_eq!(payload_status_to_rest(&mut ssz), None);
            assert_eq!(ssz, wrong);
        }
    }
}
