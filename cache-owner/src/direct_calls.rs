//! Direct calls of the process in which the owner runs, in place of messages of its session.
//!
//! Calls run on the threads of their callers. Only entries that are written to the disk and queries to
//! nodes become tasks of the owner's threads. After the end of the owner no call is handled: the end
//! waits for those that run.

use std::fmt;
use std::sync::{Arc, RwLock};

use sszip_core::cache::owner::direct_calls::{DirectLookupReply, DirectStoreResult};
use sszip_core::cache::owner::state::OwnerHit;
use sszip_core::cache::owner_protocol::owner_message::LeaseReply;
use sszip_core::cache::owner_protocol::process_message::StoreRequest;
use sszip_core::cache::CacheKey;
use sszip_core::lock::write_ignoring_poison;
use tokio::runtime::Handle;

use crate::clock::read_clocks;
use crate::operations::OwnerOperations;

/// Bytes by which a serialized entry may exceed the configured maximum: its head.
const ENTRY_HEAD_BYTES: usize = 64 << 10;

/// The direct calls of one owner: they are handled while it serves.
#[derive(Default)]
pub struct DirectCalls(RwLock<Option<ServingOwner>>);

/// An owner that serves.
struct ServingOwner {
    operations: Arc<OwnerOperations>,
    runtime: Handle,
}

/// An entry that a direct lookup has found.
#[derive(Clone, Copy, Debug)]
pub struct FoundBytes<'a> {
    /// Generation of the newest purge before the lookup.
    pub generation: u64,
    /// Remaining lifetime in milliseconds.
    pub fresh: u64,
    /// Milliseconds since the request was sent to the node.
    pub age: u64,
    /// The serialized entry.
    pub bytes: &'a [u8],
}

impl DirectCalls {
    /// Begins to handle calls.
    pub(crate) fn begin(&self, operations: &Arc<OwnerOperations>, runtime: Handle) {
        *write_ignoring_poison(&self.0) = Some(ServingOwner {
            operations: Arc::clone(operations),
            runtime,
        });
    }

    /// Ends the handling of calls, and waits for those that run.
    pub(crate) fn end(&self) {
        *write_ignoring_poison(&self.0) = None;
    }

    /// Calls the owner if it serves. A call at its begin or its end is not handled.
    fn call<T>(&self, call: impl FnOnce(&ServingOwner) -> Option<T>) -> Option<T> {
        call(self.0.try_read().ok()?.as_ref()?)
    }

    /// Looks a key up for the session with this number. `lease` is the maximum duration of the lease
    /// that is requested if there is no entry, in milliseconds; 0: none is requested. `fleet_wait` is
    /// the time for which the process can wait for an entry of another machine, in milliseconds; 0:
    /// there is none. Passes a found entry to `found`. Returns `None` if the call is not handled, else
    /// the decision about the lease if no entry was found.
    pub fn lookup<T>(
        &self,
        session: u64,
        key: &CacheKey,
        lease: u32,
        fleet_wait: u16,
        found: impl FnOnce(FoundBytes<'_>) -> T,
    ) -> Option<Result<T, LeaseReply>> {
        self.call(|owner| owner.lookup(session, key, lease, fleet_wait, found))
    }

    /// Stores an entry that the session with this number has fetched, and ends its lease. `head` is
    /// the head of the message `Store`, the entry has the bytes of `parts`. Returns `false` if the
    /// call is not handled.
    pub fn store(&self, session: u64, head: &[u8], parts: [&[u8]; 2]) -> bool {
        self.call(|owner| owner.store(session, head, parts))
            .is_some()
    }

    /// Ends a lease of the session with this number. Returns `false` if the call is not handled.
    pub fn release(&self, session: u64, key: &CacheKey) -> bool {
        self.call(|owner| owner.release(session, key)).is_some()
    }
}

impl fmt::Debug for DirectCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DirectCalls").finish_non_exhaustive()
    }
}

impl ServingOwner {
    fn lookup<T>(
        &self,
        session: u64,
        key: &CacheKey,
        lease: u32,
        fleet_wait: u16,
        found: impl FnOnce(FoundBytes<'_>) -> T,
    ) -> Option<Result<T, LeaseReply>> {
        let engine = &self.operations.engine;
        let now = read_clocks();
        let requested = (lease > 0).then(|| u64::from(lease));
        let reply = engine
            .owner
            .lookup_for_session(session, key, requested, fleet_wait, now)?;
        let DirectLookupReply {
            generation,
            found: result,
        } = reply;
        let OwnerHit {
            kept,
            is_to_be_stored,
        } = match result {
            Ok(hit) => hit,
            Err(decision) => {
                if decision == LeaseReply::Granted {
                    let end = now.monotonic.saturating_add(u64::from(lease));
                    engine.alarm.wake_if_later_than(end);
                }
                // leases of other processes may have ended by their time
                engine.wake_sessions();
                return Some(Err(decision));
            }
        };
        let value = found(FoundBytes {
            generation,
            fresh: kept.remaining_ttl(now),
            age: kept.age_ms(now),
            bytes: kept.encoded_bytes(),
        });
        if is_to_be_stored {
            let _runtime = self.runtime.enter();
            engine.check_and_store_entry(*key, kept, true, false);
        }
        Some(Ok(value))
    }

    fn store(&self, session: u64, head: &[u8], parts: [&[u8]; 2]) -> Option<()> {
        let engine = &self.operations.engine;
        let store = StoreRequest::decode_head(head).ok()?;
        let length = parts[0].len().checked_add(parts[1].len())?;
        let max_entry = usize::try_from(self.operations.max_entry()).unwrap_or(usize::MAX);
        let is_valid = store.total == length as u64
            && length <= max_entry.saturating_add(ENTRY_HEAD_BYTES)
            && engine.owner.memory_fits_entry(length);
        if !is_valid {
            return None;
        }
        let mut body = Vec::new();
        body.try_reserve_exact(length).ok()?;
        parts.iter().for_each(|part| body.extend_from_slice(part));
        let stored = engine
            .owner
            .store_for_session(session, store, body, read_clocks());
        match stored {
            DirectStoreResult::NotHandled => return None,
            DirectStoreResult::Refused => {}
            DirectStoreResult::Stored(stored) => {
                let _runtime = self.runtime.enter();
                engine.finish_accepted_entry(stored);
            }
        }
        engine.wake_sessions();
        Some(())
    }

    fn release(&self, session: u64, key: &CacheKey) -> Option<()> {
        let engine = &self.operations.engine;
        let is_handled = engine
            .owner
            .release_for_session(session, key, read_clocks());
        engine.wake_sessions();
        is_handled.then_some(())
    }
}
