//! The owner client (docs/owner-protocol.md): lookups, stores, leases and purges of a process, and
//! the events that the owner sends it.
//!
//! Sans-I/O: the host opens one connection to the owner and carries the bytes, or makes callouts. All
//! messages are frames; the requests of one iteration of an event loop share a frame and a system
//! call, and those that gather during a callout share the next one. A lookup leads the flight of its
//! key until the owner replies, so that all requests for the key wait for one reply; an entry that was
//! found is stored in the hot tier. A failure or a timeout fails open: the request is sent to the
//! node. The modules:
//!
//! | module            | concern                                                        |
//! |-------------------|----------------------------------------------------------------|
//! | `connection`      | the connection: its states, its bytes                          |
//! | `connection_io`   | calls by which the host carries the bytes                      |
//! | [`callouts`]      | frames as callouts of a host without connections               |
//! | `callout_transport` | the callouts in flight                                       |
//! | `session`         | the state of the session                                       |
//! | `events`          | begin and loss of the session, events, send leases             |
//! | `requests`        | requests of the exchanges: the trait `OwnerClient`             |
//! | `jobs`            | requests without a reply, and their timeouts                   |
//! | `background_queue`| entries to be stored and leases to be released                 |
//! | `outgoing_store`  | entries as messages that store them                            |
//! | `request_messages`| requests as messages of the next frame                         |
//! | `replies`         | the owner's replies to lookups                                 |
//! | `found_entries`   | entries that the owner has sent                                |
//! | [`direct_owner`]  | the interface to an owner in this process                      |
//! | `direct_calls`    | lookups, stores and releases by calls of such an owner         |

mod background_queue;
mod callout_transport;
pub mod callouts;
mod connection;
mod connection_io;
mod direct_calls;
pub mod direct_owner;
mod events;
mod found_entries;
mod jobs;
mod outgoing_store;
mod owner_health;
mod purge;
mod replies;
mod request_messages;
mod requests;
mod session;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use self::background_queue::BackgroundQueue;
use self::callout_transport::CalloutTransport;
pub use self::connection::LinkAction;
use self::connection::OwnerConnection;
use self::direct_owner::DirectSession;
use self::jobs::{KeyedEntries, LookupJob, OwnerJobTable};
use self::outgoing_store::OutgoingStore;
use self::owner_health::OwnerHealth;
pub use self::owner_health::{OwnerHealthChange, OwnerOutage};
pub use self::purge::{problem_document, purge_request_body as purge_request, OwnerAdminReply};
use self::session::{SessionState, SilentOwnerBreaker};
use super::chain::{NamespaceChains, ShownBlock};
use super::owner_protocol::body_assembler::BodyAssembler;
use super::owner_protocol::client_name::OwnerClientName;
use super::owner_protocol::owner_message::OwnerMessage;
use super::process::wake::{EventLoopWaker, WaitingRequestId};
use super::{CacheKey, CacheNamespace};
use crate::hash_keys::HashMap;
use crate::lock::lock_ignoring_poison;
use crate::time_constants::lookup_timeout;

/// Maximum number of times that a purge is sent. It is idempotent and sent again if its connection
/// breaks, but not forever to an owner that can't execute it.
const MAX_PURGE_SENDS: u8 = 3;

/// Length of the longest admin reply that is accepted in any case, in bytes.
const MAX_ADMIN_REPLY_BYTES: u64 = 4 << 20;

/// The owner client over a connection that the host opens and drives. Any thread may send requests;
/// one thread drives the connection.
#[derive(Debug)]
pub struct OwnerLink {
    /// Timeout of lookups in milliseconds.
    lookup_deadline: AtomicU64,
    /// Name of the process for the owner.
    process: OwnerClientName,
    state: Mutex<LinkState>,
    /// The chains that the owner follows, as far as it has reported them.
    pub chains: NamespaceChains,
    /// Time until which entries in memory may be sent, in milliseconds of the machine's monotonic
    /// clock.
    until: AtomicU64,
    /// Generation of the last purge that is in effect here.
    generation: AtomicU64,
    /// Generation when the first session began; 0: none has begun.
    first_generation: AtomicU64,
    /// Whether a request was queued since the driver last queried its next action, and the driver
    /// was woken for it.
    is_driver_woken: AtomicBool,
    /// Waker of the thread that drives the connection, if it waits for one.
    driver: Option<(Arc<dyn EventLoopWaker>, usize)>,
    direct: DirectSession,
}

#[derive(Debug)]
struct LinkState {
    connection: OwnerConnection,
    /// Callouts of a host without connections.
    callouts: CalloutTransport,
    session: SessionState,
    /// Requests to the owner on which clients' requests wait.
    jobs: OwnerJobTable,
    /// Lookups of keys that another process fetches.
    pending: HashMap<CacheKey, LookupJob>,
    /// Blocks above the head that were shown to clients, to be reported.
    shown_blocks: VecDeque<(CacheNamespace, ShownBlock)>,
    /// Requests to the owner on which no request waits.
    background: BackgroundQueue,
    /// A long entry that is being sent.
    store_in_parts: Option<OutgoingStore>,
    /// Long replies that are being received, without their bodies.
    partial_replies: BodyAssembler<OwnerMessage>,
    /// Replies to purges and status queries that their waiters have not claimed.
    admin_replies: HashMap<WaitingRequestId, OwnerAdminReply>,
    /// Entries of batches that their waiters have not claimed, with the purge generation when they
    /// were received.
    batch_entries: HashMap<WaitingRequestId, (KeyedEntries, u64)>,
    breaker: SilentOwnerBreaker,
    /// Health of the owner, as reported to the host.
    health: OwnerHealth,
}

impl OwnerLink {
    /// Creates the link of the process that the owner knows as `process`, a new name for each
    /// process. Serialized entries of more than `max_entry` bytes are refused.
    pub fn new(process: OwnerClientName, max_entry: u64) -> Self {
        let max_body = max_entry.max(MAX_ADMIN_REPLY_BYTES);
        Self {
            lookup_deadline: AtomicU64::new(lookup_timeout()),
            process,
            state: Mutex::new(LinkState {
                connection: OwnerConnection::default(),
                callouts: CalloutTransport::default(),
                session: SessionState::default(),
                jobs: OwnerJobTable::default(),
                pending: HashMap::default(),
                shown_blocks: VecDeque::new(),
                background: BackgroundQueue::default(),
                store_in_parts: None,
                partial_replies: BodyAssembler::new(max_body),
                admin_replies: HashMap::default(),
                batch_entries: HashMap::default(),
                breaker: SilentOwnerBreaker::default(),
                health: OwnerHealth::default(),
            }),
            chains: NamespaceChains::default(),
            until: AtomicU64::new(0),
            generation: AtomicU64::new(0),
            first_generation: AtomicU64::new(0),
            is_driver_woken: AtomicBool::new(false),
            driver: None,
            direct: DirectSession::default(),
        }
    }

    /// Creates the link of this process, which has entries of at most `max_entry` bytes.
    pub fn link_for_process(max_entry: u64) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let started = since.unwrap_or_default().as_nanos();
        let name = OwnerClientName::for_process(std::process::id(), started);
        // the entry, and its head
        Self::new(name, max_entry.saturating_add(64 << 10))
    }

    /// Sets the timeout of later lookups in milliseconds. For a reply that has begun it is the
    /// timeout of the next bytes.
    pub fn set_lookup_timeout(&self, deadline: u64) {
        self.lookup_deadline.store(deadline, Ordering::Relaxed);
    }

    /// Returns the timeout of a lookup in milliseconds.
    fn lookup_timeout(&self) -> u64 {
        self.lookup_deadline.load(Ordering::Relaxed)
    }

    /// Returns the deadline of a lookup that begins now.
    fn lookup_deadline(&self, now: u64) -> u64 {
        now.saturating_add(self.lookup_timeout())
    }

    /// Sets the waker of the thread that drives the connection: it is woken as `id` when a request
    /// is queued on any thread, and [`next_action`](Self::next_action) has an action then. A host
    /// that calls [`next_action`](Self::next_action) after each call of its only thread needs no
    /// waker.
    #[must_use]
    pub fn attach_driver_waker(self, waker: Arc<dyn EventLoopWaker>, id: usize) -> Self {
        Self {
            driver: Some((waker, id)),
            ..self
        }
    }

    /// Returns a change of the owner's health for the log. The host calls it after each
    /// [`tick`](Self::tick).
    pub fn take_owner_health_change(&self, now: u64) -> Option<OwnerHealthChange> {
        let mut state = lock_ignoring_poison(&self.state);
        let outage = state.session.outage();
        state.health.record_owner_state(outage, now)
    }

    /// Wakes the driver, which has a new request to send.
    fn wake_driver(&self) {
        if !self.is_driver_woken.swap(true, Ordering::AcqRel) {
            if let Some((waker, id)) = &self.driver {
                waker.wake(*id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
