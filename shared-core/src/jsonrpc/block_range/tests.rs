use super::{BlockRange, RangeMethodKind, TaggedBlocks};

const FOLLOWED: TaggedBlocks = TaggedBlocks {
    head: Some(1_000),
    last_final: Some(900),
};
const UNFOLLOWED: TaggedBlocks = TaggedBlocks {
    head: None,
    last_final: None,
};

fn range(method: &str, params: &str, tags: TaggedBlocks) -> Option<(u64, u64)> {
    let kind = RangeMethodKind::for_method(method.as_bytes())?;
    let BlockRange { from, to } = kind.widest_range(Some(params.as_bytes()), tags)?;
    Some((from, to))
}

#[test]
fn methods_with_a_range_are_found_in_any_case() {
    for method in [
        "eth_getLogs",
        "ETH_GETLOGS",
        "eth_newFilter",
        "erigon_getLogs",
        "erigon_getLatestLogs",
    ] {
        let kind = RangeMethodKind::for_method(method.as_bytes());
        assert_eq!(kind, Some(RangeMethodKind::Logs), "{method}");
    }
    for method in ["trace_filter", "arbtrace_filter"] {
        let kind = RangeMethodKind::for_method(method.as_bytes());
        assert_eq!(kind, Some(RangeMethodKind::Traces), "{method}");
    }
    for method in ["eth_getLog", "eth_getFilterLogs", "eth_newBlockFilter", ""] {
        assert_eq!(RangeMethodKind::for_method(method.as_bytes()), None);
    }
}

#[test]
fn range_is_read_as_the_most_lenient_node_reads_it() {
    for (params, expected) in [
        (r#"[{"fromBlock":"0x1","toBlock":"0x10"}]"#, Some((1, 16))),
        (r#"[{"fromBlock":"0x5","toBlock":"0x5"}]"#, Some((5, 5))),
        (
            r#"[{"fromBlock":"0x0","toBlock":"0xffffffffffffffff"}]"#,
            Some((0, u64::MAX)),
        ),
        // numbers in other notations, and names in another case
        (
            r#"[{"fromBlock":"0x0001","toBlock":"0X1f"}]"#,
            Some((1, 31)),
        ),
        (r#"[{"fromBlock":1,"toBlock":"20"}]"#, Some((1, 20))),
        (r#"[{"FROMBLOCK":"0x1","toblock":" 0x2 "}]"#, Some((1, 2))),
        (
            r#"[{"from\u0042lock":"0x1","to\u0042lock":"\u0030x2"}]"#,
            Some((1, 2)),
        ),
        (
            "[{\"fromBloc\u{212a}\":\"0x1\",\"toBlock\":\"0x2\"}]",
            Some((1, 2)),
        ),
        // duplicates
        (
            r#"[{"fromBlock":"0x9","toBlock":"0x9","fromBlock":"0x2","toBlock":"0x3"}]"#,
            Some((2, 9)),
        ),
        (
            r#"[{"fromBlock":"x","fromBlock":"0x2","toBlock":"0x3"}]"#,
            Some((2, 3)),
        ),
        // a filter within a string, and named parameters
        (
            r#"["{\"fromBlock\":\"0x1\",\"toBlock\":\"0x2\"}"]"#,
            Some((1, 2)),
        ),
        (
            r#"{"filter":{"fromBlock":"0x1","toBlock":"0x2"}}"#,
            Some((1, 2)),
        ),
        // only the first parameter is the filter
        (
            r#"[{"fromBlock":"0x1","toBlock":"0x2"},{"fromBlock":"0x0"}]"#,
            Some((1, 2)),
        ),
        (
            r#"[{"topics":[{"fromBlock":"0x0"}],"toBlock":"0x2","fromBlock":"0x1"}]"#,
            Some((1, 2)),
        ),
    ] {
        assert_eq!(
            range("eth_getLogs", params, UNFOLLOWED),
            expected,
            "{params}"
        );
        assert_eq!(
            range("trace_filter", params, FOLLOWED),
            expected,
            "{params}"
        );
    }
}

#[test]
fn range_without_two_numbers_in_order_is_left_to_the_node() {
    for params in [
        r#"[{"fromBlock":"0x5","toBlock":"0x4"}]"#,
        r#"[{"fromBlock":"0x0","toBlock":"0x10000000000000000"}]"#,
        r#"[{"fromBlock":"0x0","toBlock":"18446744073709551616"}]"#,
        r#"[{"fromBlock":"0x0","toBlock":"0x"}]"#,
        r#"[{"fromBlock":"0x0","toBlock":""}]"#,
        r#"[{"fromBlock":"0x0","toBlock":"0xg"}]"#,
        r#"[{"fromBlock":"0x0","toBlock":"newest"}]"#,
        r#"[{"fromBlock":"0x0","toBlock":-1}]"#,
        r#"[{"fromBlock":"0x0","toBlock":1e3}]"#,
        r#"[{"fromBlock":"0x0","toBlock":1.5}]"#,
        r#"[{"fromBlock":"0x0","toBlock":true}]"#,
        r#"[{"fromBlock":"0x0","toBlock":["0x9"]}]"#,
        r#"[{"fromBlock":"0x0","toBlock":{"blockNumber":"0x9"}}]"#,
        r#"[{"fromBlock":"0xffff","toBlock":"latest"}]"#,
        r#"["0x0","0x9"]"#,
        r#"["{"]"#,
        "[]",
        "{}",
        "null",
    ] {
        for method in ["eth_getLogs", "trace_filter"] {
            assert_eq!(range(method, params, FOLLOWED), None, "{method} {params}");
        }
    }
    let kind = RangeMethodKind::Traces;
    assert_eq!(kind.widest_range(None, FOLLOWED), None);
}

#[test]
fn tags_are_resolved_by_the_followed_chain() {
    for (method, params, expected) in [
        ("eth_getLogs", r#"[{"fromBlock":"0x1"}]"#, (1, 1_000)),
        (
            "eth_getLogs",
            r#"[{"fromBlock":"0x1","toBlock":null}]"#,
            (1, 1_000),
        ),
        (
            "eth_getLogs",
            r#"[{"fromBlock":"0x1","toBlock":"Latest"}]"#,
            (1, 1_000),
        ),
        (
            "eth_getLogs",
            r#"[{"fromBlock":"0x1","toBlock":"pending"}]"#,
            (1, 1_000),
        ),
        (
            "eth_getLogs",
            r#"[{"fromBlock":"0x1","toBlock":"finalized"}]"#,
            (1, 900),
        ),
        ("eth_getLogs", r#"[{"fromBlock":"earliest"}]"#, (0, 1_000)),
        ("eth_getLogs", r#"[{"toBlock":"0x3e9"}]"#, (1_000, 1_001)),
        ("eth_getLogs", r#"[{}]"#, (1_000, 1_000)),
        ("eth_getLogs", r#"[{"blockHash":"0x00"}]"#, (1_000, 1_000)),
        // `safe` is between the last finalized block and the head
        (
            "eth_getLogs",
            r#"[{"fromBlock":"0x1","toBlock":"safe"}]"#,
            (1, 900),
        ),
        ("eth_getLogs", r#"[{"fromBlock":"safe"}]"#, (1_000, 1_000)),
        ("trace_filter", r#"[{"toBlock":"0x5"}]"#, (0, 5)),
        ("trace_filter", r#"[{}]"#, (0, 1_000)),
        ("trace_filter", r#"[{"blockHash":"0x00"}]"#, (0, 1_000)),
        (
            "trace_filter",
            r#"[{"fromBlock":"latest"}]"#,
            (1_000, 1_000),
        ),
    ] {
        assert_eq!(range(method, params, FOLLOWED), Some(expected), "{params}");
    }
    for params in [
        r#"[{"fromBlock":"0x1"}]"#,
        r#"[{"fromBlock":"0x1","toBlock":"finalized"}]"#,
        r#"[{"fromBlock":"safe","toBlock":"0x1"}]"#,
        r#"[{"toBlock":"0x1"}]"#,
    ] {
        assert_eq!(range("eth_getLogs", params, UNFOLLOWED), None, "{params}");
    }
    let open = r#"[{"toBlock":"0x5"}]"#;
    assert_eq!(range("trace_filter", open, UNFOLLOWED), Some((0, 5)));
}

#[test]
fn block_count_includes_both_ends() {
    let one = BlockRange { from: 7, to: 7 };
    assert!(!one.exceeds_block_count(1) && one.block_count() == 1);
    let two = BlockRange { from: 7, to: 8 };
    assert!(two.exceeds_block_count(1) && !two.exceeds_block_count(2));
    let all = BlockRange {
        from: 0,
        to: u64::MAX,
    };
    assert!(all.exceeds_block_count(u64::MAX));
    assert_eq!(all.block_count(), 1 << 64);
}
