//! The limit on the block ranges of calls that search logs and traces (`logs_max_range`).

use std::sync::Arc;

use super::error_entry::error_cache_entry;
use super::values::{
    invalid_value_error, single_directive_value, DirectiveError, DirectiveValueRange,
    DirectiveValueUnit,
};
use crate::cache::entry::CacheEntry;
use crate::jsonrpc::block_range::BlockRange;

/// Range of the limit in blocks.
pub(super) const LOGS_MAX_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 1_000_000_000,
    unit: DirectiveValueUnit::Number,
};

/// The maximum number of blocks in the range of a call, and the error for calls beyond it.
#[derive(Clone, Debug)]
pub(crate) struct BlockRangeLimit {
    most: u64,
    /// Error without the requested range, for batches with many calls beyond the limit.
    brief_error: Arc<CacheEntry>,
}

impl BlockRangeLimit {
    fn new(most: u64) -> Self {
        let text = format!(
            r#"{{"code":-32602,"message":"the block range is longer than the limit of {most}"}}"#
        );
        Self {
            most,
            brief_error: Arc::new(error_cache_entry(text.as_bytes())),
        }
    }

    /// Parses the values of the directive; `off` is no limit. Errors: any other value than one
    /// number in its range.
    pub(super) fn parse_limit(values: &[&[u8]]) -> Result<Option<Arc<Self>>, DirectiveError> {
        match single_directive_value(values)? {
            b"off" => Ok(None),
            value => LOGS_MAX_RANGE
                .parse_in_range(value)
                .map(|most| Some(Arc::new(Self::new(most))))
                .map_err(|_| invalid_value_error(value, format!("{LOGS_MAX_RANGE} or \"off\""))),
        }
    }

    /// Whether the range has more blocks than the limit.
    pub(crate) fn is_exceeded_by(&self, range: BlockRange) -> bool {
        range.exceeds_block_count(self.most)
    }

    /// Returns the error for a call with this range, which exceeds the limit: invalid params
    /// (JSON-RPC 2.0, 5.1), as nodes and providers report it. Clients then request less.
    pub(crate) fn range_error(&self, range: BlockRange) -> Arc<CacheEntry> {
        let (from, to, count) = (range.from, range.to, range.block_count());
        let most = self.most;
        let text = format!(
            "{{\"code\":-32602,\"message\":\"the block range from {from} to {to} ({count} blocks) \
             is longer than the limit of {most}\"}}"
        );
        Arc::new(error_cache_entry(text.as_bytes()))
    }

    /// Returns the error without the requested range, which all calls share.
    pub(crate) fn brief_range_error(&self) -> &Arc<CacheEntry> {
        &self.brief_error
    }
}

#[cfg(test)]
mod tests {
    use super::BlockRangeLimit;
    use crate::jsonrpc::block_range::BlockRange;

    #[test]
    fn limit_is_a_number_of_blocks_or_off() {
        let parse = |value: &str| BlockRangeLimit::parse_limit(&[value.as_bytes()]);
        assert!(parse("off").unwrap().is_none());
        for (value, most) in [("1", 1), ("0010", 10), ("1000000000", 1_000_000_000)] {
            let limit = parse(value).unwrap().unwrap();
            let range = |count: u64| BlockRange {
                from: 5,
                to: 4 + count,
            };
            assert!(!limit.is_exceeded_by(range(most)), "{value}");
            assert!(limit.is_exceeded_by(range(most + 1)), "{value}");
        }
        for value in ["", "0", "1000000001", "-1", "+1", "1k", "1e3", "on", "Off"] {
            let error = parse(value).unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "has an invalid value \"{value}\": it must be a number from 1 to 1000000000 \
                     or \"off\""
                )
            );
        }
        let lists: [&[&[u8]]; 2] = [&[], &[b"1", b"2"]];
        for values in lists {
            let error = BlockRangeLimit::parse_limit(values).unwrap_err();
            assert_eq!(error.to_string(), "takes exactly one value");
        }
    }

    #[test]
    fn error_names_the_limit_and_the_requested_range() {
        let limit = BlockRangeLimit::new(100);
        let error = |range| {
            let entry = limit.range_error(range);
            let text = entry.response_for_identity_client(b"7").unwrap();
            String::from_utf8(text.try_to_vec().unwrap()).unwrap()
        };
        assert_eq!(
            error(BlockRange { from: 1, to: 101 }),
            "{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":{\"code\":-32602,\"message\":\"the block \
             range from 1 to 101 (101 blocks) is longer than the limit of 100\"}}"
        );
        let all = error(BlockRange {
            from: 0,
            to: u64::MAX,
        });
        assert!(all.contains("to 18446744073709551615 (18446744073709551616 blocks)"));
    }
}
