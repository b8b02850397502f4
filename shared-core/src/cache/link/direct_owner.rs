//! The interface to an owner that runs in this process, and the session of direct calls.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crate::cache::owner_protocol::owner_message::LeaseReply;
use crate::cache::owner_protocol::process_message::StoreRequest;
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheKey;

/// An owner in this process that direct calls reach. It may start and stop at any time; calls for a
/// session that it does not have are not handled. Any thread may call it. No call waits for a disk
/// or another thread.
pub trait DirectOwner: fmt::Debug + Send + Sync {
    /// Looks a key up for a session. `lease` is the maximum duration of the lease that is requested
    /// if there is no entry, in milliseconds, and `fleet_wait` the milliseconds for which the process
    /// can wait for an entry of another machine. Returns `None` if the call is not handled: only a
    /// message can look the key up.
    fn lookup(
        &self,
        session: u64,
        key: &CacheKey,
        lease: Option<u32>,
        fleet_wait: u16,
    ) -> Option<DirectReply>;

    /// Stores an entry that a session has fetched, and ends its lease. Returns `false` if the call is
    /// not handled.
    fn store(&self, session: u64, store: &StoreRequest) -> bool;

    /// Ends a lease of a session. Returns `false` if the call is not handled.
    fn release(&self, session: u64, key: &CacheKey) -> bool;
}

/// The reply of an owner to a direct lookup.
#[derive(Debug)]
pub enum DirectReply {
    /// The owner has an entry.
    Found {
        /// Generation of the newest purge before the lookup.
        generation: u64,
        /// Remaining lifetime in milliseconds.
        fresh: u64,
        /// Milliseconds since the request was sent to the node.
        age: u64,
        /// The serialized entry.
        bytes: Vec<u8>,
    },
    /// The owner has no entry; its decision about the requested lease.
    Missing(LeaseReply),
}

/// The owner that direct calls reach, and the session that the link has at it.
#[derive(Debug, Default)]
pub(super) struct DirectSession {
    attached: Option<(Arc<dyn DirectOwner>, Weak<ProcessCacheState>)>,
    /// Number of the session; 0: direct calls are not possible at present.
    number: AtomicU64,
}

impl DirectSession {
    /// Creates the record of an owner that is reached by direct calls once a session is open.
    pub(super) fn new(owner: Arc<dyn DirectOwner>, shared: &Arc<ProcessCacheState>) -> Self {
        Self {
            attached: Some((owner, Arc::downgrade(shared))),
            number: AtomicU64::new(0),
        }
    }

    /// Begins direct calls for a session. The caller has locked the state of the link.
    pub(super) fn begin(&self, number: u64) {
        self.number.store(number, Ordering::Release);
    }

    /// Ends direct calls, because the session is lost. The caller has locked the state of the link.
    pub(super) fn end(&self) {
        self.number.store(0, Ordering::Release);
    }

    /// Whether this session is still the present one.
    pub(super) fn is_session(&self, number: u64) -> bool {
        self.number.load(Ordering::Acquire) == number
    }

    /// Returns the owner and the number of the session, if direct calls are possible.
    pub(super) fn open_session(&self) -> Option<(&dyn DirectOwner, u64)> {
        let (owner, _) = self.attached.as_ref()?;
        let number = self.number.load(Ordering::Acquire);
        (number != 0).then_some((&**owner, number))
    }

    /// Returns the state of the process, unless the process ends.
    pub(super) fn process_state(&self) -> Option<Arc<ProcessCacheState>> {
        self.attached.as_ref()?.1.upgrade()
    }
}
