//! State of the chain behind a namespace, and the validity of the entries that depend on it.
//!
//! The owner follows the chain's node and publishes its [`ChainState`] to the processes. Each entry
//! carries a [`ChainDependency`] of the state that was known when its request was sent to the node.
//! An entry is valid if the two agree; no entry is searched or swept when a new head arrives or
//! blocks are replaced.

mod canonical_blocks;
mod identity;
mod state;

use crate::hash_keys::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::class::LifetimeClass;
use super::tip_floor::{SharedTipFloorBackend, TipFloor};
use super::CacheNamespace;
use crate::lock::lock_ignoring_poison;

use self::canonical_blocks::CanonicalBlocks;
pub use self::canonical_blocks::MAX_CANONICAL_BLOCKS;
pub use self::identity::ChainIdentity;
pub use self::state::{ChainChange, ChainState, HeightUnit, ShownBlock};

/// The hash of a block (Beacon API: its root).
pub type BlockHash = [u8; 32];

/// The members of a chain that its mutex guards.
#[derive(Debug)]
struct LockedChain {
    state: ChainState,
    /// The newest blocks of the chain; in the owner only.
    canonical: CanonicalBlocks,
}

/// The head, finality and reorganisations of the chain of one namespace, as this process knows
/// them: the owner's last published state, and the tip floor of this host.
#[derive(Debug)]
pub struct NamespaceChain {
    locked: Mutex<LockedChain>,
    /// Copies of members of the state, to be read without the lock.
    epoch: AtomicU64,
    tip_since: AtomicU64,
    seen: AtomicU64,
    known_head: AtomicU64,
    wrong: AtomicBool,
    /// The floor of entries about the head, for blocks that a response has shown here and that the
    /// owner has not been notified of yet.
    tip: TipFloor,
    /// Whether the chain has not been compared with the chain of the former owner yet.
    unchecked: AtomicBool,
    /// Whether any chain of the process was wrong; shared by all chains.
    any_wrong: Arc<AtomicBool>,
}

impl NamespaceChain {
    /// Creates a chain in this state, with a tip floor that no other process shares.
    pub fn new(state: ChainState) -> Self {
        Self::new_in_process(state, TipFloor::default(), &Arc::default())
    }

    /// Creates a chain that shares its tip floor with other processes, and `any_wrong` with the
    /// other chains of this process.
    fn new_in_process(state: ChainState, tip: TipFloor, any_wrong: &Arc<AtomicBool>) -> Self {
        any_wrong.fetch_or(state.wrong, Ordering::AcqRel);
        Self {
            epoch: AtomicU64::new(state.epoch),
            tip_since: AtomicU64::new(state.tip_since),
            seen: AtomicU64::new(state.seen),
            known_head: AtomicU64::new(state.known_head()),
            tip,
            wrong: AtomicBool::new(state.wrong),
            unchecked: AtomicBool::new(false),
            any_wrong: Arc::clone(any_wrong),
            locked: Mutex::new(LockedChain {
                state,
                canonical: CanonicalBlocks::default(),
            }),
        }
    }

    /// Returns a copy of the last known state, taken under the lock. The checks of entries read
    /// atomic copies of its members instead.
    pub fn copy_chain_state(&self) -> ChainState {
        lock_ignoring_poison(&self.locked).state.clone()
    }

    /// Applies a change to the state under the lock, and updates the copies of its members that are
    /// read without it.
    pub fn modify_locked_chain_state<T>(&self, change: impl FnOnce(&mut ChainState) -> T) -> T {
        self.modify_locked_chain(|locked| change(&mut locked.state))
    }

    /// Applies a change to the guarded members under the lock, and updates the copies of those that
    /// are read without it.
    fn modify_locked_chain<T>(&self, change: impl FnOnce(&mut LockedChain) -> T) -> T {
        let mut locked = lock_ignoring_poison(&self.locked);
        let before = locked.state.seen;
        let result = change(&mut locked);
        let state = &locked.state;
        match state.seen < before {
            true => self.tip.override_known_head(state.seen),
            false => self.tip.record_known_head(state.seen),
        }
        self.tip.record_known_epoch(state.epoch);
        self.epoch.store(state.epoch, Ordering::Release);
        self.tip_since.store(state.tip_since, Ordering::Release);
        self.seen.store(state.seen, Ordering::Release);
        self.known_head.store(state.known_head(), Ordering::Release);
        self.wrong.store(state.wrong, Ordering::Release);
        if state.wrong {
            self.any_wrong.store(true, Ordering::Release);
        }
        result
    }

    /// Replaces the state by the one that the owner has published. A higher head that a response
    /// has reported here is kept.
    pub fn apply_owner_state(&self, mut published: ChainState) {
        self.tip.reset_epochs_if_ahead(published.epoch);
        self.modify_locked_chain_state(|state| {
            // a later epoch has arrived with an entry before this event
            let is_overtaken = state.is_heard && published.epoch < state.epoch;
            if is_overtaken {
                published.epoch = state.epoch;
                published.since = state.since;
            }
            let (seen, unconfirmed) = (state.seen, state.unconfirmed);
            let is_same = state.is_only_extended_by(&published);
            let is_new = state.head != published.head;
            // entries that were fetched since a block was shown here stay valid when the owner
            // reports the block
            let is_acknowledged = published.epoch == state.epoch + 1
                && self.tip.last_tip_expiry_epoch() == state.epoch;
            let keeps = is_same && (is_acknowledged || published.epoch == state.epoch);
            let tip_since = if keeps {
                state.tip_since
            } else {
                published.epoch
            };
            let shown = match is_same {
                true => std::mem::take(&mut state.shown),
                false => Vec::new(),
            };
            for sighting in &published.shown {
                self.tip.record_shown_block(sighting.height);
            }
            *state = published;
            state.is_heard = is_overtaken;
            state.tip_since = tip_since;
            for sighting in shown {
                if sighting.height > state.known_head() {
                    state.insert_shown_block(sighting);
                }
            }
            if is_same && seen > state.seen {
                state.unconfirmed = unconfirmed;
                if (!is_new || state.count_unconfirmed_head())
                    && state.record_reported_head_height(seen)
                {
                    state.unconfirmed = unconfirmed + u8::from(is_new);
                }
            }
            if !is_same {
                // another branch, or another owner
                self.tip.override_known_head(state.seen);
            }
        });
    }

    /// Sets whether the chain has still to be compared with the chain of the former owner.
    pub fn set_identity_check_pending(&self, is_unchecked: bool) {
        self.unchecked.store(is_unchecked, Ordering::Release);
    }

    /// Drops the state because the owner may have been replaced; the owner will report the state
    /// again.
    pub fn discard_owner_state(&self) {
        self.modify_locked_chain_state(ChainState::discard_owner_state);
    }

    /// Whether the block of that height is known and has another hash: a recent one, or in the owner
    /// any of its canonical blocks.
    pub fn contradicts_recent_block(&self, height: u64, hash: &[u8; 32]) -> bool {
        let locked = lock_ignoring_poison(&self.locked);
        let canonical = locked.canonical.hash_at(height);
        let mut blocks = locked.state.blocks.iter();
        canonical.is_some_and(|other| other != hash)
            || blocks.any(|(known, other)| *known == height && other != hash)
    }

    /// Replaces the newest blocks of the chain, the newest first: the few blocks of the published
    /// state, and the canonical blocks, which are not published.
    pub fn set_recent_blocks(&self, blocks: impl Iterator<Item = (u64, BlockHash)>) {
        let canonical = CanonicalBlocks::from_newest(blocks);
        let former = self.modify_locked_chain(|locked| {
            locked.state.set_recent_blocks(canonical.newest_first());
            std::mem::replace(&mut locked.canonical, canonical)
        });
        // freed without the lock
        drop(former);
    }

    /// Drops the canonical blocks: the namespace may have another chain from now on.
    pub fn clear_canonical_blocks(&self) {
        let mut locked = lock_ignoring_poison(&self.locked);
        locked.canonical = CanonicalBlocks::default();
    }

    /// Whether the block with this hash is one of the canonical blocks.
    pub fn has_block(&self, hash: &BlockHash) -> bool {
        lock_ignoring_poison(&self.locked).canonical.has_hash(hash)
    }

    /// Checks whether the block of this height and hash is on the node's chain, and returns the
    /// epoch of the comparison. An entry about that block that is valid in this epoch becomes
    /// invalid with the reorganisation that replaces the block. Returns `None` if the block is
    /// another one or unknown, or if the state of the chain is unknown: the node has another chain,
    /// or its finality is not known because it lags, is syncing or does not respond.
    pub fn verify_block(&self, height: u64, hash: &BlockHash) -> Option<u64> {
        // one lock: with the epoch of a later moment a replaced block would stay valid
        let locked = lock_ignoring_poison(&self.locked);
        let LockedChain { state, canonical } = &*locked;
        let is_current = state.known && !state.wrong && state.last_final.is_some();
        (is_current && canonical.hash_at(height) == Some(hash)).then_some(state.epoch)
    }

    /// Records the height of a head that a response has reported. Returns whether it is higher than
    /// all known heads, and near enough to be believed.
    pub fn record_reported_head_height(&self, height: u64) -> bool {
        height >= self.seen.load(Ordering::Acquire)
            && self.modify_locked_chain_state(|state| state.record_reported_head_height(height))
    }

    /// Records a block that a response is about to show to a client. Returns whether it expires the
    /// entries about the former head in all processes that share the floor; the owner has to be
    /// notified then.
    pub fn record_shown_block(&self, sighting: ShownBlock) -> bool {
        sighting.height > self.known_head()
            && self.modify_locked_chain_state(|state| {
                let is_news = state.is_unseen_block(sighting);
                if is_news {
                    state.insert_shown_block(sighting);
                    self.tip.expire_tip_entries(state.epoch, sighting.height);
                }
                is_news
            })
    }

    /// Records a block that a process has reported to the owner, see
    /// [`ChainState::record_shown_block`].
    pub fn record_block_from_process(&self, sighting: ShownBlock) -> bool {
        self.modify_locked_chain_state(|state| {
            let is_news = state.record_shown_block(sighting);
            if is_news {
                self.tip.record_shown_block(sighting.height);
            }
            is_news
        })
    }

    /// Height of the head, or the highest head that a response has reported while the head is not
    /// known.
    pub fn known_head(&self) -> u64 {
        self.known_head.load(Ordering::Acquire)
    }

    /// Returns the highest head that is known in this process or in a process that shares the
    /// floor.
    pub fn highest_seen_head(&self) -> u64 {
        self.tip
            .highest_known_head()
            .max(self.seen.load(Ordering::Acquire))
    }

    /// Whether the heights of the chain are of this kind, block numbers or slots.
    pub fn uses_height_kind(&self, heights: HeightUnit) -> bool {
        lock_ignoring_poison(&self.locked).state.heights == heights
    }

    /// Number of times that a shown block has expired the entries about the head, in this process
    /// and in those that share the floor.
    pub fn shown_block_expiry_count(&self) -> u64 {
        self.tip.shown_block_expiry_count()
    }

    /// Whether an entry about the head, fetched in `epoch`, may be older than a block that was
    /// shown here: the owner stored it before it was notified of that block.
    pub fn is_entry_below_tip_floor(&self, epoch: u64, height: Option<u64>) -> bool {
        self.tip.may_predate_shown_block(epoch) && height.unwrap_or(0) < self.tip.shown_height()
    }

    /// Records the epoch of an entry that the owner sent. If the epoch is new, the event that
    /// begins it is on its way: until then no older entry is valid.
    fn adopt_newer_entry_epoch(&self, epoch: u64) {
        if epoch > self.epoch.load(Ordering::Acquire) {
            self.modify_locked_chain_state(|state| {
                state.epoch = state.epoch.max(epoch);
                state.is_heard = true;
                state.since = state.epoch;
                state.tip_since = state.epoch;
            });
        }
    }

    /// Returns the dispatch mark of a request that is sent to the node now; its response is stored
    /// only as far as the mark permits.
    pub fn chain_mark_at_dispatch(&self) -> DispatchMark {
        let locked = lock_ignoring_poison(&self.locked);
        let state = &locked.state;
        DispatchMark {
            heights: state.heights,
            epoch: state.epoch,
            tip_since: state.tip_since,
            tip_ends: self.tip.shown_block_expiry_count(),
            tip_height: self.tip.shown_height(),
            branch: state.reorgs.last().map_or(state.since, |(since, _)| *since),
            seen: state.seen.max(self.tip.highest_known_head()),
            head: state.head,
            last_final: state.last_final,
            block_time: state.reliable_block_time(),
            is_known: state.known,
            is_wrong: state.wrong,
        }
    }
}

/// The epoch, head and finality of a chain at the moment when a request was sent to the node, which
/// decide how its response may be stored.
#[derive(Clone, Copy, Debug)]
pub struct DispatchMark {
    /// Kind of the chain's heights.
    pub heights: HeightUnit,
    /// Epoch at that time.
    pub epoch: u64,
    /// The first epoch whose entries about the head were valid.
    pub tip_since: u64,
    /// [`NamespaceChain::shown_block_expiry_count`] at that time.
    pub tip_ends: u64,
    /// The highest block above the head that was shown.
    pub tip_height: u64,
    /// Epoch that the last reorganisation began.
    pub branch: u64,
    /// The highest head that was known.
    pub seen: u64,
    /// Height of the head.
    pub head: Option<u64>,
    /// Height of the last finalized block.
    pub last_final: Option<u64>,
    /// Time between two blocks in milliseconds, if new heads are reported in time.
    pub block_time: Option<u64>,
    /// Whether the node was known to serve the chain of the namespace. If not, the response gets a
    /// short lifetime only.
    pub is_known: bool,
    /// Whether the chain was wrong, and no response may be stored.
    pub is_wrong: bool,
}

impl DispatchMark {
    /// Whether the block of that height was finalized.
    pub fn is_height_final(&self, height: u64) -> bool {
        self.last_final.is_some_and(|last| height <= last)
    }
}

/// The blocks or the head on which an entry depends, and the epoch in which it was fetched. They
/// decide whether a reorganisation or a newer head has made the entry invalid.
#[derive(Clone, Copy, Debug)]
pub struct ChainDependency<'a> {
    chain: &'a NamespaceChain,
    epoch: u64,
    /// [`NamespaceChain::shown_block_expiry_count`] when the request was sent; `None` in the owner.
    tip_ends: Option<u64>,
    on: ChainDependencyTarget,
}

/// The part of the chain on which an entry depends: no block, the blocks up to a height, or the
/// head.
#[derive(Clone, Copy, Debug)]
enum ChainDependencyTarget {
    /// The entry depends on no block.
    Nothing,
    /// The entry depends on the blocks up to that height; `None`: on unknown blocks.
    Blocks(Option<u64>),
    /// The entry depends on the head, which had that height.
    Head(u64),
}

impl<'a> ChainDependency<'a> {
    /// Creates the dependency of an entry of `class` that was fetched in `epoch`. The entry depends
    /// on the blocks up to `height`, or was correct when the head had that height.
    pub fn new(
        chain: &'a NamespaceChain,
        class: LifetimeClass,
        epoch: u64,
        height: Option<u64>,
    ) -> Self {
        let on = match class {
            LifetimeClass::Unfinalized => ChainDependencyTarget::Blocks(height),
            LifetimeClass::Tip | LifetimeClass::Nothing => {
                ChainDependencyTarget::Head(height.unwrap_or(0))
            }
            LifetimeClass::Immutable | LifetimeClass::Config | LifetimeClass::Resource => {
                ChainDependencyTarget::Nothing
            }
        };
        Self {
            chain,
            epoch,
            tip_ends: None,
            on,
        }
    }

    /// Sets the [`NamespaceChain::shown_block_expiry_count`] of the moment when the request was sent. Only processes that
    /// show responses to clients set it.
    #[must_use]
    pub fn with_shown_block_expiry_count(self, tip_ends: u64) -> Self {
        Self {
            tip_ends: Some(tip_ends),
            ..self
        }
    }

    /// Whether entries that a former owner has stored of this chain may be used.
    pub fn is_chain_identity_checked(&self) -> bool {
        !self.chain.unchecked.load(Ordering::Acquire)
    }

    /// Whether the entry may still be sent: the chain is not wrong, no block that the entry depends
    /// on was replaced, and no newer head or shown block has expired it.
    pub fn is_entry_valid(&self) -> bool {
        !self.chain.wrong.load(Ordering::Acquire)
            && match self.on {
                ChainDependencyTarget::Nothing => true,
                ChainDependencyTarget::Head(height) => {
                    let seen = self.chain.seen.load(Ordering::Acquire);
                    height >= seen.max(self.chain.tip.highest_known_head())
                        && self.is_of_current_tip(height)
                }
                ChainDependencyTarget::Blocks(_) => self.is_unaffected_by_reorgs(),
            }
    }

    /// Whether the entry was valid once and no block that it depends on was replaced; there may be
    /// a newer head.
    pub fn is_unaffected_by_reorgs(&self) -> bool {
        !self.chain.wrong.load(Ordering::Acquire)
            && match self.on {
                ChainDependencyTarget::Nothing => true,
                // a block that was shown is a newer head
                ChainDependencyTarget::Head(_) => {
                    self.is_of_current_epoch()
                        || lock_ignoring_poison(&self.chain.locked)
                            .state
                            .is_unaffected_by_reorgs(self.epoch, None)
                }
                ChainDependencyTarget::Blocks(height) => {
                    self.is_of_current_epoch()
                        || lock_ignoring_poison(&self.chain.locked)
                            .state
                            .is_unaffected_by_reorgs(self.epoch, height)
                }
            }
    }

    /// Whether the entry may answer a request with this dispatch mark: a node might have sent the
    /// same response.
    pub fn may_answer_dispatched_request(&self, mark: &DispatchMark) -> bool {
        !self.chain.wrong.load(Ordering::Acquire)
            && match self.on {
                ChainDependencyTarget::Nothing => true,
                ChainDependencyTarget::Head(height) => {
                    let is_later = self.epoch >= mark.tip_since
                        && self.tip_ends.is_none_or(|ends| ends >= mark.tip_ends);
                    height >= mark.seen
                        && (is_later || self.is_unaffected_by_reorgs() && height >= mark.tip_height)
                }
                ChainDependencyTarget::Blocks(_) => {
                    self.epoch >= mark.epoch || self.is_unaffected_by_reorgs()
                }
            }
    }

    /// Records the epoch and the head of an entry that the owner sent, whose epoch may be newer
    /// than the owner's last event. Returns whether its head was new.
    pub fn record_entry_from_owner(&self) -> bool {
        self.chain.adopt_newer_entry_epoch(self.epoch);
        self.record_newer_entry_head()
    }

    /// Expires the entries about older heads, if this entry depends on a newer head. Returns
    /// whether its head was new.
    pub fn record_newer_entry_head(&self) -> bool {
        match self.on {
            ChainDependencyTarget::Head(height) if self.is_unaffected_by_reorgs() => {
                self.chain.record_reported_head_height(height)
            }
            _ => false,
        }
    }

    /// Whether the entry was fetched after the last block was shown above the head, or is about a
    /// head at least as high.
    fn is_of_current_tip(&self, height: u64) -> bool {
        let (chain, epoch) = (self.chain, self.epoch);
        let since = chain.tip_since.load(Ordering::Acquire);
        (since..=chain.epoch.load(Ordering::Acquire)).contains(&epoch)
            && self
                .tip_ends
                .is_none_or(|ends| ends == chain.tip.shown_block_expiry_count())
            || height >= chain.tip.shown_height() && self.is_unaffected_by_reorgs()
    }

    /// Whether the entry was fetched in the present epoch of the chain.
    fn is_of_current_epoch(&self) -> bool {
        self.epoch == self.chain.epoch.load(Ordering::Acquire)
    }
}

/// The table of the followed chains by namespace: in the owner all of them, in other processes
/// those that the owner has reported.
#[derive(Debug, Default)]
pub struct NamespaceChains {
    all_chains: Mutex<HashMap<CacheNamespace, Arc<NamespaceChain>>>,
    any_wrong_chain: Arc<AtomicBool>,
    floors: OnceLock<SharedTipFloorBackend>,
}

impl NamespaceChains {
    /// Shares the floors of all chains that are added from now on with the processes that have the
    /// same floors. Only the first call has an effect.
    pub fn set_shared_tip_floors(&self, floors: SharedTipFloorBackend) {
        // a second call does not replace the floors
        let _ = self.floors.set(floors);
    }

    /// Returns the chain of a namespace, if it is followed.
    pub fn get(&self, namespace: &CacheNamespace) -> Option<Arc<NamespaceChain>> {
        lock_ignoring_poison(&self.all_chains)
            .get(namespace)
            .cloned()
    }

    /// Returns the chain of a namespace, and adds one with `state` if it is not followed yet.
    pub fn get_or_add_chain(
        &self,
        namespace: CacheNamespace,
        state: impl FnOnce() -> ChainState,
    ) -> Arc<NamespaceChain> {
        let mut chains = lock_ignoring_poison(&self.all_chains);
        let tip = || {
            let floors = self.floors.get();
            floors.map_or_else(TipFloor::default, |floors| {
                floors.tip_floor_of_namespace(&namespace)
            })
        };
        let chain = chains.entry(namespace).or_insert_with(|| {
            Arc::new(NamespaceChain::new_in_process(
                state(),
                tip(),
                &self.any_wrong_chain,
            ))
        });
        Arc::clone(chain)
    }

    /// Whether the node of any chain serves, or has served, another chain than its namespace's.
    pub fn any_wrong(&self) -> bool {
        self.any_wrong_chain.load(Ordering::Acquire)
    }

    /// Returns a snapshot of all known chains with their namespaces, in no order.
    pub fn snapshot_chains(&self) -> Vec<(CacheNamespace, Arc<NamespaceChain>)> {
        let chains = lock_ignoring_poison(&self.all_chains);
        let all = chains.iter();
        all.map(|(namespace, chain)| (*namespace, Arc::clone(chain)))
            .collect()
    }

    /// Removes the chains whose namespaces are not in `namespaces`.
    pub fn retain_chains_of_namespaces(&self, namespaces: &[CacheNamespace]) {
        lock_ignoring_poison(&self.all_chains)
            .retain(|namespace, _| namespaces.contains(namespace));
    }
}

#[cfg(test)]
mod tests;
