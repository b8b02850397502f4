//! Default lifetimes on a followed chain whose block time is known.

use super::{expand, known, CacheLifetimes, CallLifetimeRules, ResponseClassificationInput};
use crate::cache::chain::{ChainChange, ChainState, DispatchMark, HeightUnit, NamespaceChain};
use crate::cache::class::LifetimeClass;

/// Returns the dispatch mark of a followed chain after a further change, with head 160 and this
/// block time.
fn mark(block_time: Option<u64>, change: Option<ChainChange>, heights: HeightUnit) -> DispatchMark {
    let mut state = ChainState::new_without_blocks(heights, 1_000);
    let followed = [
        ChainChange::ChainVerified(true),
        ChainChange::Head(160),
        ChainChange::Final(Some(96)),
    ];
    for change in followed.into_iter().chain(change) {
        state.apply_chain_change(change);
    }
    state.block_time = block_time;
    NamespaceChain::new(state).chain_mark_at_dispatch()
}

/// Returns the lifetimes of results about the head, an unfinalized block, a tag that moves between
/// heads, and the chain.
fn lifetimes(mark: &DispatchMark, valid: &CacheLifetimes) -> [Option<u64>; 4] {
    [
        ("eth_blockNumber", "[]", "\"0xa0\""),
        ("eth_getBalance", "[ADDR,\"0x9f\"]", "\"0x1\""),
        ("eth_getBalance", "[ADDR,\"finalized\"]", "\"0x1\""),
        ("eth_chainId", "[]", "\"0x1\""),
    ]
    .map(|(method, params, result)| {
        let params = expand(params);
        let known = ResponseClassificationInput {
            mark: Some(mark),
            valid,
            ..known(&params)
        };
        let rules =
            CallLifetimeRules::lifetime_rules_for_call(method.as_bytes(), known.params, valid)?;
        let classified = rules.classify_fetched_result(result.as_bytes(), known)?;
        Some(classified.valid)
    })
}

const HOUR: Option<u64> = Some(3_600_000);
const DEFAULTS: [Option<u64>; 4] = [Some(1_000), Some(2_000), Some(1_000), HOUR];

#[test]
fn default_lifetimes_equal_the_block_time() {
    let valid = CacheLifetimes::default();
    for (block_time, expected) in [
        (None, DEFAULTS),
        (
            Some(12_000),
            [Some(12_000), Some(12_000), Some(1_000), HOUR],
        ),
        (Some(2_000), [Some(2_000), Some(2_000), Some(1_000), HOUR]),
        (Some(250), [Some(250), Some(250), Some(250), HOUR]),
    ] {
        let mark = mark(block_time, None, HeightUnit::Blocks);
        assert_eq!(lifetimes(&mark, &valid), expected, "{block_time:?}");
    }
}

#[test]
fn defaults_apply_while_new_heads_may_not_be_reported() {
    let valid = CacheLifetimes::default();
    let lagging = mark(
        Some(12_000),
        Some(ChainChange::Final(None)),
        HeightUnit::Blocks,
    );
    assert_eq!(lifetimes(&lagging, &valid), DEFAULTS);
    let unverified = ChainChange::ChainVerified(false);
    let unverified = mark(Some(12_000), Some(unverified), HeightUnit::Blocks);
    // no result is immutable there
    let expected = [DEFAULTS[0], DEFAULTS[1], DEFAULTS[2], Some(2_000)];
    assert_eq!(lifetimes(&unverified, &valid), expected);
    let wrong = mark(
        Some(12_000),
        Some(ChainChange::Wrong(true)),
        HeightUnit::Blocks,
    );
    assert_eq!(lifetimes(&wrong, &valid), [None; 4]);
    // slots are other heights than blocks
    let slots = mark(Some(12_000), None, HeightUnit::Slots);
    assert_eq!(lifetimes(&slots, &valid), [None, Some(2_000), None, HOUR]);
}

#[test]
fn lifetimes_of_an_operator_override_the_block_time() {
    let followed = mark(Some(12_000), None, HeightUnit::Blocks);
    let mut valid = CacheLifetimes::default();
    valid.set_class_lifetime(LifetimeClass::Tip, 3_000).unwrap();
    let expected = [Some(3_000), Some(12_000), Some(1_000), HOUR];
    assert_eq!(lifetimes(&followed, &valid), expected);
    valid
        .set_class_lifetime(LifetimeClass::Unfinalized, 0)
        .unwrap();
    valid.set_method_lifetime(b"eth_chainId", 700).unwrap();
    let expected = [Some(3_000), None, Some(1_000), Some(700)];
    assert_eq!(lifetimes(&followed, &valid), expected);
}
