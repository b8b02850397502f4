//! Which answers about the head hold, known to all workers of a host at once.
//!
//! A client that was shown a block above the head must not get an older head from any
//! worker. The owner tells all processes of it within a millisecond; until then they know it
//! by memory that they share, where there is some.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Namespace;

/// Namespaces that have a floor in shared memory. Those beyond have one for each process.
const ROWS: usize = 256;

/// Numbers of a row: the namespace, and those of its floor.
const ROW: usize = 6;

/// An owner counts epochs from the microsecond of its start. One that is so far behind what
/// is known here began when the clock was set back.
const SET_BACK: u64 = 1_000_000;

/// The floor of a chain: what is known of the head by answers that were shown, and not by
/// the owner.
#[derive(Debug)]
pub(super) struct TipFloor(Numbers);

#[derive(Debug)]
enum Numbers {
    Own([AtomicU64; ROW - 1]),
    Shared(&'static [AtomicU64]),
}

impl Default for TipFloor {
    fn default() -> Self {
        Self(Numbers::Own(Default::default()))
    }
}

impl TipFloor {
    /// The tip has ended with a block of that height: what was asked for in this epoch, or an
    /// earlier one, may be older than what was shown.
    pub(super) fn raise(&self, epoch: u64, height: u64) {
        // what another process asked for may be of an epoch that this one has not heard of yet
        let epoch = epoch.max(self.known_epoch());
        // in this order: whoever counts the new end knows the rest
        self.knows(height);
        self.epoch().fetch_max(epoch, Ordering::AcqRel);
        self.count().fetch_add(1, Ordering::AcqRel);
    }

    /// A block of that height was shown.
    pub(super) fn knows(&self, height: u64) {
        self.numbers()[2].fetch_max(height, Ordering::AcqRel);
    }

    /// The highest block that was shown above the head, ever. An answer that tells of a head
    /// as high as that is as new as all that was shown.
    pub(super) fn height(&self) -> u64 {
        self.numbers()[2].load(Ordering::Acquire)
    }

    /// A process knows of that epoch, and may ask a node for answers that are of it.
    pub(super) fn knows_epoch(&self, epoch: u64) {
        if epoch > self.known_epoch() {
            self.numbers()[4].fetch_max(epoch, Ordering::AcqRel);
        }
    }

    /// The last epoch that any of the processes knows of.
    fn known_epoch(&self) -> u64 {
        self.numbers()[4].load(Ordering::Acquire)
    }

    /// A process knows of a head of that height.
    pub(super) fn sees(&self, head: u64) {
        if head > self.seen() {
            self.numbers()[3].fetch_max(head, Ordering::AcqRel);
        }
    }

    /// The head is that one, though others were higher.
    pub(super) fn resets(&self, head: u64) {
        self.numbers()[3].store(head, Ordering::Release);
    }

    /// The highest head that any of the processes knows of: the owner tells one after the
    /// other.
    pub(super) fn seen(&self) -> u64 {
        self.numbers()[3].load(Ordering::Acquire)
    }

    /// How often it has ended.
    pub(super) fn ends(&self) -> u64 {
        self.count().load(Ordering::Acquire)
    }

    /// The last epoch in which it has.
    pub(super) fn last_epoch(&self) -> u64 {
        self.epoch().load(Ordering::Acquire)
    }

    /// Whether what the owner was given of that epoch may be of before that.
    pub(super) fn ended(&self, epoch: u64) -> bool {
        epoch <= self.last_epoch()
    }

    /// Another owner counts from an earlier time on.
    pub(super) fn reset_if_ahead(&self, epoch: u64) {
        for number in [self.epoch(), &self.numbers()[4]] {
            if number.load(Ordering::Acquire) > epoch.saturating_add(SET_BACK) {
                number.store(epoch, Ordering::Release);
            }
        }
    }

    fn epoch(&self) -> &AtomicU64 {
        &self.numbers()[0]
    }

    fn count(&self) -> &AtomicU64 {
        &self.numbers()[1]
    }

    fn numbers(&self) -> &[AtomicU64] {
        match &self.0 {
            Numbers::Own(numbers) => numbers,
            Numbers::Shared(numbers) => numbers,
        }
    }
}

/// The floors of all chains, in memory that several processes share.
#[derive(Clone, Copy, Debug)]
pub struct Table(&'static [AtomicU64]);

impl Table {
    /// How many numbers it takes.
    pub const LENGTH: usize = ROWS * ROW;

    /// One in memory of [`LENGTH`](Self::LENGTH) numbers that were zero before the first
    /// process had it. `None`: there are fewer numbers.
    pub fn of(numbers: &'static [AtomicU64]) -> Option<Self> {
        Some(Self(numbers.get(..Self::LENGTH)?))
    }

    /// The row of a namespace, which is taken if it has none.
    pub(super) fn floor(self, namespace: &Namespace) -> TipFloor {
        let name = namespace
            .first_chunk()
            .map_or(1, |name| u64::from_le_bytes(*name));
        let name = name.max(1);
        let rows: Vec<&'static [AtomicU64]> = self.0.chunks_exact(ROW).collect();
        let first = usize::try_from(name % ROWS as u64).unwrap_or(0);
        for at in 0..ROWS {
            let row = rows[(first + at) % ROWS];
            let taken = row[0].compare_exchange(0, name, Ordering::AcqRel, Ordering::Acquire);
            if taken.is_ok() || taken == Err(name) {
                return TipFloor(Numbers::Shared(&row[1..]));
            }
        }
        TipFloor::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let numbers: Vec<AtomicU64> = (0..Table::LENGTH).map(|_| AtomicU64::new(0)).collect();
        Table::of(numbers.leak()).unwrap()
    }

    #[test]
    fn processes_share_the_floor_of_a_namespace_and_no_other() {
        let table = table();
        let [here, elsewhere] = [1, 1].map(|name| table.floor(&[name; 16]));
        let other = table.floor(&[2; 16]);
        here.raise(7, 100);
        assert_eq!((elsewhere.ends(), elsewhere.last_epoch()), (1, 7));
        assert_eq!((other.ends(), other.last_epoch()), (0, 0));
        elsewhere.raise(5, 99);
        assert_eq!((here.ends(), here.last_epoch(), here.height()), (2, 7, 100));
        assert!(here.ended(7) && !here.ended(8));
    }

    #[test]
    fn raised_floor_covers_epochs_that_only_another_process_knows() {
        let table = table();
        let [here, elsewhere] = [1, 1].map(|name| table.floor(&[name; 16]));
        elsewhere.knows_epoch(8);
        here.raise(7, 100);
        assert!(elsewhere.ended(8) && !elsewhere.ended(9));
    }

    #[test]
    fn namespaces_beyond_the_table_have_a_floor_of_their_own() {
        let table = table();
        for n in 0..ROWS as u64 {
            let mut namespace = [0; 16];
            namespace[..8].copy_from_slice(&(n * 1_000_003 + 1).to_le_bytes());
            assert!(matches!(table.floor(&namespace).0, Numbers::Shared(_)));
        }
        assert!(matches!(table.floor(&[0xff; 16]).0, Numbers::Own(_)));
        let short: &'static [AtomicU64] = Vec::leak(vec![AtomicU64::new(0)]);
        assert!(Table::of(short).is_none());
    }

    #[test]
    fn an_owner_whose_clock_was_set_back_lowers_the_floor() {
        let floor = TipFloor::default();
        floor.raise(5_000_000, 1);
        floor.reset_if_ahead(4_999_998);
        assert_eq!(floor.last_epoch(), 5_000_000);
        floor.reset_if_ahead(1_000_000);
        assert_eq!(floor.last_epoch(), 1_000_000);
    }
}
