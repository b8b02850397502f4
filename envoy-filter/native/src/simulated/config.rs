//! Configurations of filters and routes, and Envoy's main thread, which handles
//! their events, sends their callouts, and replaces the filters.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::{self, ThreadId};

use super::choices::Choices;
use super::node;
use super::primitives::{borrowed_buffer, drained, Events, Fields};
use crate::abi::{EnvoyBuffer, EnvoyHeader, FilterConfigPtr};
use crate::config_hooks::*;
use crate::hooks::*;

/// A simulated filter's configuration. It is destroyed with the last stream that uses it,
/// on that stream's thread, or by the main thread.
pub struct SimulatedFilter {
    main: ThreadId,
    events: Events,
    own: Arc<FilterCallouts>,
}

/// Callouts of a filter. The main thread owns them, and continues them while a
/// worker destroys the filter, which waits for their end.
#[derive(Default)]
struct FilterCallouts {
    envoy: OnceLock<usize>,
    module: OnceLock<usize>,
    callouts: Mutex<Vec<FilterCallout>>,
}

/// A callout of a filter.
struct FilterCallout {
    id: u64,
    fields: Fields,
    answer: Option<node::NodeResponse>,
    /// Pieces that were not sent, in reverse; `None` until the head is sent.
    left: Option<Vec<Vec<u8>>>,
}

/// A simulated route's configuration.
pub struct Route(usize);

/// Envoy's simulated main thread, with the configurations of new streams.
pub struct MainThread {
    place: String,
    routes: Vec<Arc<Route>>,
    purges: Arc<Route>,
    filter: Mutex<Arc<SimulatedFilter>>,
    known: Mutex<Vec<(Weak<SimulatedFilter>, Arc<FilterCallouts>)>>,
}

/// Returns the configuration that a callback names, if any.
pub fn filter_config<'a>(config: FilterConfigPtr) -> Option<&'a SimulatedFilter> {
    // SAFETY: the module calls this within hooks of the configuration only,
    // while it exists.
    unsafe { config.cast::<SimulatedFilter>().as_ref() }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedFilter {
    fn new(settings: &str) -> Arc<Self> {
        let made = Arc::new(Self {
            main: thread::current().id(),
            events: Events::default(),
            own: Arc::default(),
        });
        made.own.envoy.get_or_init(|| Arc::as_ptr(&made) as usize);
        // SAFETY: the text is valid during the call.
        let module = unsafe {
            envoy_dynamic_module_on_http_filter_config_new(
                made.own.envoy(),
                EnvoyBuffer::NONE,
                borrowed_buffer(settings.as_bytes()),
            )
        };
        assert!(!module.is_null(), "{settings}");
        made.own.module.get_or_init(|| module as usize);
        made
    }

    pub fn module(&self) -> *const c_void {
        self.own.module()
    }

    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Sends a callout of the filter, if there is room.
    pub fn send_callout(&self, head: Fields, body: Vec<u8>) -> Option<u64> {
        self.own.send_callout(head, body)
    }

    /// Resets a callout of the filter.
    pub fn reset_callout(&self, id: u64) {
        self.own.reset_callout(id);
    }

    /// Handles the pending events of the filter. Returns whether there was one.
    fn deliver_events(&self) -> bool {
        let events = drained(&self.events);
        for &event in &events {
            // SAFETY: the configuration exists as long as this object.
            unsafe {
                envoy_dynamic_module_on_http_filter_config_scheduled(
                    self.own.envoy(),
                    self.module(),
                    event,
                );
            }
        }
        !events.is_empty()
    }

    /// Returns the references that the main thread keeps.
    fn known(self: &Arc<Self>) -> (Weak<Self>, Arc<FilterCallouts>) {
        (Arc::downgrade(self), Arc::clone(&self.own))
    }
}

impl FilterCallouts {
    fn envoy(&self) -> FilterConfigPtr {
        self.envoy
            .get()
            .map_or(ptr::null_mut(), |it| *it as FilterConfigPtr)
    }

    fn module(&self) -> *const c_void {
        self.module.get().map_or(ptr::null(), |it| *it as *const _)
    }

    fn send_callout(&self, head: Fields, body: Vec<u8>) -> Option<u64> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed) as u64;
        if id.is_multiple_of(16) {
            return None;
        }
        let answer = node::answer(&head, &body);
        locked(&self.callouts).push(FilterCallout {
            id,
            fields: answer.fields(id.is_multiple_of(2)),
            answer: Some(answer),
            left: None,
        });
        Some(id)
    }

    fn reset_callout(&self, id: u64) {
        let mut callouts = locked(&self.callouts);
        let Some(at) = callouts.iter().position(|it| it.id == id) else {
            return;
        };
        callouts.swap_remove(at);
        drop(callouts);
        // SAFETY: the configuration exists as long as its callouts.
        unsafe {
            envoy_dynamic_module_on_http_filter_config_http_stream_reset(
                self.envoy(),
                self.module(),
                id,
                0,
            );
        }
    }

    /// Performs the next event of a callout. Returns whether there was one.
    fn step(&self, chance: &mut Choices<'_>) -> bool {
        let mut all = locked(&self.callouts);
        // the node does not respond at once
        if all.is_empty() || !chance.once_in(16) {
            return false;
        }
        let at = chance.below(all.len());
        let callout = &mut all[at];
        let id = callout.id;
        if chance.once_in(16) {
            drop(all);
            self.reset_callout(id);
            return true;
        }
        let (envoy, module) = (self.envoy(), self.module());
        match &mut callout.left {
            None => {
                let answer = callout.answer.take().expect("once");
                let mut pieces = chance.split(&answer.body);
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

impl Drop for SimulatedFilter {
    /// Destroys the module's configuration. Envoy calls no hooks for its
    /// callouts any more.
    fn drop(&mut self) {
        let module = self.module().cast_mut();
        if !module.is_null() {
            // SAFETY: no stream uses it any more.
            unsafe { envoy_dynamic_module_on_http_filter_config_destroy(module) };
        }
        // Envoy may crash if callouts end on a worker
        let is_mains = thread::current().id() == self.main;
        let has_some = !locked(&self.own.callouts).is_empty();
        assert!(is_mains || !has_some, "requests end on a worker");
        locked(&self.own.callouts).clear();
    }
}

impl Route {
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

    pub fn module(&self) -> *const c_void {
        self.0 as *const c_void
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: no stream uses it any more.
        unsafe {
            envoy_dynamic_module_on_http_filter_per_route_config_destroy(self.0 as *mut c_void);
        }
    }
}

impl MainThread {
    /// Creates a main thread with a cache namespace of its own.
    pub fn new(chance: &mut Choices<'_>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let place = format!("place-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let filter = SimulatedFilter::new(&settings(&place, chance));
        let routes = [
            "{\"enable\": false}",
            "{\"hold\": \"1k 1ms\", \"comp_level\": 1}",
            "{\"cache\": false}",
            "{\"cache_valid\": \"immutable 1h\", \"min_length\": 1}",
        ];
        Self {
            place,
            routes: routes.map(Route::new).into(),
            purges: Route::new("{\"cache_purge\": true}"),
            known: Mutex::new(vec![filter.known()]),
            filter: Mutex::new(filter),
        }
    }

    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the filter of streams that begin now.
    pub fn filter(&self) -> Arc<SimulatedFilter> {
        Arc::clone(&locked(&self.filter))
    }

    /// Returns the route configuration of a new stream, if it has one.
    pub fn route(&self, chance: &mut Choices<'_>) -> Option<Arc<Route>> {
        let at = chance.below(2 * self.routes.len());
        self.routes.get(at).map(Arc::clone)
    }

    /// Returns the route that purges.
    pub fn purges(&self) -> Arc<Route> {
        Arc::clone(&self.purges)
    }

    /// Performs the events that are due. Returns whether there was one.
    pub fn step(&self, chance: &mut Choices<'_>) -> bool {
        let all: Vec<_> = {
            let mut known = locked(&self.known);
            known.retain(|(it, own)| it.strong_count() > 0 || !locked(&own.callouts).is_empty());
            known.clone()
        };
        let mut has_done = false;
        for (filter, own) in &all {
            has_done |= filter.upgrade().is_some_and(|it| it.deliver_events());
            has_done |= own.step(chance);
        }
        if chance.once_in(64) {
            self.replace_filter(chance);
        }
        has_done
    }

    /// Replaces the filter; existing streams keep the previous one.
    fn replace_filter(&self, chance: &mut Choices<'_>) {
        let new = SimulatedFilter::new(&settings(&self.place, chance));
        locked(&self.known).push(new.known());
        let old = std::mem::replace(&mut *locked(&self.filter), new);
        // Envoy keeps the old filter until all workers have the new one, and
        // delivers its events, except when a filter is removed
        if chance.below(4) > 0 {
            old.deliver_events();
        }
        drop(old);
    }
}

fn settings(place: &str, chance: &mut Choices<'_>) -> String {
    let hold = chance.one_of(&["0", "1k 1ms", "64k 10ms", "1m 1s"]);
    let cache = chance.below(3) > 0;
    let ssz = chance.below(2) == 0;
    let updates = chance.below(2) == 0;
    let valid = chance.one_of(&["immutable 3ms", "immutable 1h"]);
    format!(
        "{{\"hold\": \"{hold}\", \"cache\": {cache}, \"cache_memory\": \"16m\", \
         \"cache_lock_timeout\": \"50ms\", \"cache_namespace\": \"{place}\", \"ssz\": {ssz}, \
         \"cache_valid\": \"{valid}\", \"cache_use_stale\": \"error updating http_503\", \
         \"cache_background_update\": {updates}}}"
    )
}
