//! What the store says of itself, for metrics and a status page.

use std::sync::atomic::Ordering;

use serde::Serialize;

use super::config::Tables;
use super::entries::Store;
use super::rocks::Written;
use super::storing::Reason;
use crate::lock::locked;

/// A moment's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// Entries, about: those that were put twice count twice until their
    /// tables are joined, those that were purged until they leave.
    pub entries: u64,
    /// Bytes of tables on disk.
    #[serde(rename = "bytes")]
    pub disk: u64,
    /// Bytes in memtables.
    pub memory: u64,
    /// Bytes written since the opening.
    #[serde(flatten)]
    pub written: Written,
    /// Look-ups that found something unreadable, or no record.
    pub read_errors: u64,
    /// Look-ups that found what was purged.
    pub refused: u64,
    /// Entries that were not stored because memory was full of others.
    pub busy: u64,
    /// Why nothing is stored; `None` while it is.
    pub off: Option<Reason>,
}

impl Store {
    /// How it is. Cheap enough for once a second.
    pub fn status(&self) -> Status {
        let sum = |property: &str, families: &[usize]| {
            let of = |family: &usize| self.rocks.property(*family, property);
            families.iter().map(of).sum()
        };
        let all: Vec<_> = (0..self.config.families().len()).collect();
        let off = locked(&self.storing).off.clone();
        Status {
            entries: sum(
                "rocksdb.estimate-num-keys",
                &Tables::ALL.map(Tables::family),
            ),
            disk: sum("rocksdb.total-sst-files-size", &all),
            memory: self.memtables(),
            written: self.rocks.written(),
            read_errors: self.read_errors.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            busy: self.busy.load(Ordering::Relaxed),
            off: off.or_else(|| self.rocks.background_error().as_ref().map(Reason::from)),
        }
    }
}
