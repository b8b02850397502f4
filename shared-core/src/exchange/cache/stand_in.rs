//! Stale entries, which are served while the node fails, after the node has validated them, or
//! while another request fetches a new response.

use std::sync::Arc;

use super::asked::{Asked, Sought};
use super::found::{Failed, Found, StandIn};
use super::purging::PATIENCE;
use crate::cache::entry::Entry;
use crate::cache::http;
use crate::cache::reason::Reason;
use crate::cache::stale::Failure;
use crate::cache::status::CacheStatus;
use crate::exchange::head::{Field, HeadEdit, ResponseHead};
use crate::exchange::held::Borrowed;
use crate::exchange::machine::Exchange;
use crate::exchange::phase::Phase;
use crate::exchange::transitions::Event;

/// Milliseconds for which a request with a stale entry waits for the owner before it sends the
/// entry; longer than the owner client waits for the owner. A request that is not woken by
/// then waits for another process's fetch.
const WAIT: u64 = 30;

impl Exchange {
    /// Finds the stale entry of the target, and keeps it for later states.
    pub(in crate::exchange) fn find_stand_in(&mut self, sought: &Sought<'_>, asked: &Asked<'_>) {
        let shared = &self.config.process.shared;
        let stale = shared.hot().and_then(|hot| hot.stale(&sought.key));
        self.looked.stand_in = stale
            .filter(|entry| {
                entry.is_of_use_stale(asked.now)
                    && (sought.id.is_none() || self.config.cache.use_stale.is_any())
            })
            .map(|entry| StandIn {
                key: sought.key,
                entry,
                id: sought.id.map(<[u8]>::to_vec),
                generation: shared.generation(),
                is_asked_for: false,
            });
    }

    /// Whether the stale entry may be sent while a new response is fetched.
    pub(in crate::exchange) fn may_send_stale(&self, asked: &Asked<'_>) -> bool {
        self.looked.stand_in.as_ref().is_some_and(|stand_in| {
            self.covers_update(&stand_in.entry, asked.now)
                && self.is_not_purged(stand_in, asked.now)
        })
    }

    /// Whether the operator or the node allows a stale response during an update.
    fn covers_update(&self, entry: &Entry, now: u64) -> bool {
        entry.stands_in_while_revalidated(now)
            || self.config.cache.use_stale.while_updating() && entry.stands_in(now)
    }

    /// Responds with the stale entry, if that is allowed.
    pub(in crate::exchange) fn give_stale(
        &mut self,
        status: CacheStatus,
        asked: &Asked<'_>,
    ) -> Option<Found> {
        if !self.may_send_stale(asked) {
            return None;
        }
        let stand_in = self.looked.stand_in.as_ref()?;
        let (key, entry) = (stand_in.key, Arc::clone(&stand_in.entry));
        let id = stand_in.id.clone();
        self.looked.given_as = Some(status);
        match self.give(&key, entry, id.as_deref(), asked) {
            None | Some(Found::Nothing) => {
                // the node's response is to be sent, and stored, too
                self.looked.given_as = None;
                self.reason = Reason::None;
                None
            }
            found => found,
        }
    }

    /// Milliseconds to wait after `LookUp::Wait`.
    pub fn wait_ms(&self) -> u64 {
        let most = match &self.phase {
            Phase::Waiting(waits) if waits.is_for_owner() => return PATIENCE,
            _ => self.config.cache.lock_timeout,
        };
        let stand_in = self.looked.stand_in.as_ref();
        if stand_in.is_some_and(|it| self.covers_update(&it.entry, self.looked.at)) {
            return most.min(WAIT);
        }
        most
    }

    fn is_not_purged(&self, stand_in: &StandIn, now: u64) -> bool {
        let shared = &self.config.process.shared;
        shared.may_send(now) && shared.generation() == stand_in.generation
    }

    /// Records a failure of the node, which the host reports before the head of the response that
    /// the client would receive. Returns whether a stale entry will be sent in place of the
    /// response with that head.
    pub fn fails(&mut self, failure: Failure, now: u64) -> bool {
        self.record_failure(failure);
        let is_stood_in_for = self.would_stand_in(failure, now);
        self.looked.failed = Some(Failed {
            failure,
            now,
            is_stood_in_for,
        });
        is_stood_in_for
    }

    /// Whether the host has reported a failure of the node.
    pub fn has_failed(&self) -> bool {
        self.looked.failed.is_some()
    }

    /// Whether a stale entry would be sent after this failure.
    pub fn would_stand_in(&mut self, failure: Failure, now: u64) -> bool {
        self.renew_stand_in();
        self.looked.stand_in.as_ref().is_some_and(|stand_in| {
            self.covers(&stand_in.entry, failure, now) && self.is_not_purged(stand_in, now)
        })
    }

    /// Whether the client receives responses though the node has failed before its head: stored
    /// and denied responses of a split batch, and errors for the other calls. The host's own
    /// response is delivered to the exchange as if it were the node's then; its status stays.
    pub fn answers_without_node(&self, failure: Failure) -> bool {
        let Phase::AwaitingPart(mixed) = &self.phase else {
            return false;
        };
        failure.is_before_head() && !mixed.is_all_asked()
    }

    /// Replaces the stale entry by a newer one that another request has fetched meanwhile, and that
    /// clients have seen.
    fn renew_stand_in(&mut self) {
        let shared = &self.config.process.shared;
        let (Some(stand_in), Some(hot)) = (&mut self.looked.stand_in, shared.hot()) else {
            return;
        };
        let generation = shared.generation();
        let own = stand_in.entry.meta().stored_at;
        if let Some(entry) = hot
            .stale(&stand_in.key)
            .filter(|entry| entry.meta().stored_at > own)
        {
            stand_in.entry = entry;
            stand_in.generation = generation;
            stand_in.is_asked_for = false;
        }
    }

    pub(in crate::exchange) fn covers(&self, entry: &Entry, failure: Failure, now: u64) -> bool {
        let said_by_node = match failure {
            Failure::Status(status) => matches!(status, 500 | 502 | 503 | 504),
            _ => true,
        };
        said_by_node && entry.stands_in_for_error(now)
            || self.config.cache.use_stale.covers(failure) && entry.stands_in(now)
    }

    /// Whether a stored response replaces the response with this head, because the node has
    /// validated the entry, or has failed.
    pub(in crate::exchange) fn replaces<'a, I>(&mut self, head: &ResponseHead<I>) -> bool
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let Some(stand_in) = self.looked.stand_in.take() else {
            return false;
        };
        if head.status == 304 {
            return stand_in.is_asked_for && self.revalidated(&stand_in.entry, head);
        }
        // a host that reports no failure has no link to an owner either
        let (failure, stands_in) = match self.looked.failed {
            Some(failed) => (failed.failure, failed.is_stood_in_for),
            None => {
                let failure = Failure::Status(head.status);
                let covers = self.covers(&stand_in.entry, failure, self.looked.at);
                (
                    failure,
                    covers && self.is_not_purged(&stand_in, self.looked.at),
                )
            }
        };
        if let (true, Phase::AwaitingUpdate) = (stands_in, &self.phase) {
            // the stale entry is preferred to the node's error
            self.refuse_fill();
            return true;
        }
        if !stands_in || !self.replace(&stand_in.entry, stand_in.id.as_deref(), CacheStatus::Stale)
        {
            return false;
        }
        if let Failure::Status(status) = failure {
            self.looked.forward_status = Some(status);
        }
        self.refuse_fill();
        self.drop_fields(head);
        true
    }

    /// Sends a stored response in place of the node's.
    pub(in crate::exchange) fn replace(
        &mut self,
        entry: &Entry,
        id: Option<&[u8]>,
        status: CacheStatus,
    ) -> bool {
        let mut asked = self.asked_before();
        if let Some(failed) = self.looked.failed {
            asked.now = failed.now;
        }
        let is_too_long = self.is_too_long_to_give(entry, id);
        let limit = usize::try_from(self.config.memory).unwrap_or(usize::MAX);
        let budget = &self.config.process.budget;
        let stands = entry.check_within(budget, limit).is_ok();
        if self.allows(Event::Replace).is_err() || !stands || is_too_long {
            return false;
        }
        let answer = self.respond_with(entry, id, &asked, Borrowed::default());
        let Some(answer) = answer else {
            return false;
        };
        self.cache_status = status;
        self.move_on(Event::Replace, |_| Phase::Replacing(answer))
            .is_ok()
    }

    /// Removes the headers of a failed response that a stale entry replaces.
    fn drop_fields<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        for (name, _) in head.fields.clone() {
            let is_set = self.head_edits.iter().any(|edit| {
                let set = edit.name.as_bytes();
                set.eq_ignore_ascii_case(name)
            });
            if is_set || !http::is_stored_field(name) {
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
