//! The pages of records that a reading of the whole stream has received.

use std::collections::VecDeque;

use crate::cache::fleet::purge_log::MAX_POSITIONS;
use crate::cache::fleet::stream_record::{StreamId, StreamRecord};

/// The records that were read so far.
#[derive(Debug, Default)]
pub(super) struct StreamReading {
    pub(super) records: VecDeque<StreamRecord>,
    /// Whether there were too many records, and the first ones were removed.
    pub(super) is_cut: bool,
}

impl StreamReading {
    /// Returns the id from which on the next page is read: the last one is read again, and must be
    /// unchanged.
    pub(super) fn next_page(&self) -> Option<StreamId> {
        self.records.back().map(|record| record.mark.id)
    }

    /// Adds a page. Returns `false` if it does not continue the pages before, or memory is refused.
    pub(super) fn add_page(&mut self, page: Vec<StreamRecord>) -> bool {
        let mut page = page.into_iter();
        if let Some(last) = self.records.back() {
            if page.next().is_none_or(|first| first.mark != last.mark) {
                return false;
            }
        }
        if self.records.try_reserve(page.len()).is_err() {
            return false;
        }
        self.records.extend(page);
        while self.records.len() > MAX_POSITIONS {
            self.records.pop_front();
            self.is_cut = true;
        }
        true
    }
}
