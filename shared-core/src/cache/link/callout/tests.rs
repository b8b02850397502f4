use std::collections::BTreeMap;
use std::sync::Arc;

use super::{CalloutId, CalloutLimits, OwnerCallout, OwnerCalloutClient};
use crate::cache::class::LifetimeClass;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::wire::EncodedEntry;
use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use crate::cache::link::{ChainStateNumber, OwnerHealthChange, OwnerReply};
use crate::cache::process::flights::{
    CoalescingRole, FlightFollowerWakeup, FlightLeadership, FlightOutcome,
};
use crate::cache::process::owner_client::{OwnerClient, PendingFlightResponse};
use crate::cache::process::wake::{EventLoopId, WaitingRequestId, WokenRequestQueue};
use crate::cache::process::ProcessCacheState;
use crate::cache::{CacheKey, CacheNamespace};

mod chains;
mod herds;
mod limits;
mod lookups;

const KEY: CacheKey = [7; 32];
const SPACE: CacheNamespace = [0xab; 16];

/// Returns a waiter of the only event loop.
fn test_waiter(id: usize) -> WaitingRequestId {
    EventLoopId::default().waiter_of_request(id)
}

/// A host that makes callouts on request.
struct CalloutTestHost {
    shared: ProcessCacheState,
    queue: Arc<WokenRequestQueue>,
    calls: Arc<OwnerCalloutClient>,
    now: u64,
    /// Callouts that were made.
    made: BTreeMap<CalloutId, OwnerCallout>,
}

impl CalloutTestHost {
    fn new() -> Self {
        Self::within(CalloutLimits::default())
    }

    fn within(bounds: CalloutLimits) -> Self {
        let shared = ProcessCacheState::default();
        let queue = Arc::new(WokenRequestQueue::default());
        shared.add_event_loop(queue.clone());
        let calls = Arc::new(OwnerCalloutClient::new("w-1".into(), bounds));
        shared.set_owner_client(calls.clone());
        Self {
            shared,
            queue,
            calls,
            now: 1_000,
            made: BTreeMap::new(),
        }
    }

    fn calls(&self) -> &OwnerCalloutClient {
        &self.calls
    }

    /// Makes the due callouts. Returns their methods and targets.
    fn send_due_callouts(&mut self) -> Vec<String> {
        let mut sent = Vec::new();
        while let Some(call) = self.calls().next_callout(&self.shared, self.now) {
            let message = &call.message;
            let target = message.target.replace(&"07".repeat(32), "KEY");
            sent.push(format!("{} {target}", message.method));
            self.made.insert(call.ticket, call);
        }
        sent
    }

    fn pass(&mut self, milliseconds: u64) -> Vec<String> {
        self.now += milliseconds;
        self.send_due_callouts()
    }

    fn field(&self, name: &str) -> Option<&str> {
        let (_, call) = self.made.last_key_value()?;
        let field = call.message.fields.iter().find(|(other, _)| *other == name);
        field.map(|(_, value)| &**value)
    }

    /// Answers the oldest callout. Returns the callouts that are due then.
    fn answer_oldest_callout(&mut self, answer: OwnerReply) -> Vec<String> {
        let (ticket, _) = self.made.pop_first().unwrap();
        self.calls()
            .callout_answered(&self.shared, ticket, answer, self.now);
        self.send_due_callouts()
    }

    /// Makes the callouts in the context of a waiter, which end with it. Returns their tickets.
    fn send_own_callouts(&mut self, waiter: usize) -> Vec<CalloutId> {
        let mut own = Vec::new();
        while let Some(call) =
            self.calls()
                .next_callout_for_stream(&self.shared, test_waiter(waiter), self.now)
        {
            own.push(call.ticket);
            self.made.insert(call.ticket, call);
        }
        own
    }

    /// Ends the context of these callouts.
    fn end_callout_context(&mut self, own: &[CalloutId]) {
        for ticket in own {
            self.made.remove(ticket).unwrap();
            self.calls()
                .abandon_callout(&self.shared, *ticket, self.now);
        }
    }

    fn fail(&mut self) -> Vec<String> {
        let (ticket, _) = self.made.pop_first().unwrap();
        self.calls().callout_failed(&self.shared, ticket, self.now);
        self.send_due_callouts()
    }

    /// Looks `KEY` up for a waiter. Returns the callouts that are due then.
    fn look_up_for_waiter(&mut self, waiter: usize) -> Vec<String> {
        self.look_up_or_follow(KEY, waiter, true);
        self.send_due_callouts()
    }

    /// Looks a key up. Returns whether the waiter waits.
    fn look_up_or_follow(&mut self, key: CacheKey, waiter: usize, leases: bool) -> bool {
        match self
            .shared
            .flights
            .join_flight(key, test_waiter(waiter))
            .unwrap()
        {
            CoalescingRole::Follower => true,
            CoalescingRole::Leader(token) => {
                self.shared
                    .flights
                    .follow_own_flight(&token, test_waiter(waiter))
                    .unwrap();
                let result = self
                    .calls()
                    .lookup_at_owner(key, token, &SPACE, leases, false, self.now);
                if let Err(token) = result {
                    self.shared.leave_flight(&key, test_waiter(waiter));
                    self.shared.hand_over_flight(token);
                    return false;
                }
                true
            }
        }
    }

    fn lead(&self, waiter: usize) -> Option<FlightLeadership> {
        match self.shared.flights.claim_wakeup(test_waiter(waiter)) {
            Some(FlightFollowerWakeup::Lead(token)) => Some(token),
            _ => None,
        }
    }

    /// Returns the response that a waiter received, as text.
    fn received_response_text(&self, waiter: usize) -> Option<String> {
        match self.shared.flights.claim_wakeup(test_waiter(waiter)) {
            Some(FlightFollowerWakeup::Response(FlightOutcome::Answer(entry))) => {
                Some(text_of(&entry))
            }
            _ => None,
        }
    }

    fn is_alone(&self, waiter: usize) -> bool {
        let turn = self.shared.flights.claim_wakeup(test_waiter(waiter));
        matches!(
            turn,
            Some(FlightFollowerWakeup::Response(FlightOutcome::NotShareable))
        )
    }

    fn woken(&self) -> Vec<usize> {
        std::iter::from_fn(|| self.queue.next_woken_id()).collect()
    }

    /// Publishes the response that was fetched under a leadership, as a fill does.
    fn publish_fetched_response(
        &mut self,
        token: FlightLeadership,
        entry: CacheEntry,
        generation: u64,
    ) -> Vec<String> {
        let key = *token.flight_key();
        let entry = Arc::new(entry.with_stored_time_and_ttl(self.now, 10_000));
        let about =
            StoredEntryAttributes::attributes_for_entry(&entry, SPACE, None, generation).unwrap();
        self.calls()
            .store_at_owner(key, Arc::clone(&entry), about, None);
        self.shared.publish_to_followers(PendingFlightResponse {
            token,
            entry,
            generation,
        });
        self.send_due_callouts()
    }
}

fn text_of(entry: &CacheEntry) -> String {
    let encoded = EncodedEntry::from_entry(entry).unwrap();
    String::from_utf8(encoded.payload.to_vec()).unwrap()
}

fn entry(text: &str) -> CacheEntry {
    let meta = EntryMetadata {
        class: LifetimeClass::Config,
        ..EntryMetadata::default()
    };
    entry_with(text, meta)
}

fn entry_with(text: &str, meta: EntryMetadata) -> CacheEntry {
    let payload = EntryPayload::Raw(text.as_bytes().to_vec().into());
    CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload, meta)
}

/// Returns a reply of an owner that follows no chain.
fn reply_without_chain(status: u16) -> OwnerReply {
    OwnerReply {
        status,
        generation: Some(5),
        chain: Some(ChainStateNumber::NotFollowed),
        ..OwnerReply::default()
    }
}

fn found(entry: &CacheEntry) -> OwnerReply {
    OwnerReply {
        fresh: 500,
        body: EncodedEntry::from_entry(entry).unwrap().to_vec(),
        ..reply_without_chain(200)
    }
}

fn missing(granted: bool) -> OwnerReply {
    OwnerReply {
        granted: Some(granted),
        ..reply_without_chain(404)
    }
}

const LOOK_UP: &str = "GET /v1/entries/KEY?lease=w-1&for=10000";
const LONG: &str = "GET /v1/entries/KEY?lease=w-1&for=10000&wait=1000";
const STORE: &str = "PUT /v1/entries/KEY";
const GIVE_BACK: &str = "DELETE /v1/leases/KEY?process=w-1";
