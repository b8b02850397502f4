//! Tests of ranges whose ends the node has proven to have.

use super::{known, prospect, sample_dispatch_mark};
use crate::cache::chain::{DispatchMark, HeightUnit};
use crate::cache::class::LifetimeClass;
use crate::cache::freshness::{
    CacheLifetimes, ResponseClassification, ResponseClassificationInput,
};

const EMPTY: &str = "[]";

/// A log in block 5, far from the ends of the ranges.
const LOG: &str = r#"[{"blockNumber":"0x5","logIndex":"0x0","blockHash":"0x0"}]"#;

fn classify(
    filter: &str,
    result: &str,
    mark: Option<&DispatchMark>,
) -> Option<ResponseClassification> {
    let params = format!("[{filter}]");
    let input = ResponseClassificationInput {
        mark,
        ..known(&params)
    };
    let prospect = prospect("eth_getLogs", &params)?;
    prospect.classify_proven_range(result.as_bytes(), input)
}

const FINAL: &str = r#"{"address":[],"fromBlock":"0x1","toBlock":"0x60"}"#;

#[test]
fn proven_range_of_final_blocks_is_immutable_also_if_it_is_empty() {
    let mark = sample_dispatch_mark();
    for result in [EMPTY, LOG] {
        let classified = classify(FINAL, result, Some(&mark)).unwrap();
        assert_eq!(classified.class, LifetimeClass::Immutable, "{result}");
        assert_eq!((classified.block, classified.height), (None, Some(0x60)));
        assert_eq!(classified.if_repeated, None);
        assert!(classified.is_read && !classified.is_implausible);
        let lifetime = CacheLifetimes::default().lifetime_for_class(LifetimeClass::Immutable);
        assert_eq!(classified.valid, lifetime);
    }
}

#[test]
fn proven_empty_range_expires_after_an_hour() {
    const HOUR_MS: u64 = 3_600_000;
    let (mark, params) = (sample_dispatch_mark(), format!("[{FINAL}]"));
    let mut valid = CacheLifetimes::default();
    valid
        .set_class_lifetime(LifetimeClass::Immutable, 24 * HOUR_MS)
        .unwrap();
    let lifetime = |result: &str| {
        let input = ResponseClassificationInput {
            mark: Some(&mark),
            valid: &valid,
            ..known(&params)
        };
        let prospect = prospect("eth_getLogs", &params).unwrap();
        let classified = prospect.classify_proven_range(result.as_bytes(), input);
        classified.unwrap().valid
    };
    assert_eq!(lifetime(LOG), 24 * HOUR_MS);
    assert_eq!((lifetime(EMPTY), lifetime("[ ]")), (HOUR_MS, HOUR_MS));
}

#[test]
fn proven_range_is_not_classified_unless_all_its_blocks_are_final() {
    let mark = sample_dispatch_mark();
    for filter in [
        r#"{"fromBlock":"0x1","toBlock":"0x61"}"#,
        r#"{"fromBlock":"0x1","toBlock":"latest"}"#,
        r#"{"fromBlock":"0x1"}"#,
        r#"{"fromBlock":"earliest","toBlock":"0x60"}"#,
    ] {
        assert_eq!(classify(filter, EMPTY, Some(&mark)), None, "{filter}");
    }
    assert_eq!(classify(FINAL, EMPTY, None), None);
    for mark in [
        DispatchMark {
            last_final: None,
            ..mark
        },
        DispatchMark {
            is_known: false,
            ..mark
        },
        DispatchMark {
            is_wrong: true,
            ..mark
        },
        DispatchMark {
            heights: HeightUnit::Slots,
            ..mark
        },
    ] {
        assert_eq!(classify(FINAL, EMPTY, Some(&mark)), None, "{mark:?}");
    }
}

#[test]
fn proven_range_is_not_classified_if_its_result_is_no_plausible_list() {
    let mark = sample_dispatch_mark();
    for result in [
        "null",
        "{}",
        "[",
        "[5]",
        r#"[{"blockNumber":"0x5","blockHash":"0x0"},{"blockNumber":"0x5","blockHash":"0x1"}]"#,
        // the filter allows all logs, and the first ones are missing
        r#"[{"blockNumber":"0x5","logIndex":"0x3","blockHash":"0x0"}]"#,
    ] {
        assert_eq!(classify(FINAL, result, Some(&mark)), None, "{result}");
    }
}
