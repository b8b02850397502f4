//! State of a stream in Envoy, its client and its node.

use std::cell::{RefCell, RefMut};
use std::sync::Arc;

use super::config::{SimulatedFilterConfig, SimulatedRouteConfig};
use super::primitives::{borrowed_buffer, EventQueue, HeaderLines};
use crate::abi::{BodyType, EnvoyBuffer, FilterPtr, HeaderType};

/// The state of a simulated stream in Envoy: its messages, buffers and flags.
#[derive(Default)]
pub struct SimulatedStreamState {
    /// Configurations of the filter and the route, until the stream ends.
    pub config: Option<Arc<SimulatedFilterConfig>>,
    pub route: Option<Arc<SimulatedRouteConfig>>,
    pub filter: usize,
    pub request: HeaderLines,
    pub response: HeaderLines,
    pub trailers: HeaderLines,
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
    pub events: EventQueue,
    pub request_ended: bool,
    pub response_ended: bool,
    /// Upstream request.
    pub upstream_request: Option<HeaderLines>,
    pub upstream_body: Vec<u8>,
    pub upstream_ended: bool,
    /// Response that the client received.
    pub head: Option<HeaderLines>,
    pub body: Vec<u8>,
    pub has_ended: bool,
    pub was_broken: bool,
    pub is_destroyed: bool,
    /// The client reads one piece at a time, and whether the last one is
    /// unread.
    pub is_slow: bool,
    pub is_behind: bool,
}

/// The state of a simulated stream, to which a stream pointer points.
pub type SimulatedStreamCell = RefCell<SimulatedStreamState>;

/// # Panics
/// The stream has ended.
pub fn borrow_stream<'a>(stream: FilterPtr) -> RefMut<'a, SimulatedStreamState> {
    let world = stream_cell(stream).borrow_mut();
    assert!(!world.is_destroyed, "asked of a stream that has ended");
    world
}

/// Returns the state of a stream that may have ended.
pub fn stream_cell<'a>(stream: FilterPtr) -> &'a SimulatedStreamCell {
    // SAFETY: a stream is freed with its scenario, which has ended then.
    unsafe { &*stream.cast::<SimulatedStreamCell>() }
}

pub fn is_stream_over(stream: FilterPtr) -> bool {
    stream_cell(stream).borrow().is_destroyed
}

impl SimulatedStreamState {
    pub fn header_lines_mut(&mut self, kind: HeaderType) -> &mut HeaderLines {
        match kind {
            HeaderType::Request => &mut self.request,
            HeaderType::Response => &mut self.response,
            HeaderType::ResponseTrailers => &mut self.trailers,
        }
    }

    pub fn body_buffer_mut(&mut self, kind: BodyType) -> &mut Vec<u8> {
        match kind {
            BodyType::BufferedRequest if !self.is_same => &mut self.buffered_request,
            BodyType::BufferedResponse => &mut self.buffered_response,
            _ => self.received.as_mut().expect("within a hook for a body"),
        }
    }

    /// Returns the body buffer in two slices, if it is long enough.
    pub fn body_buffer_slices(&mut self, kind: BodyType) -> Vec<EnvoyBuffer> {
        let is_received = matches!(kind, BodyType::ReceivedRequest | BodyType::ReceivedResponse);
        if is_received && self.received.is_none() {
            return Vec::new();
        }
        let part = self.body_buffer_mut(kind);
        let (first, second) = part.split_at(part.len() / 2);
        let both = [first, second].into_iter();
        both.filter(|piece| !piece.is_empty())
            .map(borrowed_buffer)
            .collect()
    }
}
