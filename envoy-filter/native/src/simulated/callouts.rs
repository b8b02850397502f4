//! Callouts of simulated filters, and the events of the node's responses to them.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::event_choices::EventChoices;
use super::node::{self, NodeCondition};
use super::primitives::{borrowed_buffer, HeaderLines};
use crate::abi::{EnvoyHeader, FilterConfigPtr};
use crate::config_hooks::*;

/// The callouts of a simulated filter. The main thread owns them, and continues them while a worker
/// destroys the filter, which waits for their end.
#[derive(Default)]
pub struct SimulatedCallouts {
    pub config_pointer: OnceLock<usize>,
    pub module_pointer: OnceLock<usize>,
    callouts: Mutex<Vec<SimulatedCallout>>,
}

/// A callout in flight, with the node's response.
struct SimulatedCallout {
    id: u64,
    fields: HeaderLines,
    answer: Option<node::SimulatedNodeResponse>,
    /// Pieces that were not sent, in reverse; `None` until the head is sent.
    unsent_pieces: Option<Vec<Vec<u8>>>,
}

pub fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedCallouts {
    pub fn config_pointer(&self) -> FilterConfigPtr {
        self.config_pointer
            .get()
            .map_or(ptr::null_mut(), |it| *it as FilterConfigPtr)
    }

    pub fn module_pointer(&self) -> *const c_void {
        self.module_pointer
            .get()
            .map_or(ptr::null(), |it| *it as *const _)
    }

    /// Whether a callout is in flight.
    pub fn has_callouts(&self) -> bool {
        !lock_mutex(&self.callouts).is_empty()
    }

    /// Ends all callouts, without hooks.
    pub fn clear_callouts(&self) {
        lock_mutex(&self.callouts).clear();
    }

    /// Sends a callout, if there is room. The node fails to respond to some.
    pub fn send_callout(&self, head: HeaderLines, body: Vec<u8>) -> Option<u64> {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed) as u64;
        if id.is_multiple_of(16) {
            return None;
        }
        let condition = match id % 32 {
            5 => NodeCondition::Busy,
            11 => NodeCondition::Lagging,
            _ => NodeCondition::Healthy,
        };
        let answer = node::node_response(&head, &body, condition);
        lock_mutex(&self.callouts).push(SimulatedCallout {
            id,
            fields: answer.response_headers(id.is_multiple_of(2)),
            answer: Some(answer),
            unsent_pieces: None,
        });
        Some(id)
    }

    /// Resets a callout, if it is in flight.
    pub fn reset_callout(&self, id: u64) {
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

    /// Performs the next event of a callout, once in `delay` calls. Returns whether there was one.
    pub fn advance_random_callout(&self, chance: &mut EventChoices<'_>, delay: usize) -> bool {
        let mut all = lock_mutex(&self.callouts);
        // the node does not respond at once
        if all.is_empty() || !chance.draw_one_in(delay) {
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
        match &mut callout.unsent_pieces {
            None => {
                let answer = callout.answer.take().expect("the head is sent once");
                let mut pieces = chance.split_into_random_pieces(&answer.body);
                pieces.reverse();
                callout.unsent_pieces = Some(pieces);
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
