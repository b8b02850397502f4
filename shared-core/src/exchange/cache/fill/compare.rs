//! Comparison of the node's response with an entry that was sent; the response is not stored.

use std::sync::Arc;

use super::target::FillTarget;
use super::verification::{compare_entries, comparison_memory, HitComparison};
use super::CacheFill;
use crate::cache::class::LifetimeClass;
use crate::cache::process::verification::HitVerificationVerdict;
use crate::cache::process::wake::WaitingRequestId;
use crate::memory;

/// Maximum number of bytes of a method or target in the log line.
const MAX_NAME_BYTES: usize = 128;

impl CacheFill {
    /// Compares the built entry with the hit, if that is due and was not done. May take
    /// milliseconds for each megabyte.
    pub(super) fn compare_with_hit(&mut self) {
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
            reserved.is_none_or(|it| it.grow_reservation_to(needed, self.limit))
                && memory::can_allocate_now(needed)
        });
        let found = match (&self.compared, self.entries.first(), has_room) {
            (Some(compared), Some(built), true) => compare_entries(&compared.sent, &built.entry),
            _ => HitComparison::Unanswered,
        };
        if let Some(compared) = &mut self.compared {
            compared.found = Some(found);
        }
    }

    /// Counts the verdict of a hit verification, and purges and logs a hit that was wrong; `now`
    /// has the clock of [`CacheFill::store_and_publish_entries`].
    pub(super) fn report_hit_verdict(mut self, now: u64) {
        self.compare_with_hit();
        let Some(compared) = self.compared.take() else {
            return;
        };
        let Some(key) = self.target.single_cache_key() else {
            return;
        };
        let sent = &compared.sent;
        // a purge or a reorganisation may have occurred meanwhile
        let hot = self.shared.hot_tier();
        let is_sent = hot.and_then(|hot| hot.get(&key, now));
        let is_sent = is_sent.is_some_and(|entry| Arc::ptr_eq(&entry, sent));
        let class = sent.response_metadata().class;
        let verdict = match &compared.found {
            Some(HitComparison::Same) => HitVerificationVerdict::Same,
            Some(HitComparison::Different(_)) if is_sent && class == LifetimeClass::Immutable => {
                HitVerificationVerdict::Different
            }
            Some(HitComparison::Different(_)) => HitVerificationVerdict::Changed,
            Some(HitComparison::Unanswered) | None => HitVerificationVerdict::Unanswered,
        };
        let line = match compared.found {
            Some(HitComparison::Different(how)) if verdict == HitVerificationVerdict::Different => {
                Some(self.format_verdict_line(
                    &how,
                    now.saturating_sub(sent.response_metadata().requested_at),
                    compared.purges,
                ))
            }
            _ => None,
        };
        if verdict == HitVerificationVerdict::Different && compared.purges {
            if let Some(hot) = hot {
                hot.remove_same_entry(&key, sent);
            }
            if let Some(owner) = self.shared.owner_client() {
                let query = format!("key={}", self.cache_key_hex());
                // the result of the purge is ignored
                let _ = owner.purge_at_owner(query.as_bytes(), None, WaitingRequestId::NONE, now);
            }
        }
        self.shared.verified.record_verdict(verdict, line);
    }

    /// Returns the key in hexadecimal digits.
    fn cache_key_hex(&self) -> String {
        let key = self.target.single_cache_key().unwrap_or_default();
        const_hex::encode(key)
    }

    /// Formats the log line about a hit that was wrong.
    fn format_verdict_line(&self, how: &str, age: u64, purges: bool) -> String {
        let name = match &self.target {
            FillTarget::Call(wanted) => &wanted.method,
            FillTarget::Resource(resource) => &resource.name,
            FillTarget::Batch(_) => &Vec::new(),
        };
        let name = name[..name.len().min(MAX_NAME_BYTES)].escape_ascii();
        let purged = if purges { ", purged" } else { "" };
        let (key, seconds) = (self.cache_key_hex(), age / 1000);
        format!(
            "a hit differs from the node's response: {name}, key {key}, stored {seconds} s \
                 ago{purged}: {how}"
        )
    }
}
