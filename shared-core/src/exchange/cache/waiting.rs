//! Waiting for a response that another request fetches, or for entries of the owner.

use std::sync::Arc;

use crate::cache::chain::DispatchMark;
use crate::cache::entry::CacheEntry;
use crate::cache::process::flights::FlightFollowerWakeup;
use crate::cache::process::owner_client::OwnerClient;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::process::ProcessCacheState;
use crate::cache::vary_key::VaryHeaderNames;
use crate::cache::CacheKey;

/// A request that waits for another request's response or for the owner. When it is dropped it
/// leaves its flight, and a leadership that was offered to it is handed over.
#[derive(Debug)]
pub(in crate::exchange) struct WaitingRequest {
    shared: Arc<ProcessCacheState>,
    /// Identity under which the request is woken.
    waiter: WaitingRequestId,
    awaited: AwaitedResult,
}

/// The result that a waiting request waits for: responses of other requests, or a reply of the
/// owner.
#[derive(Debug)]
pub(in crate::exchange) enum AwaitedResult {
    /// One response, which another request fetches or the owner has.
    Answer(CacheKey, PurgeAndChainSnapshot),
    /// The owner's entries for a batch.
    Stored,
    /// Responses that other requests fetch for a batch, in a scope with these vary headers, and
    /// the entries that the owner had for it.
    Flights(
        PurgeAndChainSnapshot,
        Option<VaryHeaderNames>,
        Option<OwnerBatchReply>,
    ),
    /// The owner's reply to a purge or status request.
    AdminReply,
    /// The wait has ended.
    Nothing,
}

/// The purge generation and the chain state that were known when a request was looked up or began
/// to wait.
#[derive(Clone, Debug)]
pub(in crate::exchange) struct PurgeAndChainSnapshot {
    /// Generation of the last purge.
    pub(in crate::exchange) generation: u64,
    /// State of the chain.
    pub(in crate::exchange) mark: Option<DispatchMark>,
    /// Whether the process had a send lease, so that the state was up to date.
    pub(in crate::exchange) is_current: bool,
}

impl PurgeAndChainSnapshot {
    /// Whether an entry may be sent to the waiting request: it may have been fetched before the
    /// request began, and with several event loops a purge may be in effect before this one
    /// resumes.
    pub(in crate::exchange) fn allows_entry_since_wait(
        &self,
        shared: &ProcessCacheState,
        entry: &CacheEntry,
    ) -> bool {
        shared.is_unpurged_since(self.generation)
            && match self.is_current {
                true => entry.may_answer_dispatched_request(self.mark.as_ref()),
                // blocks may have been replaced before the request began
                false => entry.is_valid_on_chain(),
            }
    }
}

/// The entries that the owner returned in reply to the lookup of one batch's keys.
#[derive(Debug)]
pub(in crate::exchange) struct OwnerBatchReply {
    pub(in crate::exchange) entries: Vec<(CacheKey, Arc<CacheEntry>)>,
    /// Generation of the last purge that was known before the owner's reply was read.
    pub(in crate::exchange) generation: u64,
}

/// The responses that a batch has received after its wait: other requests fetched them, or the
/// owner had them.
#[derive(Debug, Default)]
pub(in crate::exchange) struct AwaitedBatchResponses {
    /// Responses that other requests fetched, if the batch waited for them.
    pub(in crate::exchange) flight_responses: Option<Vec<(CacheKey, Arc<CacheEntry>)>>,
    /// Vary headers when the batch began to wait for other requests.
    pub(in crate::exchange) names: Option<VaryHeaderNames>,
    /// Entries of the owner, if it was queried.
    pub(in crate::exchange) owner_reply: Option<OwnerBatchReply>,
}

impl WaitingRequest {
    pub(in crate::exchange) fn new(
        shared: &Arc<ProcessCacheState>,
        waiter: WaitingRequestId,
        awaited: AwaitedResult,
    ) -> Box<Self> {
        Box::new(Self {
            shared: Arc::clone(shared),
            waiter,
            awaited,
        })
    }

    /// Returns the key of the single response that the request waits for, and the state at that
    /// time.
    pub(in crate::exchange) fn awaited_response_key(
        &self,
    ) -> Option<(CacheKey, PurgeAndChainSnapshot)> {
        match &self.awaited {
            AwaitedResult::Answer(key, since) => Some((*key, since.clone())),
            _ => None,
        }
    }

    /// Whether the request waits for the owner's reply to a purge or status request.
    pub(in crate::exchange) fn awaits_admin_reply(&self) -> bool {
        matches!(self.awaited, AwaitedResult::AdminReply)
    }

    /// Whether the request waits for nothing: it is looked up again at once.
    pub(in crate::exchange) fn is_lookup_repeated_at_once(&self) -> bool {
        matches!(self.awaited, AwaitedResult::Nothing)
    }

    /// Ends the wait for one response, and returns the action that follows; `None` if the request
    /// was not woken.
    pub(in crate::exchange) fn claim_wakeup(mut self) -> Option<FlightFollowerWakeup> {
        let turn = self.shared.flights.claim_wakeup(self.waiter)?;
        self.awaited = AwaitedResult::Nothing;
        Some(turn)
    }

    /// Ends the wait of a batch, and returns the responses and entries that it has received.
    pub(in crate::exchange) fn claim_awaited_responses(mut self) -> AwaitedBatchResponses {
        let shared = Arc::clone(&self.shared);
        match std::mem::replace(&mut self.awaited, AwaitedResult::Nothing) {
            AwaitedResult::Stored => {
                // read before the entries: a purge may occur meanwhile
                let generation = shared.purge_generation();
                let claim = |owner: &dyn OwnerClient| OwnerBatchReply {
                    entries: owner.take_batch_entries(self.waiter),
                    generation,
                };
                AwaitedBatchResponses {
                    owner_reply: shared.owner_client().map(claim),
                    ..AwaitedBatchResponses::default()
                }
            }
            AwaitedResult::Flights(since, names, owner_reply) => {
                let mut flight_responses = shared.flights.claim_awaited_responses(self.waiter);
                flight_responses.retain(|(_, entry)| since.allows_entry_since_wait(&shared, entry));
                AwaitedBatchResponses {
                    flight_responses: Some(flight_responses),
                    names,
                    owner_reply,
                }
            }
            awaited => {
                self.awaited = awaited;
                AwaitedBatchResponses::default()
            }
        }
    }
}

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        let (shared, waiter) = (&self.shared, self.waiter);
        shared.forget_waiter(waiter);
        match &self.awaited {
            AwaitedResult::Answer(key, _) => shared.leave_flight(key, waiter),
            AwaitedResult::Stored => drop(
                shared
                    .owner_client()
                    .map(|owner| owner.take_batch_entries(waiter)),
            ),
            AwaitedResult::Flights(..) => drop(shared.flights.claim_awaited_responses(waiter)),
            AwaitedResult::AdminReply => {
                drop(
                    shared
                        .owner_client()
                        .map(|owner| owner.claim_admin_reply(waiter)),
                );
            }
            AwaitedResult::Nothing => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PurgeAndChainSnapshot;
    use crate::cache::chain::{ChainChange, ChainState, HeightUnit, NamespaceChains};
    use crate::cache::class::LifetimeClass;
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
    use crate::cache::process::ProcessCacheState;

    #[test]
    fn request_that_began_without_a_send_lease_gets_no_entry_of_an_older_head() {
        let (chains, shared) = (NamespaceChains::default(), ProcessCacheState::default());
        let state = || ChainState::new_without_blocks(HeightUnit::Blocks, 1);
        let chain = chains.get_or_add_chain([1; 16], state);
        chain.modify_locked_chain_state(|state| state.apply_chain_change(ChainChange::Head(10)));
        let mark = chain.chain_mark_at_dispatch();
        let meta = EntryMetadata {
            class: LifetimeClass::Tip,
            height: Some(10),
            follows: Some(([1; 16], mark.epoch)),
            ..EntryMetadata::default()
        };
        let payload = EntryPayload::Raw(b"1".to_vec().into());
        let entry = CacheEntry::new(EnvelopeBytes::envelope_without_bytes(), payload, meta)
            .with_chain_dependency(&chains);
        let allows = |is_current| {
            let since = PurgeAndChainSnapshot {
                generation: 0,
                mark: Some(mark),
                is_current,
            };
            since.allows_entry_since_wait(&shared, &entry)
        };
        assert!(allows(true) && allows(false));
        chain.modify_locked_chain_state(|state| state.apply_chain_change(ChainChange::Head(11)));
        assert!(allows(true) && !allows(false));
    }
}
