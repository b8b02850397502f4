//! Tip floors: the blocks that responses have shown, known to all workers of a host at once.
//!
//! A client that was shown a block above the head must not get an older head from another worker.
//! The owner notifies all processes within a millisecond; until then they know the block by shared
//! memory, if there is any.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use super::CacheNamespace;

/// Number of namespaces with a floor in shared memory. Further ones have a floor in each process.
const MAX_NAMESPACES: usize = 256;

/// Numbers of a row: the namespace, and the numbers of its floor.
const ROW_LENGTH: usize = 6;

/// Positions of a floor's numbers.
const EPOCH_INDEX: usize = 0;
const END_COUNT_INDEX: usize = 1;
const HEIGHT_INDEX: usize = 2;
const SEEN_INDEX: usize = 3;
const KNOWN_EPOCH_INDEX: usize = 4;

/// Number of epochs by which a new owner's epoch may be lower than a known one; if it is lower by
/// more, the clock was set back. An owner counts epochs from the microsecond of its start.
const CLOCK_RESET_EPOCHS: u64 = 1_000_000;

/// The lower bound of the heads that later responses may show: the facts about the head of one
/// chain that responses have shown before the owner reported them.
#[derive(Debug)]
pub(super) struct TipFloor(TipFloorStorage);

/// The memory of a floor's numbers: this process's, memory of the host's processes, or a row in a
/// store of the host.
#[derive(Debug)]
enum TipFloorStorage {
    Own([AtomicU64; LENGTH]),
    Shared(&'static [AtomicU64]),
    Hosted {
        host: Arc<dyn HostTipFloorStore>,
        namespace: CacheNamespace,
        /// Numbers in place of the host's, if the host has no store.
        own: [AtomicU64; LENGTH],
    },
}

/// Number of a floor's numbers.
const LENGTH: usize = ROW_LENGTH - 1;

/// The numbers of one tip floor as a host stores them; only [`TipFloor`] knows their meaning.
pub type TipFloorRow = [u64; LENGTH];

/// A store of the host in which processes without shared memory (sandboxes) share their tip floors.
pub trait HostTipFloorStore: Debug + Send + Sync {
    /// Returns the row of a namespace; it is zero before the first change. Returns `None` if the
    /// host has no store.
    fn read_floor_row(&self, namespace: &CacheNamespace) -> Option<TipFloorRow>;

    /// Applies `change` to the row of a namespace atomically. Returns `false` if the host has no
    /// store.
    fn update_floor_row(
        &self,
        namespace: &CacheNamespace,
        change: &dyn Fn(&mut TipFloorRow),
    ) -> bool;
}

impl TipFloorStorage {
    /// Returns the value at index `at`: the host's value, if it has a row for the namespace, or
    /// the value of this process.
    fn load_value(&self, at: usize) -> u64 {
        if let Self::Hosted {
            host, namespace, ..
        } = self
        {
            if let Some(row) = host.read_floor_row(namespace) {
                return row[at];
            }
        }
        self.value_cell(at).load(Ordering::Acquire)
    }

    fn store_value(&self, at: usize, value: u64) {
        if !self.try_update_hosted_row(|row| row[at] = value) {
            self.value_cell(at).store(value, Ordering::Release);
        }
    }

    fn fetch_max(&self, at: usize, value: u64) {
        if !self.try_update_hosted_row(|row| row[at] = row[at].max(value)) {
            self.value_cell(at).fetch_max(value, Ordering::AcqRel);
        }
    }

    fn increment_value(&self, at: usize) {
        if !self.try_update_hosted_row(|row| row[at] += 1) {
            self.value_cell(at).fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Whether the host has changed its row.
    fn try_update_hosted_row(&self, change: impl Fn(&mut TipFloorRow)) -> bool {
        match self {
            Self::Hosted {
                host, namespace, ..
            } => host.update_floor_row(namespace, &change),
            Self::Own(_) | Self::Shared(_) => false,
        }
    }

    fn value_cell(&self, at: usize) -> &AtomicU64 {
        match self {
            Self::Own(own) | Self::Hosted { own, .. } => &own[at],
            Self::Shared(shared) => &shared[at],
        }
    }
}

impl Default for TipFloor {
    fn default() -> Self {
        Self(TipFloorStorage::Own(Default::default()))
    }
}

impl TipFloor {
    /// Expires the entries about the head, as a block of that height is shown: a response that was
    /// fetched in this or an earlier epoch may be older than it.
    pub(super) fn expire_tip_entries(&self, epoch: u64, height: u64) {
        // another process may fetch in an epoch that this one does not know yet
        let epoch = epoch.max(self.known_epoch());
        // in this order: a reader of the new count finds the other numbers changed
        self.record_shown_block(height);
        self.0.fetch_max(EPOCH_INDEX, epoch);
        self.0.increment_value(END_COUNT_INDEX);
    }

    /// Records the height of a block that a response has shown to a client, if it is the highest so
    /// far.
    pub(super) fn record_shown_block(&self, height: u64) {
        self.0.fetch_max(HEIGHT_INDEX, height);
    }

    /// Returns the highest block that was ever shown above the head. An entry about a head at least
    /// as high is as recent as all that was shown.
    pub(super) fn shown_height(&self) -> u64 {
        self.0.load_value(HEIGHT_INDEX)
    }

    /// Records that a process knows this epoch, and may fetch responses in it.
    pub(super) fn record_known_epoch(&self, epoch: u64) {
        if epoch > self.known_epoch() {
            self.0.fetch_max(KNOWN_EPOCH_INDEX, epoch);
        }
    }

    /// Returns the last epoch that any process knows.
    fn known_epoch(&self) -> u64 {
        self.0.load_value(KNOWN_EPOCH_INDEX)
    }

    /// Records that a process knows a head of that height.
    pub(super) fn record_known_head(&self, head: u64) {
        if head > self.highest_known_head() {
            self.0.fetch_max(SEEN_INDEX, head);
        }
    }

    /// Sets the head, though a higher one was known.
    pub(super) fn override_known_head(&self, head: u64) {
        self.0.store_value(SEEN_INDEX, head);
    }

    /// Returns the highest head that any process knows; the owner notifies the processes one after
    /// another.
    pub(super) fn highest_known_head(&self) -> u64 {
        self.0.load_value(SEEN_INDEX)
    }

    /// Number of times that a shown block has expired the entries about the head.
    pub(super) fn shown_block_expiry_count(&self) -> u64 {
        self.0.load_value(END_COUNT_INDEX)
    }

    /// Returns the last epoch in which a shown block has expired the entries about the head.
    pub(super) fn last_tip_expiry_epoch(&self) -> u64 {
        self.0.load_value(EPOCH_INDEX)
    }

    /// Whether an entry that the owner stored in that epoch may be older than the last block that
    /// was shown.
    pub(super) fn may_predate_shown_block(&self, epoch: u64) -> bool {
        epoch <= self.last_tip_expiry_epoch()
    }

    /// Lowers the epochs if a new owner counts from an earlier time on.
    pub(super) fn reset_epochs_if_ahead(&self, epoch: u64) {
        for at in [EPOCH_INDEX, KNOWN_EPOCH_INDEX] {
            if self.0.load_value(at) > epoch.saturating_add(CLOCK_RESET_EPOCHS) {
                self.0.store_value(at, epoch);
            }
        }
    }
}

/// The place in which the processes of one host share their tip floors: shared memory, or a store
/// of the host.
#[derive(Clone, Debug)]
pub enum SharedTipFloorBackend {
    /// Shared memory.
    Table(TipFloorTable),
    /// A store of the host.
    Hosted(Arc<dyn HostTipFloorStore>),
}

impl SharedTipFloorBackend {
    /// Returns the tip floor of a namespace, which all processes with the same source share.
    pub(super) fn tip_floor_of_namespace(&self, namespace: &CacheNamespace) -> TipFloor {
        match self {
            Self::Table(table) => table.tip_floor_in_row(namespace),
            Self::Hosted(host) => TipFloor(TipFloorStorage::Hosted {
                host: Arc::clone(host),
                namespace: *namespace,
                own: Default::default(),
            }),
        }
    }
}

/// A table in shared memory with the tip floors of a bounded number of namespaces, a row for each.
#[derive(Clone, Copy, Debug)]
pub struct TipFloorTable(&'static [AtomicU64]);

impl TipFloorTable {
    /// Number of numbers in the table.
    pub const LENGTH: usize = MAX_NAMESPACES * ROW_LENGTH;

    /// Creates a table in memory of [`LENGTH`](Self::LENGTH) numbers that were zero before the
    /// first process used it. Returns `None` if there are fewer numbers.
    pub fn from_zeroed_atomics(numbers: &'static [AtomicU64]) -> Option<Self> {
        Some(Self(numbers.get(..Self::LENGTH)?))
    }

    /// Returns the tip floor in the row of a namespace, which takes a free row if it has none.
    pub(super) fn tip_floor_in_row(self, namespace: &CacheNamespace) -> TipFloor {
        let name = namespace
            .first_chunk()
            .map_or(1, |name| u64::from_le_bytes(*name));
        let name = name.max(1);
        let rows: Vec<&'static [AtomicU64]> = self.0.chunks_exact(ROW_LENGTH).collect();
        let first = usize::try_from(name % MAX_NAMESPACES as u64).unwrap_or(0);
        for at in 0..MAX_NAMESPACES {
            let row = rows[(first + at) % MAX_NAMESPACES];
            let taken = row[0].compare_exchange(0, name, Ordering::AcqRel, Ordering::Acquire);
            if taken.is_ok() || taken == Err(name) {
                return TipFloor(TipFloorStorage::Shared(&row[1..]));
            }
        }
        TipFloor::default()
    }
}

#[cfg(test)]
mod tests {
    use crate::hash_keys::HashMap;
    use std::sync::Mutex;

    use super::*;
    use crate::lock::lock_ignoring_poison;

    fn table() -> TipFloorTable {
        let numbers: Vec<AtomicU64> = (0..TipFloorTable::LENGTH)
            .map(|_| AtomicU64::new(0))
            .collect();
        TipFloorTable::from_zeroed_atomics(numbers.leak()).unwrap()
    }

    #[test]
    fn processes_share_the_floor_of_a_namespace_and_no_other() {
        let table = table();
        let [here, elsewhere] = [1, 1].map(|name| table.tip_floor_in_row(&[name; 16]));
        let other = table.tip_floor_in_row(&[2; 16]);
        here.expire_tip_entries(7, 100);
        assert_eq!(
            (
                elsewhere.shown_block_expiry_count(),
                elsewhere.last_tip_expiry_epoch()
            ),
            (1, 7)
        );
        assert_eq!(
            (
                other.shown_block_expiry_count(),
                other.last_tip_expiry_epoch()
            ),
            (0, 0)
        );
        elsewhere.expire_tip_entries(5, 99);
        assert_eq!(
            (
                here.shown_block_expiry_count(),
                here.last_tip_expiry_epoch(),
                here.shown_height()
            ),
            (2, 7, 100)
        );
        assert!(here.may_predate_shown_block(7) && !here.may_predate_shown_block(8));
    }

    #[test]
    fn raised_floor_covers_epochs_that_only_another_process_knows() {
        let table = table();
        let [here, elsewhere] = [1, 1].map(|name| table.tip_floor_in_row(&[name; 16]));
        elsewhere.record_known_epoch(8);
        here.expire_tip_entries(7, 100);
        assert!(elsewhere.may_predate_shown_block(8) && !elsewhere.may_predate_shown_block(9));
    }

    #[derive(Debug, Default)]
    struct HostedFloors(Mutex<Option<HashMap<CacheNamespace, TipFloorRow>>>);

    impl HostTipFloorStore for HostedFloors {
        fn read_floor_row(&self, namespace: &CacheNamespace) -> Option<TipFloorRow> {
            let rows = lock_ignoring_poison(&self.0);
            Some(rows.as_ref()?.get(namespace).copied().unwrap_or_default())
        }

        fn update_floor_row(
            &self,
            namespace: &CacheNamespace,
            change: &dyn Fn(&mut TipFloorRow),
        ) -> bool {
            let mut rows = lock_ignoring_poison(&self.0);
            let Some(rows) = rows.as_mut() else {
                return false;
            };
            change(rows.entry(*namespace).or_default());
            true
        }
    }

    #[test]
    fn sandboxes_share_the_floor_of_a_namespace_in_a_store_of_the_host() {
        let store = Arc::new(HostedFloors(Mutex::new(Some(HashMap::default()))));
        let floors = SharedTipFloorBackend::Hosted(store);
        let [here, elsewhere] = [1, 1].map(|name| floors.tip_floor_of_namespace(&[name; 16]));
        let other = floors.tip_floor_of_namespace(&[2; 16]);
        elsewhere.record_known_epoch(8);
        here.expire_tip_entries(7, 100);
        here.record_known_head(99);
        assert_eq!(
            (
                elsewhere.shown_block_expiry_count(),
                elsewhere.last_tip_expiry_epoch()
            ),
            (1, 8)
        );
        assert_eq!(
            (elsewhere.shown_height(), elsewhere.highest_known_head()),
            (100, 99)
        );
        assert_eq!(
            (
                other.shown_block_expiry_count(),
                other.last_tip_expiry_epoch(),
                other.highest_known_head()
            ),
            (0, 0, 0)
        );
        elsewhere.override_known_head(5);
        assert_eq!(here.highest_known_head(), 5);
    }

    #[test]
    fn sandbox_has_a_floor_of_its_own_where_the_host_has_no_store() {
        let floors = SharedTipFloorBackend::Hosted(Arc::<HostedFloors>::default());
        let [here, elsewhere] = [1, 1].map(|name| floors.tip_floor_of_namespace(&[name; 16]));
        here.expire_tip_entries(7, 100);
        assert_eq!(
            (
                here.shown_block_expiry_count(),
                here.last_tip_expiry_epoch(),
                here.shown_height()
            ),
            (1, 7, 100)
        );
        assert_eq!(elsewhere.shown_block_expiry_count(), 0);
    }

    #[test]
    fn namespaces_beyond_the_table_have_a_floor_of_their_own() {
        let table = table();
        for n in 0..MAX_NAMESPACES as u64 {
            let mut namespace = [0; 16];
            namespace[..8].copy_from_slice(&(n * 1_000_003 + 1).to_le_bytes());
            assert!(matches!(
                table.tip_floor_in_row(&namespace).0,
                TipFloorStorage::Shared(_)
            ));
        }
        assert!(matches!(
            table.tip_floor_in_row(&[0xff; 16]).0,
            TipFloorStorage::Own(_)
        ));
        let short: &'static [AtomicU64] = Vec::leak(vec![AtomicU64::new(0)]);
        assert!(TipFloorTable::from_zeroed_atomics(short).is_none());
    }

    #[test]
    fn owner_with_a_clock_that_was_set_back_lowers_the_floor() {
        let floor = TipFloor::default();
        floor.expire_tip_entries(5_000_000, 1);
        floor.reset_epochs_if_ahead(4_999_998);
        assert_eq!(floor.last_tip_expiry_epoch(), 5_000_000);
        floor.reset_epochs_if_ahead(1_000_000);
        assert_eq!(floor.last_tip_expiry_epoch(), 1_000_000);
    }
}
