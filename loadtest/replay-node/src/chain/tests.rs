//! Properties of every chain, after any commands.

use std::collections::HashSet;

use proptest::prelude::*;

use super::driver::Driver;
use super::model::{Chain, ChainError, Genesis, Index};

fn chain(seed: u64, length: u64) -> Chain {
    Chain::new(Genesis {
        seed,
        chain_id: 1,
        time: 0,
        length,
        transactions: 8,
    })
}

/// Checks the invariants of a chain.
fn assert_sound(chain: &Chain) {
    let mut included = HashSet::new();
    let mut below: Option<Index> = None;
    for number in 0..=chain.head_number() {
        let index = chain.canonical(number).expect("no gap below the head");
        let block = chain.block(index);
        assert_eq!((block.number, block.parent), (number, below));
        assert_eq!(chain.by_hash(&block.hash), Some(index));
        assert_eq!(chain.by_root(&block.root), Some(index));
        assert_eq!(chain.at_slot(block.slot), Some(index));
        assert!(below.is_none_or(|below| chain.block(below).slot < block.slot));
        for (at, transaction) in block.transactions.iter().enumerate() {
            assert!(included.insert(*transaction), "included twice");
            assert!(chain.places(transaction).contains(&(index, at)));
        }
        below = Some(index);
    }
    assert_eq!(chain.head(), below.expect("a genesis"));
    assert_eq!(chain.canonical(chain.head_number() + 1), None);
    let waiting: HashSet<_> = chain.pool().iter().copied().collect();
    assert_eq!(waiting.len(), chain.pool().len(), "waits twice");
    assert!(waiting.is_disjoint(&included), "waits and is included");
    let finality = chain.finality();
    assert!(finality.finalized <= finality.safe && finality.safe <= chain.head_number());
    assert_eq!(chain.finality_at(chain.head_number()), finality);
}

#[derive(Clone, Debug)]
enum Act {
    Extend(u64),
    Miss(u64),
    Reorg(u64, u64),
    Rollback(u64),
    Adopt(usize),
    Finalize(Option<u64>),
    Unfinalize(u64),
    Slots,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..40u64).prop_map(Act::Extend),
        (0..3u64).prop_map(Act::Miss),
        (0..20u64, 0..20u64).prop_map(|(depth, length)| Act::Reorg(depth, length)),
        (0..60u64).prop_map(Act::Rollback),
        (0..200usize).prop_map(Act::Adopt),
        proptest::option::of(0..200u64).prop_map(Act::Finalize),
        (0..200u64).prop_map(Act::Unfinalize),
        Just(Act::Slots),
    ]
}

fn run(chain: &mut Chain, act: &Act) -> Result<(), ChainError> {
    match *act {
        Act::Extend(blocks) => chain.extend(blocks),
        Act::Miss(slots) => chain.miss(slots),
        Act::Reorg(depth, length) => chain.reorg(depth, length)?,
        Act::Rollback(depth) => chain.rollback(depth)?,
        Act::Adopt(index) => {
            let hash = chain.block(index % chain.blocks()).hash;
            chain.adopt(&hash)?;
        }
        Act::Finalize(number) => chain.finalize(number)?,
        Act::Unfinalize(number) => chain.unfinalize(number)?,
        Act::Slots => chain.finalize_by_slots(),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Applies random commands, valid or not.
    #[test]
    fn chain_is_consistent_and_deterministic_after_any_commands(seed in 0..4u64, acts in proptest::collection::vec(act(), 0..24)) {
        let (mut one, mut other) = (chain(seed, 40), chain(seed, 40));
        for act in &acts {
            let before = one.head();
            if run(&mut one, act).is_err() {
                prop_assert_eq!(one.head(), before);
            }
            assert_sound(&one);
            // The second chain shows that only the commands determine the result.
            let _ = run(&mut other, act);
        }
        prop_assert_eq!(one.block(one.head()).hash, other.block(other.head()).hash);
        prop_assert_eq!(one.pool(), other.pool());
    }

    #[test]
    fn driver_never_replaces_a_finalized_block(
        seed in any::<u64>(),
        reorgs in 0.0..=1.0f64,
        missed in 0.0..0.9f64,
        length in 0..100u64,
    ) {
        let mut chain = chain(seed, length);
        let mut driver = Driver::new(seed, reorgs, missed);
        for _ in 0..300 {
            let finalized = chain.finality().finalized;
            let last = chain.canonical(finalized);
            driver.step(&mut chain);
            prop_assert!(chain.finality().finalized >= finalized);
            prop_assert_eq!(chain.canonical(finalized), last, "what is final was replaced");
            prop_assert!(chain.finality_at(chain.head_number()) == chain.finality());
        }
        assert_sound(&chain);
    }
}

#[test]
fn driver_produces_deep_reorgs_shorter_branches_and_missed_slots() {
    let mut chain = chain(1, 100);
    let mut driver = Driver::new(1, 0.2, 0.1);
    let start = chain.finality().finalized;
    let (mut deepest, mut shorter) = (0, false);
    for _ in 0..2000 {
        let (head, number) = (chain.head(), chain.head_number());
        driver.step(&mut chain);
        let ancestor = chain.common_ancestor(head, chain.head());
        deepest = deepest.max(number - chain.block(ancestor).number);
        shorter |= chain.head_number() < number;
    }
    assert!(deepest >= 4 && shorter, "{deepest} {shorter}");
    assert!(chain.finality().finalized > start + 1000);
    assert!(chain.slot() > chain.head_number(), "no slot was missed");
}

#[test]
fn extended_chain_equals_a_longer_initial_chain() {
    let (mut short, long) = (chain(7, 50), chain(7, 120));
    short.extend(70);
    assert_eq!(short.block(short.head()).hash, long.block(long.head()).hash);
    assert_ne!(
        long.block(long.head()).hash,
        chain(8, 120).block(long.head()).hash
    );
}

/// Checks all three outcomes of a transaction that a reorg orphans.
#[test]
fn orphaned_transactions_are_included_pending_or_dropped() {
    let mut chain = chain(3, 60);
    let orphaned: Vec<_> = (56..=60)
        .filter_map(|number| chain.canonical(number))
        .flat_map(|index| chain.block(index).transactions.clone())
        .collect();
    chain.reorg(5, 5).unwrap();
    let canonical = |transaction| {
        let places = chain.places(transaction).iter();
        places
            .filter(|(block, _)| chain.canonical(chain.block(*block).number) == Some(*block))
            .count()
    };
    let again = orphaned.iter().filter(|tx| canonical(tx) == 1).count();
    let waiting = orphaned.iter().filter(|tx| chain.pool().contains(tx));
    let waiting = waiting.count();
    assert!(again >= 3 && waiting >= 3 && again + waiting + 3 <= orphaned.len());
    assert_sound(&chain);
}

#[test]
fn refused_command_leaves_the_chain_unchanged() {
    let mut chain = chain(1, 10);
    chain.finalize(Some(5)).unwrap();
    let cases: [(Act, ChainError); 6] = [
        (
            Act::Reorg(11, 1),
            ChainError::TooDeep {
                requested: 11,
                head: 10,
            },
        ),
        (Act::Reorg(1, 0), ChainError::NoBranch),
        (
            Act::Rollback(11),
            ChainError::TooDeep {
                requested: 11,
                head: 10,
            },
        ),
        (
            Act::Finalize(Some(11)),
            ChainError::AboveHead {
                requested: 11,
                head: 10,
            },
        ),
        (
            Act::Finalize(Some(4)),
            ChainError::NotAboveFinalized {
                requested: 4,
                finalized: 5,
            },
        ),
        (
            Act::Unfinalize(5),
            ChainError::NotBelowFinalized {
                requested: 5,
                finalized: 5,
            },
        ),
    ];
    for (act, error) in cases {
        let before = (chain.head(), chain.blocks(), chain.finality());
        assert_eq!(run(&mut chain, &act), Err(error));
        assert_eq!((chain.head(), chain.blocks(), chain.finality()), before);
    }
}

#[test]
fn finality_is_remembered_for_lagging_nodes() {
    let mut chain = chain(1, 50);
    chain.finalize(Some(30)).unwrap();
    chain.extend(10);
    chain.finalize(Some(40)).unwrap();
    chain.extend(10);
    for (head, finalized) in [(70, 40), (60, 40), (59, 30), (50, 30), (49, 0)] {
        assert_eq!(chain.finality_at(head).finalized, finalized, "{head}");
    }
}
