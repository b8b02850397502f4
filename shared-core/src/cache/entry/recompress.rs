//! Entries coded a second time, harder, before they go to the disk.
//!
//! A fill is coded in the time of a request, at igzip's speed. What is asked
//! for again, and kept for long, is worth more. On 428 recorded answers libdeflate's
//! level 9 makes the coded bytes of level 1 smaller by 6 % (1 to 20 KB of plain
//! bytes), 14 % (20 to 100 KB), 15 % (up to 1 MB) and 9 % (witnesses), at 40 to
//! 47 MB/s. Level 8 is at most 0.6 % behind and up to 1.8 times as fast. Levels
//! 10 to 12 take 2 to 17 times as long, and 9 MB instead of 660 KB, for another
//! 0.4 to 2.6 %.

use super::wire::Head;
use crate::bytes::Bytes;
use crate::gzip::open::{open, Open};

/// libdeflate's level.
const LEVEL: u8 = 9;

/// The longest plain payload, in bytes: about 200 ms and 24 MB.
const LONGEST: u64 = 8 << 20;

/// Whether [`recompress`] may make something of an entry's bytes. Takes no time.
pub fn is_wanted(bytes: &[u8]) -> bool {
    Head::parse(bytes).is_some_and(|(head, _)| coded_once(&head).is_some())
}

/// Checksum and length of what may be coded again.
fn coded_once(head: &Head<'_>) -> Option<(u32, u64)> {
    let (crc, length) = head.coded?;
    (!head.recompressed && length <= LONGEST).then_some((crc, length))
}

/// Codes the payload of an entry's bytes again: another form of the same entry,
/// which says that it is one, so that it is done once. Its plain bytes stay the
/// same: what was coded is decoded again, and compared. It is as long as before
/// where coding does not make it smaller, and never longer. `None`: it is not
/// coded, too long, coded a second time already, or no sound entry of this
/// version; or there is no memory.
pub fn recompress(bytes: &[u8]) -> Option<Vec<u8>> {
    let (head, payload) = Head::parse(bytes)?;
    let (crc, length) = coded_once(&head)?;
    let coded = again(&Open::new(Bytes::copy_of(payload)?, crc, length))?;
    rewritten(head, &coded)
}

/// The shorter of a stream and its second coding.
fn again(before: &Open) -> Option<Open> {
    // checked against CRC and length
    let plain = before.inflate()?;
    let after = open(&plain, LEVEL)?;
    if after.bytes.len() >= before.bytes.len() {
        return Some(before.clone());
    }
    let is_same = (after.crc, after.length) == (before.crc, before.length)
        && after.inflate().as_ref() == Some(&plain);
    is_same.then_some(after)
}

fn rewritten(mut head: Head<'_>, coded: &Open) -> Option<Vec<u8>> {
    head.recompressed = true;
    let head = head.bytes()?;
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(head.len() + coded.bytes.len())
        .ok()?;
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&coded.bytes);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{is_wanted, recompress, LONGEST};
    use crate::cache::entry::wire::{decode, Encoded};
    use crate::cache::entry::{Entry, Envelope, Gate, IdPlace, Meta, Payload};

    fn result(length: usize) -> Vec<u8> {
        let mut text = String::from("\"0x");
        let mut state = 7u32;
        while text.len() < length {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            text += &format!("{:08x}000000000000", state >> 16);
        }
        (text + "\"").into_bytes()
    }

    fn entry(result: &[u8], level: u8) -> Entry {
        let envelope = Envelope {
            id: IdPlace::BeforeResult,
            before: b"{\"id\":"[..].into(),
            between: b",\"result\":"[..].into(),
            after: b"}"[..].into(),
        };
        let meta = Meta {
            status: 200,
            fields: vec![(b"content-type".to_vec(), b"application/json".to_vec())],
            block_number: Some(7),
            ..Meta::default()
        };
        let gate = Gate {
            min_length: 0,
            level,
        };
        Entry::code(envelope, result, gate, meta).unwrap()
    }

    fn bytes_of(entry: &Entry) -> Vec<u8> {
        Encoded::of(entry).unwrap().to_vec()
    }

    #[test]
    fn an_entry_gets_smaller_and_stays_the_same() {
        for length in [2_000, 50_000, 1_000_000] {
            let result = result(length);
            for entry in [entry(&result, 1), entry(&result, 1).unread()] {
                let bytes = bytes_of(&entry);
                assert!(is_wanted(&bytes));
                let again = recompress(&bytes).unwrap();
                assert!(again.len() < bytes.len(), "{length}");
                assert_eq!(again.len(), again.capacity());
                let read = decode(&again, 0, 0, 0).unwrap();
                assert_eq!(read.envelope(), entry.envelope());
                assert_eq!(read.meta().fields, entry.meta().fields);
                assert_eq!(read.meta().block_number, Some(7));
                assert_eq!(read.is_unread(), entry.is_unread());
                assert_eq!(read.length(b"12"), entry.length(b"12"));
                let Payload::Open(open) = read.payload() else {
                    panic!();
                };
                assert_eq!(open.inflate().unwrap(), result);
            }
        }
    }

    #[test]
    fn it_is_done_once() {
        let again = recompress(&bytes_of(&entry(&result(5_000), 1))).unwrap();
        assert!(!is_wanted(&again) && recompress(&again).is_none());
    }

    #[test]
    fn what_can_not_be_smaller_is_said_to_be_done() {
        let bytes = bytes_of(&entry(&result(5_000), 12));
        let again = recompress(&bytes).unwrap();
        assert_eq!(again.len(), bytes.len());
        assert_eq!(recompress(&again), None);
    }

    #[test]
    fn what_is_not_coded_or_no_entry_or_too_long_is_left() {
        for bytes in [
            bytes_of(&entry(b"\"0x1\"", 1)),
            bytes_of(&entry(&vec![b'0'; LONGEST as usize + 1], 1)),
            b"body".to_vec(),
            Vec::new(),
        ] {
            assert!(!is_wanted(&bytes) && recompress(&bytes).is_none());
        }
    }

    #[test]
    fn what_is_damaged_is_not_made_to_look_sound() {
        let entry = entry(&result(5_000), 1);
        let bytes = bytes_of(&entry);
        let head = Encoded::of(&entry).unwrap().head.len();
        for at in (head..bytes.len()).step_by(97) {
            let mut other = bytes.clone();
            other[at] ^= 0x10;
            // a bit that decodes to the same is no damage
            if let Some(again) = recompress(&other) {
                let read = decode(&again, 0, 0, 0).unwrap();
                let Payload::Open(open) = read.payload() else {
                    panic!();
                };
                assert_eq!(open.inflate().unwrap(), result(5_000));
            }
        }
        let cut = &bytes[..bytes.len() - 1];
        assert_eq!(recompress(cut), None);
    }
}
