//! Lists of logs that become a part of a longer list.

use std::ops::RangeInclusive;

use super::block_reference::parse_quantity;
use super::scan::{JsonScanError, StrictJsonReader};

/// The logs of a list that was read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogListElements<'a> {
    /// The logs as they are written, with the commas between them; empty if there are none.
    pub text: &'a [u8],
    /// Block of the last log, which is the highest.
    pub last_block: Option<u64>,
}

/// Reads a list of logs. `None` unless it is one JSON array of objects that name a block among
/// `blocks` each, in the order of their blocks.
pub fn read_log_list(list: &[u8], blocks: RangeInclusive<u64>) -> Option<LogListElements<'_>> {
    let mut reader = StrictJsonReader::for_untrusted_text(list).ok()?;
    let mut another = reader.enter_array().ok()?;
    let start = reader.last_read_end();
    let (mut end, mut last_block) = (start, None);
    while another {
        let block = read_log_block(&mut reader, list).ok()??;
        if !blocks.contains(&block) || last_block.is_some_and(|last| block < last) {
            return None;
        }
        last_block = Some(block);
        end = reader.last_read_end();
        another = reader.next_element().ok()?;
    }
    reader.expect_end().ok()?;
    Some(LogListElements {
        text: &list[start..end],
        last_block,
    })
}

/// Reads a log, and returns the block that it names, if it names exactly one.
fn read_log_block(
    reader: &mut StrictJsonReader<'_>,
    list: &[u8],
) -> Result<Option<u64>, JsonScanError> {
    let mut block = None;
    let mut is_unique = true;
    let mut next = reader.read_first_member_name()?;
    while let Some(name) = next {
        let value = reader.skip_value()?.span;
        if &list[name.content] == b"blockNumber" {
            is_unique &= block.is_none();
            block = parse_quantity(&list[value]);
            is_unique &= block.is_some();
        }
        next = reader.next_member()?;
    }
    Ok(block.filter(|_| is_unique))
}

#[cfg(test)]
mod tests {
    use super::read_log_list;

    /// Reads a list of the blocks 5 to 9, and returns the text of its logs and the last block.
    fn read(list: &str) -> Option<(&str, Option<u64>)> {
        let read = read_log_list(list.as_bytes(), 5..=9)?;
        Some((std::str::from_utf8(read.text).unwrap(), read.last_block))
    }

    #[test]
    fn logs_are_returned_as_they_are_written_without_the_brackets() {
        assert_eq!(read("[]"), Some(("", None)));
        assert_eq!(read(" [ \n ] "), Some(("", None)));
        assert_eq!(
            read(r#"[{"blockNumber":"0x5"}]"#),
            Some((r#"{"blockNumber":"0x5"}"#, Some(5)))
        );
        let logs = r#"{"data":"0x","blockNumber": "0x5"} ,{"blockNumber":"0x5","a":[{"blockNumber":"0x1"}]},
            {"blockNumber":"0x9"}"#;
        assert_eq!(read(&format!("\n[ {logs} ]\r\n")), Some((logs, Some(9))));
    }

    #[test]
    fn list_with_a_log_of_another_block_or_in_another_order_is_not_read() {
        for list in [
            r#"[{"blockNumber":"0x4"}]"#,
            r#"[{"blockNumber":"0xa"}]"#,
            r#"[{"blockNumber":"0x6"},{"blockNumber":"0x5"}]"#,
            // a log without a block, or with two
            r#"[{}]"#,
            r#"[{"number":"0x5"}]"#,
            r#"[{"blockNumber":null}]"#,
            r#"[{"blockNumber":5}]"#,
            r#"[{"blockNumber":"0x05"}]"#,
            r#"[{"blockNumber":"0x5","blockNumber":"0x5"}]"#,
            r#"[{"blockNumber":"0x5","blockNumber":null}]"#,
        ] {
            assert_eq!(read(list), None, "{list}");
        }
    }

    #[test]
    fn text_that_is_no_array_of_objects_is_not_read() {
        for list in [
            "",
            "null",
            "{}",
            r#""[]""#,
            "[",
            "[5]",
            "[[]]",
            "[] []",
            r#"[{"blockNumber":"0x5"},]"#,
            r#"[{"blockNumber":"0x5"}"#,
            r#"[{"blockNumber":"0x5"}{"blockNumber":"0x5"}]"#,
        ] {
            assert_eq!(read(list), None, "{list}");
        }
        let bytes = b"[{\"blockNumber\":\"0x5\",\"\xff\":0}]";
        assert_eq!(read_log_list(bytes, 5..=9), None);
    }
}
