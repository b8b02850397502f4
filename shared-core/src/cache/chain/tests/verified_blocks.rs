//! Blocks of other machines that are compared with the canonical blocks of a chain.

use super::*;
use crate::tier::times;

/// Returns the hash of the block with this height on a branch.
fn hash(height: u64, branch: u8) -> [u8; 32] {
    let mut hash = [branch; 32];
    hash[..8].copy_from_slice(&height.to_be_bytes());
    hash
}

/// Creates a chain with the blocks 90 to 100 of branch 1. Block 90 is final.
fn chain_with_blocks() -> NamespaceChain {
    let chain = chain();
    chain.set_recent_blocks((90..=100).rev().map(|height| (height, hash(height, 1))));
    moved(&chain, ChainChange::ChainVerified(true));
    moved(&chain, ChainChange::Final(Some(90)));
    chain
}

fn epoch(chain: &NamespaceChain) -> u64 {
    chain.copy_chain_state().epoch
}

#[test]
fn canonical_block_is_verified_with_the_present_epoch() {
    let chain = chain_with_blocks();
    for height in 88..=102 {
        let expected = (90..=100).contains(&height).then(|| epoch(&chain));
        let verified = chain.verify_block(height, &hash(height, 1));
        assert_eq!(verified, expected, "{height}");
        assert_eq!(
            chain.verify_block(height, &hash(height, 2)),
            None,
            "{height}"
        );
    }
    // a shown block begins an epoch
    assert!(chain.record_block_from_process(ShownBlock {
        height: 101,
        is_block: true,
    }));
    assert_eq!(chain.verify_block(95, &hash(95, 1)), Some(epoch(&chain)));
}

#[test]
fn block_is_not_verified_while_the_state_of_the_chain_is_unknown() {
    let chain = chain_with_blocks();
    for (change, reverse) in [
        (ChainChange::Final(None), ChainChange::Final(Some(90))),
        (
            ChainChange::ChainVerified(false),
            ChainChange::ChainVerified(true),
        ),
        (ChainChange::Wrong(true), ChainChange::Wrong(false)),
    ] {
        moved(&chain, change);
        assert_eq!(chain.verify_block(95, &hash(95, 1)), None, "{change:?}");
        moved(&chain, reverse);
        let verified = chain.verify_block(95, &hash(95, 1));
        assert_eq!(verified, Some(epoch(&chain)), "{reverse:?}");
    }
    chain.clear_canonical_blocks();
    assert_eq!(chain.verify_block(95, &hash(95, 1)), None);
}

#[test]
fn canonical_blocks_are_not_published() {
    let chain = chain_with_blocks();
    let published = chain.copy_chain_state();
    assert_eq!(published.blocks.len(), 8);
    let process = NamespaceChain::new(ChainState::default());
    process.apply_owner_state(published);
    assert!(process.contradicts_recent_block(95, &hash(95, 2)));
    assert_eq!(process.verify_block(95, &hash(95, 1)), None);
}

#[test]
fn verified_entry_is_invalid_after_the_reorganisation_of_its_block() {
    let chain = chain_with_blocks();
    let verified = chain.verify_block(98, &hash(98, 1)).unwrap();
    let lower = chain.verify_block(97, &hash(97, 1)).unwrap();
    // in the order of the follower: first the blocks, then the change
    let blocks = (90..=101).rev().map(|height| {
        let branch = if height < 98 { 1 } else { 2 };
        (height, hash(height, branch))
    });
    chain.set_recent_blocks(blocks);
    assert_eq!(chain.verify_block(98, &hash(98, 1)), None);
    let early = chain.verify_block(98, &hash(98, 2)).unwrap();
    moved(&chain, ChainChange::Reorg { from: 98 });
    moved(&chain, ChainChange::Head(101));
    let is_valid = |epoch, height| {
        let class = LifetimeClass::Unfinalized;
        ChainDependency::new(&chain, class, epoch, Some(height)).is_entry_valid()
    };
    assert!(!is_valid(verified, 98) && is_valid(lower, 97));
    // compared with the new blocks in the old epoch: a miss, never a wrong response
    assert!(!is_valid(early, 98));
    let late = chain.verify_block(98, &hash(98, 2)).unwrap();
    assert!(is_valid(late, 98));
}

/// A step of a random history: a poll of the follower, which has two parts, or a comparison.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Another branch begins this far below the head, and has a number of blocks.
    Reorganise(u64, u64),
    /// The owner receives the blocks of the node's chain.
    SetBlocks,
    /// The owner applies the changes that it has found since then.
    ApplyChanges,
    /// A block is compared: this far below the head, of the present branch or the one before.
    Verify(u64, bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => (0..6_u64, 1..8_u64).prop_map(|(depth, count)| Step::Reorganise(depth, count)),
        3 => Just(Step::SetBlocks),
        3 => Just(Step::ApplyChanges),
        6 => (0..8_u64, any::<bool>()).prop_map(|(depth, is_old)| Step::Verify(depth, is_old)),
    ]
}

/// A chain of a node, and the part of it that the owner has received.
struct ReorganisedChain {
    owner: NamespaceChain,
    /// Hashes by height.
    node: Vec<[u8; 32]>,
    /// The node's blocks before the last reorganisation.
    former: Vec<[u8; 32]>,
    branch: u8,
    /// The blocks that the owner has received last.
    known: Vec<[u8; 32]>,
    /// Changes that the owner applies next.
    changes: Vec<ChainChange>,
    /// Verified blocks: height, hash, epoch.
    verified: Vec<(u64, [u8; 32], u64)>,
}

impl ReorganisedChain {
    fn new() -> Self {
        let node: Vec<_> = (0..=30).map(|height| hash(height, 0)).collect();
        let owner = NamespaceChain::new(ChainState::new_without_blocks(HeightUnit::Blocks, 1_000));
        for change in [
            ChainChange::ChainVerified(true),
            ChainChange::Head(30),
            ChainChange::Final(Some(0)),
        ] {
            moved(&owner, change);
        }
        let mut chain = Self {
            owner,
            former: node.clone(),
            known: node.clone(),
            node,
            branch: 0,
            changes: Vec::new(),
            verified: Vec::new(),
        };
        chain.set_blocks();
        chain
    }

    fn set_blocks(&mut self) {
        let equal = self.known.iter().zip(&self.node);
        let common = equal.take_while(|(known, node)| known == node).count() as u64;
        if common < self.known.len() as u64 {
            self.changes.push(ChainChange::Reorg { from: common });
        }
        self.changes
            .push(ChainChange::Head(self.node.len() as u64 - 1));
        self.known.clone_from(&self.node);
        let blocks = (0_u64..).zip(self.node.clone()).collect::<Vec<_>>();
        self.owner.set_recent_blocks(blocks.into_iter().rev());
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Reorganise(depth, count) => {
                self.former.clone_from(&self.node);
                self.branch = self.branch.wrapping_add(1);
                let left = self.node.len().saturating_sub(depth as usize).max(1);
                self.node.truncate(left);
                for height in left as u64..left as u64 + count {
                    self.node.push(hash(height, self.branch));
                }
            }
            Step::SetBlocks => self.set_blocks(),
            Step::ApplyChanges => {
                for change in self.changes.drain(..) {
                    moved(&self.owner, change);
                }
            }
            Step::Verify(depth, is_old) => {
                let blocks = if is_old { &self.former } else { &self.node };
                let Some(height) = (blocks.len() as u64 - 1).checked_sub(depth) else {
                    return;
                };
                let hash = blocks[height as usize];
                if let Some(epoch) = self.owner.verify_block(height, &hash) {
                    self.verified.push((height, hash, epoch));
                }
            }
        }
    }

    /// Returns the number of verified entries that are valid now. All of them must be on the chain
    /// that the owner has received.
    fn count_valid(&self) -> usize {
        let valid = self.verified.iter().filter(|(height, _, epoch)| {
            let class = LifetimeClass::Unfinalized;
            ChainDependency::new(&self.owner, class, *epoch, Some(*height)).is_entry_valid()
        });
        let valid = valid.inspect(|(height, hash, _)| {
            assert_eq!(self.known.get(*height as usize), Some(hash), "{height}");
        });
        valid.count()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: times(700, 2_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn verified_entries_are_on_the_chain_after_each_reorganisation(
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let mut chain = ReorganisedChain::new();
        for step in steps {
            chain.apply(step);
            if chain.changes.is_empty() {
                chain.count_valid();
            }
        }
        chain.apply(Step::SetBlocks);
        chain.apply(Step::ApplyChanges);
        chain.count_valid();
        // an entry that is compared without a change in between stays valid
        chain.verified.clear();
        chain.apply(Step::Verify(0, false));
        prop_assert_eq!(chain.count_valid(), 1);
    }
}
