//! Blob transactions (EIP-4844), as they are in payloads.

use super::prefix::read_rlp_prefix;

/// Transaction type of blob transactions (EIP-2718).
const BLOB_TRANSACTION_TYPE: u8 = 0x03;

/// Number of fields before the hashes: chain id, nonce, two fees, gas limit, to, value, data,
/// access list, the fee for blobs.
const FIELDS_BEFORE_HASHES: usize = 10;

/// Length of a hash in bytes.
const HASH_LENGTH: usize = 32;

/// Returns the versioned hashes of a transaction's blobs. A transaction without blobs has none, and
/// neither have invalid bytes, which the node validates.
pub fn transaction_blob_hashes(transaction: &[u8]) -> Vec<&[u8]> {
    parse_blob_transaction_hashes(transaction).unwrap_or_default()
}

/// Reads the versioned hashes of a blob transaction; `None` for another type of transaction, or for
/// invalid RLP.
fn parse_blob_transaction_hashes(transaction: &[u8]) -> Option<Vec<&[u8]>> {
    let (type_, fields) = transaction.split_first()?;
    if *type_ != BLOB_TRANSACTION_TYPE {
        return None;
    }
    let (true, mut fields, []) = split_rlp_item(fields)? else {
        return None;
    };
    for _ in 0..FIELDS_BEFORE_HASHES {
        (_, _, fields) = split_rlp_item(fields)?;
    }
    let (true, mut list, _) = split_rlp_item(fields)? else {
        return None;
    };
    let mut hashes = Vec::new();
    while !list.is_empty() {
        let (false, hash, rest) = split_rlp_item(list)? else {
            return None;
        };
        hashes.push(Some(hash).filter(|hash| hash.len() == HASH_LENGTH)?);
        list = rest;
    }
    Some(hashes)
}

/// Splits off the first RLP item: whether it is a list, its content, and the bytes after it. `None`
/// if it is invalid or truncated.
fn split_rlp_item(bytes: &[u8]) -> Option<(bool, &[u8], &[u8])> {
    let prefix = read_rlp_prefix(bytes).ok()??;
    let rest = bytes.get(prefix.size..)?;
    let (content, rest) = rest.split_at_checked(usize::try_from(prefix.len).ok()?)?;
    Some((prefix.is_list, content, rest))
}

#[cfg(test)]
mod tests {
    use super::transaction_blob_hashes;
    use crate::ssz::rlp::write_rlp_prefix;

    fn list(content: &[u8]) -> Vec<u8> {
        let mut list = Vec::new();
        write_rlp_prefix(true, content.len() as u64, &mut list);
        list.extend_from_slice(content);
        list
    }

    fn transaction(hashes: &[u8]) -> Vec<u8> {
        // an address, data and an access list with one entry; a signature after the hashes
        let before = [
            &[1, 0x82, 1, 2, 3, 4, 5, 0x94][..],
            &[7; 20],
            &[0x80, 0xb8, 60],
            &[8; 60],
            &list(&list(b"\x01")),
            &[9],
        ];
        let fields = [&before.concat(), hashes, &[0x80, 1, 2]].concat();
        [&[3], &list(&fields)[..]].concat()
    }

    #[test]
    fn versioned_hashes_are_found_after_ten_fields() {
        let hash = |byte| [&[0xa0][..], &[byte; 32]].concat();
        for count in [0, 1, 2, 9] {
            let all: Vec<u8> = (0..count).flat_map(hash).collect();
            let transaction = transaction(&list(&all));
            let found = transaction_blob_hashes(&transaction);
            assert_eq!(found.len(), usize::from(count));
            for (found, byte) in found.into_iter().zip(0..) {
                assert_eq!(found, [byte; 32]);
            }
        }
    }

    #[test]
    fn invalid_transaction_has_no_blob_hashes() {
        let hash = [&[0xa0][..], &[1; 32]].concat();
        let right = transaction(&list(&hash));
        assert_eq!(transaction_blob_hashes(&right).len(), 1);
        for end in 0..right.len() {
            assert!(transaction_blob_hashes(&right[..end]).is_empty(), "{end}");
        }
        let other = [&[2][..], &right[1..]].concat();
        let more = [&right[..], &[0]].concat();
        let short = transaction(&list(&[0x82, 1, 2]));
        let inner = transaction(&list(&list(&[1; 32])));
        for wrong in [
            other,
            more,
            short,
            inner,
            transaction(&hash),
            vec![3],
            vec![],
        ] {
            assert!(transaction_blob_hashes(&wrong).is_empty());
        }
    }
}
