//! Properties of every chain, after any commands.

use std::collections::HashSet;

use proptest::prelude::*;

use super::driver::RandomChainGrowth;
use super::model::{
    BlockIndex, SimulatedChain, SimulatedChainChangeError, SimulatedChainParameters,
};

fn chain(seed: u64, length: u64) -> SimulatedChain {
    SimulatedChain::new(SimulatedChainParameters {
        seed,
        chain_id: 1,
        time: 0,
        length,
        transactions: 8,
    })
}

/// Checks the invariants of a chain.
fn assert_chain_invariants(chain: &SimulatedChain) {
    let mut included = HashSet::new();
    let mut below: Option<BlockIndex> = None;
    for number in 0..=chain.head_number() {
        let index = chain
            .canonical_at_number(number)
            .expect("no gap below the head");
        let block = chain.block_by_index(index);
        assert_eq!((block.number, block.parent), (number, below));
        assert_eq!(chain.by_hash(&block.hash), Some(index));
        assert_eq!(chain.by_root(&block.root), Some(index));
        assert_eq!(chain.block_at_slot(block.slot), Some(index));
        assert!(below.is_none_or(|below| chain.block_by_index(below).slot < block.slot));
        for (at, transaction) in block.transactions.iter().enumerate() {
            assert!(included.insert(*transaction), "included twice");
            assert!(chain
                .positions_of_transaction(transaction)
                .contains(&(index, at)));
        }
        below = Some(index);
    }
    assert_eq!(chain.head_index(), below.expect("a genesis"));
    assert_eq!(chain.canonical_at_number(chain.head_number() + 1), None);
    let waiting: HashSet<_> = chain.pool_transactions().iter().copied().collect();
    assert_eq!(
        waiting.len(),
        chain.pool_transactions().len(),
        "waits twice"
    );
    assert!(waiting.is_disjoint(&included), "waits and is included");
    let finality = chain.finality_numbers();
    assert!(finality.finalized <= finality.safe && finality.safe <= chain.head_number());
    assert_eq!(chain.finality_at_head(chain.head_number()), finality);
}

/// A random change of a chain.
#[derive(Clone, Debug)]
enum RandomChainChange {
    Extend(u64),
    Miss(u64),
    Reorg(u64, u64),
    Rollback(u64),
    Adopt(usize),
    Finalize(Option<u64>),
    Unfinalize(u64),
    Slots,
}

fn any_action() -> impl Strategy<Value = RandomChainChange> {
    prop_oneof![
        (0..40u64).prop_map(RandomChainChange::Extend),
        (0..3u64).prop_map(RandomChainChange::Miss),
        (0..20u64, 0..20u64).prop_map(|(depth, length)| RandomChainChange::Reorg(depth, length)),
        (0..60u64).prop_map(RandomChainChange::Rollback),
        (0..200usize).prop_map(RandomChainChange::Adopt),
        proptest::option::of(0..200u64).prop_map(RandomChainChange::Finalize),
        (0..200u64).prop_map(RandomChainChange::Unfinalize),
        Just(RandomChainChange::Slots),
    ]
}

fn run_action(
    chain: &mut SimulatedChain,
    act: &RandomChainChange,
) -> Result<(), SimulatedChainChangeError> {
    match *act {
        RandomChainChange::Extend(blocks) => chain.add_blocks(blocks),
        RandomChainChange::Miss(slots) => chain.miss_slots(slots),
        RandomChainChange::Reorg(depth, length) => chain.reorg_blocks(depth, length)?,
        RandomChainChange::Rollback(depth) => chain.rollback_blocks(depth)?,
        RandomChainChange::Adopt(index) => {
            let hash = chain.block_by_index(index % chain.block_count()).hash;
            chain.adopt_existing_head(&hash)?;
        }
        RandomChainChange::Finalize(number) => chain.finalize_block(number)?,
        RandomChainChange::Unfinalize(number) => chain.move_finality_back(number)?,
        RandomChainChange::Slots => chain.update_finality_by_slots(),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Applies random commands, valid or not.
    #[test]
    fn chain_is_consistent_and_deterministic_after_any_commands(seed in 0..4u64, acts in proptest::collection::vec(any_action(), 0..24)) {
        let (mut one, mut other) = (chain(seed, 40), chain(seed, 40));
        for act in &acts {
            let before = one.head_index();
            if run_action(&mut one, act).is_err() {
                prop_assert_eq!(one.head_index(), before);
            }
            assert_chain_invariants(&one);
            // The second chain shows that only the commands determine the result.
            let _ = run_action(&mut other, act);
        }
        prop_assert_eq!(one.block_by_index(one.head_index()).hash, other.block_by_index(other.head_index()).hash);
        prop_assert_eq!(one.pool_transactions(), other.pool_transactions());
    }

    #[test]
    fn driver_never_replaces_a_finalized_block(
        seed in any::<u64>(),
        reorgs in 0.0..=1.0f64,
        missed in 0.0..0.9f64,
        length in 0..100u64,
    ) {
        let mut chain = chain(seed, length);
        let mut driver = RandomChainGrowth::new(seed, reorgs, missed);
        for _ in 0..300 {
            let finalized = chain.finality_numbers().finalized;
            let last = chain.canonical_at_number(finalized);
            driver.pass_slot(&mut chain);
            prop_assert!(chain.finality_numbers().finalized >= finalized);
            prop_assert_eq!(chain.canonical_at_number(finalized), last, "what is final was replaced");
            prop_assert!(chain.finality_at_head(chain.head_number()) == chain.finality_numbers());
        }
        assert_chain_invariants(&chain);
    }
}

#[test]
fn driver_produces_deep_reorgs_shorter_branches_and_missed_slots() {
    let mut chain = chain(1, 100);
    let mut driver = RandomChainGrowth::new(1, 0.2, 0.1);
    let start = chain.finality_numbers().finalized;
    let (mut deepest, mut shorter) = (0, false);
    for _ in 0..2000 {
        let (head, number) = (chain.head_index(), chain.head_number());
        driver.pass_slot(&mut chain);
        let ancestor = chain.common_ancestor(head, chain.head_index());
        deepest = deepest.max(number - chain.block_by_index(ancestor).number);
        shorter |= chain.head_number() < number;
    }
    assert!(deepest >= 4 && shorter, "{deepest} {shorter}");
    assert!(chain.finality_numbers().finalized > start + 1000);
    assert!(
        chain.simulated_current_slot() > chain.head_number(),
        "no slot was missed"
    );
}

#[test]
fn extended_chain_equals_a_longer_initial_chain() {
    let (mut short, long) = (chain(7, 50), chain(7, 120));
    short.add_blocks(70);
    assert_eq!(
        short.block_by_index(short.head_index()).hash,
        long.block_by_index(long.head_index()).hash
    );
    assert_ne!(
        long.block_by_index(long.head_index()).hash,
        chain(8, 120).block_by_index(long.head_index()).hash
    );
}

/// Checks all three outcomes of a transaction that a reorg orphans.
#[test]
fn orphaned_transactions_are_included_pending_or_dropped() {
    let mut chain = chain(3, 60);
    let orphaned: Vec<_> = (56..=60)
        .filter_map(|number| chain.canonical_at_number(number))
        .flat_map(|index| chain.block_by_index(index).transactions.clone())
        .collect();
    chain.reorg_blocks(5, 5).unwrap();
    let canonical = |transaction| {
        let places = chain.positions_of_transaction(transaction).iter();
        places
            .filter(|(block, _)| {
                chain.canonical_at_number(chain.block_by_index(*block).number) == Some(*block)
            })
            .count()
    };
    let again = orphaned.iter().filter(|tx| canonical(tx) == 1).count();
    let waiting = orphaned
        .iter()
        .filter(|tx| chain.pool_transactions().contains(tx));
    let waiting = waiting.count();
    assert!(again >= 3 && waiting >= 3 && again + waiting + 3 <= orphaned.len());
    assert_chain_invariants(&chain);
}

#[test]
fn refused_command_leaves_the_chain_unchanged() {
    let mut chain = chain(1, 10);
    chain.finalize_block(Some(5)).unwrap();
    let cases: [(RandomChainChange, SimulatedChainChangeError); 6] = [
        (
            RandomChainChange::Reorg(11, 1),
            SimulatedChainChangeError::TooDeep {
                requested: 11,
                head: 10,
            },
        ),
        (
            RandomChainChange::Reorg(1, 0),
            SimulatedChainChangeError::NoBranch,
        ),
        (
            RandomChainChange::Rollback(11),
            SimulatedChainChangeError::TooDeep {
                requested: 11,
                head: 10,
            },
        ),
        (
            RandomChainChange::Finalize(Some(11)),
            SimulatedChainChangeError::AboveHead {
                requested: 11,
                head: 10,
            },
        ),
        (
            RandomChainChange::Finalize(Some(4)),
            SimulatedChainChangeError::NotAboveFinalized {
                requested: 4,
                finalized: 5,
            },
        ),
        (
            RandomChainChange::Unfinalize(5),
            SimulatedChainChangeError::NotBelowFinalized {
                requested: 5,
                finalized: 5,
            },
        ),
    ];
    for (act, error) in cases {
        let before = (
            chain.head_index(),
            chain.block_count(),
            chain.finality_numbers(),
        );
        assert_eq!(run_action(&mut chain, &act), Err(error));
        assert_eq!(
            (
                chain.head_index(),
                chain.block_count(),
                chain.finality_numbers()
            ),
            before
        );
    }
}

#[test]
fn finality_is_remembered_for_lagging_nodes() {
    let mut chain = chain(1, 50);
    chain.finalize_block(Some(30)).unwrap();
    chain.add_blocks(10);
    chain.finalize_block(Some(40)).unwrap();
    chain.add_blocks(10);
    for (head, finalized) in [(70, 40), (60, 40), (59, 30), (50, 30), (49, 0)] {
        assert_eq!(chain.finality_at_head(head).finalized, finalized, "{head}");
    }
}
