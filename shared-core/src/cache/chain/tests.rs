use proptest::prelude::*;

use super::state::{MAX_AHEAD, MAX_REORGS, MAX_SHOWN};
use super::{Chain, ChainChange, ChainDependency, ChainState, HeightKind, ShownBlock};
use crate::cache::class::Class;

fn chain() -> Chain {
    let chain = Chain::new(ChainState::unknown(HeightKind::Blocks, 1_000));
    chain.change(|state| state.apply_change(ChainChange::Head(100)));
    chain
}

fn moved(chain: &Chain, by: ChainChange) {
    chain.change(|state| state.apply_change(by));
}

/// Returns the dependency of an entry that is fetched now.
fn stamp(chain: &Chain, class: Class, height: Option<u64>) -> ChainDependency<'_> {
    ChainDependency::new(chain, class, chain.mark().epoch, height)
}

#[test]
fn empty_result_is_invalid_after_a_new_head_or_a_reorganisation() {
    let chain = chain();
    for next in [ChainChange::Head(101), ChainChange::Reorg { from: 7 }] {
        let nothing = stamp(&chain, Class::Nothing, Some(chain.mark().seen));
        assert!(nothing.holds());
        moved(&chain, next);
        assert!(!nothing.holds());
    }
}

#[test]
fn tip_entry_of_a_plausible_higher_head_invalidates_older_tip_entries() {
    let chain = chain();
    let old = stamp(&chain, Class::Tip, Some(100));
    let new = stamp(&chain, Class::Tip, Some(102));
    assert!(new.observe_dependency() && !new.observe_dependency());
    assert!(!old.holds() && new.holds());
    assert_eq!(chain.mark().seen, 102);
    // the node reaches that head later, and does not revert it
    moved(&chain, ChainChange::Head(101));
    assert!(new.holds());
    // a head that is too far ahead is ignored
    let mad = stamp(&chain, Class::Tip, Some(101 + MAX_AHEAD + 1));
    assert!(!mad.observe_dependency() && new.holds());
    // an entry of an epoch before a reorganisation is ignored too
    moved(&chain, ChainChange::Reorg { from: 101 });
    assert!(!stamp_in(&chain, 0).observe_dependency());
}

fn stamp_in(chain: &Chain, epoch: u64) -> ChainDependency<'_> {
    ChainDependency::new(chain, Class::Tip, epoch, Some(110))
}

#[test]
fn entry_answers_requests_with_an_older_dispatch_mark() {
    let chain = chain();
    let dependency = |class| stamp(&chain, class, Some(100));
    let all = [Class::Tip, Class::Unfinalized, Class::Immutable].map(dependency);
    let answers = |mark: &super::DispatchMark| all.each_ref().map(|stamp| stamp.answers(mark));
    let before = chain.mark();
    moved(&chain, ChainChange::Head(101));
    assert_eq!(answers(&before), [true; 3]);
    assert_eq!(answers(&chain.mark()), [false, true, true]);
    moved(&chain, ChainChange::Reorg { from: 90 });
    assert_eq!(answers(&before), [true; 3]);
    assert_eq!(answers(&chain.mark()), [false, false, true]);
    moved(&chain, ChainChange::Wrong(true));
    assert_eq!(answers(&before), [false; 3]);
}

#[test]
fn hash_of_another_branch_contradicts_the_recent_blocks() {
    let (owner, process) = (chain(), chain());
    let blocks = (0..20).map(|n| (100 - n, [n as u8; 32]));
    owner.change(|state| state.set_recent_blocks(blocks));
    process.set_state(owner.state());
    assert!(!process.contradicts(100, &[0; 32]) && process.contradicts(100, &[1; 32]));
    // older and newer blocks are not known
    assert!(process.contradicts(93, &[0; 32]));
    assert!(!process.contradicts(92, &[0; 32]) && !process.contradicts(101, &[0; 32]));
}

#[test]
fn lower_head_is_accepted_after_a_reorganisation() {
    let chain = chain();
    moved(&chain, ChainChange::Reorg { from: 91 });
    // other nodes may still have the higher head
    assert!(!stamp(&chain, Class::Tip, Some(90)).holds());
    moved(&chain, ChainChange::Head(90));
    assert!(stamp(&chain, Class::Tip, Some(90)).holds());
}

#[test]
fn tip_entry_of_a_reverted_head_is_invalid_at_later_heads() {
    let owner = chain();
    let process = Chain::new(owner.state());
    let publish = || process.set_state(owner.state());
    moved(&owner, ChainChange::Head(105));
    publish();
    // the node has gone back to 100, which the chain follower accepts after a while
    let taken = |class, height| stamp(&process, class, Some(height));
    let tip = taken(Class::Tip, process.mark().seen);
    let above = taken(Class::Unfinalized, 105);
    let below = taken(Class::Unfinalized, 100);
    assert!(tip.holds() && above.holds() && below.holds());
    for head in 100..107 {
        moved(&owner, ChainChange::Head(head));
        publish();
        assert!(!tip.holds() && !above.holds() && below.holds(), "{head}");
        let of_now = taken(Class::Tip, process.mark().seen);
        assert!(of_now.holds(), "{head}");
    }
}

#[test]
fn tip_entry_of_an_unconfirmed_height_is_invalid_once_the_height_is_dropped() {
    let chain = chain();
    let tip = stamp(&chain, Class::Tip, Some(110));
    assert!(tip.observe_dependency() && tip.holds());
    let mut head = 100;
    while chain.mark().seen == 110 {
        head += 1;
        moved(&chain, ChainChange::Head(head));
    }
    assert!(head < 110 && !tip.holds());
}

#[test]
fn unfinalized_entry_is_invalid_after_more_reorganisations_than_are_recorded() {
    let chain = chain();
    let old = stamp(&chain, Class::Unfinalized, Some(1));
    for n in 0..MAX_REORGS {
        assert!(old.holds(), "{n}");
        moved(&chain, ChainChange::Reorg { from: 50 });
    }
    assert!(old.holds());
    moved(&chain, ChainChange::Reorg { from: 50 });
    assert!(!old.holds());
}

#[test]
fn entries_are_invalid_while_the_chain_is_wrong() {
    let chain = chain();
    let classes = [
        Class::Resource,
        Class::Immutable,
        Class::Unfinalized,
        Class::Tip,
    ];
    let all = classes.map(|class| stamp(&chain, class, Some(100)));
    moved(&chain, ChainChange::Wrong(true));
    assert!(chain.mark().is_wrong);
    assert!(all
        .iter()
        .all(|stamp| !stamp.holds() && !stamp.is_unaffected()));
    moved(&chain, ChainChange::Wrong(false));
    // entries that were fetched before this was noticed may belong to either chain
    assert_eq!(all.map(|stamp| stamp.holds()), [true, true, false, false]);
}

#[test]
fn seen_head_is_kept_until_the_owner_reports_a_reorganisation() {
    let (owner, process) = (chain(), chain());
    let publish = || process.set_state(owner.state());
    assert!(process.record_head(103));
    moved(&owner, ChainChange::Final(Some(60)));
    moved(&owner, ChainChange::Head(101));
    publish();
    let mark = process.mark();
    assert_eq!((mark.seen, mark.head), (103, Some(101)));
    assert!(mark.is_final(60) && !mark.is_final(61));
    // until the owner reports a reorganisation
    moved(&owner, ChainChange::Reorg { from: 101 });
    publish();
    assert_eq!(process.mark().seen, 101);
    moved(&owner, ChainChange::Final(None));
    publish();
    assert!(!process.mark().is_final(0));
}

#[test]
fn unconfirmed_head_is_dropped_after_some_new_heads() {
    let chain = chain();
    let seen = |chain: &Chain| chain.state().seen;
    assert!(chain.record_head(150));
    for (head, expected) in [(101, 150), (102, 150), (102, 150), (103, 150), (104, 104)] {
        moved(&chain, ChainChange::Head(head));
        assert_eq!(seen(&chain), expected, "{head}");
    }
    assert!(stamp(&chain, Class::Tip, Some(104)).holds());
    // another response with that head confirms it
    assert!(chain.record_head(150));
    for head in 105..125 {
        moved(&chain, ChainChange::Head(head));
        assert!(!chain.record_head(150));
        assert_eq!(seen(&chain), 150);
    }
}

#[test]
fn unconfirmed_head_is_dropped_after_some_heads_of_the_owner() {
    let chain = chain();
    let seen_after = |head| {
        let mut news = chain.state();
        news.seen = head;
        news.head = Some(head);
        chain.set_state(news);
        chain.state().seen
    };
    assert!(chain.record_head(150));
    assert_eq!(
        [101, 101, 102, 103, 104].map(seen_after),
        [150, 150, 150, 150, 104]
    );
}

#[test]
fn unfinalized_entry_is_invalid_until_the_owner_reports_the_state_again() {
    let (owner, process) = (chain(), chain());
    moved(&owner, ChainChange::Final(Some(60)));
    process.set_state(owner.state());
    let dependency = stamp(&process, Class::Unfinalized, Some(1));
    process.mark_outdated();
    assert!(!dependency.holds() && !process.mark().is_final(1));
    // the same owner, after its event stream was cut
    process.set_state(owner.state());
    assert!(dependency.holds());
}

#[test]
fn reorganisation_to_a_lower_head_takes_one_record() {
    let chain = chain();
    let below = stamp(&chain, Class::Unfinalized, Some(50));
    for depth in 1..=MAX_REORGS as u64 {
        let head = 100 - depth;
        moved(&chain, ChainChange::Reorg { from: head + 1 });
        let between = stamp(&chain, Class::Tip, Some(head + 1));
        moved(&chain, ChainChange::Head(head));
        assert!(!between.is_unaffected(), "block {head}");
    }
    assert!(below.holds());
    moved(&chain, ChainChange::Reorg { from: 80 });
    assert!(!below.holds());
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
        const CLASSES: [Class; 3] = [Class::Unfinalized, Class::Tip, Class::Immutable];
        let owner = chain();
        let process = Chain::new(owner.state());
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
                        Class::Tip => blocks.len() - 1,
                        _ => blocks.len().saturating_sub(1 + up_to as usize),
                    };
                    let seen = blocks[..=height].to_vec();
                    let stamp = stamp(&process, CLASSES[class], Some(height as u64));
                    entries.push((stamp, class, epoch, seen));
                }
                Step::ReplaceOwner => {
                    // the next owner has no state of the former one
                    let mut state = ChainState::unknown(HeightKind::Blocks, 2_000 + made);
                    state.epoch = state.epoch.max(owner.mark().epoch + 1_000);
                    state.since = state.epoch;
                    state.apply_change(ChainChange::Head(blocks.len() as u64 - 1));
                    owner.change(|old| *old = state);
                    epoch += 1;
                    begun = epoch;
                }
            }
            process.set_state(owner.state());
            for (stamp, class, fetched_in, seen) in &entries {
                let is_known = *fetched_in >= begun && epoch - fetched_in <= MAX_REORGS as u64;
                let untouched = match CLASSES[*class] {
                    Class::Unfinalized => is_known && blocks.starts_with(seen),
                    Class::Tip => epoch == *fetched_in,
                    _ => true,
                };
                let is_head = CLASSES[*class] != Class::Tip || blocks == *seen;
                prop_assert_eq!(stamp.is_unaffected(), untouched);
                prop_assert_eq!(stamp.holds(), untouched && is_head);
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
fn fetched(chain: &Chain) -> ChainDependency<'_> {
    let mark = chain.mark();
    stamp(chain, Class::Tip, Some(mark.seen)).after_tip_ends(mark.tip_ends)
}

#[test]
fn shown_block_above_the_head_invalidates_only_older_tip_entries() {
    let chain = chain();
    let (old, by_number) = (fetched(&chain), stamp(&chain, Class::Unfinalized, Some(99)));
    for known in [part(99), block(100)] {
        assert!(!chain.record_shown_block(known) && old.holds());
    }
    assert!(chain.record_shown_block(part(101)));
    assert!(!old.holds() && old.is_unaffected() && by_number.holds());
    // the entry answers requests that were sent before, and no later ones
    let before = chain.mark();
    let new = fetched(&chain);
    assert!(new.holds() && new.answers(&before) && !old.answers(&before));
    // the same block is shown repeatedly, as one that is not sealed yet
    assert!(!chain.record_shown_block(part(101)) && new.holds());
    assert!(chain.record_shown_block(block(101)) && !new.holds());
    assert!(!chain.record_shown_block(block(101)) && !chain.record_shown_block(part(101)));
    let newest = fetched(&chain);
    assert!(newest.holds());
    moved(&chain, ChainChange::Head(101));
    assert!(!newest.holds() && fetched(&chain).holds());
}

#[test]
fn absurd_height_ends_the_tip_once_and_later_blocks_end_it_again() {
    let chain = chain();
    for height in [u64::MAX, u64::MAX - 1, 1 << 63, 100 + MAX_AHEAD, 101, 102] {
        let dependency = fetched(&chain);
        assert!(dependency.holds(), "{height}");
        assert!(
            chain.record_shown_block(block(height)) && !dependency.holds(),
            "{height}"
        );
        let dependency = fetched(&chain);
        assert!(
            !chain.record_shown_block(block(height)) && dependency.holds(),
            "{height}"
        );
    }
    // regardless of their number
    for height in 0..10 * MAX_SHOWN as u64 {
        chain.record_shown_block(block(1_000_000 - height));
    }
    assert!(chain.record_shown_block(part(103)) && !chain.record_shown_block(part(103)));
    assert!(chain.state().shown.len() <= MAX_SHOWN);
}

#[test]
fn shown_height_invalidates_tip_entries_again_after_a_reorganisation() {
    let chain = chain();
    assert!(chain.record_shown_block(block(101)));
    moved(&chain, ChainChange::Reorg { from: 99 });
    moved(&chain, ChainChange::Head(100));
    let dependency = fetched(&chain);
    assert!(dependency.holds() && chain.record_shown_block(block(101)) && !dependency.holds());
}

#[test]
fn shown_block_that_the_owner_publishes_invalidates_older_tip_entries_everywhere() {
    let owner = chain();
    let [here, elsewhere] = [(); 2].map(|()| Chain::new(owner.state()));
    let (there, old) = (fetched(&elsewhere), stamp(&owner, Class::Tip, Some(100)));
    assert!(here.record_shown_block(part(101)));
    let epoch = owner.mark().epoch;
    assert!(here.is_below_floor(epoch, Some(100)) && !elsewhere.is_below_floor(epoch, Some(100)));
    // fetched since then, before the owner has reported the block
    let new = fetched(&here);
    assert!(owner.record_reported_block(part(101)) && !owner.record_reported_block(part(101)));
    assert!(!old.holds());
    for chain in [&here, &elsewhere] {
        chain.set_state(owner.state());
        assert!(!chain.is_below_floor(owner.mark().epoch, Some(100)));
        assert!(!chain.record_shown_block(part(101)));
    }
    assert!(new.holds() && !there.holds() && fetched(&elsewhere).holds());
    // another block that another process has shown
    assert!(owner.record_reported_block(part(102)));
    here.set_state(owner.state());
    assert!(!new.holds());
}

#[test]
fn tip_entry_with_the_head_number_survives_the_block_that_it_shows() {
    let owner = chain();
    let here = Chain::new(owner.state());
    let mark = here.mark();
    let (number, balance) = (
        stamp(&here, Class::Tip, Some(101)).after_tip_ends(mark.tip_ends),
        fetched(&here),
    );
    assert!(here.record_shown_block(block(101)) && here.record_head(101));
    assert!(number.holds() && !balance.holds());
    let put = stamp(&owner, Class::Tip, Some(101));
    assert!(owner.record_reported_block(block(101)) && put.holds() && put.observe_dependency());
    here.set_state(owner.state());
    assert!(number.holds() && here.record_shown_block(part(102)) && !number.holds());
}

#[test]
fn owner_event_that_arrives_after_a_newer_entry_does_not_restore_older_entries() {
    let owner = chain();
    let process = Chain::new(owner.state());
    let shown = |height| {
        let is_news = owner.record_reported_block(ShownBlock {
            height,
            is_block: false,
        });
        assert!(is_news);
        owner.state()
    };
    let (first, second) = (shown(101), shown(102));
    let of =
        |state: &ChainState| ChainDependency::new(&process, Class::Tip, state.epoch, Some(100));
    let (old, new) = (of(&first), of(&second));
    new.observe_owner_dependency();
    assert!(!old.holds() && new.holds());
    process.set_state(first);
    assert!(!old.holds() && new.holds());
    process.set_state(second);
    assert!(!old.holds() && new.holds());
}
