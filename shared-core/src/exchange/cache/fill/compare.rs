//! Comparison of the node's response with an entry that was sent; the response is not stored.

use std::sync::Arc;

use super::target::FillTarget;
use super::verification::{comparison_memory, difference, ComparisonResult};
use super::Fill;
use crate::cache::class::Class;
use crate::cache::process::verification::Verdict;
use crate::cache::process::wake::Waiter;
use crate::memory;

/// Maximum number of bytes of a method or target in the log line.
const MAX_NAME_BYTES: usize = 128;

impl Fill {
    /// Compares the built entry with the hit, if that is due and was not done. May take
    /// milliseconds for each megabyte.
    pub(super) fn compare(&mut self) {
        let Some(compared) = &self.compared else {
            return;
        };
        if compared.found.is_some() {
            return;
        }
        let fetched = self
            .entries
            .first()
            .filter(|it| !it.entry.is_empty_result());
        let needed = fetched
            .filter(|_| !self.rekeyed)
            .map(|built| comparison_memory(&compared.sent, &built.entry));
        let has_room = needed.is_some_and(|needed| {
            let reserved = self.reservation.as_mut();
            reserved.is_none_or(|it| it.grow_to(needed, self.limit)) && memory::can_allocate(needed)
        });
        let found = match (&self.compared, self.entries.first(), has_room) {
            (Some(compared), Some(built), true) => difference(&compared.sent, &built.entry),
            _ => ComparisonResult::Unanswered,
        };
        if let Some(compared) = &mut self.compared {
            compared.found = Some(found);
        }
    }

    /// Counts the verdict of a hit verification, and purges and logs a hit that was wrong; `now`
    /// has the clock of [`Fill::publish`].
    pub(super) fn report_verdict(mut self, now: u64) {
        self.compare();
        let Some(compared) = self.compared.take() else {
            return;
        };
        let Some(key) = self.target.key() else {
            return;
        };
        let sent = &compared.sent;
        // a purge or a reorganisation may have occurred meanwhile
        let hot = self.shared.hot();
        let is_sent = hot.and_then(|hot| hot.get(&key, now));
        let is_sent = is_sent.is_some_and(|entry| Arc::ptr_eq(&entry, sent));
        let class = sent.meta().class;
        let verdict = match &compared.found {
            Some(ComparisonResult::Same) => Verdict::Same,
            Some(ComparisonResult::Different(_)) if is_sent && class == Class::Immutable => {
                Verdict::Different
            }
            Some(ComparisonResult::Different(_)) => Verdict::Changed,
            Some(ComparisonResult::Unanswered) | None => Verdict::Unanswered,
        };
        let line = match compared.found {
            Some(ComparisonResult::Different(how)) if verdict == Verdict::Different => {
                Some(self.line(
                    &how,
                    now.saturating_sub(sent.meta().stored_at),
                    compared.purges,
                ))
            }
            _ => None,
        };
        if verdict == Verdict::Different && compared.purges {
            if let Some(hot) = hot {
                hot.remove_if_same(&key, sent);
            }
            if let Some(owner) = self.shared.owner() {
                let query = format!("key={}", self.hex());
                // the result of the purge is ignored
                let _ = owner.purge(query.as_bytes(), None, Waiter::NONE, now);
            }
        }
        self.shared.verified.record_verdict(verdict, line);
    }

    /// Returns the key in hexadecimal digits.
    fn hex(&self) -> String {
        let key = self.target.key().unwrap_or_default();
        const_hex::encode(key)
    }

    /// Formats the log line about a hit that was wrong.
    fn line(&self, how: &str, age: u64, purges: bool) -> String {
        let name = match &self.target {
            FillTarget::Call(wanted) => &wanted.method,
            FillTarget::Resource(resource) => &resource.name,
            FillTarget::Batch(_) => &Vec::new(),
        };
        let name = name[..name.len().min(MAX_NAME_BYTES)].escape_ascii();
        let purged = if purges { ", purged" } else { "" };
        let (key, seconds) = (self.hex(), age / 1000);
        format!(
            "a hit differs from the node's response: {name}, key {key}, stored {seconds} s \
                 ago{purged}: {how}"
        )
    }
}
