//! State of a stream in Envoy, its client and its node.

use std::cell::{RefCell, RefMut};
use std::sync::Arc;

use super::config::{Route, SimulatedFilter};
use super::primitives::{borrowed_buffer, Events, Fields};
use crate::abi::{BodyType, EnvoyBuffer, FilterPtr, HeaderType};

#[derive(Default)]
pub struct StreamState {
    /// Configurations of the filter and the route, until the stream ends.
    pub config: Option<Arc<SimulatedFilter>>,
    pub route: Option<Arc<Route>>,
    pub filter: usize,
    pub request: Fields,
    pub response: Fields,
    pub trailers: Fields,
    /// Received bytes of a hook for a body, while it runs.
    pub received: Option<Vec<u8>>,
    pub buffered_request: Vec<u8>,
    /// The received bytes are the buffered bytes: another filter buffered them.
    pub is_same: bool,
    pub buffered_response: Vec<u8>,
    pub limit: u64,
    /// The last hook returned `Continue`; both directions share it, as in
    /// Envoy.
    pub goes_on: bool,
    pub events: Events,
    pub request_ended: bool,
    pub response_ended: bool,
    /// Upstream request.
    pub upstream_request: Option<Fields>,
    pub upstream_body: Vec<u8>,
    pub upstream_ended: bool,
    /// Response that the client received.
    pub head: Option<Fields>,
    pub body: Vec<u8>,
    pub has_ended: bool,
    pub was_broken: bool,
    pub is_destroyed: bool,
    /// The client reads one piece at a time, and whether the last one is
    /// unread.
    pub is_slow: bool,
    pub is_behind: bool,
}

pub type Shared = RefCell<StreamState>;

/// # Panics
/// The stream has ended.
pub fn world<'a>(stream: FilterPtr) -> RefMut<'a, StreamState> {
    let world = shared(stream).borrow_mut();
    assert!(!world.is_destroyed, "asked of a stream that has ended");
    world
}

/// Returns the state of a stream that may have ended.
pub fn shared<'a>(stream: FilterPtr) -> &'a Shared {
    // SAFETY: a stream is freed with its scenario, which has ended then.
    unsafe { &*stream.cast::<Shared>() }
}

pub fn is_over(stream: FilterPtr) -> bool {
    shared(stream).borrow().is_destroyed
}

impl StreamState {
    pub fn fields(&mut self, kind: HeaderType) -> &mut Fields {
        match kind {
            HeaderType::Request => &mut self.request,
            HeaderType::Response => &mut self.response,
            HeaderType::ResponseTrailers => &mut self.trailers,
        }
    }

    pub fn part(&mut self, kind: BodyType) -> &mut Vec<u8> {
        match kind {
            BodyType::BufferedRequest if !self.is_same => &mut self.buffered_request,
            BodyType::BufferedResponse => &mut self.buffered_response,
            _ => self.received.as_mut().expect("within a hook for a body"),
        }
    }

    /// Returns the body buffer in two slices, if it is long enough.
    pub fn pieces(&mut self, kind: BodyType) -> Vec<EnvoyBuffer> {
        let is_received = matches!(kind, BodyType::ReceivedRequest | BodyType::ReceivedResponse);
        if is_received && self.received.is_none() {
            return Vec::new();
        }
        let part = self.part(kind);
        let (first, second) = part.split_at(part.len() / 2);
        let both = [first, second].into_iter();
        both.filter(|piece| !piece.is_empty())
            .map(borrowed_buffer)
            .collect()
    }
}
