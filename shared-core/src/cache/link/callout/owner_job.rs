//! Requests of a process to its owner, and their deadlines.

use std::sync::Arc;

use super::message::{LeaseRequestTerms, OwnerRequest};
use crate::cache::chain::ShownBlock;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::CacheEntry;
use crate::cache::freshness::FinalityUpgrade;
use crate::cache::process::flights::FlightLeadership;
use crate::cache::process::wake::WaitingRequestId;
use crate::cache::{CacheKey, CacheNamespace};

/// For how long a lease is asked for, in milliseconds: some calls take a node
/// that long. It ends with the process.
const LEASE: u64 = 60_000;

/// One request to the owner.
#[derive(Debug)]
pub(super) enum QueuedOwnerRequest {
    LookUp(LookupJob),
    LookUps {
        keys: Vec<CacheKey>,
        waiter: WaitingRequestId,
        due: u64,
    },
    Store {
        key: CacheKey,
        entry: Arc<CacheEntry>,
        about: Box<StoredEntryAttributes>,
        if_final: Option<FinalityUpgrade>,
    },
    ReleaseLease(CacheKey),
    /// A block above the head was shown to a client.
    ShowBlock(CacheNamespace, ShownBlock),
    /// What an operator wants to be purged.
    Purge {
        body: String,
        /// `None`: it has gone, and the purge is done all the same.
        waiter: Option<WaitingRequestId>,
        due: u64,
    },
    /// Whoever asked has gone on, perhaps for this key to the node.
    Expired(Option<CacheKey>),
}

#[derive(Debug)]
pub(super) struct LookupJob {
    pub(super) key: CacheKey,
    pub(super) token: FlightLeadership,
    /// Only one is to ask the node, so the owner is asked for its lease.
    pub(super) leases: bool,
    /// When its time is over, in milliseconds of the host's clock.
    pub(super) due: u64,
    /// What another process fetches is of no use here: its lease is not asked
    /// for.
    pub(super) waits_in_vain: bool,
}

impl LookupJob {
    /// Whether its lease is asked for.
    pub(super) fn requests_lease(&self) -> bool {
        self.leases && !self.waits_in_vain
    }
}

impl QueuedOwnerRequest {
    /// Nobody waits for it under that name any more.
    pub(super) fn forget_waiter(&mut self, gone: WaitingRequestId) {
        match self {
            Self::LookUps { waiter, .. } if *waiter == gone => {
                *self = Self::Expired(None);
            }
            // it is done all the same
            Self::Purge { waiter, .. } if *waiter == Some(gone) => *waiter = None,
            _ => {}
        }
    }

    /// When whoever waits for it goes on without it.
    pub(super) fn reply_deadline(&self) -> Option<u64> {
        match self {
            Self::LookUp(look_up) => Some(look_up.due),
            Self::LookUps { due, .. } | Self::Purge { due, .. } => Some(*due),
            _ => None,
        }
    }

    pub(super) fn is_late(&self, now: u64) -> bool {
        self.reply_deadline().is_some_and(|due| due <= now)
    }

    /// What is sent; `None`: there is no way to, perhaps for want of memory.
    /// `now` is in milliseconds of the host's clock.
    pub(super) fn to_owner_request(&self, process: &str, now: u64) -> Option<OwnerRequest> {
        Some(match self {
            Self::LookUp(look_up) => {
                let lease = LeaseRequestTerms {
                    process,
                    milliseconds: LEASE,
                    wait: 0,
                };
                OwnerRequest::lookup_request(
                    &look_up.key,
                    look_up.requests_lease().then_some(lease),
                )
            }
            Self::LookUps { keys, .. } => OwnerRequest::batch_lookup_request(keys)?,
            Self::Store {
                key,
                entry,
                about,
                if_final,
            } => OwnerRequest::store_request(key, entry, about, if_final.as_ref(), process, now)?,
            Self::ReleaseLease(key) => OwnerRequest::release_lease_request(key, process),
            Self::ShowBlock(namespace, sighting) => {
                OwnerRequest::shown_block_report(namespace, *sighting)
            }
            Self::Purge { body, .. } => OwnerRequest::purge_request(body)?,
            Self::Expired(_) => return None,
        })
    }
}
