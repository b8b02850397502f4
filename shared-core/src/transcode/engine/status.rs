//! The status of a payload with its witness: JSON-RPC's has both in one object, the
//! route's has a status and a witness beside it. Their parts are the same bytes.

use crate::ssz::schema::OFFSET;

/// So much room is left before the SSZ of JSON-RPC's, for the route's is longer.
pub const LEAD: usize = OFFSET;

/// The status' own byte and the offsets of its two parts.
const STATUS: usize = 1 + 2 * OFFSET;

/// Makes the route's of what JSON-RPC's came to, behind [`LEAD`] bytes. `None`: it is
/// none, and is as it was.
pub fn nest(ssz: &mut [u8]) -> Option<()> {
    let (head, parts) = ssz.split_at_mut_checked(2 * OFFSET + STATUS)?;
    let offset = |at: usize| -> Option<usize> {
        let bytes = head.get(LEAD + at..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let begin = STATUS + OFFSET;
    let (hash, error) = (offset(1)?, offset(1 + OFFSET)?);
    let witness = offset(1 + 2 * OFFSET)?;
    let is_whole = hash == begin && hash <= error && error <= witness;
    if !is_whole || witness - begin > parts.len() {
        return None;
    }
    let status = head[LEAD];
    // all parts stay where they are; what they are counted from has moved
    let fields = [
        (0, 2 * OFFSET),
        (OFFSET, witness + LEAD),
        (2 * OFFSET + 1, STATUS),
        (2 * OFFSET + 1 + OFFSET, error - OFFSET),
    ];
    for (at, offset) in fields {
        let bytes = u32::try_from(offset).ok()?.to_le_bytes();
        head[at..at + OFFSET].copy_from_slice(&bytes);
    }
    head[2 * OFFSET] = status;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::{nest, LEAD};
    use crate::ssz::{check, to_json, to_ssz, Fork, Preset, Schema};

    const WITNESS: &str = "0xcdc1c0c7821234837890abc281ff";

    #[test]
    fn both_have_the_same_parts() {
        let schema = Schema::of(Fork::Phase0, Preset::Mainnet);
        let flat = schema.find("NewPayloadWithWitness").unwrap();
        let nested = schema.find("PayloadStatusWithWitness").unwrap();
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
            let ssz = to_ssz(schema, flat, json.as_bytes()).unwrap();
            let mut made = [&[0; LEAD][..], &ssz].concat();
            nest(&mut made).unwrap();
            check(schema, nested, &made).unwrap();
            let text = String::from_utf8(to_json(schema, nested, &made).unwrap()).unwrap();
            let lists = match witness {
                "null" => "null",
                _ => r#"{"state":["0xff"],"codes":["0x1234","0x7890ab"],"headers":["0xc0"]}"#,
            };
            assert_eq!(
                text,
                format!("{{\"payloadStatus\":{{{status}}},\"witness\":{lists}}}")
            );
        }
    }

    #[test]
    fn what_is_none_stays() {
        let zeros = [0; 40];
        for wrong in [
            vec![],
            vec![1; 16],
            vec![0; 40],
            [&zeros[..5], &[13], &zeros[..20]].concat(),
        ] {
            let mut ssz = wrong.clone();
            assert_eq!(nest(&mut ssz), None);
            assert_eq!(ssz, wrong);
        }
    }
}
