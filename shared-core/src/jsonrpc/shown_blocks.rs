//! Blocks that a response shows to its reader, whether the response may be stored or not.

use memchr::memmem;

use super::block_reference::{self, BlockReference, BlockTag};
use super::methods::{MethodRow, ResultBlockPosition};
use super::response::{
    classify_result_content, find_object_member, first_array_element, ResultEmptiness,
};

/// Maximum number of blocks in a response to `eth_feeHistory`.
const MAX_FEE_HISTORY: u64 = 1024;

/// The number of a block that a response shows to its client, and its relation to the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownBlockNumber {
    /// The head, requested as such.
    Head(u64),
    /// A block.
    Block(u64),
    /// A part of a block, which may not be sealed yet.
    Part(u64),
    /// A block that only the call names.
    Named(u64),
}

/// The properties of a call by which the highest block in its response is found.
#[derive(Clone, Copy, Debug)]
pub struct ShownBlockFinder {
    method: &'static MethodRow,
    /// Number of the block, where the call names it.
    named: Option<u64>,
    /// The call requests the head.
    is_head: bool,
    /// Number of blocks that a fee history is to have.
    history: Option<u64>,
}

impl ShownBlockFinder {
    /// Reads a call of `name`, whose row is `method`; `None` if the response belongs to blocks that
    /// are not part of the chain.
    pub fn for_observed_call(
        name: &[u8],
        method: &'static MethodRow,
        params: Option<&[u8]>,
    ) -> Option<Self> {
        // simulated blocks and pending blocks
        let reference = block_reference::call_block_reference(method, params);
        if name == b"eth_simulateV1" || reference == BlockReference::Tag(BlockTag::Pending) {
            return None;
        }
        let first = || parse_quantity_or_integer(first_array_element(params?)?);
        Some(Self {
            method,
            named: match reference {
                BlockReference::Number(number) => Some(number),
                _ => None,
            },
            is_head: reference == BlockReference::Tag(BlockTag::Latest)
                || method.in_result == ResultBlockPosition::Itself,
            history: (name == b"eth_feeHistory").then(first).flatten(),
        })
    }

    /// Returns the highest block that a complete result shows.
    pub fn highest_in_result(&self, result: &[u8]) -> Option<ShownBlockNumber> {
        match classify_result_content(result) {
            ResultEmptiness::Null | ResultEmptiness::EmptyArray => return None,
            ResultEmptiness::EmptyData if self.method.returns_raw_encoding() => return None,
            _ => {}
        }
        let shown = block_reference::result_block(self.method, result).map(|block| block.number);
        let shown = shown.map(|number| match self.method.in_result {
            ResultBlockPosition::Itself | ResultBlockPosition::Block if self.is_head => {
                ShownBlockNumber::Head(number)
            }
            ResultBlockPosition::Itself | ResultBlockPosition::Block => {
                ShownBlockNumber::Block(number)
            }
            _ => ShownBlockNumber::Part(number),
        });
        shown
            .or_else(|| self.fee_history_end(result).map(ShownBlockNumber::Block))
            .or_else(|| block_reference::highest_block_in_text(result).map(ShownBlockNumber::Part))
            .or_else(|| self.named.map(ShownBlockNumber::Named))
    }

    /// Returns the highest block in the beginning or the end of a response, which may be cut
    /// anywhere.
    pub fn highest_in_text(&self, text: &[u8]) -> Option<ShownBlockNumber> {
        const NUMBER: &[u8] = b"\"number\"";
        let of_block = || {
            let at = memmem::find(text, NUMBER)?;
            let number = block_reference::block_number_of_member(text, at, NUMBER)?;
            Some(match self.is_head {
                true => ShownBlockNumber::Head(number),
                false => ShownBlockNumber::Block(number),
            })
        };
        match self.method.in_result {
            ResultBlockPosition::Block => of_block(),
            _ => block_reference::highest_block_in_text(text).map(ShownBlockNumber::Part),
        }
    }

    /// Returns the last block of a fee history. A history that begins with the first block may be
    /// shorter than requested.
    fn fee_history_end(&self, result: &[u8]) -> Option<u64> {
        let count = self
            .history
            .filter(|count| (1..=MAX_FEE_HISTORY).contains(count))?;
        let oldest = parse_quantity_or_integer(find_object_member(result, "oldestBlock")?)
            .filter(|oldest| *oldest > 0)?;
        oldest.checked_add(count - 1)
    }
}

/// Reads a quantity or a bare number, which nodes accept as a count, too.
fn parse_quantity_or_integer(value: &[u8]) -> Option<u64> {
    block_reference::parse_quantity(value).or_else(|| block_reference::parse_integer(value))
}

/// Returns the highest slot of a block or header in a part of a text.
pub fn highest_slot_in_text(text: &[u8]) -> Option<u64> {
    const SLOT: &[u8] = b"\"slot\"";
    let slot_at = |at: usize| {
        let value = text[at + SLOT.len()..]
            .trim_ascii_start()
            .strip_prefix(b":")?;
        let digits = value.trim_ascii_start().strip_prefix(b"\"")?;
        let end = digits.iter().position(|byte| *byte == b'"')?;
        block_reference::parse_integer(&digits[..end])
    };
    memmem::find_iter(text, SLOT).filter_map(slot_at).max()
}

#[cfg(test)]
mod tests {
    use super::super::methods;
    use super::*;

    fn shown(method: &str, params: &str, result: &str) -> Option<ShownBlockNumber> {
        let row = methods::find_method_row(method.as_bytes());
        let showing =
            ShownBlockFinder::for_observed_call(method.as_bytes(), row, Some(params.as_bytes()))?;
        showing.highest_in_result(result.as_bytes())
    }

    #[test]
    fn result_shows_the_block_to_which_it_belongs() {
        let hash = format!("\"0x{}\"", "ab".repeat(32));
        let receipt = format!(r#"{{"blockHash":{hash},"blockNumber":"0x65","logs":[]}}"#);
        let block = format!(r#"{{"number":"0x65","hash":{hash}}}"#);
        let list = format!("[{receipt}]");
        for (method, params, result, expected) in [
            (
                "eth_blockNumber",
                "[]",
                "\"0x65\"",
                Some(ShownBlockNumber::Head(101)),
            ),
            (
                "eth_getTransactionReceipt",
                &hash,
                &receipt,
                Some(ShownBlockNumber::Part(101)),
            ),
            (
                "eth_getTransactionByHash",
                &hash,
                &receipt,
                Some(ShownBlockNumber::Part(101)),
            ),
            (
                "eth_sendRawTransactionSync",
                "[\"0x02\"]",
                &receipt,
                Some(ShownBlockNumber::Part(101)),
            ),
            (
                "eth_getBlockByNumber",
                "[\"0x65\",false]",
                &block,
                Some(ShownBlockNumber::Block(101)),
            ),
            (
                "eth_getBlockByNumber",
                "[\"latest\",false]",
                &block,
                Some(ShownBlockNumber::Head(101)),
            ),
            (
                "eth_getBlockByHash",
                &format!("[{hash},false]"),
                &block,
                Some(ShownBlockNumber::Block(101)),
            ),
            (
                "eth_getBlockReceipts",
                "[\"0x65\"]",
                &list,
                Some(ShownBlockNumber::Part(101)),
            ),
            (
                "eth_getLogs",
                "[{}]",
                &list,
                Some(ShownBlockNumber::Part(101)),
            ),
            (
                "eth_getFilterChanges",
                "[\"0x1\"]",
                &list,
                Some(ShownBlockNumber::Part(101)),
            ),
            (
                "trace_block",
                "[\"0x65\"]",
                "[{\"blockNumber\":101}]",
                Some(ShownBlockNumber::Part(101)),
            ),
            (
                "eth_getBalance",
                "[\"0x0\",\"0x65\"]",
                "\"0x0\"",
                Some(ShownBlockNumber::Named(101)),
            ),
            (
                "debug_traceBlockByNumber",
                "[\"0x65\"]",
                "[{}]",
                Some(ShownBlockNumber::Named(101)),
            ),
            (
                "eth_feeHistory",
                "[\"0x3\",\"latest\"]",
                "{\"oldestBlock\":\"0x63\"}",
                Some(ShownBlockNumber::Block(101)),
            ),
            (
                "eth_feeHistory",
                "[3,\"latest\",[]]",
                "{\"oldestBlock\":\"0x63\"}",
                Some(ShownBlockNumber::Block(101)),
            ),
            (
                "eth_feeHistory",
                "[\"0x3\",\"latest\"]",
                "{\"oldestBlock\":\"0x0\"}",
                None,
            ),
            (
                "eth_feeHistory",
                "[\"0x10000\",\"latest\"]",
                "{\"oldestBlock\":\"0x63\"}",
                None,
            ),
            // blocks that are simulated, pending or unknown
            ("eth_simulateV1", "[{}]", &list, None),
            ("eth_getBlockByNumber", "[\"pending\",false]", &block, None),
            ("eth_getBalance", "[\"0x0\",\"0x65\"]", "null", None),
            ("debug_getRawBlock", "[\"0x65\"]", "\"0x\"", None),
            (
                "eth_getTransactionByHash",
                &hash,
                "{\"blockNumber\":null,\"blockHash\":null}",
                None,
            ),
            ("eth_call", "[{},\"latest\"]", "\"0x65\"", None),
        ] {
            let params = match params.starts_with('[') {
                true => params.to_owned(),
                false => format!("[{params}]"),
            };
            assert_eq!(
                shown(method, &params, result),
                expected,
                "{method} {params}"
            );
        }
    }

    #[test]
    fn truncated_text_shows_its_complete_members() {
        let row = methods::find_method_row(b"eth_getLogs");
        let logs = ShownBlockFinder::for_observed_call(b"eth_getLogs", row, Some(b"[{}]")).unwrap();
        for (text, expected) in [
            (
                &br#"x","blockNumber":"0x9","y":1},{"blockNumber":"0x64"}"#[..],
                Some(100),
            ),
            (br#"{"blockNumber":"0x64"},{"blockNumber":"0x6"#, Some(100)),
            (br#"{"a":"\"blockNumber\":\"0x64\""}"#, None),
            (br#"{"blockNumber""#, None),
        ] {
            assert_eq!(
                logs.highest_in_text(text),
                expected.map(ShownBlockNumber::Part)
            );
        }
        let text = br#"{"data":[{"slot":"7"},{"message":{"slot" : "12","x":1}},{"slot":"99"#;
        assert_eq!(highest_slot_in_text(text), Some(12));
    }
}
