//! Stale entries, which are served while the node fails, after the node has validated them, or
//! while another request fetches a new response.

use std::sync::Arc;

use super::purge_request::admin_timeout_ms;
use crate::cache::entry::CacheEntry;
use crate::cache::reason::Reason;
use crate::cache::response_directives;
use crate::cache::status::CacheStatus;
use crate::cache::use_stale::UpstreamFailure;
use crate::exchange::cache::lookup::request::{LookupRequest, LookupTarget};
use crate::exchange::cache::lookup::result::{
    HostReportedUpstreamFailure, LookupResult, StaleEntry,
};
use crate::exchange::machine::message_head::{HeadEdit, Header, ResponseHead};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::EntryReservations;

/// Milliseconds for which a request with a stale entry waits for the owner before it sends the
/// entry; longer than the owner client waits for the owner. A request that is not woken by
/// then waits for another process's fetch.
const STALE_WAIT_MS: u64 = 30;

impl Exchange {
    /// Finds the stale entry of the lookup target, and keeps it for later states.
    pub(in crate::exchange) fn find_stale_entry(
        &mut self,
        target: &LookupTarget<'_>,
        lookup: &LookupRequest<'_>,
    ) {
        let shared = &self.route_config.process.shared;
        let stale = shared
            .hot_tier()
            .and_then(|hot| hot.get_fresh_or_stale(&target.key));
        self.lookup_findings.stale_entry = stale
            .filter(|entry| {
                entry.may_serve_or_revalidate(lookup.now)
                    && (target.id.is_none()
                        || self.route_config.cache.use_stale.permits_any_stale())
            })
            .map(|entry| StaleEntry {
                key: target.key,
                entry,
                id: target.id.map(<[u8]>::to_vec),
                generation: shared.purge_generation(),
                is_conditional: false,
            });
    }

    /// Whether the stale entry may be sent while a new response is fetched.
    pub(in crate::exchange) fn may_send_stale(&self, lookup: &LookupRequest<'_>) -> bool {
        self.lookup_findings
            .stale_entry
            .as_ref()
            .is_some_and(|stale_entry| {
                self.may_serve_during_update(&stale_entry.entry, lookup.now)
                    && self.is_stale_entry_unpurged(stale_entry, lookup.now)
            })
    }

    /// Whether the operator or the node allows a stale response during an update.
    fn may_serve_during_update(&self, entry: &CacheEntry, now: u64) -> bool {
        entry.may_serve_stale_while_revalidate(now)
            || self.route_config.cache.use_stale.permits_while_updating()
                && entry.may_serve_stale(now)
    }

    /// Responds with the stale entry, if that is allowed.
    pub(in crate::exchange) fn respond_stale(
        &mut self,
        status: CacheStatus,
        lookup: &LookupRequest<'_>,
    ) -> Option<LookupResult> {
        if !self.may_send_stale(lookup) {
            return None;
        }
        let stale_entry = self.lookup_findings.stale_entry.as_ref()?;
        let (key, entry) = (stale_entry.key, Arc::clone(&stale_entry.entry));
        let id = stale_entry.id.clone();
        self.lookup_findings.served_status = Some(status);
        match self.respond_from_entry(&key, entry, id.as_deref(), lookup) {
            None | Some(LookupResult::Miss) => {
                // the node's response is to be sent, and stored, too
                self.lookup_findings.served_status = None;
                self.cache_reason = Reason::None;
                None
            }
            found => found,
        }
    }

    /// Milliseconds to wait after `LookupAction::Wait`, before the host repeats the lookup.
    pub fn lookup_wait_ms(&self) -> u64 {
        let most = match &self.phase {
            ExchangePhase::Waiting(waits) if waits.awaits_admin_reply() => {
                return admin_timeout_ms()
            }
            ExchangePhase::Waiting(waits) if waits.is_lookup_repeated_at_once() => return 0,
            _ => self.route_config.cache.lock_timeout,
        };
        if let Some(search) = &self.lookup_findings.logs_search {
            return search.remaining_wait(self.lookup_findings.at);
        }
        let stale_entry = self.lookup_findings.stale_entry.as_ref();
        if stale_entry
            .is_some_and(|it| self.may_serve_during_update(&it.entry, self.lookup_findings.at))
        {
            return most.min(STALE_WAIT_MS);
        }
        most
    }

    /// Whether no purge has occurred since a stale entry was found, as far as the process may rely
    /// on that.
    fn is_stale_entry_unpurged(&self, stale_entry: &StaleEntry, now: u64) -> bool {
        let shared = &self.route_config.process.shared;
        shared.may_send_from_memory(now) && shared.purge_generation() == stale_entry.generation
    }

    /// Records a failure of the node, which the host reports before the head of the response that
    /// the client would receive. Returns whether a stale entry will be sent in place of the
    /// response with that head.
    pub fn handle_upstream_failure(&mut self, failure: UpstreamFailure, now: u64) -> bool {
        self.record_upstream_failure(failure);
        let serves_stale = self.would_serve_stale(failure, now);
        self.lookup_findings.upstream_failure = Some(HostReportedUpstreamFailure {
            failure,
            now,
            serves_stale,
        });
        serves_stale
    }

    /// Whether the host has reported a failure of the node.
    pub fn has_upstream_failed(&self) -> bool {
        self.lookup_findings.upstream_failure.is_some()
    }

    /// Whether a stale entry would be sent after this failure.
    pub fn would_serve_stale(&mut self, failure: UpstreamFailure, now: u64) -> bool {
        self.adopt_newer_stale_entry();
        self.lookup_findings
            .stale_entry
            .as_ref()
            .is_some_and(|stale_entry| {
                self.may_serve_after_failure(&stale_entry.entry, failure, now)
                    && self.is_stale_entry_unpurged(stale_entry, now)
            })
    }

    /// Whether the client receives responses though the node has failed before its head: stored
    /// and denied responses of a split batch, and errors for the other calls. The host's own
    /// response is delivered to the exchange as if it were the node's then; its status stays.
    pub fn can_respond_without_node(&self, failure: UpstreamFailure) -> bool {
        let ExchangePhase::AwaitingPart(mixed) = &self.phase else {
            return false;
        };
        failure.occurred_before_response_head() && !mixed.is_forwarded_whole()
    }

    /// Replaces the stale entry by a newer one that another request has fetched meanwhile, and that
    /// clients have seen.
    fn adopt_newer_stale_entry(&mut self) {
        let shared = &self.route_config.process.shared;
        let (Some(stale_entry), Some(hot)) =
            (&mut self.lookup_findings.stale_entry, shared.hot_tier())
        else {
            return;
        };
        let generation = shared.purge_generation();
        if let Some(entry) = hot
            .get_fresh_or_stale(&stale_entry.key)
            .filter(|entry| stale_entry.entry.is_dispatched_before(entry))
        {
            stale_entry.entry = entry;
            stale_entry.generation = generation;
            stale_entry.is_conditional = false;
        }
    }

    /// Whether the operator or the node allows the entry in place of the response after this
    /// failure.
    pub(in crate::exchange) fn may_serve_after_failure(
        &self,
        entry: &CacheEntry,
        failure: UpstreamFailure,
        now: u64,
    ) -> bool {
        let is_error = match failure {
            UpstreamFailure::Status(status) => matches!(status, 500 | 502 | 503 | 504),
            _ => true,
        };
        is_error && entry.may_serve_stale_if_error(now)
            || self
                .route_config
                .cache
                .use_stale
                .permits_stale_after_failure(failure)
                && entry.may_serve_stale(now)
    }

    /// Whether a stored response replaces the response with this head, because the node has
    /// validated the entry, or has failed.
    pub(in crate::exchange) fn try_replace_with_stored<'a, I>(
        &mut self,
        head: &ResponseHead<I>,
    ) -> bool
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let Some(stale_entry) = self.lookup_findings.stale_entry.take() else {
            return false;
        };
        if head.status == 304 {
            return stale_entry.is_conditional && self.apply_revalidation(&stale_entry.entry, head);
        }
        // a host that reports no failure has no link to an owner either
        let (failure, serves_stale) = match self.lookup_findings.upstream_failure {
            Some(failed) => (failed.failure, failed.serves_stale),
            None => {
                let failure = UpstreamFailure::Status(head.status);
                let covers = self.may_serve_after_failure(
                    &stale_entry.entry,
                    failure,
                    self.lookup_findings.at,
                );
                (
                    failure,
                    covers && self.is_stale_entry_unpurged(&stale_entry, self.lookup_findings.at),
                )
            }
        };
        if let (true, ExchangePhase::AwaitingUpdate) = (serves_stale, &self.phase) {
            // the stale entry is preferred to the node's error
            self.discard_fill();
            return true;
        }
        if !serves_stale
            || !self.send_stored_replacement(
                &stale_entry.entry,
                stale_entry.id.as_deref(),
                CacheStatus::Stale,
            )
        {
            return false;
        }
        if let Some(hot) = self.route_config.process.shared.hot_tier() {
            // the entry may have another form from now on
            hot.update_entry_weight(&stale_entry.key, &stale_entry.entry);
        }
        if let UpstreamFailure::Status(status) = failure {
            self.lookup_findings.forward_status = Some(status);
        }
        self.discard_fill();
        self.remove_replaced_response_headers(head);
        true
    }

    /// Sends a stored response in place of the node's.
    pub(in crate::exchange) fn send_stored_replacement(
        &mut self,
        entry: &CacheEntry,
        id: Option<&[u8]>,
        status: CacheStatus,
    ) -> bool {
        let mut lookup = self.rebuild_lookup_request();
        if let Some(failed) = self.lookup_findings.upstream_failure {
            lookup.now = failed.now;
        }
        let is_too_long = self.exceeds_response_limit(entry, id);
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let budget = &self.route_config.process.budget;
        let stands = entry.check_strictly_within_budget(budget, limit).is_ok();
        if self
            .checked_state_after_event(ExchangeEvent::Replace)
            .is_err()
            || !stands
            || is_too_long
        {
            return false;
        }
        let coding = self.hit_coding_on_event_loop(entry, &lookup);
        let borrowed = EntryReservations::default();
        let answer = self.respond_with_entry(entry, id, coding, &lookup, borrowed);
        let Some(answer) = answer else {
            return false;
        };
        self.complete_query_head(false);
        self.cache_status = status;
        self.apply_transition(ExchangeEvent::Replace, |_| {
            ExchangePhase::DiscardingUpstream(answer)
        })
        .is_ok()
    }

    /// Removes the headers of a failed response that a stale entry replaces.
    fn remove_replaced_response_headers<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        for (name, _) in head.fields.clone() {
            let is_set = self.head_edits.iter().any(|edit| {
                let set = edit.name.as_bytes();
                set.eq_ignore_ascii_case(name)
            });
            if is_set || !response_directives::is_stored_header(name) {
                continue;
            }
            if let Ok(name) = String::from_utf8(name.to_vec()) {
                self.head_edits.push(HeadEdit {
                    name: name.into(),
                    value: None,
                });
            }
        }
    }
}
