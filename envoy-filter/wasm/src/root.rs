//! State that all streams of a filter share in one sandbox.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use proxy_wasm::types::BufferType;
use sszip_core::cache::process::wake::{
    EventLoopId, EventLoopWaker, WaitingRequestId, WokenRequestQueue,
};
use sszip_core::cache::process::ProcessResources;
use sszip_core::exchange::drive::OffLoopJob;
use sszip_core::metrics::{self, ExchangeMetricsTally, GAUGES};

use crate::abi::{self, LogLevel};
use crate::config::FilterSettings;
use crate::memory_share::SandboxRegistration;
use crate::metrics::WasmFilterMetrics;
use crate::probes::ProbeQueue;
use crate::redirect;
use crate::shared_floors;
use crate::store::SandboxOwnerLink;
use crate::timers::{RootTimerAction, RootTimers};

/// Maximum age of the gauges, in milliseconds.
const GAUGE_INTERVAL_MS: u64 = 1000;

/// Maximum time for which increments of counters are collected before the proxy receives them, in
/// milliseconds: a call of the proxy for each would be a quarter of the calls of a request.
const COUNTER_FLUSH_INTERVAL_MS: u64 = 100;

/// Maximum number of streams that are resumed within one call of the timer or
/// of a response. The proxy performs actions on streams other than the called
/// one after the call, each nested in the previous one: with about two hundred
/// the stack overflows, and the sandbox fails.
const MAX_RESUMED_PER_CALL: u32 = 32;

/// Maximum number of streams that are resumed when the root ends, see [`MAX_RESUMED_PER_CALL`].
const MAX_RESUMED_AT_END: u32 = 128;

/// A stopped stream that its root resumes after a deadline or a wakeup, in the stream's own
/// context.
pub trait ResumableStream {
    /// Handles the deadline with that number. Returns whether it was still set.
    fn handle_deadline(&mut self, number: u64) -> bool;

    /// Repeats the lookup, after a wakeup.
    fn resume_after_wakeup(&mut self);
}

/// The root context that the proxy-wasm SDK owns; it passes the SDK's calls to a [`FilterRoot`].
pub struct SdkRootContext(pub Rc<FilterRoot>);

/// The state of one configured filter in a sandbox, shared by its streams: settings, timers and
/// callouts.
#[derive(Debug)]
pub struct FilterRoot {
    /// Context id of the root.
    pub id: u32,
    /// State of the process, shared by its exchanges.
    pub process: ProcessResources,
    filter_settings: OnceCell<FilterSettings>,
    store: OnceCell<SandboxOwnerLink>,
    /// Registration for a share of the memory for entries.
    registration: SandboxRegistration,
    /// Probes of nodes.
    pub probes: ProbeQueue,
    /// Streams that may be woken or have a deadline, by context id.
    streams: RefCell<HashMap<u32, Weak<RefCell<dyn ResumableStream>>>>,
    woken: Arc<WokenRequestQueue>,
    event_loop: EventLoopId,
    timers: RefCell<RootTimers>,
    /// Time at which the root sends the enqueued callouts, in milliseconds of
    /// the monotonic clock.
    callouts_due_at: Cell<u64>,
    /// Whether a hook of a stream runs; woken streams are resumed after it.
    is_in_hook: Cell<bool>,
    /// Number of streams that may still be resumed before the next call of the root.
    resumption_permits: Cell<u32>,
    /// Queue whose messages make the proxy call the root as soon as possible; `None`: none could be
    /// registered.
    queue: OnceCell<Option<u32>>,
    /// Whether a call of the root was requested, in which woken streams are resumed.
    is_root_call_requested: Cell<bool>,
    /// Whether the proxy deletes the root, which streams of a previous configuration outlive.
    has_ended: Cell<bool>,
    /// Metrics of the filter's requests.
    pub metrics: WasmFilterMetrics,
}

impl SdkRootContext {
    /// Creates the state of a root context, and adds its event loop to the process.
    pub fn new(id: u32) -> Self {
        let process = ProcessResources::default();
        let woken = Arc::<WokenRequestQueue>::default();
        let event_loop = process
            .shared
            .add_event_loop(Arc::clone(&woken) as Arc<dyn EventLoopWaker>);
        Self(Rc::new(FilterRoot {
            id,
            process,
            filter_settings: OnceCell::new(),
            store: OnceCell::new(),
            registration: SandboxRegistration::new(),
            probes: ProbeQueue::default(),
            streams: RefCell::default(),
            woken,
            event_loop,
            timers: RefCell::default(),
            callouts_due_at: Cell::new(u64::MAX),
            is_in_hook: Cell::new(false),
            resumption_permits: Cell::new(MAX_RESUMED_PER_CALL),
            queue: OnceCell::new(),
            is_root_call_requested: Cell::new(false),
            has_ended: Cell::new(false),
            metrics: WasmFilterMetrics::default(),
        }))
    }
}

impl FilterRoot {
    /// Reads the filter's configuration, and starts its timers and its link to the owner. Returns
    /// whether it is valid.
    pub fn read_configuration(root: &Rc<Self>, length: usize) -> bool {
        let json = abi::copy_buffer(BufferType::PluginConfiguration, length).unwrap_or_default();
        match FilterSettings::new(&json, &root.process) {
            Ok((filter, warnings)) => {
                for warning in warnings {
                    abi::write_proxy_log(LogLevel::Warn, &format!("sszip: {warning}"));
                }
                if let Some(cluster) = filter.owner_cluster() {
                    let deadline = filter.lookup_timeout();
                    let link = SandboxOwnerLink::new(cluster, deadline, &root.process);
                    if let Some(link) = link {
                        root.process.shared.start_hot_tier(
                            filter.cache_memory(),
                            filter.max_entry(),
                            1,
                        );
                        // the root context is configured once
                        let _ = root.store.set(link);
                    }
                }
                let _ = root.filter_settings.set(filter);
                abi::declare_request_property();
                root.add_root_context_deadline(RootTimerAction::Gauges, GAUGE_INTERVAL_MS);
                root.schedule_callout_timer(abi::monotonic_ms());
                true
            }
            Err(error) => {
                abi::write_proxy_log(LogLevel::Error, &format!("sszip: {error}"));
                false
            }
        }
    }

    /// Returns the configuration of the filter, unless it was rejected.
    pub fn filter_settings(&self) -> Option<&FilterSettings> {
        self.filter_settings.get()
    }

    /// Returns the waiter under which the lookups of a stream wait.
    pub fn lookup_waiter_of_stream(&self, stream: u32) -> WaitingRequestId {
        self.event_loop.waiter_of_request(stream as usize)
    }

    /// Registers a stream, which may be woken from here on.
    pub fn register_filter_stream(&self, id: u32, stream: Weak<RefCell<dyn ResumableStream>>) {
        self.streams.borrow_mut().insert(id, stream);
        // the sandbox of the main thread has no requests
        if let (Some(store), false) = (self.store.get(), self.has_ended.get()) {
            store.link.start_callouts();
        }
    }

    /// Removes a stream that has ended.
    pub fn remove_filter_stream(&self, id: u32) {
        self.streams.borrow_mut().remove(&id);
    }

    /// Sets a timer that is due after `milliseconds`.
    pub fn add_root_context_deadline(&self, kind: RootTimerAction, milliseconds: u64) {
        self.timers
            .borrow_mut()
            .add_deadline(kind, milliseconds, abi::monotonic_ms());
    }

    /// Runs a job at once, since a sandbox has no threads, and stores its result.
    pub fn run_job(&self, job: Option<OffLoopJob>) {
        if let Some(mut job) = job {
            job.run_job();
            abi::expire_call_time();
            job.store_built_entry(abi::monotonic_ms());
        }
    }

    /// Records that the proxy has begun a call: a hook, whose result resumes its stream, or another
    /// one.
    pub fn begin_proxy_call(&self, is_hook: bool) {
        self.is_in_hook.set(is_hook);
        shared_floors::expire_read_rows();
        abi::expire_call_time();
    }

    /// Makes the callouts to the owner that are due, and sends the probes. The SDK must have called
    /// the root last.
    pub fn send_callouts(&self) {
        abi::set_effective_proxy_context(self.id);
        if let Some(store) = self.store.get() {
            store.make_due_callouts(&self.process, abi::monotonic_ms());
        }
        self.probes.send_queued_probes();
    }

    /// Handles the response to a callout, or its failure.
    pub fn handle_callout_response(&self, token: u32, fields: usize, length: usize) {
        if self.probes.handle_probe_response(token, fields, length) {
            return;
        }
        let Some(store) = self.store.get() else {
            return;
        };
        // a response that arrived over a connection is not nested in another
        // call
        if store.handle_callout_response(token, fields, length, &self.process) {
            self.resumption_permits.set(MAX_RESUMED_PER_CALL);
        }
    }

    /// Handles the root's timer: performs the actions that are due.
    pub fn handle_root_context_timer(&self) {
        self.begin_proxy_call(false);
        self.resumption_permits.set(MAX_RESUMED_PER_CALL);
        self.is_root_call_requested.set(false);
        let now = abi::monotonic_ms();
        while self.resumption_permits.get() > 0 {
            let due = self.timers.borrow_mut().take_due_action(now);
            match due {
                Some(RootTimerAction::Stream(id, number)) => {
                    self.call_in_stream_context(id, |exchange| {
                        if exchange.handle_deadline(number) {
                            self.take_resumption_permit();
                        }
                    });
                }
                Some(RootTimerAction::Callouts) => {
                    self.callouts_due_at.set(u64::MAX);
                    self.send_callouts();
                }
                Some(RootTimerAction::Gauges) => {
                    let now = metrics::gauge_values(&self.process, 0);
                    self.metrics.update_gauges(&now);
                    self.update_memory_share();
                    self.add_root_context_deadline(RootTimerAction::Gauges, GAUGE_INTERVAL_MS);
                }
                Some(RootTimerAction::CounterFlush) => self.metrics.flush_counters(),
                Some(RootTimerAction::OfferedDriver) => redirect::drop_offered_driver(),
                // these streams are resumed below, after this call
                Some(RootTimerAction::WokenStreams) => {}
                None => break,
            }
        }
        abi::set_effective_proxy_context(self.id);
        self.timers.borrow_mut().arm_root_context_timer(now);
    }

    /// Adds a finished exchange to the metrics; the proxy receives the counters' increments in a
    /// later call of the root.
    pub fn count_exchange(&self, tally: &ExchangeMetricsTally) {
        if !self.metrics.count_exchange(tally) {
            return;
        }
        match self.has_ended.get() {
            true => self.metrics.flush_counters(),
            false => self.add_root_context_deadline(
                RootTimerAction::CounterFlush,
                COUNTER_FLUSH_INTERVAL_MS,
            ),
        }
    }

    /// Shares the memory for entries with the other sandboxes that exist at present.
    fn update_memory_share(&self) {
        let settings = self.filter_settings();
        let store = self.store.get();
        let is_used = store.is_some_and(|store| store.link.has_started_callouts());
        if let (true, Some(hot), Some(settings)) =
            (is_used, self.process.shared.hot_tier(), settings)
        {
            let count = self.registration.count_sandboxes(abi::monotonic_ms());
            hot.set_capacity(settings.cache_memory() / count.max(1));
        }
    }

    /// Handles a call that [`call_root_soon`](Self::call_root_soon) has requested.
    pub fn handle_root_queue_post(&self, queue: u32) {
        abi::take_root_queue_post(queue);
        self.begin_proxy_call(false);
        self.resumption_permits.set(MAX_RESUMED_PER_CALL);
        self.is_root_call_requested.set(false);
    }

    /// Whether a hook of a stream runs.
    pub fn is_in_hook(&self) -> bool {
        self.is_in_hook.get()
    }

    /// Resumes a stream in a later call of the root.
    pub fn wake_stream(&self, id: u32) {
        self.woken.wake(id as usize);
    }

    /// Ends the root's part in streams that outlive it: their lookups are misses.
    pub fn end(&self) {
        self.begin_proxy_call(false);
        self.has_ended.set(true);
        self.metrics.flush_counters();
        if let Some(store) = self.store.get() {
            store.end(&self.process);
        }
        self.resumption_permits.set(MAX_RESUMED_AT_END);
        self.resume_woken(self.id);
    }

    /// Has the proxy call the root after the present call, and resumes the woken streams then.
    fn call_root_soon(&self) {
        if !self.begin_root_call_request() {
            return;
        }
        let register = || abi::register_root_queue(&abi::unique_wasm_sandbox_name());
        let queue = *self.queue.get_or_init(register);
        if !queue.is_some_and(abi::post_to_root_queue) {
            self.add_root_context_deadline(RootTimerAction::WokenStreams, 1);
        }
    }

    /// Has the timer call the root, which resumes the streams beyond the limit of the present call.
    /// The proxy handles messages of the queue before it reads its connections, and the timer after
    /// that: the owner's replies, which renew the send lease, do not wait for the last stream.
    fn call_root_by_timer(&self) {
        if self.begin_root_call_request() {
            self.add_root_context_deadline(RootTimerAction::WokenStreams, 1);
        }
    }

    /// Records that a call of the root is requested, and makes the root the effective context.
    /// Returns `false` if a call was requested before, or if the root has ended.
    fn begin_root_call_request(&self) -> bool {
        if self.has_ended.get() || self.is_root_call_requested.replace(true) {
            return false;
        }
        abi::set_effective_proxy_context(self.id);
        true
    }

    /// Removes the sandbox's share from the gauges, which are sums over all
    /// workers, when it ends after its last stream.
    pub fn remove_sandbox_gauge_share(&self) {
        self.metrics.update_gauges(&[0; GAUGES.len()]);
    }

    /// Runs `call` with the exchange of a stream in the stream's own context; does nothing if the
    /// stream has ended or is in use.
    fn call_in_stream_context(&self, id: u32, call: impl FnOnce(&mut dyn ResumableStream)) {
        let known = self.streams.borrow().get(&id).and_then(Weak::upgrade);
        if let Some(exchange) = known {
            // the exchange is not in use: each call concerns one stream
            if let (true, Ok(mut exchange)) = (
                abi::set_effective_proxy_context(id),
                exchange.try_borrow_mut(),
            ) {
                call(&mut *exchange);
            }
        }
    }

    /// Whether the limit of this call permits the resumption of one more stream; otherwise the
    /// timer resumes it.
    fn take_resumption_permit(&self) -> bool {
        let permits = self.resumption_permits.get();
        self.resumption_permits.set(permits.saturating_sub(1));
        if permits == 0 {
            self.call_root_by_timer();
        }
        permits > 0
    }

    /// Returns the next woken stream that may be resumed now.
    fn next_woken_stream(&self) -> Option<u32> {
        match self.take_resumption_permit() {
            true => match self.woken.next_woken_id() {
                Some(id) => Some(id as u32),
                None => {
                    self.resumption_permits
                        .set(self.resumption_permits.get() + 1);
                    None
                }
            },
            false => None,
        }
    }

    /// Logs the pending lines about verified hits.
    pub fn log_hit_verification_lines(&self) {
        while let Some(line) = self.process.shared.verified.take_log_line() {
            abi::write_proxy_log(LogLevel::Error, &line);
        }
    }

    /// Ends a call of the proxy: resumes the woken streams, and schedules the owner requests that
    /// are due. `context` is the called one.
    pub fn finish_proxy_call(&self, context: u32) {
        if self.has_ended.get() {
            // no call of the root follows, in which further streams would be resumed
            self.resumption_permits.set(MAX_RESUMED_PER_CALL);
        }
        self.resume_woken(context);
        let store = self.store.get();
        let has_queued = store.is_some_and(|store| store.link.take_queued_mark());
        // the usual case, without a call of the proxy
        let has_nothing = !has_queued && !self.probes.has_queued_probes();
        if self.has_ended.get() || context != self.id && has_nothing {
            return;
        }
        let now = abi::monotonic_ms();
        if self.callout_delay_ms(now) == Some(0) {
            match context == self.id {
                true => self.send_callouts(),
                false => {
                    abi::call_root_context(self.id);
                    abi::set_effective_proxy_context(context);
                }
            }
            // requests that have failed at once
            self.resume_woken(context);
        }
        self.schedule_callout_timer(now);
    }

    /// Resumes the woken streams. Within a hook of a stream they are resumed by the next call of the
    /// root: a response that is sent to one of them would have the proxy stop the stream of the hook.
    fn resume_woken(&self, context: u32) {
        if self.is_in_hook.get() && !self.has_ended.get() {
            if self.woken.has_woken_ids() {
                self.call_root_soon();
                abi::set_effective_proxy_context(context);
            }
            return;
        }
        let mut has_resumed = false;
        while let Some(id) = self.next_woken_stream() {
            self.call_in_stream_context(id, |stream| stream.resume_after_wakeup());
            has_resumed = true;
        }
        if has_resumed {
            abi::set_effective_proxy_context(context);
        }
    }

    /// Milliseconds until owner requests or probes have to be sent, or requests time out; 0: they wait
    /// for the root to send them.
    fn callout_delay_ms(&self, now: u64) -> Option<u64> {
        match self.probes.has_queued_probes() {
            true => Some(0),
            false => self.store.get()?.link.ms_until_next_callout(now),
        }
    }

    /// Sets the timer for callouts that are due, or that time out.
    fn schedule_callout_timer(&self, now: u64) {
        let Some(delay) = self.callout_delay_ms(now) else {
            return;
        };
        let after = delay.max(1);
        let at = now.saturating_add(after);
        if at < self.callouts_due_at.get() {
            self.callouts_due_at.set(at);
            let mut timers = self.timers.borrow_mut();
            timers.add_deadline(RootTimerAction::Callouts, after, now);
        }
    }
}
