//! The split of wide calls for logs into pieces (`logs_split`).

use std::sync::Arc;

use super::log_split_pauses::LogSplitPauses;
use super::values::{invalid_value_error, DirectiveError, DirectiveValueRange, DirectiveValueUnit};

/// Range of the length of a piece in blocks.
pub(super) const LOG_SPLIT_BLOCKS: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 1_000_000,
    unit: DirectiveValueUnit::Number,
};

/// Range of the number of pieces of one call that are fetched at a time.
pub(super) const LOG_SPLIT_CONCURRENCY: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 32,
    unit: DirectiveValueUnit::Number,
};

const DEFAULT_CONCURRENCY: u64 = 4;

/// Name of the second value, with its sign.
const CONCURRENCY_PREFIX: &[u8] = b"concurrent=";

/// The values of `logs_split`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogSplitLimits {
    blocks: u64,
    concurrent: usize,
}

impl LogSplitLimits {
    /// Parses the values of the directive; `off` is no split. Errors: any other values than the
    /// number of blocks, alone or with the number of concurrent requests.
    pub(super) fn parse_log_split(values: &[&[u8]]) -> Result<Option<Self>, DirectiveError> {
        let (blocks, concurrent) = match values {
            [b"off"] => return Ok(None),
            [blocks] => (*blocks, Ok(DEFAULT_CONCURRENCY)),
            [blocks, concurrent] => (*blocks, parse_concurrency(concurrent)),
            _ => return Err(DirectiveError::OneOrTwoValues),
        };
        let blocks = LOG_SPLIT_BLOCKS.parse_in_range(blocks).map_err(|_| {
            let allowed = match values.len() {
                1 => format!("{LOG_SPLIT_BLOCKS} or \"off\""),
                _ => LOG_SPLIT_BLOCKS.to_string(),
            };
            invalid_value_error(blocks, allowed)
        })?;
        Ok(Some(Self {
            blocks,
            // at most 32
            concurrent: concurrent? as usize,
        }))
    }
}

fn parse_concurrency(value: &[u8]) -> Result<u64, DirectiveError> {
    let number = value.strip_prefix(CONCURRENCY_PREFIX).unwrap_or_default();
    LOG_SPLIT_CONCURRENCY.parse_in_range(number).map_err(|_| {
        let allowed = format!("omitted, or \"concurrent=K\" with {LOG_SPLIT_CONCURRENCY}");
        invalid_value_error(value, allowed)
    })
}

/// The split of wide calls for logs on one route: the length of the pieces, and the pauses after
/// failures. Clones share the pauses.
#[derive(Clone, Debug)]
pub struct LogSplitConfig {
    /// Length of a piece in blocks. Pieces begin at its multiples.
    pub blocks: u64,
    /// Maximum number of pieces of one call that are fetched at a time.
    pub concurrent: usize,
    pub(crate) pauses: Arc<LogSplitPauses>,
}

impl LogSplitConfig {
    pub(super) fn new(limits: LogSplitLimits) -> Self {
        Self {
            blocks: limits.blocks,
            concurrent: limits.concurrent,
            pauses: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LogSplitConfig, LogSplitLimits};
    use crate::cache::process::ProcessResources;
    use crate::config::RouteConfigBlock;

    fn parse(values: &[&str]) -> Result<Option<(u64, usize)>, String> {
        let values: Vec<_> = values.iter().map(|value| value.as_bytes()).collect();
        let parsed = LogSplitLimits::parse_log_split(&values);
        parsed
            .map(|limits| limits.map(|it| (it.blocks, it.concurrent)))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn split_is_a_number_of_blocks_and_of_concurrent_requests_or_off() {
        assert_eq!(parse(&["off"]), Ok(None));
        assert_eq!(parse(&["1"]), Ok(Some((1, 4))));
        assert_eq!(parse(&["1000000"]), Ok(Some((1_000_000, 4))));
        assert_eq!(parse(&["500", "concurrent=1"]), Ok(Some((500, 1))));
        assert_eq!(parse(&["500", "concurrent=32"]), Ok(Some((500, 32))));
    }

    #[test]
    fn invalid_values_are_rejected_with_the_allowed_ones() {
        for value in ["", "0", "1000001", "-1", "1k", "on", "Off"] {
            let error = parse(&[value]).unwrap_err();
            assert!(
                error.contains("a number from 1 to 1000000 or \"off\""),
                "{error}"
            );
        }
        for value in ["concurrent=0", "concurrent=33", "concurrent=", "4", "lock"] {
            let error = parse(&["500", value]).unwrap_err();
            assert!(
                error.contains("\"concurrent=K\" with a number from 1 to 32"),
                "{error}"
            );
        }
        for values in [&[][..], &["1", "concurrent=1", "concurrent=1"]] {
            assert!(parse(values).unwrap_err().contains("one or two"));
        }
    }

    #[test]
    fn split_is_inherited_unless_the_inner_block_sets_its_own() {
        let block = |value: Option<&str>| {
            let mut block = RouteConfigBlock::default();
            if let Some(value) = value {
                let values = [value.as_bytes()];
                block.set_directive("logs_split", &values).unwrap();
            }
            block
        };
        for (value, expected) in [(None, Some(500)), (Some("off"), None), (Some("7"), Some(7))] {
            let mut inner = block(value);
            inner.inherit_unset_from(&block(Some("500")));
            let config = inner.resolve_route_config(ProcessResources::default());
            let blocks = config.cache.logs_split.as_ref().map(|split| split.blocks);
            assert_eq!(blocks, expected);
            let may_send = config.cache.may_send_background_requests();
            assert_eq!(may_send, expected.is_some());
        }
    }

    #[test]
    fn pause_is_shared_by_clones_and_not_by_routes() {
        let limits = LogSplitLimits::parse_log_split(&[b"500"]).unwrap().unwrap();
        let (config, route) = (LogSplitConfig::new(limits), LogSplitConfig::new(limits));
        let other = config.clone();
        config.pauses.pause(5);
        assert!(other.pauses.is_paused(6) && !route.pauses.is_paused(6));
    }
}
