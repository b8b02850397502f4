//! The block to which all elements of a list belong: receipts, logs or traces.

use super::block_reference::{parse_block_number, parse_hash, ResultBlock};
use super::scan::StrictJsonReader;

/// Returns the block that all elements of a list name by the same number and hash; `None` if an
/// element names another block or none, or if the list is empty. All of the list is read.
pub fn common_block_of_list(list: &[u8]) -> Option<ResultBlock> {
    let mut scanner = StrictJsonReader::for_trusted_utf8(list);
    let mut common = None;
    let mut another = scanner.enter_array().ok()?;
    while another {
        let block = read_element_block(&mut scanner, list)?;
        if *common.get_or_insert(block) != block {
            return None;
        }
        another = scanner.next_element().ok()?;
    }
    scanner.expect_end().ok()?;
    common
}

/// Reads one element of a list, and returns the block that it names; `None` if it names none, or
/// one of the members twice.
fn read_element_block(scanner: &mut StrictJsonReader<'_>, list: &[u8]) -> Option<ResultBlock> {
    let (mut number, mut hash) = (None, None);
    let mut next = scanner.read_first_member_name().ok()?;
    while let Some(name) = next {
        let value = &list[scanner.skip_value().ok()?.span];
        let is_unique = match &list[name.content] {
            b"blockNumber" => number.replace(parse_block_number(value)?).is_none(),
            b"blockHash" => hash.replace(parse_hash(value)?).is_none(),
            _ => true,
        };
        if !is_unique {
            return None;
        }
        next = scanner.next_member().ok()?;
    }
    Some(ResultBlock {
        number: number?,
        hash: Some(hash?),
    })
}

#[cfg(test)]
mod tests {
    use super::{common_block_of_list, ResultBlock};

    /// Returns an element of the block with this number, whose hash ends in `hash`.
    fn element(number: u64, hash: u8) -> String {
        format!(
            r#"{{"logIndex":"0x0","blockHash":"0x{hash:064x}","blockNumber":"{number:#x}","logs":[{{}}]}}"#
        )
    }

    fn common_block(elements: &[String]) -> Option<ResultBlock> {
        common_block_of_list(format!("[{}]", elements.join(", ")).as_bytes())
    }

    #[test]
    fn block_of_all_elements_is_returned() {
        let mut hash = [0; 32];
        hash[31] = 7;
        let expected = ResultBlock {
            number: 5,
            hash: Some(hash),
        };
        for count in 1..4 {
            let elements = vec![element(5, 7); count];
            assert_eq!(common_block(&elements), Some(expected), "{count}");
        }
        // traces in Parity's form have a bare number
        let trace = element(5, 7).replace("\"0x5\"", "5");
        assert_eq!(common_block(&[trace, element(5, 7)]), Some(expected));
    }

    #[test]
    fn list_with_an_element_of_another_block_has_no_common_block() {
        let lists = [
            vec![],
            vec![element(5, 7), element(6, 7)],
            vec![element(5, 7), element(5, 7), element(5, 8)],
            vec![element(5, 7), "{}".into()],
            vec!["{}".into(), element(5, 7)],
            vec![element(5, 7), "1".into()],
            vec![element(5, 7).replace("\"0x5\"", "null")],
            vec![element(5, 7).replace("blockHash", "blockhash")],
            vec![element(5, 7).replace("\"logIndex\":\"0x0\"", "\"blockNumber\":\"0x5\"")],
        ];
        for elements in lists {
            assert_eq!(common_block(&elements), None, "{elements:?}");
        }
        let whole = format!("[{}]", element(5, 7));
        for end in 0..whole.len() {
            assert_eq!(
                common_block_of_list(&whole.as_bytes()[..end]),
                None,
                "{end}"
            );
        }
        assert_eq!(common_block_of_list(element(5, 7).as_bytes()), None);
    }
}
