//! What is known of the chain behind a namespace: which of its answers hold.
//!
//! The owner follows the chain's node and tells the processes ([`State`]); each
//! entry carries a [`Stamp`] of what was known when the node was asked for it.
//! To ask whether it still holds is to compare the two: nothing is searched or
//! swept when there is a new head or blocks are replaced.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use serde::{Deserialize, Serialize};

use super::class::Class;
use super::tip_floor::{Floors, TipFloor};
use super::Namespace;
use crate::lock::locked;

/// The last so many reorganisations are known; what was asked for before the
/// first of them does not hold.
const MOST_REORGS: usize = 16;

/// So many of the newest blocks are known by their hashes: nodes differ about few.
const MOST_BLOCKS: usize = 8;

/// An answer may know of a head that its owner has not heard of yet. One that
/// is further ahead than this is not believed.
const AHEAD: u64 = 64;

/// And one that no node or answer has confirmed for so many heads is believed no
/// more: what is true of the head would be kept for nobody until then.
const PATIENCE: u8 = 4;

/// Blocks above the head that are remembered as shown. Beyond it the highest, which is the
/// least plausible, is forgotten.
const MOST_SHOWN: usize = 16;

/// A block that an answer has shown to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Sighting {
    /// Its height.
    pub height: u64,
    /// The answer was the block, and not a part of it. A sequencer has receipts of a block
    /// before it is sealed: the block itself is news then.
    pub is_block: bool,
}

/// What a height is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Heights {
    /// The number of a block.
    #[default]
    Blocks,
    /// The slot of a block, of the Beacon API.
    Slots,
}

/// What is known of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct State {
    /// What its heights are.
    pub heights: Heights,
    /// Counts reorganisations, from the owner's start: microseconds since 1970,
    /// so that no two owners count alike.
    pub epoch: u64,
    /// The height of the head.
    pub head: Option<u64>,
    /// The highest head that an answer told of, or the head.
    pub seen: u64,
    /// No block up to this height will change any more; `None`: not known.
    #[serde(rename = "final")]
    pub last_final: Option<u64>,
    /// Its node is known to have the chain that the namespace is of; as long as
    /// it is not, nothing is kept for long.
    pub known: bool,
    /// It is another chain than it was: nothing of it is stored or sent.
    pub wrong: bool,
    /// The last reorganisations: the epoch that began with each, and the lowest
    /// height that was replaced.
    pub reorgs: Vec<(u64, u64)>,
    /// `reorgs` has all that came after this epoch.
    pub since: u64,
    /// EIP-155's number of the chain that its node has, where the node's API says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_id: Option<u64>,
    /// Hash of the first block of the chain that its node has (Beacon API:
    /// `genesis_validators_root`), once the node has been asked.
    #[serde(with = "hash", default, skip_serializing_if = "Option::is_none")]
    pub genesis: Option<[u8; 32]>,
    /// The newest blocks: their heights and hashes.
    #[serde(with = "hashes", default)]
    pub blocks: Vec<(u64, [u8; 32])>,
    /// Blocks above the head that answers have shown. Each has begun an epoch of its own,
    /// without a reorganisation.
    #[serde(default)]
    pub shown: Vec<Sighting>,
    /// The first epoch whose answers about the head hold.
    #[serde(skip)]
    tip_since: u64,
    /// The epoch is that of an entry which the owner gave out before the event that begins it
    /// arrived here.
    #[serde(skip)]
    is_heard: bool,
    /// For how many heads nobody has told of `seen`.
    #[serde(skip)]
    unconfirmed: u8,
}

/// A hash as hex digits.
mod hash {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    // serde passes a reference to the member
    #[allow(clippy::ref_option)]
    pub(super) fn serialize<S: Serializer>(
        hash: &Option<[u8; 32]>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match hash {
            Some(hash) => to.serialize_str(&const_hex::encode(hash)),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<[u8; 32]>, D::Error> {
        let text: Option<String> = Option::deserialize(from)?;
        let hash = text.map(|text| blake3::Hash::from_hex(text).map(|hash| *hash.as_bytes()));
        hash.transpose().map_err(Error::custom)
    }
}

/// Hashes as hex digits.
mod hashes {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        blocks: &[(u64, [u8; 32])],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let blocks = blocks.iter();
        to.collect_seq(blocks.map(|(height, hash)| (height, const_hex::encode(hash))))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(u64, [u8; 32])>, D::Error> {
        let blocks: Vec<(u64, String)> = Vec::deserialize(from)?;
        let hash = |hash| blake3::Hash::from_hex(hash).map(|hash| *hash.as_bytes());
        let blocks = blocks.into_iter();
        let blocks = blocks.map(|(height, text)| hash(text).map(|hash| (height, hash)));
        blocks.collect::<Result<_, _>>().map_err(Error::custom)
    }
}

/// What has become of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// The head has this height now: what hangs on the head is over.
    Head(u64),
    /// The blocks from this height on are others, or gone. A `Head` follows.
    Reorg {
        /// The lowest of them.
        from: u64,
    },
    /// No block up to this height will change any more; `None`: it is not
    /// known, so that nothing is taken for final.
    Final(Option<u64>),
    /// What was taken for final was not: what is on disk from this height on
    /// has to go, too. A `Reorg` from there comes as well.
    Broken {
        /// The lowest height.
        from: u64,
    },
    /// Whether its node is known to have the chain that the namespace is of. One
    /// that was away may come back with another.
    Known(bool),
    /// Whether this is another chain than the one that the namespace is of.
    Wrong(bool),
}

impl State {
    /// Of a chain of which nothing is known, by an owner that started at
    /// `unix` milliseconds since 1970.
    pub fn unknown(heights: Heights, unix: u64) -> Self {
        let epoch = unix.saturating_mul(1_000).max(1);
        Self {
            heights,
            epoch,
            since: epoch,
            tip_since: epoch,
            ..Self::default()
        }
    }

    /// Takes in what has become of it.
    pub fn moved(&mut self, by: Move) {
        match by {
            Move::Head(height) => {
                // lower than before, if its node says so for long
                let is_lower = self.head.is_some_and(|head| height < head);
                let is_new = self.head != Some(height);
                self.head = Some(height);
                match is_lower {
                    true => self.shown.clear(),
                    false => self.shown.retain(|shown| shown.height > height),
                }
                if is_lower || height >= self.seen || is_new && !self.is_patient() {
                    if height < self.seen {
                        // Entries that were fetched until now carry the former height, and would be valid
                        // until the chain reaches it again.
                        self.replace_blocks(height.saturating_add(1));
                    }
                    self.seen = height;
                    self.unconfirmed = 0;
                }
            }
            Move::Reorg { from } => {
                self.replace_blocks(from);
                // the same heights are other blocks
                self.shown.clear();
            }
            Move::Final(height) => self.last_final = height,
            Move::Broken { .. } => {}
            Move::Known(known) => self.known = known,
            Move::Wrong(wrong) => {
                self.wrong = wrong;
                if wrong {
                    // what came before it was noticed may be of either
                    self.moved(Move::Reorg { from: 0 });
                }
            }
        }
    }

    /// An answer has shown a block to a client. If it is above the head, what was true of the
    /// head before is over. Whether that is news.
    pub fn shows(&mut self, sighting: Sighting) -> bool {
        let is_news = self.is_unseen(sighting);
        if is_news {
            self.remember(sighting);
            self.begin_epoch();
        }
        is_news
    }

    /// Begins an epoch in which entries about the head, or about blocks from height `from` on, are
    /// invalid: other blocks have these heights, or none.
    fn replace_blocks(&mut self, from: u64) {
        self.begin_epoch();
        if self.reorgs.len() == MOST_REORGS {
            let (epoch, _) = self.reorgs.remove(0);
            self.since = epoch;
        }
        self.reorgs.push((self.epoch, from));
    }

    /// What was true of the head before does not hold any more.
    fn begin_epoch(&mut self) {
        self.epoch += 1;
        self.tip_since = self.epoch;
    }

    /// Whether a block is above the head, and was not shown before.
    fn is_unseen(&self, sighting: Sighting) -> bool {
        let covers = |shown: &Sighting| {
            shown.height == sighting.height && (shown.is_block || !sighting.is_block)
        };
        sighting.height > self.floor() && !self.shown.iter().any(covers)
    }

    /// The head, or the highest one that an answer told of as long as it is not known.
    fn floor(&self) -> u64 {
        self.head.unwrap_or(self.seen)
    }

    fn remember(&mut self, sighting: Sighting) {
        if self.shown.contains(&sighting) {
            return;
        }
        if self.shown.len() == MOST_SHOWN {
            let by_height = |at: &usize| self.shown[*at].height;
            if let Some(highest) = (0..MOST_SHOWN).max_by_key(by_height) {
                self.shown.swap_remove(highest);
            }
        }
        self.shown.push(sighting);
    }

    /// Nobody says what is known any more, until somebody does again.
    fn outdated(&mut self) {
        self.begin_epoch();
        self.is_heard = false;
        self.since = self.epoch;
        self.shown.clear();
        self.head = None;
        self.last_final = None;
        self.known = false;
        self.chain_id = None;
        self.genesis = None;
    }

    /// These are the newest blocks.
    pub fn knows(&mut self, blocks: impl Iterator<Item = (u64, [u8; 32])>) {
        self.blocks.clear();
        self.blocks.extend(blocks.take(MOST_BLOCKS));
    }

    /// There is a head, and it is not the one that was seen. Whether that is
    /// waited for.
    fn is_patient(&mut self) -> bool {
        self.unconfirmed += 1;
        self.unconfirmed < PATIENCE
    }

    /// An answer told of a head. Whether that is news.
    fn sees(&mut self, height: u64) -> bool {
        if height == self.seen {
            self.unconfirmed = 0;
        }
        let is_news = height > self.seen
            && self
                .head
                .is_some_and(|head| height <= head.saturating_add(AHEAD));
        if is_news {
            self.seen = height;
            self.unconfirmed = 0;
            // what is older has ended with that
            self.remember(Sighting {
                height,
                is_block: true,
            });
        }
        is_news
    }

    /// Whether what is known is the same as in `news`, but for a newer head and blocks that
    /// were shown.
    fn is_continued_by(&self, news: &Self) -> bool {
        self.epoch <= news.epoch
            && self.epoch >= news.since
            && self.head <= news.head
            && news.reorgs.iter().all(|(since, _)| *since <= self.epoch)
    }

    /// Whether what was asked for in `epoch` and depends on blocks up to
    /// `height` (`None`: on nobody knows which) is as it was.
    fn is_untouched(&self, epoch: u64, height: Option<u64>) -> bool {
        let height = height.unwrap_or(u64::MAX);
        (self.since..=self.epoch).contains(&epoch)
            && self
                .reorgs
                .iter()
                .all(|(since, from)| *since <= epoch || *from > height)
    }
}

/// A chain, as one process knows it.
#[derive(Debug)]
pub struct Chain {
    state: Mutex<State>,
    /// Of the state, to be read without waiting.
    epoch: AtomicU64,
    tip_since: AtomicU64,
    seen: AtomicU64,
    floor: AtomicU64,
    wrong: AtomicBool,
    /// Which answers about the head hold where the owner has not been told of a block yet
    /// that an answer has shown here.
    tip: TipFloor,
    /// Nobody has looked yet whether it is the chain that it was.
    unchecked: AtomicBool,
    /// Of all chains of the process: one was wrong.
    any_wrong: Arc<AtomicBool>,
}

impl Chain {
    /// One of which that is known.
    pub fn new(state: State) -> Self {
        Self::among_processes(state, TipFloor::default())
    }

    /// The same, where other processes know of the same floor.
    fn among_processes(state: State, tip: TipFloor) -> Self {
        Self {
            epoch: AtomicU64::new(state.epoch),
            tip_since: AtomicU64::new(state.tip_since),
            seen: AtomicU64::new(state.seen),
            floor: AtomicU64::new(state.floor()),
            tip,
            wrong: AtomicBool::new(state.wrong),
            unchecked: AtomicBool::new(false),
            any_wrong: Arc::default(),
            state: Mutex::new(state),
        }
    }

    /// The same, among others.
    fn among(state: State, tip: TipFloor, any_wrong: &Arc<AtomicBool>) -> Self {
        any_wrong.fetch_or(state.wrong, Ordering::AcqRel);
        Self {
            any_wrong: Arc::clone(any_wrong),
            ..Self::among_processes(state, tip)
        }
    }

    /// All that is known.
    pub fn state(&self) -> State {
        locked(&self.state).clone()
    }

    /// Changes what is known.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = locked(&self.state);
        let before = state.seen;
        let result = change(&mut state);
        match state.seen < before {
            true => self.tip.resets(state.seen),
            false => self.tip.sees(state.seen),
        }
        self.tip.knows_epoch(state.epoch);
        self.epoch.store(state.epoch, Ordering::Release);
        self.tip_since.store(state.tip_since, Ordering::Release);
        self.seen.store(state.seen, Ordering::Release);
        self.floor.store(state.floor(), Ordering::Release);
        self.wrong.store(state.wrong, Ordering::Release);
        if state.wrong {
            self.any_wrong.store(true, Ordering::Release);
        }
        result
    }

    /// The owner says that this is known. What an answer has told of here is
    /// not forgotten.
    pub fn told(&self, mut news: State) {
        self.tip.reset_if_ahead(news.epoch);
        self.change(|state| {
            // an event that the owner sent before an entry of a later epoch, which was faster
            let is_overtaken = state.is_heard && news.epoch < state.epoch;
            if is_overtaken {
                news.epoch = state.epoch;
                news.since = state.since;
            }
            let (seen, unconfirmed) = (state.seen, state.unconfirmed);
            let is_same = state.is_continued_by(&news);
            let is_new = state.head != news.head;
            // what was asked for since a block was shown here holds when the owner says so, too
            let is_acknowledged =
                news.epoch == state.epoch + 1 && self.tip.last_epoch() == state.epoch;
            let keeps = is_same && (is_acknowledged || news.epoch == state.epoch);
            let tip_since = if keeps { state.tip_since } else { news.epoch };
            let shown = match is_same {
                true => std::mem::take(&mut state.shown),
                false => Vec::new(),
            };
            for sighting in &news.shown {
                self.tip.knows(sighting.height);
            }
            *state = news;
            state.is_heard = is_overtaken;
            state.tip_since = tip_since;
            for sighting in shown {
                if sighting.height > state.floor() {
                    state.remember(sighting);
                }
            }
            if is_same && seen > state.seen {
                state.unconfirmed = unconfirmed;
                if (!is_new || state.is_patient()) && state.sees(seen) {
                    state.unconfirmed = unconfirmed + u8::from(is_new);
                }
            }
            if !is_same {
                // of another branch, or by another owner
                self.tip.resets(state.seen);
            }
        });
    }

    /// Nobody has looked yet, or somebody has, whether it is the chain that it
    /// was when there was another owner.
    pub fn set_unchecked(&self, is_unchecked: bool) {
        self.unchecked.store(is_unchecked, Ordering::Release);
    }

    /// The owner is another one, perhaps: it will say what is known.
    pub fn outdate(&self) {
        self.change(State::outdated);
    }

    /// Whether the block of that height is known, and another one.
    pub fn contradicts(&self, height: u64, hash: &[u8; 32]) -> bool {
        let state = locked(&self.state);
        let mut blocks = state.blocks.iter();
        blocks.any(|(known, other)| *known == height && other != hash)
    }

    /// An answer told of a head. Whether that is news.
    pub fn sees(&self, height: u64) -> bool {
        height >= self.seen.load(Ordering::Acquire) && self.change(|state| state.sees(height))
    }

    /// An answer is about to show a block to a client. Whether that ends what was true of the
    /// head before, in all processes that share the floor: the owner has to be told then.
    pub fn shows(&self, sighting: Sighting) -> bool {
        sighting.height > self.floor()
            && self.change(|state| {
                let is_news = state.is_unseen(sighting);
                if is_news {
                    state.remember(sighting);
                    self.tip.raise(state.epoch, sighting.height);
                }
                is_news
            })
    }

    /// As [`State::shows`], of what the owner is told.
    pub fn is_told_of(&self, sighting: Sighting) -> bool {
        self.change(|state| {
            let is_news = state.shows(sighting);
            if is_news {
                self.tip.knows(sighting.height);
            }
            is_news
        })
    }

    /// The head, or the highest one that an answer told of as long as it is not known.
    pub fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    /// The highest head that is known here, or in processes that share the floor.
    pub fn highest_seen(&self) -> u64 {
        self.tip.seen().max(self.seen.load(Ordering::Acquire))
    }

    /// Whether its heights are these.
    pub fn has(&self, heights: Heights) -> bool {
        locked(&self.state).heights == heights
    }

    /// How often the tip has ended in this process, and in those that share the floor.
    pub fn tip_ends(&self) -> u64 {
        self.tip.ends()
    }

    /// Whether the owner had an answer about the head, asked for in `epoch`, before it was
    /// told of a block that was shown here.
    pub fn is_below_floor(&self, epoch: u64, height: Option<u64>) -> bool {
        self.tip.ended(epoch) && height.unwrap_or(0) < self.tip.height()
    }

    /// The owner gave out what was asked for in that epoch. If it is news, the
    /// owner is about to say so: until then nothing older holds.
    fn hears(&self, epoch: u64) {
        if epoch > self.epoch.load(Ordering::Acquire) {
            self.change(|state| {
                state.epoch = state.epoch.max(epoch);
                state.is_heard = true;
                state.since = state.epoch;
                state.tip_since = state.epoch;
            });
        }
    }

    /// What is known now, for a request that goes to the node.
    pub fn mark(&self) -> Mark {
        let state = locked(&self.state);
        Mark {
            heights: state.heights,
            epoch: state.epoch,
            tip_since: state.tip_since,
            tip_ends: self.tip.ends(),
            tip_height: self.tip.height(),
            branch: state.reorgs.last().map_or(state.since, |(since, _)| *since),
            seen: state.seen.max(self.tip.seen()),
            head: state.head,
            last_final: state.last_final,
            is_known: state.known,
            is_wrong: state.wrong,
        }
    }
}

/// What was known when the node was asked.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// What heights are.
    pub heights: Heights,
    /// Reorganisations up to this one were known.
    pub epoch: u64,
    /// Answers about the head held that were asked for in this epoch or a later one.
    pub tip_since: u64,
    /// How often the tip had ended ([`Chain::tip_ends`]).
    pub tip_ends: u64,
    /// The highest block that was shown above the head.
    pub tip_height: u64,
    /// The epoch that the last reorganisation began.
    pub branch: u64,
    /// The highest head that was known.
    pub seen: u64,
    /// The head.
    pub head: Option<u64>,
    /// The newest final block.
    pub last_final: Option<u64>,
    /// Its node had the chain that the namespace is of; if not, nothing is to be
    /// kept for long.
    pub is_known: bool,
    /// Nothing is to be stored.
    pub is_wrong: bool,
}

impl Mark {
    /// Whether the block of that height was final.
    pub fn is_final(&self, height: u64) -> bool {
        self.last_final.is_some_and(|last| height <= last)
    }
}

/// What an entry has to hold against its chain.
#[derive(Clone, Copy, Debug)]
pub struct Stamp<'a> {
    chain: &'a Chain,
    epoch: u64,
    /// How often the tip had ended; `None`: it is the owner's.
    tip_ends: Option<u64>,
    on: On,
}

#[derive(Clone, Copy, Debug)]
enum On {
    /// On nothing that changes.
    Nothing,
    /// On the blocks up to that height, or on nobody knows which.
    Blocks(Option<u64>),
    /// On the head, which had that height.
    Head(u64),
}

impl<'a> Stamp<'a> {
    /// Of an entry of a class that was asked for in `epoch`, and depends on the
    /// blocks up to `height`, or was true when the head had that height.
    pub fn new(chain: &'a Chain, class: Class, epoch: u64, height: Option<u64>) -> Self {
        let on = match class {
            Class::Unfinalized => On::Blocks(height),
            Class::Tip | Class::Nothing => On::Head(height.unwrap_or(0)),
            Class::Immutable | Class::Config | Class::Resource => On::Nothing,
        };
        Self {
            chain,
            epoch,
            tip_ends: None,
            on,
        }
    }

    /// The same, in a process that shows answers: it was asked for when the tip had ended so
    /// often.
    #[must_use]
    pub fn after_tip_ends(self, tip_ends: u64) -> Self {
        Self {
            tip_ends: Some(tip_ends),
            ..self
        }
    }

    /// Whether what another owner has kept of its chain may be used.
    pub fn is_checked(&self) -> bool {
        !self.chain.unchecked.load(Ordering::Acquire)
    }

    /// Whether the entry is as true as when it was asked for.
    pub fn holds(&self) -> bool {
        !self.chain.wrong.load(Ordering::Acquire)
            && match self.on {
                On::Nothing => true,
                On::Head(height) => {
                    let seen = self.chain.seen.load(Ordering::Acquire);
                    height >= seen.max(self.chain.tip.seen()) && self.is_of_this_tip(height)
                }
                On::Blocks(_) => self.is_untouched(),
            }
    }

    /// Whether it was true once, and nothing but time has passed since: there
    /// may be a newer head.
    pub fn is_untouched(&self) -> bool {
        !self.chain.wrong.load(Ordering::Acquire)
            && match self.on {
                On::Nothing => true,
                // a block that was shown is a newer head
                On::Head(_) => {
                    self.is_of_now() || locked(&self.chain.state).is_untouched(self.epoch, None)
                }
                On::Blocks(height) => {
                    self.is_of_now() || locked(&self.chain.state).is_untouched(self.epoch, height)
                }
            }
    }

    /// Whether the entry is an answer to who asked when `mark` was known: then a
    /// node might have said the same.
    pub fn answers(&self, mark: &Mark) -> bool {
        !self.chain.wrong.load(Ordering::Acquire)
            && match self.on {
                On::Nothing => true,
                On::Head(height) => {
                    let is_later = self.epoch >= mark.tip_since
                        && self.tip_ends.is_none_or(|ends| ends >= mark.tip_ends);
                    height >= mark.seen
                        && (is_later || self.is_untouched() && height >= mark.tip_height)
                }
                On::Blocks(_) => self.epoch >= mark.epoch || self.is_untouched(),
            }
    }

    /// As [`tell`](Self::tell), of what the owner gave out, which may know more than was said
    /// here: that comes another way.
    pub fn tell_of_owner(&self) -> bool {
        self.chain.hears(self.epoch);
        self.tell()
    }

    /// If it hangs on the head: what was true of an older one is over. Whether
    /// that is news.
    pub fn tell(&self) -> bool {
        match self.on {
            On::Head(height) if self.is_untouched() => self.chain.sees(height),
            _ => false,
        }
    }

    /// Whether it was asked for after the last block that was shown above the head, or tells
    /// of one as high.
    fn is_of_this_tip(&self, height: u64) -> bool {
        let (chain, epoch) = (self.chain, self.epoch);
        let since = chain.tip_since.load(Ordering::Acquire);
        (since..=chain.epoch.load(Ordering::Acquire)).contains(&epoch)
            && self.tip_ends.is_none_or(|ends| ends == chain.tip.ends())
            || height >= chain.tip.height() && self.is_untouched()
    }

    fn is_of_now(&self) -> bool {
        self.epoch == self.chain.epoch.load(Ordering::Acquire)
    }
}

/// The chains that a process knows of.
#[derive(Debug, Default)]
pub struct Chains {
    all: Mutex<HashMap<Namespace, Arc<Chain>>>,
    any_wrong: Arc<AtomicBool>,
    floors: OnceLock<Floors>,
}

impl Chains {
    /// Shares the floors of all chains that are added from now on with the processes that
    /// have the same ones. A second call changes nothing.
    pub fn share(&self, floors: Floors) {
        // the first ones stay
        let _ = self.floors.set(floors);
    }

    /// The chain behind a namespace, if it is followed.
    pub fn get(&self, namespace: &Namespace) -> Option<Arc<Chain>> {
        locked(&self.all).get(namespace).cloned()
    }

    /// The same; one that is not there yet is made of `state`.
    pub fn get_or_add(&self, namespace: Namespace, state: impl FnOnce() -> State) -> Arc<Chain> {
        let mut chains = locked(&self.all);
        let tip = || {
            let floors = self.floors.get();
            floors.map_or_else(TipFloor::default, |floors| floors.floor(&namespace))
        };
        let chain = chains
            .entry(namespace)
            .or_insert_with(|| Arc::new(Chain::among(state(), tip(), &self.any_wrong)));
        Arc::clone(chain)
    }

    /// Whether one is, or was, another one than its namespace's.
    pub fn any_wrong(&self) -> bool {
        self.any_wrong.load(Ordering::Acquire)
    }

    /// All of them, in no order.
    pub fn all(&self) -> Vec<(Namespace, Arc<Chain>)> {
        let chains = locked(&self.all);
        let all = chains.iter();
        all.map(|(namespace, chain)| (*namespace, Arc::clone(chain)))
            .collect()
    }

    /// Those that are in `namespaces` stay.
    pub fn retain(&self, namespaces: &[Namespace]) {
        locked(&self.all).retain(|namespace, _| namespaces.contains(namespace));
    }
}

#[cfg(test)]
mod tests;
