//! The background requests of one filter: their queue, and those in flight.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, ThreadId};
use std::time::Duration;

use sszip_core::exchange::drive::ExchangeDriver;
use sszip_core::exchange::Exchange;
use sszip_envoy_carrier::background::{pass_background_head_to_driver, BackgroundRequestHeaders};

use super::header_rewrite::RouterHeaderRewriteTable;
use crate::envoy::{EnvoyBodySlices, EnvoyEventScheduler, EnvoyMessageHead, FilterConfigHandle};
use crate::{clock, thread_pool};

/// Maximum number of background requests of the process at a time. Further ones
/// are dropped; their cause requests them again.
const MAX_BACKGROUND_REQUESTS: usize = 64;

/// Maximum time for which a response is awaited, in milliseconds.
pub(super) const RESPONSE_TIMEOUT_MS: u64 = 60_000;

/// Time after which Envoy has ended all callouts, unless it is shutting down.
const CALLOUTS_ENDED_AFTER: Duration = Duration::from_millis(RESPONSE_TIMEOUT_MS + 5000);

/// Time in milliseconds after the configuration of a filter, after which all
/// new streams have that filter, if it replaces the previous one.
const FILTER_REPLACEMENT_MS: u64 = 1000;

/// Event for the configuration: there are background requests to start or to
/// reset.
pub const BEGIN_EVENT: u64 = 2;
/// Event for the configuration: another filter was configured.
pub const YIELD_EVENT: u64 = 3;

/// Background requests of all filters.
static BACKGROUND_OF_FILTERS: Mutex<Vec<Weak<BackgroundRequests>>> = Mutex::new(Vec::new());

/// The background requests of one filter: those that Envoy's main thread has to send, and those in
/// flight.
#[derive(Debug)]
pub struct BackgroundRequests {
    scheduler: Arc<EnvoyEventScheduler>,
    /// Requests to be started.
    queued: Mutex<Vec<BackgroundRequest>>,
    /// Requests in flight. Only the main thread uses them.
    in_flight: Mutex<HashMap<u64, PendingBackgroundResponse>>,
    /// Callouts to be reset, because the rest of their responses is not needed.
    /// Only the main thread uses them.
    to_reset: Mutex<Vec<u64>>,
    pub(super) rewrites: RouterHeaderRewriteTable,
    /// Time at which another filter was configured; 0: none was. Written while
    /// `queued` is locked.
    replaced_at: AtomicU64,
    main: ThreadId,
    /// Number of callouts that Envoy has in flight.
    callouts_in_flight: Mutex<usize>,
    callout_ended: Condvar,
}

/// A background request in the queue, until Envoy's main thread sends it.
#[derive(Debug)]
struct BackgroundRequest {
    cluster: Vec<u8>,
    head: BackgroundRequestHeaders,
    /// The client's body, unless the driver has its own.
    body: Vec<u8>,
    timeout_ms: u64,
    pending: PendingBackgroundResponse,
}

/// The exchange that reads the response to a background request, with the request's concurrency
/// slot.
#[derive(Debug)]
struct PendingBackgroundResponse {
    driver: ExchangeDriver,
    _slot: BackgroundSlot,
}

/// One slot of the process's limit of concurrent background requests, released on drop.
#[derive(Debug)]
struct BackgroundSlot;

static USED_SLOTS: AtomicUsize = AtomicUsize::new(0);

impl BackgroundSlot {
    /// Takes a slot, or returns `None` if [`MAX_BACKGROUND_REQUESTS`] of this process are in use.
    /// The slot is returned on drop.
    fn try_acquire() -> Option<Self> {
        let more = |taken| (taken < MAX_BACKGROUND_REQUESTS).then_some(taken + 1);
        let taken = USED_SLOTS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Self)
    }
}

impl Drop for BackgroundSlot {
    fn drop(&mut self) {
        USED_SLOTS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for PendingBackgroundResponse {
    fn drop(&mut self) {
        if let Some(job) = self.driver.take_exchange_as_teardown_job() {
            thread_pool::run_detached_job(job);
        }
    }
}

impl Drop for BackgroundRequests {
    fn drop(&mut self) {
        self.scheduler.close_event_scheduler();
    }
}

fn lock_ignoring_poison<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl BackgroundRequests {
    /// Creates the background requests of a new filter, which `scheduler` notifies. The
    /// requests of all existing filters in this process are ended, because the new filter may
    /// replace those filters.
    pub fn create_replacing_others(scheduler: Arc<EnvoyEventScheduler>) -> Arc<Self> {
        let made = Arc::new(Self {
            scheduler,
            queued: Mutex::default(),
            in_flight: Mutex::default(),
            to_reset: Mutex::default(),
            rewrites: RouterHeaderRewriteTable::default(),
            replaced_at: AtomicU64::new(0),
            main: thread::current().id(),
            callouts_in_flight: Mutex::default(),
            callout_ended: Condvar::new(),
        });
        let mut all = lock_ignoring_poison(&BACKGROUND_OF_FILTERS);
        let others: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        *all = others.iter().map(Arc::downgrade).collect();
        all.push(Arc::downgrade(&made));
        drop(all);
        let now = clock::monotonic_ms();
        others
            .iter()
            .for_each(|other| other.yield_to_new_filter(now));
        made
    }

    /// Records that a new filter may replace this one, and schedules the end of this one's
    /// requests.
    fn yield_to_new_filter(&self, now: u64) {
        let queued = lock_ignoring_poison(&self.queued);
        self.replaced_at.store(now, Ordering::Relaxed);
        drop(queued);
        self.scheduler.schedule_event(YIELD_EVENT);
    }

    /// Whether this filter is certainly in use by a stream that began at that time, so that its
    /// background requests are accepted.
    pub(super) fn accepts_requests_from_stream(&self, began: u64) -> bool {
        let replaced_at = self.replaced_at.load(Ordering::Relaxed);
        replaced_at == 0 || began > replaced_at + FILTER_REPLACEMENT_MS
    }

    /// Queues a request for Envoy's main thread. The request is dropped if no slot is free, or the
    /// filter [may be replaced](Self::accepts_requests_from_stream).
    pub(super) fn enqueue_request(
        &self,
        began: u64,
        driver: ExchangeDriver,
        cluster: &[u8],
        head: BackgroundRequestHeaders,
        body: Vec<u8>,
        timeout_ms: u64,
    ) {
        let Some(slot) = BackgroundSlot::try_acquire() else {
            return;
        };
        let request = BackgroundRequest {
            cluster: cluster.to_vec(),
            head,
            body,
            timeout_ms,
            pending: PendingBackgroundResponse {
                driver,
                _slot: slot,
            },
        };
        let mut queued = lock_ignoring_poison(&self.queued);
        if self.accepts_requests_from_stream(began) {
            queued.push(request);
            drop(queued);
            self.scheduler.schedule_event(BEGIN_EVENT);
        }
    }

    /// Sends the queued requests as callouts, and resets the callouts whose responses are not
    /// needed. On Envoy's main thread.
    pub fn send_queued_background_requests(&self, main: FilterConfigHandle) {
        let to_reset = std::mem::take(&mut *lock_ignoring_poison(&self.to_reset));
        to_reset
            .into_iter()
            .for_each(|id| main.reset_callout_in_flight(id));
        let queued = std::mem::take(&mut *lock_ignoring_poison(&self.queued));
        for request in queued {
            let (cluster, head) = (&request.cluster, request.head.header_lines());
            let own = request
                .pending
                .driver
                .available_exchange()
                .map(Exchange::upstream_request_body);
            let body = own.filter(|own| !own.is_empty()).unwrap_or(&request.body);
            *lock_ignoring_poison(&self.callouts_in_flight) += 1;
            match main.send_callout(
                cluster,
                head,
                body,
                request.timeout_ms.min(RESPONSE_TIMEOUT_MS),
            ) {
                Some(id) => drop(lock_ignoring_poison(&self.in_flight).insert(id, request.pending)),
                None => self.decrement_callouts_in_flight(),
            }
        }
    }

    /// Counts a callout that Envoy has ended.
    fn decrement_callouts_in_flight(&self) {
        *lock_ignoring_poison(&self.callouts_in_flight) -= 1;
        self.callout_ended.notify_all();
    }

    /// Waits for the end of the callouts of a filter that a worker destroys; on the main thread
    /// Envoy resets them.
    pub fn wait_until_callouts_end(&self) {
        if thread::current().id() != self.main {
            let some = lock_ignoring_poison(&self.callouts_in_flight);
            let waited =
                self.callout_ended
                    .wait_timeout_while(some, CALLOUTS_ENDED_AFTER, |some| *some > 0);
            drop(waited);
        }
    }

    /// Drops the queued requests and resets those in flight, because another filter may replace
    /// this one. On the main thread.
    pub fn drop_background_requests(&self, main: FilterConfigHandle) {
        let queued = std::mem::take(&mut *lock_ignoring_poison(&self.queued));
        drop(queued);
        let mut made = std::mem::take(&mut *lock_ignoring_poison(&self.to_reset));
        made.extend(lock_ignoring_poison(&self.in_flight).keys());
        made.into_iter()
            .for_each(|id| main.reset_callout_in_flight(id));
    }

    /// Passes the response of one background request to `needs_rest`, which returns whether the rest of
    /// the response is needed.
    fn drive_background_response(
        &self,
        id: u64,
        needs_rest: impl FnOnce(&mut ExchangeDriver) -> bool,
    ) {
        // the request is not in the table meanwhile: a panic drops it
        let pending = lock_ignoring_poison(&self.in_flight).remove(&id);
        let Some(mut pending) = pending else {
            return;
        };
        if needs_rest(&mut pending.driver) {
            lock_ignoring_poison(&self.in_flight).insert(id, pending);
        } else {
            // a reset is deferred: Envoy is about to call another hook for the
            // callout
            lock_ignoring_poison(&self.to_reset).push(id);
            self.scheduler.schedule_event(BEGIN_EVENT);
        }
    }

    /// Reads the response head of a background request, and resets the request if the response is
    /// not needed.
    pub fn read_background_response_head(&self, id: u64, head: &EnvoyMessageHead, is_all: bool) {
        self.drive_background_response(id, |driver| {
            pass_background_head_to_driver(driver, head, is_all, clock::read_host_clocks())
        });
    }

    /// Reads a piece of the response body of a background request.
    pub fn read_background_response_piece(&self, id: u64, pieces: &EnvoyBodySlices) {
        self.drive_background_response(id, |driver| {
            pieces
                .iter()
                .all(|piece| driver.handle_body_piece(piece).is_ok())
        });
    }

    /// Stores the complete response of a background request in the cache.
    pub fn store_background_response(&self, id: u64) {
        self.decrement_callouts_in_flight();
        let pending = lock_ignoring_poison(&self.in_flight).remove(&id);
        if let Some(mut pending) = pending {
            if let Some(job) = pending.driver.handle_response_sent(clock::monotonic_ms()) {
                thread_pool::run_detached_job(job);
            }
            thread_pool::log_hit_verification_lines();
        }
    }

    /// Removes a background request that Envoy has reset.
    pub fn drop_reset_background_request(&self, id: u64) {
        self.decrement_callouts_in_flight();
        drop(lock_ignoring_poison(&self.in_flight).remove(&id));
    }
}
