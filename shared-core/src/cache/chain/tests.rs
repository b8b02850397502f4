use proptest::prelude::*;

use super::{Chain, Heights, Move, Sighting, Stamp, State, AHEAD, MOST_REORGS, MOST_SHOWN};
use crate::cache::class::Class;

fn chain() -> Chain {
    let chain = Chain::new(State::unknown(Heights::Blocks, 1_000));
    chain.change(|state| state.moved(Move::Head(100)));
    chain
}

fn moved(chain: &Chain, by: Move) {
    chain.change(|state| state.moved(by));
}

/// Of what is asked for now.
fn stamp(chain: &Chain, class: Class, height: Option<u64>) -> Stamp<'_> {
    Stamp::new(chain, class, chain.mark().epoch, height)
}

#[test]
fn that_there_was_nothing_is_over_with_the_next_head_too() {
    let chain = chain();
    for next in [Move::Head(101), Move::Reorg { from: 7 }] {
        let nothing = stamp(&chain, Class::Nothing, Some(chain.mark().seen));
        assert!(nothing.holds());
        moved(&chain, next);
        assert!(!nothing.holds());
    }
}

#[test]
fn an_answer_may_tell_of_a_newer_head() {
    let chain = chain();
    let old = stamp(&chain, Class::Tip, Some(100));
    let new = stamp(&chain, Class::Tip, Some(102));
    assert!(new.tell() && !new.tell());
    assert!(!old.holds() && new.holds());
    assert_eq!(chain.mark().seen, 102);
    // its node gets there later, and never takes it back
    moved(&chain, Move::Head(101));
    assert!(new.holds());
    // what nobody can know is not believed
    let mad = stamp(&chain, Class::Tip, Some(101 + AHEAD + 1));
    assert!(!mad.tell() && new.holds());
    // nor is what was true before a reorganisation
    moved(&chain, Move::Reorg { from: 101 });
    assert!(!stamp_in(&chain, 0).tell());
}

fn stamp_in(chain: &Chain, epoch: u64) -> Stamp<'_> {
    Stamp::new(chain, Class::Tip, epoch, Some(110))
}

#[test]
fn an_answer_is_one_to_who_asked_before() {
    let chain = chain();
    let kept = |class| stamp(&chain, class, Some(100));
    let all = [Class::Tip, Class::Unfinalized, Class::Immutable].map(kept);
    let answers = |mark: &super::Mark| all.each_ref().map(|stamp| stamp.answers(mark));
    let before = chain.mark();
    moved(&chain, Move::Head(101));
    assert_eq!(answers(&before), [true; 3]);
    assert_eq!(answers(&chain.mark()), [false, true, true]);
    moved(&chain, Move::Reorg { from: 90 });
    assert_eq!(answers(&before), [true; 3]);
    assert_eq!(answers(&chain.mark()), [false, false, true]);
    moved(&chain, Move::Wrong(true));
    assert_eq!(answers(&before), [false; 3]);
}

#[test]
fn an_answer_of_another_branch_is_told_by_its_hash() {
    let (owner, process) = (chain(), chain());
    let blocks = (0..20).map(|n| (100 - n, [n as u8; 32]));
    owner.change(|state| state.knows(blocks));
    process.told(owner.state());
    assert!(!process.contradicts(100, &[0; 32]) && process.contradicts(100, &[1; 32]));
    // what is older, or newer, is not known
    assert!(process.contradicts(93, &[0; 32]));
    assert!(!process.contradicts(92, &[0; 32]) && !process.contradicts(101, &[0; 32]));
}

#[test]
fn a_lower_head_is_the_head_when_its_node_says_so() {
    let chain = chain();
    moved(&chain, Move::Reorg { from: 91 });
    // others still know of the higher one
    assert!(!stamp(&chain, Class::Tip, Some(90)).holds());
    moved(&chain, Move::Head(90));
    assert!(stamp(&chain, Class::Tip, Some(90)).holds());
}

#[test]
fn tip_entry_of_a_reverted_head_is_invalid_at_later_heads() {
    let owner = chain();
    let process = Chain::new(owner.state());
    let tell = || process.told(owner.state());
    moved(&owner, Move::Head(105));
    tell();
    // the node has gone back to 100, which its follower believes after a while
    let taken = |class, height| stamp(&process, class, Some(height));
    let tip = taken(Class::Tip, process.mark().seen);
    let above = taken(Class::Unfinalized, 105);
    let below = taken(Class::Unfinalized, 100);
    assert!(tip.holds() && above.holds() && below.holds());
    for head in 100..107 {
        moved(&owner, Move::Head(head));
        tell();
        assert!(!tip.holds() && !above.holds() && below.holds(), "{head}");
        let of_now = taken(Class::Tip, process.mark().seen);
        assert!(of_now.holds(), "{head}");
    }
}

#[test]
fn tip_entry_of_an_unconfirmed_height_is_invalid_once_the_height_is_dropped() {
    let chain = chain();
    let tip = stamp(&chain, Class::Tip, Some(110));
    assert!(tip.tell() && tip.holds());
    let mut head = 100;
    while chain.mark().seen == 110 {
        head += 1;
        moved(&chain, Move::Head(head));
    }
    assert!(head < 110 && !tip.holds());
}

#[test]
fn what_is_older_than_all_that_is_known_does_not_hold() {
    let chain = chain();
    let old = stamp(&chain, Class::Unfinalized, Some(1));
    for n in 0..MOST_REORGS {
        assert!(old.holds(), "{n}");
        moved(&chain, Move::Reorg { from: 50 });
    }
    assert!(old.holds());
    moved(&chain, Move::Reorg { from: 50 });
    assert!(!old.holds());
}

#[test]
fn nothing_of_another_chain_holds() {
    let chain = chain();
    let classes = [
        Class::Resource,
        Class::Immutable,
        Class::Unfinalized,
        Class::Tip,
    ];
    let all = classes.map(|class| stamp(&chain, class, Some(100)));
    moved(&chain, Move::Wrong(true));
    assert!(chain.mark().is_wrong);
    assert!(all
        .iter()
        .all(|stamp| !stamp.holds() && !stamp.is_untouched()));
    moved(&chain, Move::Wrong(false));
    // what came before it was noticed may be of either
    assert_eq!(all.map(|stamp| stamp.holds()), [true, true, false, false]);
}

#[test]
fn a_process_believes_its_owner_and_keeps_what_it_has_seen() {
    let (owner, process) = (chain(), chain());
    let tell = || process.told(owner.state());
    assert!(process.sees(103));
    moved(&owner, Move::Final(Some(60)));
    moved(&owner, Move::Head(101));
    tell();
    let mark = process.mark();
    assert_eq!((mark.seen, mark.head), (103, Some(101)));
    assert!(mark.is_final(60) && !mark.is_final(61));
    // until the owner knows better
    moved(&owner, Move::Reorg { from: 101 });
    tell();
    assert_eq!(process.mark().seen, 101);
    moved(&owner, Move::Final(None));
    tell();
    assert!(!process.mark().is_final(0));
}

#[test]
fn a_head_that_nobody_confirms_is_believed_for_some_heads_only() {
    let chain = chain();
    let seen = |chain: &Chain| chain.state().seen;
    assert!(chain.sees(150));
    for (head, expected) in [(101, 150), (102, 150), (102, 150), (103, 150), (104, 104)] {
        moved(&chain, Move::Head(head));
        assert_eq!(seen(&chain), expected, "{head}");
    }
    assert!(stamp(&chain, Class::Tip, Some(104)).holds());
    // another answer that tells of it confirms it
    assert!(chain.sees(150));
    for head in 105..125 {
        moved(&chain, Move::Head(head));
        assert!(!chain.sees(150));
        assert_eq!(seen(&chain), 150);
    }
}

#[test]
fn a_process_gives_such_a_head_up_too() {
    let chain = chain();
    let told = |head| {
        let mut news = chain.state();
        news.seen = head;
        news.head = Some(head);
        chain.told(news);
        chain.state().seen
    };
    assert!(chain.sees(150));
    assert_eq!(
        [101, 101, 102, 103, 104].map(told),
        [150, 150, 150, 150, 104]
    );
}

#[test]
fn what_nobody_vouches_for_does_not_hold_until_somebody_does() {
    let (owner, process) = (chain(), chain());
    moved(&owner, Move::Final(Some(60)));
    process.told(owner.state());
    let kept = stamp(&process, Class::Unfinalized, Some(1));
    process.outdate();
    assert!(!kept.holds() && !process.mark().is_final(1));
    // the same owner, after its stream was cut
    process.told(owner.state());
    assert!(kept.holds());
}

#[derive(Clone, Debug)]
enum Step {
    Extend(u64),
    Replace { depth: u64, by: u64 },
    Ask { up_to: u64, class: usize },
    Lose,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..3u64).prop_map(Step::Extend),
        2 => (1..9u64, 0..9u64).prop_map(|(depth, by)| Step::Replace { depth, by }),
        6 => (0..20u64, 0..3usize).prop_map(|(up_to, class)| Step::Ask { up_to, class }),
        1 => Just(Step::Lose),
    ]
}

proptest! {
    /// An entry holds as long as each block that it depends on is the one that it
    /// was, and of the head while there is no other; but not over more
    /// reorganisations than are known, nor in the time of another owner. What a
    /// process has not been told is told before the next one.
    #[test]
    fn what_holds_is_true(steps in prop::collection::vec(step(), 1..80)) {
        const CLASSES: [Class; 3] = [Class::Unfinalized, Class::Tip, Class::Immutable];
        let owner = chain();
        let process = Chain::new(owner.state());
        // blocks by height, each another number
        let mut blocks: Vec<u64> = (0..=100).collect();
        let mut made = 100;
        // with the epoch that it was asked in, and the blocks that were there
        let mut entries: Vec<(Stamp<'_>, usize, u64, Vec<u64>)> = Vec::new();
        let (mut epoch, mut begun) = (0, 0);
        for step in steps {
            match step {
                Step::Extend(by) => {
                    blocks.extend(made + 1..=made + by);
                    made += by;
                    moved(&owner, Move::Head(blocks.len() as u64 - 1));
                }
                Step::Replace { depth, by } => {
                    let left = blocks.len() - depth as usize;
                    blocks.truncate(left);
                    blocks.extend(made + 1..=made + by);
                    made += by;
                    epoch += 1;
                    moved(&owner, Move::Reorg { from: left as u64 });
                    moved(&owner, Move::Head(blocks.len() as u64 - 1));
                }
                Step::Ask { up_to, class } => {
                    let height = match CLASSES[class] {
                        Class::Tip => blocks.len() - 1,
                        _ => blocks.len().saturating_sub(1 + up_to as usize),
                    };
                    let seen = blocks[..=height].to_vec();
                    let stamp = stamp(&process, CLASSES[class], Some(height as u64));
                    entries.push((stamp, class, epoch, seen));
                }
                Step::Lose => {
                    // an owner that comes after knows of nothing before
                    let mut state = State::unknown(Heights::Blocks, 2_000 + made);
                    state.epoch = state.epoch.max(owner.mark().epoch + 1_000);
                    state.since = state.epoch;
                    state.moved(Move::Head(blocks.len() as u64 - 1));
                    owner.change(|old| *old = state);
                    epoch += 1;
                    begun = epoch;
                }
            }
            process.told(owner.state());
            for (stamp, class, asked_in, seen) in &entries {
                let is_known = *asked_in >= begun && epoch - asked_in <= MOST_REORGS as u64;
                let untouched = match CLASSES[*class] {
                    Class::Unfinalized => is_known && blocks.starts_with(seen),
                    Class::Tip => epoch == *asked_in,
                    _ => true,
                };
                let is_head = CLASSES[*class] != Class::Tip || blocks == *seen;
                prop_assert_eq!(stamp.is_untouched(), untouched);
                prop_assert_eq!(stamp.holds(), untouched && is_head);
            }
        }
    }
}

fn part(height: u64) -> Sighting {
    Sighting {
        height,
        is_block: false,
    }
}

fn block(height: u64) -> Sighting {
    Sighting {
        height,
        is_block: true,
    }
}

/// Of an answer about the head that is fetched now by a process.
fn fetched(chain: &Chain) -> Stamp<'_> {
    let mark = chain.mark();
    stamp(chain, Class::Tip, Some(mark.seen)).after_tip_ends(mark.tip_ends)
}

#[test]
fn shown_block_above_the_head_ends_what_is_older_and_nothing_else() {
    let chain = chain();
    let (old, by_number) = (fetched(&chain), stamp(&chain, Class::Unfinalized, Some(99)));
    for known in [part(99), block(100)] {
        assert!(!chain.shows(known) && old.holds());
    }
    assert!(chain.shows(part(101)));
    assert!(!old.holds() && old.is_untouched() && by_number.holds());
    // an answer to who asked before, and to nobody after
    let before = chain.mark();
    let new = fetched(&chain);
    assert!(new.holds() && new.answers(&before) && !old.answers(&before));
    // told again and again of the same block, as of one that is not sealed yet
    assert!(!chain.shows(part(101)) && new.holds());
    assert!(chain.shows(block(101)) && !new.holds());
    assert!(!chain.shows(block(101)) && !chain.shows(part(101)));
    let newest = fetched(&chain);
    assert!(newest.holds());
    moved(&chain, Move::Head(101));
    assert!(!newest.holds() && fetched(&chain).holds());
}

#[test]
fn absurd_height_ends_the_tip_once_and_does_not_hide_later_blocks() {
    let chain = chain();
    for height in [u64::MAX, u64::MAX - 1, 1 << 63, 100 + AHEAD, 101, 102] {
        let kept = fetched(&chain);
        assert!(kept.holds(), "{height}");
        assert!(chain.shows(block(height)) && !kept.holds(), "{height}");
        let kept = fetched(&chain);
        assert!(!chain.shows(block(height)) && kept.holds(), "{height}");
    }
    // however many there were
    for height in 0..10 * MOST_SHOWN as u64 {
        chain.shows(block(1_000_000 - height));
    }
    assert!(chain.shows(part(103)) && !chain.shows(part(103)));
    assert!(chain.state().shown.len() <= MOST_SHOWN);
}

#[test]
fn height_that_was_shown_is_news_again_after_a_reorganisation() {
    let chain = chain();
    assert!(chain.shows(block(101)));
    moved(&chain, Move::Reorg { from: 99 });
    moved(&chain, Move::Head(100));
    let kept = fetched(&chain);
    assert!(kept.holds() && chain.shows(block(101)) && !kept.holds());
}

#[test]
fn owner_tells_other_processes_and_refuses_what_is_older() {
    let owner = chain();
    let [here, elsewhere] = [(); 2].map(|()| Chain::new(owner.state()));
    let (there, old) = (fetched(&elsewhere), stamp(&owner, Class::Tip, Some(100)));
    assert!(here.shows(part(101)));
    let epoch = owner.mark().epoch;
    assert!(here.is_below_floor(epoch, Some(100)) && !elsewhere.is_below_floor(epoch, Some(100)));
    // fetched since then, before the owner has said so
    let new = fetched(&here);
    assert!(owner.is_told_of(part(101)) && !owner.is_told_of(part(101)));
    assert!(!old.holds());
    for chain in [&here, &elsewhere] {
        chain.told(owner.state());
        assert!(!chain.is_below_floor(owner.mark().epoch, Some(100)));
        assert!(!chain.shows(part(101)));
    }
    assert!(new.holds() && !there.holds() && fetched(&elsewhere).holds());
    // another block that was shown elsewhere
    assert!(owner.is_told_of(part(102)));
    here.told(owner.state());
    assert!(!new.holds());
}

#[test]
fn answer_that_tells_of_the_head_outlives_the_block_that_it_shows() {
    let owner = chain();
    let here = Chain::new(owner.state());
    let mark = here.mark();
    let (number, balance) = (
        stamp(&here, Class::Tip, Some(101)).after_tip_ends(mark.tip_ends),
        fetched(&here),
    );
    assert!(here.shows(block(101)) && here.sees(101));
    assert!(number.holds() && !balance.holds());
    let put = stamp(&owner, Class::Tip, Some(101));
    assert!(owner.is_told_of(block(101)) && put.holds() && put.tell());
    here.told(owner.state());
    assert!(number.holds() && here.shows(part(102)) && !number.holds());
}

#[test]
fn event_that_a_later_entry_has_overtaken_brings_no_older_answer_back() {
    let owner = chain();
    let process = Chain::new(owner.state());
    let shown = |height| {
        let is_news = owner.is_told_of(Sighting {
            height,
            is_block: false,
        });
        assert!(is_news);
        owner.state()
    };
    let (first, second) = (shown(101), shown(102));
    let of = |state: &State| Stamp::new(&process, Class::Tip, state.epoch, Some(100));
    let (old, new) = (of(&first), of(&second));
    new.tell_of_owner();
    assert!(!old.holds() && new.holds());
    process.told(first);
    assert!(!old.holds() && new.holds());
    process.told(second);
    assert!(!old.holds() && new.holds());
}
