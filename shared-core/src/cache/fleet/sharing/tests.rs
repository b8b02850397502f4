//! Entries that may be shared, values on a reader's chain, and the lifetimes of values.

use super::*;
use crate::cache::chain::{BlockHash, ChainChange, ChainDependency, HeightUnit};

const NOW: u64 = 5_000;

/// A time of expiry beyond the limit of unfinalized entries.
const EXPIRY: u64 = NOW + 10 * MAX_UNFINALIZED_LIFETIME_MS;

fn about() -> StoredEntryAttributes {
    StoredEntryAttributes {
        class: LifetimeClass::Immutable,
        namespace: [3; 16],
        method: Some("eth_getBlockByNumber".into()),
        block: Some(100),
        generation: 5,
        epoch: 7,
        height: Some(100),
    }
}

fn value(block: Option<u64>, height: Option<u64>) -> FleetValue {
    FleetValue {
        about: StoredEntryAttributes {
            block,
            height,
            generation: 0,
            epoch: 0,
            ..about()
        },
        anchor: None,
        identity: ChainIdentity {
            chain_id: Some(1),
            genesis: [9; 32],
        },
        heights: HeightUnit::Blocks,
        position: 4,
        requested_at: 1_000,
        expires_at: EXPIRY,
        stored_at: 1_100,
        entry: vec![7; 10],
    }
}

/// Returns the hash of the block with this height on a branch.
fn hash(height: u64, branch: u8) -> BlockHash {
    let mut hash = [branch; 32];
    hash[..8].copy_from_slice(&height.to_be_bytes());
    hash
}

fn by_result(height: u64, branch: u8) -> Option<BlockAnchor> {
    let hash = hash(height, branch);
    Some(BlockAnchor::ByResult { height, hash })
}

/// A value of a class about one block.
fn anchored(class: LifetimeClass, height: u64, anchor: Option<BlockAnchor>) -> FleetValue {
    let value = value(Some(height), Some(height));
    FleetValue {
        about: StoredEntryAttributes {
            class,
            ..value.about
        },
        anchor,
        ..value
    }
}

/// A verified chain with the blocks 90 to 105 of branch 1. Block 100 is final.
fn chain() -> NamespaceChain {
    let mut state = ChainState::new_without_blocks(HeightUnit::Blocks, 1_000);
    (state.known, state.head, state.last_final) = (true, Some(105), Some(100));
    (state.chain_id, state.genesis) = (Some(1), Some([9; 32]));
    let chain = NamespaceChain::new(state);
    chain.set_recent_blocks((90..=105).rev().map(|height| (height, hash(height, 1))));
    chain
}

fn epoch(chain: &NamespaceChain) -> u64 {
    chain.copy_chain_state().epoch
}

fn apply(chain: &NamespaceChain, change: ChainChange) {
    chain.modify_locked_chain_state(|state| state.apply_chain_change(change));
}

/// Returns the class under which the value is used.
fn class_of(value: FleetValue, chain: &NamespaceChain) -> Result<LifetimeClass, NotServable> {
    let servable = check_against_chain(value, chain, NOW)?;
    assert_eq!(servable.about.epoch, epoch(chain));
    Ok(servable.about.class)
}

#[test]
fn final_entries_and_anchored_ones_of_a_followed_chain_are_shareable() {
    let anchors = [
        None,
        by_result(100, 1),
        Some(BlockAnchor::ByRequest([1; 32])),
    ];
    for class in LifetimeClass::ALL {
        for anchor in anchors {
            let other = StoredEntryAttributes {
                class: *class,
                ..about()
            };
            let expected = match class {
                LifetimeClass::Immutable => true,
                LifetimeClass::Unfinalized => anchor.is_some(),
                _ => false,
            };
            let result = is_shareable(&other, anchor.as_ref());
            assert_eq!(result, expected, "{class:?} {anchor:?}");
            let about_no_block = StoredEntryAttributes {
                block: None,
                height: None,
                ..other.clone()
            };
            let result = is_shareable(&about_no_block, anchor.as_ref());
            assert_eq!(result, expected && anchor.is_some(), "{class:?} {anchor:?}");
            let unfollowed = StoredEntryAttributes { epoch: 0, ..other };
            assert!(!is_shareable(&unfollowed, anchor.as_ref()));
        }
    }
}

#[test]
fn value_without_an_anchor_is_servable_up_to_the_last_final_block() {
    let final_value = Ok(LifetimeClass::Immutable);
    for (block, height, expected) in [
        (None, None, Err(NotServable::NotFinal)),
        (Some(100), Some(100), final_value),
        (None, Some(100), final_value),
        (Some(0), None, final_value),
        (None, Some(101), Err(NotServable::NotFinal)),
        (Some(101), None, Err(NotServable::NotFinal)),
        (Some(100), Some(101), Err(NotServable::NotFinal)),
        (Some(101), Some(100), Err(NotServable::NotFinal)),
    ] {
        let result = class_of(value(block, height), &chain());
        assert_eq!(result, expected, "{block:?} {height:?}");
    }
}

#[test]
fn value_is_not_servable_in_another_state_of_the_chain() {
    for anchor in [
        None,
        by_result(100, 1),
        Some(BlockAnchor::ByRequest([1; 32])),
    ] {
        let check = |change: &dyn Fn(&mut ChainState)| {
            let chain = chain();
            chain.modify_locked_chain_state(|state| change(state));
            class_of(anchored(LifetimeClass::Immutable, 100, anchor), &chain)
        };
        let unknown = Err(NotServable::UnknownChain);
        assert_eq!(check(&|_| {}), Ok(LifetimeClass::Immutable));
        assert_eq!(check(&|chain| chain.known = false), unknown);
        assert_eq!(check(&|chain| chain.wrong = true), unknown);
        assert_eq!(check(&|chain| chain.genesis = None), unknown);
        let other = Err(NotServable::OtherChain);
        assert_eq!(check(&|chain| chain.genesis = Some([8; 32])), other);
        assert_eq!(check(&|chain| chain.chain_id = Some(2)), other);
        assert_eq!(check(&|chain| chain.chain_id = None), other);
        assert_eq!(check(&|chain| chain.heights = HeightUnit::Slots), other);
        // its finality is not known
        let expected = match anchor {
            None => Err(NotServable::NotFinal),
            Some(BlockAnchor::ByResult { .. }) => Err(NotServable::UnknownBlock),
            Some(BlockAnchor::ByRequest(_)) => Ok(LifetimeClass::Immutable),
        };
        assert_eq!(check(&|chain| chain.last_final = None), expected);
    }
}

#[test]
fn value_without_a_height_needs_a_known_block_of_its_request() {
    let chain = chain();
    for (hash, expected) in [
        (hash(100, 1), Ok(LifetimeClass::Immutable)),
        (hash(900, 1), Err(NotServable::UnknownBlock)),
    ] {
        let anchored = FleetValue {
            anchor: Some(BlockAnchor::ByRequest(hash)),
            ..value(None, None)
        };
        assert_eq!(class_of(anchored, &chain), expected);
    }
}

#[test]
fn value_with_a_block_of_the_own_chain_is_unfinalized_above_the_final_block() {
    use LifetimeClass::{Immutable, Unfinalized};
    for (class, height, branch, expected) in [
        (Immutable, 100, 1, Ok(Immutable)),
        (Immutable, 101, 1, Ok(Unfinalized)),
        (Immutable, 105, 1, Ok(Unfinalized)),
        // the node may add to a response about a final block
        (Unfinalized, 95, 1, Ok(Unfinalized)),
        (Unfinalized, 105, 1, Ok(Unfinalized)),
        (Immutable, 95, 2, Err(NotServable::OtherBranch)),
        (Immutable, 101, 2, Err(NotServable::OtherBranch)),
        (Unfinalized, 105, 2, Err(NotServable::OtherBranch)),
        // the owner does not know these blocks
        (Immutable, 89, 2, Ok(Immutable)),
        (Unfinalized, 89, 1, Err(NotServable::UnknownBlock)),
        (Immutable, 106, 1, Err(NotServable::UnknownBlock)),
        (Unfinalized, 106, 1, Err(NotServable::UnknownBlock)),
    ] {
        let value = anchored(class, height, by_result(height, branch));
        let result = class_of(value, &chain());
        assert_eq!(result, expected, "{class:?} {height} {branch}");
    }
}

#[test]
fn response_to_a_call_with_a_hash_keeps_its_class_up_to_the_head() {
    for class in [LifetimeClass::Immutable, LifetimeClass::Unfinalized] {
        // of another branch
        let anchor = Some(BlockAnchor::ByRequest([2; 32]));
        for (height, expected) in [
            (95, Ok(class)),
            (105, Ok(class)),
            (106, Err(NotServable::UnknownBlock)),
        ] {
            let value = anchored(class, height, anchor);
            let about = value.about.clone();
            let result = check_against_chain(value, &chain(), NOW);
            let result = result.map(|value| (value.about.block, value.about.height));
            assert_eq!(result, expected.map(|_| (about.block, about.height)));
            assert_eq!(
                class_of(anchored(class, height, anchor), &chain()),
                expected
            );
        }
    }
    let chain = chain();
    chain.modify_locked_chain_state(|state| state.head = None);
    let value = anchored(
        LifetimeClass::Unfinalized,
        1,
        Some(BlockAnchor::ByRequest([2; 32])),
    );
    assert_eq!(class_of(value, &chain), Err(NotServable::UnknownBlock));
}

#[test]
fn block_that_is_above_the_published_head_is_not_shown() {
    let chain = chain();
    // a poll of the follower, before its changes are applied
    chain.set_recent_blocks((90..=106).rev().map(|height| (height, hash(height, 1))));
    let value = || anchored(LifetimeClass::Unfinalized, 106, by_result(106, 1));
    assert_eq!(class_of(value(), &chain), Err(NotServable::UnknownBlock));
    apply(&chain, ChainChange::Head(106));
    assert_eq!(class_of(value(), &chain), Ok(LifetimeClass::Unfinalized));
}

#[test]
fn verified_value_is_invalid_after_a_reorganisation_of_its_block() {
    let chain = chain();
    let checked = |class, height, anchor| {
        let value = anchored(class, height, anchor);
        check_against_chain(value, &chain, NOW).unwrap().about
    };
    let by_request = Some(BlockAnchor::ByRequest([2; 32]));
    let entries = [
        (
            checked(LifetimeClass::Immutable, 100, by_result(100, 1)),
            true,
        ),
        (
            checked(LifetimeClass::Immutable, 102, by_result(102, 1)),
            true,
        ),
        (
            checked(LifetimeClass::Immutable, 103, by_result(103, 1)),
            false,
        ),
        (
            checked(LifetimeClass::Unfinalized, 104, by_result(104, 1)),
            false,
        ),
        (checked(LifetimeClass::Immutable, 104, by_request), true),
        (checked(LifetimeClass::Unfinalized, 104, by_request), false),
    ];
    let is_valid = |about: &StoredEntryAttributes| {
        ChainDependency::new(&chain, about.class, about.epoch, about.height).is_entry_valid()
    };
    assert!(entries.iter().all(|(about, _)| is_valid(about)));
    apply(&chain, ChainChange::Reorg { from: 103 });
    for (about, expected) in &entries {
        assert_eq!(is_valid(about), *expected, "{about:?}");
    }
}

#[test]
fn lifetime_of_an_unfinalized_entry_is_limited() {
    let expiry = |class, height, expires_at| {
        let value = FleetValue {
            expires_at,
            ..anchored(class, height, by_result(height, 1))
        };
        let servable = check_against_chain(value, &chain(), NOW);
        servable.map(|servable| servable.expires_at)
    };
    let limit = NOW + MAX_UNFINALIZED_LIFETIME_MS;
    assert_eq!(expiry(LifetimeClass::Immutable, 100, EXPIRY), Ok(EXPIRY));
    for class in [LifetimeClass::Immutable, LifetimeClass::Unfinalized] {
        assert_eq!(expiry(class, 103, EXPIRY), Ok(limit));
        assert_eq!(expiry(class, 103, limit - 1), Ok(limit - 1));
    }
}

#[test]
fn servable_value_has_the_attributes_and_the_bytes_of_the_value() {
    let value = anchored(LifetimeClass::Unfinalized, 103, by_result(103, 1));
    let chain = chain();
    let servable = check_against_chain(value.clone(), &chain, NOW).unwrap();
    let expected = ServableValue {
        about: StoredEntryAttributes {
            epoch: epoch(&chain),
            ..value.about
        },
        requested_at: value.requested_at,
        expires_at: NOW + MAX_UNFINALIZED_LIFETIME_MS,
        entry: value.entry,
    };
    assert_eq!(servable, expected);
}

#[test]
fn lifetime_of_a_value_is_limited_and_jittered() {
    let day = Duration::from_secs(86_400);
    let lifetime = |remaining, random| {
        let lifetime = value_lifetime(remaining, day, random)?;
        Some(lifetime.as_millis() as u64)
    };
    // the entry lives longer
    assert_eq!(lifetime(u64::MAX, 0), Some(77_760_000));
    assert_eq!(lifetime(u64::MAX, 1 << 63), Some(86_400_000));
    assert_eq!(lifetime(u64::MAX, u64::MAX), Some(95_039_999));
    // its lifetime is never exceeded
    assert_eq!(lifetime(10_000, 0), Some(9_000));
    assert_eq!(lifetime(10_000, u64::MAX), Some(10_000));
    assert_eq!(lifetime(2_000, u64::MAX), Some(2_000));
    assert_eq!(lifetime(1_999, u64::MAX), None);
    assert_eq!(lifetime(0, 0), None);
    // limits at the ends of the range
    let longest = value_lifetime(u64::MAX, Duration::MAX, u64::MAX);
    assert_eq!(longest, Some(Duration::from_millis(u64::MAX)));
}
