//! Tests of every pair of ends of a range, and of every block tag, with their classification.

use super::{
    expand, lifetimes_with_method_row, sample_dispatch_mark, CacheLifetimes,
    ResponseClassificationInput,
};
use crate::cache::chain::DispatchMark;
use crate::cache::class::LifetimeClass;
use crate::cache::freshness::{CallLifetimeRules, ResponseClassification, ResultOrError};
use crate::jsonrpc::methods::{self, BlockParamPosition};

/// Classifications of ranges on a chain with head 160 and finalized block 96. Rows are `fromBlock`,
/// columns `toBlock`, in the order of [`ENDS`]:
///
/// - `i` immutable
/// - `u` unfinalized, evicted with the last block that is named
/// - `e` unfinalized, two seconds at most: the first block of a node changes when it prunes
/// - `t` tip, until the next head
/// - `b` both: tip, two seconds at most
/// - `m` tip, a second at most: the safe and the finalized block change between heads, too
/// - `.` not stored
const RANGES: [&str; 10] = [
    //        absent, earliest, 0x10, 0x60, 0x61, 0xa0, 0xa1, latest, safe, finalized, pending
    "absent    t b t t t t t t m m .",
    "earliest  b e e e e e b b m m .",
    "0x10      t e i i u u t t m m .",
    "0x60      t e . i u u t t m m .",
    "0x61      t e . . u u t t m m .",
    "0xa1      t b . . . . t t m m .",
    "latest    t b t t t t t t m m .",
    "safe      m m m m m m m m m m .",
    "finalized m m m m m m m m m m .",
    "pending   . . . . . . . . . . .",
];

const ENDS: [&str; 11] = [
    "absent",
    "earliest",
    "0x10",
    "0x60",
    "0x61",
    "0xa0",
    "0xa1",
    "latest",
    "safe",
    "finalized",
    "pending",
];

/// Classifications of single blocks, with the letters of [`RANGES`].
const BLOCKS: [&str; 11] = [
    "absent t",
    "earliest e",
    "0x10 i",
    "0x60 i",
    "0x61 u",
    "0xa0 u",
    "0xa1 t",
    "latest t",
    "safe m",
    "finalized m",
    "pending .",
];

const TIP: u64 = 12_000;
const UNFINALIZED: u64 = 900_000;

/// Returns lifetimes that are longer than the maxima for blocks that change without an event.
fn valid(valid: &CacheLifetimes) -> CacheLifetimes {
    let mut valid = valid.clone();
    valid.set_class_lifetime(LifetimeClass::Tip, TIP).unwrap();
    valid
        .set_class_lifetime(LifetimeClass::Unfinalized, UNFINALIZED)
        .unwrap();
    valid
        .set_class_lifetime(LifetimeClass::Nothing, TIP)
        .unwrap();
    valid
}

fn classify(
    method: &str,
    params: &str,
    result: &str,
    valid: &CacheLifetimes,
) -> Option<ResponseClassification> {
    let known = ResponseClassificationInput {
        params: Some(params.as_bytes()),
        mark: Some(&sample_dispatch_mark()),
        valid,
    };
    CallLifetimeRules::lifetime_rules_for_call(method.as_bytes(), known.params, valid)?
        .classify_fetched_result(result.as_bytes(), known)
}

fn check(
    classified: Option<ResponseClassification>,
    letter: &str,
    number: Option<u64>,
    context: &str,
) {
    let classified =
        classified.map(|classified| (classified.class, classified.valid, classified.height));
    let DispatchMark { seen, .. } = sample_dispatch_mark();
    let expected = match letter {
        "i" => Some((LifetimeClass::Immutable, 3_600_000, number)),
        "u" => Some((LifetimeClass::Unfinalized, UNFINALIZED, number)),
        "e" => Some((LifetimeClass::Unfinalized, 2_000, number)),
        "t" => Some((LifetimeClass::Tip, TIP, Some(seen))),
        "b" => Some((LifetimeClass::Tip, 2_000, Some(seen))),
        "m" => Some((LifetimeClass::Tip, 1_000, Some(seen))),
        _ => None,
    };
    assert_eq!(classified, expected, "{context}");
}

fn number(end: &str) -> Option<u64> {
    u64::from_str_radix(end.strip_prefix("0x")?, 16).ok()
}

#[test]
fn range_is_as_final_as_its_least_final_end() {
    let names = methods::all_method_table_rows().iter();
    let ranges = names.filter(|row| matches!(row.at, BlockParamPosition::Range(..)));
    let mut names: Vec<&str> = ranges.map(|row| row.name).collect();
    assert!(names.len() >= 5);
    names.push("acme_getMoves");
    let valid = valid(&lifetimes_with_method_row("acme_getMoves", "range=p[0]"));
    for name in names {
        for row in RANGES {
            let (from, letters) = row.split_once(' ').unwrap();
            let letters: Vec<&str> = letters.split_ascii_whitespace().collect();
            assert_eq!(letters.len(), ENDS.len());
            for (to, letter) in ENDS.into_iter().zip(letters) {
                let ends = [("fromBlock", from), ("toBlock", to)];
                let named = ends.iter().filter(|(_, end)| *end != "absent");
                let named: Vec<String> = named
                    .map(|(name, end)| format!("\"{name}\":\"{end}\""))
                    .collect();
                let params = format!("[{{{}}}]", named.join(","));
                let last = number(from).max(number(to));
                let result = format!("[{{\"blockNumber\":\"{to}\"}}]");
                let classified = classify(name, &params, &result, &valid);
                check(classified, letter, last, &format!("{name} {params}"));
            }
        }
    }
}

#[test]
fn block_tag_has_the_lifetime_of_the_same_range_end() {
    let valid = valid(&lifetimes_with_method_row("acme_getBlock", "block=p[0]"));
    let names = methods::all_method_table_rows()
        .iter()
        .map(|row| (row.name, row.class, row.at));
    let operators = (
        "acme_getBlock",
        methods::MethodClass::ByFinality,
        BlockParamPosition::Param(0),
    );
    for (name, class, at) in names.chain([operators]) {
        let (place, member) = match at {
            BlockParamPosition::Number(n) | BlockParamPosition::Param(n) => (n, None),
            BlockParamPosition::ParamMember(n, member, _) => (n, Some(member)),
            _ => continue,
        };
        for row in BLOCKS {
            let (end, letter) = row.split_once(' ').unwrap();
            let mut params = vec!["{}".to_owned(); place];
            if end != "absent" {
                params.push(match member {
                    Some(member) => format!("{{\"{member}\":\"{end}\"}}"),
                    None => format!("\"{end}\""),
                });
            }
            let params = format!("[{}]", params.join(","));
            // methods such as estimates depend on the head regardless of the block
            let letter = match (class, letter) {
                (methods::MethodClass::Tip, "i" | "u") => "t",
                (methods::MethodClass::Tip, "e") => "b",
                _ => letter,
            };
            let classified = classify(name, &params, "{\"a\":1}", &valid);
            let number = number(end);
            let context = format!("{name} {params}");
            check(classified, letter, number, &context);
        }
    }
}

#[test]
fn empty_result_at_safe_or_finalized_is_cached_for_a_second() {
    let valid = valid(&CacheLifetimes::default());
    for (tag, most) in [("latest", TIP), ("finalized", 1_000), ("safe", 1_000)] {
        let params = format!("[{{}},\"{tag}\"]");
        let known = ResponseClassificationInput {
            params: Some(params.as_bytes()),
            mark: Some(&sample_dispatch_mark()),
            valid: &valid,
        };
        let prospect =
            CallLifetimeRules::lifetime_rules_for_call(b"eth_call", known.params, &valid).unwrap();
        let reverted = br#"{"code":3,"message":"execution reverted"}"#;
        for outcome in [
            ResultOrError::Result(b"null"),
            ResultOrError::Error(reverted),
        ] {
            assert_eq!(
                prospect.classify_as_empty_result(outcome, known).valid,
                most,
                "{tag}"
            );
        }
    }
}

#[test]
fn estimate_for_a_block_that_nodes_read_differently_is_not_stored() {
    for (params, is_stored) in [
        ("[{},\"latest\"]", true),
        ("[{},\"0x10\"]", true),
        ("[{},\"PENDING\"]", false),
        ("[{},{\"blockNumber\":\"pending\"}]", false),
        (
            "[{},{\"blockNumber\":\"pending\",\"blocknumber\":\"0x1\"}]",
            false,
        ),
        ("[{},\"0x01\"]", false),
        ("{\"block\":\"pending\"}", false),
    ] {
        for method in ["eth_estimateGas", "eth_simulateV1"] {
            let classified = classify(
                method,
                &expand(params),
                "\"0x1\"",
                &CacheLifetimes::default(),
            );
            assert_eq!(classified.is_some(), is_stored, "{method} {params}");
        }
    }
}
