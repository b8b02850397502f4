//! Lookups, stores and releases by direct calls of an owner in this process.
//!
//! A call that is not handled, because the owner has stopped, is another one than the session's, or
//! needs its disk, is made by a message of the connection.

use std::sync::Arc;

use super::direct_owner::{DirectOwner, DirectReply, DirectSession};
use super::found_entries::{decode_received_entry, insert_received_entry, ReceivedEntry};
use super::jobs::fleet_wait;
use super::outgoing_store::store_request;
use super::request_messages::LEASE_MS;
use super::OwnerLink;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::CacheEntry;
use crate::cache::owner_protocol::frame::MAX_BODY_BYTES;
use crate::cache::owner_protocol::owner_message::LeaseReply;
use crate::cache::process::flights::{FlightLeadership, FlightOutcome};
use crate::cache::process::owner_client::{
    OwnerClient, OwnerLookup, OwnerLookupOptions, OwnerStoreOptions,
};
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;
use crate::lock::lock_ignoring_poison;

impl OwnerLink {
    /// Makes lookups, stores and releases direct calls of `owner` while the session is one of that
    /// owner. `shared` is the state of the process whose exchanges use this link.
    #[must_use]
    pub fn attach_direct_owner(
        self,
        owner: Arc<dyn DirectOwner>,
        shared: &Arc<ProcessCacheState>,
    ) -> Self {
        Self {
            direct: DirectSession::new(owner, shared),
            ..self
        }
    }

    /// Looks up the key of a flight by a direct call.
    ///
    /// # Errors
    /// Returns the token if only a message can look the key up.
    pub(super) fn lookup_by_call(
        &self,
        token: FlightLeadership,
        options: OwnerLookupOptions,
        now: u64,
    ) -> Result<OwnerLookup, FlightLeadership> {
        let Some((owner, session)) = self.direct.open_session() else {
            return Err(token);
        };
        let Some(shared) = self.direct.process_state() else {
            return Err(token);
        };
        let lease = options.requests_lease().then_some(LEASE_MS);
        let fleet_wait = fleet_wait(self.lookup_timeout(), options.is_shareable);
        match owner.lookup(session, token.flight_key(), lease, fleet_wait) {
            // an event ends the wait for another process, and may come before this reply is handled
            None | Some(DirectReply::Missing(LeaseReply::Pending)) => Err(token),
            Some(DirectReply::Missing(lease)) => {
                if lease == LeaseReply::Granted {
                    shared.flights.record_flight_lease(token.flight_key());
                }
                Ok(OwnerLookup::Missing(token))
            }
            Some(DirectReply::Found {
                generation,
                fresh,
                age,
                bytes,
            }) => {
                let received = ReceivedEntry { bytes, fresh, age };
                self.share_found_entry(&shared, token, (session, generation), received, now)
            }
        }
    }

    /// Stores a found entry in the hot tier, and ends its flight with it, unless it may have been
    /// purged in the meantime.
    fn share_found_entry(
        &self,
        shared: &ProcessCacheState,
        token: FlightLeadership,
        (session, generation): (u64, u64),
        received: ReceivedEntry,
        now: u64,
    ) -> Result<OwnerLookup, FlightLeadership> {
        let key = *token.flight_key();
        let entry = decode_received_entry(shared, &self.chains, &key, received, now);
        let Some(entry) = entry else {
            return Ok(OwnerLookup::Missing(token));
        };
        // purges come into effect, and sessions end, on another thread under this lock: a request
        // that follows the flight or finds the entry in the hot tier began before the next purge
        let state = lock_ignoring_poison(&self.state);
        if generation < self.purge_generation() || !self.direct.is_session(session) {
            return Err(token);
        }
        insert_received_entry(shared, &key, &entry);
        let outcome = FlightOutcome::Answer(Arc::clone(&entry));
        let change = shared.flights.finish_flight(token, outcome);
        drop(state);
        // a flight with a response leaves no lease
        shared.wake_flight_waiters(change);
        Ok(OwnerLookup::Found(entry))
    }

    /// Stores an entry by a direct call, or releases its lease if it can't be stored. Returns its
    /// attributes if the call was not handled.
    pub(super) fn store_by_call(
        &self,
        key: CacheKey,
        entry: &CacheEntry,
        about: StoredEntryAttributes,
        options: OwnerStoreOptions,
        now: u64,
    ) -> Option<StoredEntryAttributes> {
        let Some((owner, session)) = self.direct.open_session() else {
            return Some(about);
        };
        let Some(request) = store_request(key, entry, about, options, now) else {
            self.release_lease(key);
            return None;
        };
        // a longer entry is sent in parts: its copy would delay the other requests of this thread
        let is_short = request.total <= MAX_BODY_BYTES as u64;
        match is_short && owner.store(session, &request) {
            true => None,
            false => Some(request.about),
        }
    }

    /// Releases a lease by a direct call. Returns whether the call was handled.
    pub(super) fn release_by_call(&self, key: &CacheKey) -> bool {
        let session = self.direct.open_session();
        session.is_some_and(|(owner, session)| owner.release(session, key))
    }
}
