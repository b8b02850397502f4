mod verified_blocks;

use proptest::prelude::*;

use super::state::{MAX_BLOCKS_AHEAD, MAX_REORGS, MAX_SHOWN_BLOCKS};
use super::{ChainChange, ChainDependency, ChainState, HeightUnit, NamespaceChain, ShownBlock};
use crate::cache::class::LifetimeClass;

fn chain() -> NamespaceChain {
    let chain = NamespaceChain::new(ChainState::new_without_blocks(HeightUnit::Blocks, 1_000));
    chain.modify_locked_chain_state(|state| state.apply_chain_change(ChainChange::Head(100)));
    chain
}

fn moved(chain: &NamespaceChain, by: ChainChange) {
    chain.modify_locked_chain_state(|state| state.apply_chain_change(by));
}

/// Returns the dependency of an entry that is fetched now.
fn dependency_of_new_entry(
    chain: &NamespaceChain,
    class: LifetimeClass,
    height: Option<u64>,
) -> ChainDependency<'_> {
    ChainDependency::new(chain, class, chain.chain_mark_at_dispatch().epoch, height)
}

#[test]
fn empty_result_is_invalid_after_a_new_head_or_a_reorganisation() {
    let chain = chain();
    for next in [ChainChange::Head(101), ChainChange::Reorg { from: 7 }] {
        let nothing = dependency_of_new_entry(
            &chain,
            LifetimeClass::Nothing,
            Some(chain.chain_mark_at_dispatch().seen),
        );
        assert!(nothing.is_entry_valid());
        moved(&chain, next);
        assert!(!nothing.is_entry_valid());
    }
}

#[test]
fn tip_entry_of_a_plausible_higher_head_invalidates_older_tip_entries() {
    let chain = chain();
    let old = dependency_of_new_entry(&chain, LifetimeClass::Tip, Some(100));
    let new = dependency_of_new_entry(&chain, LifetimeClass::Tip, Some(102));
    assert!(new.record_newer_entry_head() && !new.record_newer_entry_head());
    assert!(!old.is_entry_valid() && new.is_entry_valid());
    assert_eq!(chain.chain_mark_at_dispatch().seen, 102);
    // the node reaches that head later, and does not revert it
    moved(&chain, ChainChange::Head(101));
    assert!(new.is_entry_valid());
    // a head that is too far ahead is ignored
    let mad = dependency_of_new_entry(&chain, LifetimeClass::Tip, Some(101 + MAX_BLOCKS_AHEAD + 1));
    assert!(!mad.record_newer_entry_head() && new.is_entry_valid());
    // an entry of an epoch before a reorganisation is ignored too
    moved(&chain, ChainChange::Reorg { from: 101 });
    assert!(!stamp_in(&chain, 0).record_newer_entry_head());
}

fn stamp_in(chain: &NamespaceChain, epoch: u64) -> ChainDependency<'_> {
    ChainDependency::new(chain, LifetimeClass::Tip, epoch, Some(110))
}

#[test]
fn entry_answers_requests_with_an_older_dispatch_mark() {
    let chain = chain();
    let dependency = |class| dependency_of_new_entry(&chain, class, Some(100));
    let all = [
        LifetimeClass::Tip,
        LifetimeClass::Unfinalized,
        LifetimeClass::Immutable,
    ]
    .map(dependency);
    let answers = |mark: &super::DispatchMark| {
        all.each_ref()
            .map(|stamp| stamp.may_answer_dispatched_request(mark))
    };
    let before = chain.chain_mark_at_dispatch();
    moved(&chain, ChainChange::Head(101));
    assert_eq!(answers(&before), [true; 3]);
    assert_eq!(
        answers(&chain.chain_mark_at_dispatch()),
        [false, true, true]
    );
    moved(&chain, ChainChange::Reorg { from: 90 });
    assert_eq!(answers(&before), [true; 3]);
    assert_eq!(
        answers(&chain.chain_mark_at_dispatch()),
        [false, false, true]
    );
    moved(&chain, ChainChange::Wrong(true));
    assert_eq!(answers(&before), [false; 3]);
}

#[test]
fn hash_of_another_branch_contradicts_the_recent_blocks() {
    let (owner, process) = (chain(), chain());
    let blocks = (0..20).map(|n| (100 - n, [n as u8; 32]));
    owner.modify_locked_chain_state(|state| state.set_recent_blocks(blocks));
    process.apply_owner_state(owner.copy_chain_state());
    assert!(
        !process.contradicts_recent_block(100, &[0; 32])
            && process.contradicts_recent_block(100, &[1; 32])
    );
    // older and newer blocks are not known
    assert!(process.contradicts_recent_block(93, &[0; 32]));
    assert!(
        !process.contradicts_recent_block(92, &[0; 32])
            && !process.contradicts_recent_block(101, &[0; 32])
    );
}

#[test]
fn lower_head_is_accepted_after_a_reorganisation() {
    let chain = chain();
    moved(&chain, ChainChange::Reorg { from: 91 });
    // other nodes may still have the higher head
    assert!(!dependency_of_new_entry(&chain, LifetimeClass::Tip, Some(90)).is_entry_valid());
    moved(&chain, ChainChange::Head(90));
    assert!(dependency_of_new_entry(&chain, LifetimeClass::Tip, Some(90)).is_entry_valid());
}

#[test]
fn tip_entry_of_a_reverted_head_is_invalid_at_later_heads() {
    let owner = chain();
    let process = NamespaceChain::new(owner.copy_chain_state());
    let publish = || process.apply_owner_state(owner.copy_chain_state());
    moved(&owner, ChainChange::Head(105));
    publish();
    // the node has gone back to 100, which the chain follower accepts after a while
    let taken = |class, height| dependency_of_new_entry(&process, class, Some(height));
    let tip = taken(LifetimeClass::Tip, process.chain_mark_at_dispatch().seen);
    let above = taken(LifetimeClass::Unfinalized, 105);
    let below = taken(LifetimeClass::Unfinalized, 100);
    assert!(tip.is_entry_valid() && above.is_entry_valid() && below.is_entry_valid());
    for head in 100..107 {
        moved(&owner, ChainChange::Head(head));
        publish();
        assert!(
            !tip.is_entry_valid() && !above.is_entry_valid() && below.is_entry_valid(),
            "{head}"
        );
        let of_now = taken(LifetimeClass::Tip, process.chain_mark_at_dispatch().seen);
        assert!(of_now.is_entry_valid(), "{head}");
    }
}

#[test]
fn tip_entry_of_an_unconfirmed_height_is_invalid_once_the_height_is_dropped() {
    let chain = chain();
    let tip = dependency_of_new_entry(&chain, LifetimeClass::Tip, Some(110));
    assert!(tip.record_newer_entry_head() && tip.is_entry_valid());
    let mut head = 100;
    while chain.chain_mark_at_dispatch().seen == 110 {
        head += 1;
        moved(&chain, ChainChange::Head(head));
    }
    assert!(head < 110 && !tip.is_entry_valid());
}

#[test]
fn unfinalized_entry_is_invalid_after_more_reorganisations_than_are_recorded() {
    let chain = chain();
    let old = dependency_of_new_entry(&chain, LifetimeClass::Unfinalized, Some(1));
    for n in 0..MAX_REORGS {
        assert!(old.is_entry_valid(), "{n}");
        moved(&chain, ChainChange::Reorg { from: 50 });
    }
    assert!(old.is_entry_valid());
    moved(&chain, ChainChange::Reorg { from: 50 });
    assert!(!old.is_entry_valid());
}

#[test]
fn entries_are_invalid_while_the_chain_is_wrong() {
    let chain = chain();
    let classes = [
        LifetimeClass::Resource,
        LifetimeClass::Immutable,
        LifetimeClass::Unfinalized,
        LifetimeClass::Tip,
    ];
    let all = classes.map(|class| dependency_of_new_entry(&chain, class, Some(100)));
    moved(&chain, ChainChange::Wrong(true));
    assert!(chain.chain_mark_at_dispatch().is_wrong);
    assert!(all
        .iter()
        .all(|stamp| !stamp.is_entry_valid() && !stamp.is_unaffected_by_reorgs()));
    moved(&chain, ChainChange::Wrong(false));
    // entries that were fetched before this was noticed may belong to either chain
    assert_eq!(
        all.map(|stamp| stamp.is_entry_valid()),
        [true, true, false, false]
    );
}

#[test]
fn seen_head_is_kept_until_the_owner_reports_a_reorganisation() {
    let (owner, process) = (chain(), chain());
    let publish = || process.apply_owner_state(owner.copy_chain_state());
    assert!(process.record_reported_head_height(103));
    moved(&owner, ChainChange::Final(Some(60)));
    moved(&owner, ChainChange::Head(101));
    publish();
    let mark = process.chain_mark_at_dispatch();
    assert_eq!((mark.seen, mark.head), (103, Some(101)));
    assert!(mark.is_height_final(60) && !mark.is_height_final(61));
    // until the owner reports a reorganisation
    moved(&owner, ChainChange::Reorg { from: 101 });
    publish();
    assert_eq!(process.chain_mark_at_dispatch().seen, 101);
    moved(&owner, ChainChange::Final(None));
    publish();
    assert!(!process.chain_mark_at_dispatch().is_height_final(0));
}

#[test]
fn unconfirmed_head_is_dropped_after_some_new_heads() {
    let chain = chain();
    let seen = |chain: &NamespaceChain| chain.copy_chain_state().seen;
    assert!(chain.record_reported_head_height(150));
    for (head, expected) in [(101, 150), (102, 150), (102, 150), (103, 150), (104, 104)] {
        moved(&chain, ChainChange::Head(head));
        assert_eq!(seen(&chain), expected, "{head}");
    }
    assert!(dependency_of_new_entry(&chain, LifetimeClass::Tip, Some(104)).is_entry_valid());
    // another response with that head confirms it
    assert!(chain.record_reported_head_height(150));
    for head in 105..125 {
        moved(&chain, ChainChange::Head(head));
        assert!(!chain.record_reported_head_height(150));
        assert_eq!(seen(&chain), 150);
    }
}

#[test]
fn unconfirmed_head_is_dropped_after_some_heads_of_the_owner() {
    let chain = chain();
    let seen_after = |head| {
        let mut published = chain.copy_chain_state();
        published.seen = head;
        published.head = Some(head);
        chain.apply_owner_state(published);
        chain.copy_chain_state().seen
    };
    assert!(chain.record_reported_head_height(150));
    assert_eq!(
        [101, 101, 102, 103, 104].map(seen_after),
        [150, 150, 150, 150, 104]
    );
}

#[test]
fn unfinalized_entry_is_invalid_until_the_owner_reports_the_state_again() {
    let (owner, process) = (chain(), chain());
    moved(&owner, ChainChange::Final(Some(60)));
    process.apply_owner_state(owner.copy_chain_state());
    let dependency = dependency_of_new_entry(&process, LifetimeClass::Unfinalized, Some(1));
    process.discard_owner_state();
    assert!(!dependency.is_entry_valid() && !process.chain_mark_at_dispatch().is_height_final(1));
    // the same owner, after its event stream was cut
    process.apply_owner_state(owner.copy_chain_state());
    assert!(dependency.is_entry_valid());
}

#[test]
fn reorganisation_to_a_lower_head_takes_one_record() {
    let chain = chain();
    let below = dependency_of_new_entry(&chain, LifetimeClass::Unfinalized, Some(50));
    for depth in 1..=MAX_REORGS as u64 {
        let head = 100 - depth;
        moved(&chain, ChainChange::Reorg { from: head + 1 });
        let between = dependency_of_new_entry(&chain, LifetimeClass::Tip, Some(head + 1));
        moved(&chain, ChainChange::Head(head));
        assert!(!between.is_unaffected_by_reorgs(), "block {head}");
    }
    assert!(below.is_entry_valid());
    moved(&chain, ChainChange::Reorg { from: 80 });
    assert!(!below.is_entry_valid());
}

#[derive(Clone, Debug)]
enum Step {
    Extend(u64),
    Replace { depth: u64, by: u64 },
    Fetch { up_to: u64, class: usize },
    ReplaceOwner,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..3u64).prop_map(Step::Extend),
        2 => (1..9u64, 0..9u64).prop_map(|(depth, by)| Step::Replace { depth, by }),
        6 => (0..20u64, 0..3usize).prop_map(|(up_to, class)| Step::Fetch { up_to, class }),
        1 => Just(Step::ReplaceOwner),
    ]
}

proptest! {
    /// An entry is valid as long as no block that it depends on is replaced; an entry about the
    /// head, as long as the head stays. No entry outlives more reorganisations than are recorded,
    /// nor its owner. The process receives each state before the next change.
    #[test]
    fn entry_is_valid_until_its_dependencies_change(steps in prop::collection::vec(step(), 1..80)) {
        const CLASSES: [LifetimeClass; 3] = [LifetimeClass::Unfinalized, LifetimeClass::Tip, LifetimeClass::Immutable];
        let owner = chain();
        let process = NamespaceChain::new(owner.copy_chain_state());
        // blocks by height; each has its own number
        let mut blocks: Vec<u64> = (0..=100).collect();
        let mut made = 100;
        // dependency, class, epoch of the fetch, and the blocks at that time
        let mut entries: Vec<(ChainDependency<'_>, usize, u64, Vec<u64>)> = Vec::new();
        let (mut epoch, mut begun) = (0, 0);
        for step in steps {
            match step {
                Step::Extend(by) => {
                    blocks.extend(made + 1..=made + by);
                    made += by;
                    moved(&owner, ChainChange::Head(blocks.len() as u64 - 1));
                }
                Step::Replace { depth, by } => {
                    let left = blocks.len() - depth as usize;
                    blocks.truncate(left);
                    blocks.extend(made + 1..=made + by);
                    made += by;
                    epoch += 1;
                    moved(&owner, ChainChange::Reorg { from: left as u64 });
                    moved(&owner, ChainChange::Head(blocks.len() as u64 - 1));
                }
                Step::Fetch { up_to, class } => {
                    let height = match CLASSES[class] {
                        LifetimeClass::Tip => blocks.len() - 1,
                        _ => blocks.len().saturating_sub(1 + up_to as usize),
                    };
                    let seen = blocks[..=height].to_vec();
                    let stamp = dependency_of_new_entry(&process, CLASSES[class], Some(height as u64));
                    entries.push((stamp, class, epoch, seen));
                }
                Step::ReplaceOwner => {
                    // the next owner has no state of the former one
                    let mut state = ChainState::new_without_blocks(HeightUnit::Blocks, 2_000 + made);
                    state.epoch = state.epoch.max(owner.chain_mark_at_dispatch().epoch + 1_000);
                    state.since = state.epoch;
                    state.apply_chain_change(ChainChange::Head(blocks.len() as u64 - 1));
                    owner.modify_locked_chain_state(|old| *old = state);
                    epoch += 1;
                    begun = epoch;
                }
            }
            process.apply_owner_state(owner.copy_chain_state());
            for (stamp, class, fetched_in, seen) in &entries {
                let is_known = *fetched_in >= begun && epoch - fetched_in <= MAX_REORGS as u64;
                let untouched = match CLASSES[*class] {
                    LifetimeClass::Unfinalized => is_known && blocks.starts_with(seen),
                    LifetimeClass::Tip => epoch == *fetched_in,
                    _ => true,
                };
                let is_head = CLASSES[*class] != LifetimeClass::Tip || blocks == *seen;
                prop_assert_eq!(stamp.is_unaffected_by_reorgs(), untouched);
                prop_assert_eq!(stamp.is_entry_valid(), untouched && is_head);
            }
        }
    }
}

fn part(height: u64) -> ShownBlock {
    ShownBlock {
        height,
        is_block: false,
    }
}

fn block(height: u64) -> ShownBlock {
    ShownBlock {
        height,
        is_block: true,
    }
}

/// Returns the dependency of an entry about the head that a process fetches now.
fn dependency_of_head_entry(chain: &NamespaceChain) -> ChainDependency<'_> {
    let mark = chain.chain_mark_at_dispatch();
    dependency_of_new_entry(chain, LifetimeClass::Tip, Some(mark.seen))
        .with_shown_block_expiry_count(mark.tip_ends)
}

#[test]
fn shown_block_above_the_head_invalidates_only_older_tip_entries() {
    let chain = chain();
    let (old, by_number) = (
        dependency_of_head_entry(&chain),
        dependency_of_new_entry(&chain, LifetimeClass::Unfinalized, Some(99)),
    );
    for known in [part(99), block(100)] {
        assert!(!chain.record_shown_block(known) && old.is_entry_valid());
    }
    assert!(chain.record_shown_block(part(101)));
    assert!(!old.is_entry_valid() && old.is_unaffected_by_reorgs() && by_number.is_entry_valid());
    // the entry answers requests that were sent before, and no later ones
    let before = chain.chain_mark_at_dispatch();
    let new = dependency_of_head_entry(&chain);
    assert!(
        new.is_entry_valid()
            && new.may_answer_dispatched_request(&before)
            && !old.may_answer_dispatched_request(&before)
    );
    // the same block is shown repeatedly, as one that is not sealed yet
    assert!(!chain.record_shown_block(part(101)) && new.is_entry_valid());
    assert!(chain.record_shown_block(block(101)) && !new.is_entry_valid());
    assert!(!chain.record_shown_block(block(101)) && !chain.record_shown_block(part(101)));
    let newest = dependency_of_head_entry(&chain);
    assert!(newest.is_entry_valid());
    moved(&chain, ChainChange::Head(101));
    assert!(!newest.is_entry_valid() && dependency_of_head_entry(&chain).is_entry_valid());
}

#[test]
fn absurd_height_ends_the_tip_once_and_later_blocks_end_it_again() {
    let chain = chain();
    for height in [
        u64::MAX,
        u64::MAX - 1,
        1 << 63,
        100 + MAX_BLOCKS_AHEAD,
        101,
        102,
    ] {
        let dependency = dependency_of_head_entry(&chain);
        assert!(dependency.is_entry_valid(), "{height}");
        assert!(
            chain.record_shown_block(block(height)) && !dependency.is_entry_valid(),
            "{height}"
        );
        let dependency = dependency_of_head_entry(&chain);
        assert!(
            !chain.record_shown_block(block(height)) && dependency.is_entry_valid(),
            "{height}"
        );
    }
    // regardless of their number
    for height in 0..10 * MAX_SHOWN_BLOCKS as u64 {
        chain.record_shown_block(block(1_000_000 - height));
    }
    assert!(chain.record_shown_block(part(103)) && !chain.record_shown_block(part(103)));
    assert!(chain.copy_chain_state().shown.len() <= MAX_SHOWN_BLOCKS);
}

#[test]
fn shown_height_invalidates_tip_entries_again_after_a_reorganisation() {
    let chain = chain();
    assert!(chain.record_shown_block(block(101)));
    moved(&chain, ChainChange::Reorg { from: 99 });
    moved(&chain, ChainChange::Head(100));
    let dependency = dependency_of_head_entry(&chain);
    assert!(
        dependency.is_entry_valid()
            && chain.record_shown_block(block(101))
            && !dependency.is_entry_valid()
    );
}

#[test]
fn shown_block_that_the_owner_publishes_invalidates_older_tip_entries_everywhere() {
    let owner = chain();
    let [here, elsewhere] = [(); 2].map(|()| NamespaceChain::new(owner.copy_chain_state()));
    let (there, old) = (
        dependency_of_head_entry(&elsewhere),
        dependency_of_new_entry(&owner, LifetimeClass::Tip, Some(100)),
    );
    assert!(here.record_shown_block(part(101)));
    let epoch = owner.chain_mark_at_dispatch().epoch;
    assert!(
        here.is_entry_below_tip_floor(epoch, Some(100))
            && !elsewhere.is_entry_below_tip_floor(epoch, Some(100))
    );
    // fetched since then, before the owner has reported the block
    let new = dependency_of_head_entry(&here);
    assert!(
        owner.record_block_from_process(part(101)) && !owner.record_block_from_process(part(101))
    );
    assert!(!old.is_entry_valid());
    for chain in [&here, &elsewhere] {
        chain.apply_owner_state(owner.copy_chain_state());
        assert!(!chain.is_entry_below_tip_floor(owner.chain_mark_at_dispatch().epoch, Some(100)));
        assert!(!chain.record_shown_block(part(101)));
    }
    assert!(
        new.is_entry_valid()
            && !there.is_entry_valid()
            && dependency_of_head_entry(&elsewhere).is_entry_valid()
    );
    // another block that another process has shown
    assert!(owner.record_block_from_process(part(102)));
    here.apply_owner_state(owner.copy_chain_state());
    assert!(!new.is_entry_valid());
}

#[test]
fn tip_entry_with_the_head_number_survives_the_block_that_it_shows() {
    let owner = chain();
    let here = NamespaceChain::new(owner.copy_chain_state());
    let mark = here.chain_mark_at_dispatch();
    let (number, balance) = (
        dependency_of_new_entry(&here, LifetimeClass::Tip, Some(101))
            .with_shown_block_expiry_count(mark.tip_ends),
        dependency_of_head_entry(&here),
    );
    assert!(here.record_shown_block(block(101)) && here.record_reported_head_height(101));
    assert!(number.is_entry_valid() && !balance.is_entry_valid());
    let put = dependency_of_new_entry(&owner, LifetimeClass::Tip, Some(101));
    assert!(
        owner.record_block_from_process(block(101))
            && put.is_entry_valid()
            && put.record_newer_entry_head()
    );
    here.apply_owner_state(owner.copy_chain_state());
    assert!(
        number.is_entry_valid() && here.record_shown_block(part(102)) && !number.is_entry_valid()
    );
}

#[test]
fn owner_event_that_arrives_after_a_newer_entry_does_not_restore_older_entries() {
    let owner = chain();
    let process = NamespaceChain::new(owner.copy_chain_state());
    let shown = |height| {
        let is_news = owner.record_block_from_process(ShownBlock {
            height,
            is_block: false,
        });
        assert!(is_news);
        owner.copy_chain_state()
    };
    let (first, second) = (shown(101), shown(102));
    let of = |state: &ChainState| {
        ChainDependency::new(&process, LifetimeClass::Tip, state.epoch, Some(100))
    };
    let (old, new) = (of(&first), of(&second));
    new.record_entry_from_owner();
    assert!(!old.is_entry_valid() && new.is_entry_valid());
    process.apply_owner_state(first);
    assert!(!old.is_entry_valid() && new.is_entry_valid());
    process.apply_owner_state(second);
    assert!(!old.is_entry_valid() && new.is_entry_valid());
}
