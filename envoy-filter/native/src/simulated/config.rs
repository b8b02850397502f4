//! Configurations of filters and routes, and Envoy's main thread, which handles
//! their events, sends their callouts, and replaces the filters.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, ThreadId};

use super::callouts::{lock_mutex, SimulatedCallouts};
use super::event_choices::EventChoices;
use super::node::SimulatedRequest;
use super::owner::{follow_simulated_chain, LOG_NAMESPACE};
use super::primitives::{borrowed_buffer, take_events, EventQueue, HeaderLines};
use crate::abi::{EnvoyBuffer, FilterConfigPtr};
use crate::hooks::*;

/// A simulated filter's configuration. It is destroyed with the last stream that uses it,
/// on that stream's thread, or by the main thread.
pub struct SimulatedFilterConfig {
    main: ThreadId,
    event_queue: EventQueue,
    own: Arc<SimulatedCallouts>,
}

/// A simulated route's configuration, as the module's pointer.
pub struct SimulatedRouteConfig(usize);

/// Envoy's simulated main thread, with the configurations of new streams.
pub struct SimulatedMainThread {
    /// Number of this main thread, to which its cache keys belong.
    number: usize,
    cache_namespace: String,
    routes: Vec<Arc<SimulatedRouteConfig>>,
    purge_route: Arc<SimulatedRouteConfig>,
    /// Route of calls for logs, which splits them.
    log_route: Arc<SimulatedRouteConfig>,
    has_only_log_calls: bool,
    /// Mean number of turns between two events of a callout.
    callout_delay: usize,
    /// Mean number of turns after which the filter is replaced.
    replacement_interval: usize,
    current_filter: Mutex<Arc<SimulatedFilterConfig>>,
    known: Mutex<Vec<(Weak<SimulatedFilterConfig>, Arc<SimulatedCallouts>)>>,
}

/// Returns the configuration that a callback names, if any.
pub fn filter_from_config_pointer<'a>(
    config: FilterConfigPtr,
) -> Option<&'a SimulatedFilterConfig> {
    // SAFETY: the module calls this within hooks of the configuration only,
    // while it exists.
    unsafe { config.cast::<SimulatedFilterConfig>().as_ref() }
}

impl SimulatedFilterConfig {
    fn new(settings: &str) -> Arc<Self> {
        let made = Arc::new(Self {
            main: thread::current().id(),
            event_queue: EventQueue::default(),
            own: Arc::default(),
        });
        made.own
            .config_pointer
            .get_or_init(|| Arc::as_ptr(&made) as usize);
        // SAFETY: the text is valid during the call.
        let module = unsafe {
            envoy_dynamic_module_on_http_filter_config_new(
                made.own.config_pointer(),
                EnvoyBuffer::NONE,
                borrowed_buffer(settings.as_bytes()),
            )
        };
        assert!(!module.is_null(), "{settings}");
        made.own.module_pointer.get_or_init(|| module as usize);
        made
    }

    pub fn module_pointer(&self) -> *const c_void {
        self.own.module_pointer()
    }

    pub fn event_queue(&self) -> &EventQueue {
        &self.event_queue
    }

    /// Sends a callout of the filter, if there is room.
    pub fn send_callout(&self, head: HeaderLines, body: Vec<u8>) -> Option<u64> {
        self.own.send_callout(head, body)
    }

    /// Resets a callout of the filter.
    pub fn reset_callout_in_flight(&self, id: u64) {
        self.own.reset_callout(id);
    }

    /// Handles the pending events of the filter. Returns whether there was one.
    fn deliver_config_events(&self) -> bool {
        let events = take_events(&self.event_queue);
        for &event in &events {
            // SAFETY: the configuration exists as long as this object.
            unsafe {
                envoy_dynamic_module_on_http_filter_config_scheduled(
                    self.own.config_pointer(),
                    self.module_pointer(),
                    event,
                );
            }
        }
        !events.is_empty()
    }

    /// Returns the references that the main thread keeps.
    fn main_thread_references(self: &Arc<Self>) -> (Weak<Self>, Arc<SimulatedCallouts>) {
        (Arc::downgrade(self), Arc::clone(&self.own))
    }
}

impl Drop for SimulatedFilterConfig {
    /// Destroys the module's configuration. Envoy calls no hooks for its
    /// callouts any more.
    fn drop(&mut self) {
        let module = self.module_pointer().cast_mut();
        if !module.is_null() {
            // SAFETY: no stream uses it any more.
            unsafe { envoy_dynamic_module_on_http_filter_config_destroy(module) };
        }
        // Envoy may crash if callouts end on a worker
        let is_mains = thread::current().id() == self.main;
        let has_some = self.own.has_callouts();
        assert!(is_mains || !has_some, "requests end on a worker");
        self.own.clear_callouts();
    }
}

impl SimulatedRouteConfig {
    fn new(settings: &str) -> Arc<Self> {
        // SAFETY: the text is valid during the call.
        let module = unsafe {
            envoy_dynamic_module_on_http_filter_per_route_config_new(
                EnvoyBuffer::NONE,
                borrowed_buffer(settings.as_bytes()),
            )
        };
        assert!(!module.is_null(), "{settings}");
        Arc::new(Self(module as usize))
    }

    pub fn module_pointer(&self) -> *const c_void {
        self.0 as *const c_void
    }
}

impl Drop for SimulatedRouteConfig {
    fn drop(&mut self) {
        // SAFETY: no stream uses it any more.
        unsafe {
            envoy_dynamic_module_on_http_filter_per_route_config_destroy(self.0 as *mut c_void);
        }
    }
}

impl SimulatedMainThread {
    /// Creates a main thread with a cache namespace of its own.
    pub fn new(chance: &mut EventChoices<'_>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = format!("place-{number}");
        follow_simulated_chain();
        let filter = SimulatedFilterConfig::new(&random_settings(&place, chance));
        let routes = [
            "{\"enable\": false}",
            "{\"hold\": \"1k 1ms\", \"comp_level\": 1}",
            "{\"cache\": false}",
            "{\"cache_valid\": \"immutable 1h\", \"min_length\": 1}",
        ];
        // a wave of pieces sometimes takes longer
        let timeout = chance.choose_from(&["5ms", "5s"]);
        let log_route = format!(
            "{{\"cache\": true, \"cache_namespace\": \"{LOG_NAMESPACE}\", \
             \"cache_lock_timeout\": \"{timeout}\", \"logs_split\": \"10 concurrent=2\"}}"
        );
        Self {
            number,
            cache_namespace: place,
            routes: routes.map(SimulatedRouteConfig::new).into(),
            purge_route: SimulatedRouteConfig::new("{\"cache_purge\": true}"),
            log_route: SimulatedRouteConfig::new(&log_route),
            has_only_log_calls: false,
            callout_delay: 16,
            replacement_interval: 64,
            known: Mutex::new(vec![filter.main_thread_references()]),
            current_filter: Mutex::new(filter),
        }
    }

    /// Creates a main thread whose clients send calls for logs only. Its callouts are faster, and its
    /// filters are in use longer, so that the pieces of most calls arrive.
    #[cfg(test)]
    pub fn for_log_calls(chance: &mut EventChoices<'_>) -> Self {
        Self {
            has_only_log_calls: true,
            callout_delay: 2,
            replacement_interval: 4_096,
            ..Self::new(chance)
        }
    }

    /// Returns the request of a new stream.
    pub fn choose_request(&self, chance: &mut EventChoices<'_>) -> SimulatedRequest {
        match self.has_only_log_calls || chance.draw_one_in(5) {
            true => SimulatedRequest::choose_log_call(chance, self.number),
            false => SimulatedRequest::choose_request(chance, &self.cache_namespace),
        }
    }

    /// Returns the filter of streams that begin now.
    pub fn filter_for_new_streams(&self) -> Arc<SimulatedFilterConfig> {
        Arc::clone(&lock_mutex(&self.current_filter))
    }

    /// Returns the route configuration of a new stream, if it has one.
    pub fn choose_random_route(
        &self,
        chance: &mut EventChoices<'_>,
    ) -> Option<Arc<SimulatedRouteConfig>> {
        let at = chance.choose_below(2 * self.routes.len());
        self.routes.get(at).map(Arc::clone)
    }

    /// Returns the route that purges.
    pub fn purging_route(&self) -> Arc<SimulatedRouteConfig> {
        Arc::clone(&self.purge_route)
    }

    /// Returns the route that splits calls for logs.
    pub fn log_route(&self) -> Arc<SimulatedRouteConfig> {
        Arc::clone(&self.log_route)
    }

    /// Performs the events that are due. Returns whether there was one.
    pub fn deliver_pending_filter_events(&self, chance: &mut EventChoices<'_>) -> bool {
        let all: Vec<_> = {
            let mut known = lock_mutex(&self.known);
            known.retain(|(it, own)| it.strong_count() > 0 || own.has_callouts());
            known.clone()
        };
        let mut has_done = false;
        for (filter, own) in &all {
            has_done |= filter
                .upgrade()
                .is_some_and(|it| it.deliver_config_events());
            has_done |= own.advance_random_callout(chance, self.callout_delay);
        }
        if chance.draw_one_in(self.replacement_interval) {
            self.replace_current_filter(chance);
        }
        has_done
    }

    /// Replaces the filter; existing streams keep the previous one.
    fn replace_current_filter(&self, chance: &mut EventChoices<'_>) {
        let new = SimulatedFilterConfig::new(&random_settings(&self.cache_namespace, chance));
        lock_mutex(&self.known).push(new.main_thread_references());
        let old = std::mem::replace(&mut *lock_mutex(&self.current_filter), new);
        // Envoy keeps the old filter until all workers have the new one, and
        // delivers its events, except when a filter is removed
        if chance.choose_below(4) > 0 {
            old.deliver_config_events();
        }
        drop(old);
    }
}

fn random_settings(place: &str, chance: &mut EventChoices<'_>) -> String {
    let hold = chance.choose_from(&["0", "1k 1ms", "64k 10ms", "1m 1s"]);
    let cache = chance.choose_below(3) > 0;
    let ssz = chance.choose_below(2) == 0;
    let updates = chance.choose_below(2) == 0;
    // a verified call of a batch is a background request with a body of its own
    let verify = chance.choose_from(&["off", "50%"]);
    let valid = chance.choose_from(&["immutable 3ms", "immutable 1h"]);
    format!(
        "{{\"hold\": \"{hold}\", \"cache\": {cache}, \"cache_memory\": \"16m\", \
         \"cache_lock_timeout\": \"50ms\", \"cache_namespace\": \"{place}\", \"ssz\": {ssz}, \
         \"cache_valid\": \"{valid}\", \"cache_use_stale\": \"error updating http_503\", \
         \"cache_background_update\": {updates}, \"verify\": \"{verify}\"}}"
    )
}
