//! Configurations of filters and routes, and Envoy's main thread, which handles
//! their events, sends their callouts, and replaces the filters.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, ThreadId};

use super::event_choices::EventChoices;
use super::node;
use super::primitives::{borrowed_buffer, take_events, EventQueue, HeaderLines};
use crate::abi::{EnvoyBuffer, EnvoyHeader, FilterConfigPtr};
use crate::config_hooks::*;
use crate::hooks::*;

/// A simulated filter's configuration. It is destroyed with the last stream that uses it,
/// on that stream's thread, or by the main thread.
pub struct SimulatedFilterConfig {
    main: ThreadId,
    event_queue: EventQueue,
    own: Arc<SimulatedCallouts>,
}

/// The callouts of a simulated filter. The main thread owns them, and continues them while a worker
/// destroys the filter, which waits for their end.
#[derive(Default)]
struct SimulatedCallouts {
    config_pointer: OnceLock<usize>,
    module_pointer: OnceLock<usize>,
    callouts: Mutex<Vec<SimulatedCallout>>,
}

/// A callout in flight, with the node's response.
struct SimulatedCallout {
    id: u64,
    fields: HeaderLines,
    answer: Option<node::SimulatedNodeResponse>,
    /// Pieces that were not sent, in reverse; `None` until the head is sent.
    left: Option<Vec<Vec<u8>>>,
}

/// A simulated route's configuration, as the module's pointer.
pub struct SimulatedRouteConfig(usize);

/// Envoy's simulated main thread, with the configurations of new streams.
pub struct SimulatedMainThread {
    cache_namespace: String,
    routes: Vec<Arc<SimulatedRouteConfig>>,
    purge_route: Arc<SimulatedRouteConfig>,
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

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

impl SimulatedCallouts {
    fn config_pointer(&self) -> FilterConfigPtr {
        self.config_pointer
            .get()
            .map_or(ptr::null_mut(), |it| *it as FilterConfigPtr)
    }

    fn module_pointer(&self) -> *const c_void {
        self.module_pointer
            .get()
            .map_or(ptr::null(), |it| *it as *const _)
    }

    fn send_callout(&self, head: HeaderLines, body: Vec<u8>) -> Option<u64> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed) as u64;
        if id.is_multiple_of(16) {
            return None;
        }
        let answer = node::node_response(&head, &body);
        lock_mutex(&self.callouts).push(SimulatedCallout {
            id,
            fields: answer.response_headers(id.is_multiple_of(2)),
            answer: Some(answer),
            left: None,
        });
        Some(id)
    }

    fn reset_callout(&self, id: u64) {
        let mut callouts = lock_mutex(&self.callouts);
        let Some(at) = callouts.iter().position(|it| it.id == id) else {
            return;
        };
        callouts.swap_remove(at);
        drop(callouts);
        // SAFETY: the configuration exists as long as its callouts.
        unsafe {
            envoy_dynamic_module_on_http_filter_config_http_stream_reset(
                self.config_pointer(),
                self.module_pointer(),
                id,
                0,
            );
        }
    }

    /// Performs the next event of a callout. Returns whether there was one.
    fn advance_random_callout(&self, chance: &mut EventChoices<'_>) -> bool {
        let mut all = lock_mutex(&self.callouts);
        // the node does not respond at once
        if all.is_empty() || !chance.draw_one_in(16) {
            return false;
        }
        let at = chance.choose_below(all.len());
        let callout = &mut all[at];
        let id = callout.id;
        if chance.draw_one_in(16) {
            drop(all);
            self.reset_callout(id);
            return true;
        }
        let (envoy, module) = (self.config_pointer(), self.module_pointer());
        match &mut callout.left {
            None => {
                let answer = callout.answer.take().expect("once");
                let mut pieces = chance.split_into_random_pieces(&answer.body);
                pieces.reverse();
                callout.left = Some(pieces);
                let fields = std::mem::take(&mut callout.fields);
                drop(all);
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(key, value)| EnvoyHeader {
                        key: borrowed_buffer(key),
                        value: borrowed_buffer(value),
                    })
                    .collect();
                // SAFETY: the configuration exists as long as its callouts;
                // `fields` is a valid list.
                unsafe {
                    envoy_dynamic_module_on_http_filter_config_http_stream_headers(
                        envoy,
                        module,
                        id,
                        fields.as_ptr(),
                        fields.len(),
                        false,
                    );
                }
            }
            Some(pieces) => match pieces.pop() {
                Some(piece) => {
                    drop(all);
                    let piece = borrowed_buffer(&piece);
                    // SAFETY: the configuration exists as long as its callouts;
                    // there is one piece.
                    unsafe {
                        envoy_dynamic_module_on_http_filter_config_http_stream_data(
                            envoy,
                            module,
                            id,
                            &raw const piece,
                            1,
                            false,
                        );
                    }
                }
                None => {
                    all.swap_remove(at);
                    drop(all);
                    // SAFETY: the configuration exists as long as its callouts.
                    unsafe {
                        envoy_dynamic_module_on_http_filter_config_http_stream_complete(
                            envoy, module, id,
                        );
                    }
                }
            },
        }
        true
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
        let has_some = !lock_mutex(&self.own.callouts).is_empty();
        assert!(is_mains || !has_some, "requests end on a worker");
        lock_mutex(&self.own.callouts).clear();
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
        let place = format!("place-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let filter = SimulatedFilterConfig::new(&random_settings(&place, chance));
        let routes = [
            "{\"enable\": false}",
            "{\"hold\": \"1k 1ms\", \"comp_level\": 1}",
            "{\"cache\": false}",
            "{\"cache_valid\": \"immutable 1h\", \"min_length\": 1}",
        ];
        Self {
            cache_namespace: place,
            routes: routes.map(SimulatedRouteConfig::new).into(),
            purge_route: SimulatedRouteConfig::new("{\"cache_purge\": true}"),
            known: Mutex::new(vec![filter.main_thread_references()]),
            current_filter: Mutex::new(filter),
        }
    }

    pub fn cache_namespace(&self) -> &str {
        &self.cache_namespace
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

    /// Performs the events that are due. Returns whether there was one.
    pub fn deliver_pending_filter_events(&self, chance: &mut EventChoices<'_>) -> bool {
        let all: Vec<_> = {
            let mut known = lock_mutex(&self.known);
            known
                .retain(|(it, own)| it.strong_count() > 0 || !lock_mutex(&own.callouts).is_empty());
            known.clone()
        };
        let mut has_done = false;
        for (filter, own) in &all {
            has_done |= filter
                .upgrade()
                .is_some_and(|it| it.deliver_config_events());
            has_done |= own.advance_random_callout(chance);
        }
        if chance.draw_one_in(64) {
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
