//! Envoy's processing of a stream: it calls the module's hooks, and applies
//! their results.

use std::ffi::c_void;

use super::config::SimulatedFilterConfig;
use super::primitives::{make_header_lines, HeaderLines};
use super::stream_state::{
    borrow_stream, is_stream_over, SimulatedStreamCell, SimulatedStreamState,
};
use crate::abi::{BodyStatus, EnvoyBuffer, FilterPtr, HeadersStatus, TrailersStatus};
use crate::hooks::*;

fn filter_of_stream(stream: FilterPtr) -> *const c_void {
    borrow_stream(stream).filter as *const c_void
}

/// Starts a stream.
pub fn start_simulated_stream(of: SimulatedStreamState) -> FilterPtr {
    let stream: FilterPtr = Box::into_raw(Box::new(SimulatedStreamCell::new(of))).cast();
    create_filter(stream);
    stream
}

fn create_filter(stream: FilterPtr) {
    let config = borrow_stream(stream)
        .config
        .as_deref()
        .map(SimulatedFilterConfig::module_pointer);
    let filter = envoy_dynamic_module_on_http_filter_new(config.expect("it has one"), stream);
    borrow_stream(stream).filter = filter as usize;
}

/// Frees a stream that no test uses any more.
pub fn free_simulated_stream(stream: FilterPtr) {
    // SAFETY: from `start_simulated_stream`, and not freed before.
    drop(unsafe { Box::from_raw(stream.cast::<SimulatedStreamCell>()) });
}

/// Sends the request with its buffered body to the node.
pub fn send_request_to_node(stream: FilterPtr) {
    let mut world = borrow_stream(stream);
    let buffered = std::mem::take(&mut world.buffered_request);
    world.upstream_body.extend(buffered);
    world.upstream_request = Some(world.request.clone());
    world.upstream_ended = world.request_ended;
}

/// Sends the response with its buffered body and `piece` to the client.
pub fn send_response_to_client(stream: FilterPtr, piece: Vec<u8>) {
    let mut world = borrow_stream(stream);
    let buffered = std::mem::take(&mut world.buffered_response);
    world.head.get_or_insert_with(HeaderLines::new);
    if world.body.is_empty() && !world.response.is_empty() {
        world.head = Some(std::mem::take(&mut world.response));
    }
    world.body.extend(buffered);
    world.body.extend(piece);
    if world.response_ended {
        world.has_ended = true;
        drop(world);
        end_stream(stream);
    }
}

fn destroy_filter(stream: FilterPtr) {
    let filter = filter_of_stream(stream);
    // SAFETY: of that stream.
    unsafe {
        envoy_dynamic_module_on_http_filter_stream_complete(stream, filter);
        envoy_dynamic_module_on_http_filter_destroy(filter);
    }
}

pub fn end_stream(stream: FilterPtr) {
    destroy_filter(stream);
    let mut world = borrow_stream(stream);
    world.is_destroyed = true;
    let (config, route) = (world.config.take(), world.route.take());
    drop(world);
    // the stream may be the last one that uses them
    drop((config, route));
}

/// Follows a redirect: the stream ends, and another one begins with the
/// upstream request.
pub fn follow_internal_redirect(stream: FilterPtr) {
    {
        let mut world = borrow_stream(stream);
        let from = b"http://a/elsewhere".to_vec();
        world.request.push((b"x-envoy-original-url".to_vec(), from));
    }
    destroy_filter(stream);
    let body = {
        let mut world = borrow_stream(stream);
        world.events = Default::default();
        world.upstream_request = None;
        world.upstream_ended = false;
        world.buffered_request.clear();
        std::mem::take(&mut world.upstream_body)
    };
    create_filter(stream);
    deliver_request_head(stream, body.is_empty());
    if !body.is_empty() && !is_stream_over(stream) {
        deliver_request_data(stream, body, true, false);
    }
}

pub fn deliver_request_head(stream: FilterPtr, is_all: bool) {
    borrow_stream(stream).request_ended = is_all;
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_request_headers(
            stream,
            filter_of_stream(stream),
            is_all,
        )
    };
    if is_stream_over(stream) {
        return;
    }
    let goes_on = status == HeadersStatus::Continue;
    borrow_stream(stream).goes_on = goes_on;
    if goes_on {
        send_request_to_node(stream);
    }
}

pub fn deliver_request_data(stream: FilterPtr, piece: Vec<u8>, is_last: bool, is_same: bool) {
    {
        let mut world = borrow_stream(stream);
        world.request_ended = is_last;
        world.received = Some(piece);
        world.is_same = is_same;
    }
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_request_body(stream, filter_of_stream(stream), is_last)
    };
    if is_stream_over(stream) {
        return;
    }
    let mut world = borrow_stream(stream);
    world.is_same = false;
    let received = world.received.take().unwrap_or_default();
    world.goes_on = status == BodyStatus::Continue;
    if status != BodyStatus::StopIterationNoBuffer {
        // the buffer limit does not apply to bytes that are not buffered
        let has_limit = !world.goes_on || !world.buffered_request.is_empty();
        world.buffered_request.extend(received);
        let (buffered, limit) = (world.buffered_request.len() as u64, world.limit);
        assert!(
            !has_limit || buffered <= limit,
            "{buffered} bytes kept, which Envoy refuses"
        );
    }
    if world.goes_on {
        drop(world);
        send_request_to_node(stream);
    }
}

pub fn deliver_request_trailers(stream: FilterPtr) {
    borrow_stream(stream).request_ended = true;
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_request_trailers(stream, filter_of_stream(stream))
    };
    if is_stream_over(stream) {
        return;
    }
    let goes_on = status == TrailersStatus::Continue;
    borrow_stream(stream).goes_on = goes_on;
    if goes_on {
        send_request_to_node(stream);
    }
}

pub fn deliver_response_head(stream: FilterPtr, fields: HeaderLines, is_all: bool) {
    {
        let mut world = borrow_stream(stream);
        world.response = fields;
        world.response_ended = is_all;
    }
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_response_headers(
            stream,
            filter_of_stream(stream),
            is_all,
        )
    };
    if is_stream_over(stream) {
        return;
    }
    let goes_on = status == HeadersStatus::Continue;
    borrow_stream(stream).goes_on = goes_on;
    if goes_on {
        send_response_to_client(stream, Vec::new());
    }
}

pub fn deliver_response_data(stream: FilterPtr, piece: Vec<u8>, is_last: bool) {
    {
        let mut world = borrow_stream(stream);
        world.response_ended = is_last;
        world.received = Some(piece);
    }
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_response_body(stream, filter_of_stream(stream), is_last)
    };
    if is_stream_over(stream) {
        return;
    }
    let received = borrow_stream(stream).received.take().unwrap_or_default();
    borrow_stream(stream).goes_on = status == BodyStatus::Continue;
    match status {
        BodyStatus::Continue => send_response_to_client(stream, received),
        BodyStatus::StopIterationAndBuffer => {
            borrow_stream(stream).buffered_response.extend(received);
        }
        BodyStatus::StopIterationNoBuffer => assert!(received.is_empty(), "bytes are lost"),
    }
}

pub fn deliver_response_trailers(stream: FilterPtr) {
    borrow_stream(stream).response_ended = true;
    // SAFETY: of that stream.
    let status = unsafe {
        envoy_dynamic_module_on_http_filter_response_trailers(stream, filter_of_stream(stream))
    };
    if is_stream_over(stream) {
        return;
    }
    let goes_on = status == TrailersStatus::Continue;
    borrow_stream(stream).goes_on = goes_on;
    if goes_on {
        send_response_to_client(stream, Vec::new());
    }
}

fn notify_local_reply(stream: FilterPtr, status: u32) {
    // SAFETY: of that stream.
    unsafe {
        envoy_dynamic_module_on_http_filter_local_reply(
            stream,
            filter_of_stream(stream),
            status,
            EnvoyBuffer::NONE,
            false,
        );
    }
}

/// Responds for a node that cannot be reached: a local reply passes through the
/// filters.
pub fn respond_for_failed_node(stream: FilterPtr, status: u32, text: Vec<u8>) {
    notify_local_reply(stream, status);
    if is_stream_over(stream) {
        return;
    }
    let status = status.to_string();
    let fields = make_header_lines([(":status", &*status), ("content-type", "text/plain")]);
    deliver_response_head(stream, fields, text.is_empty());
    if !text.is_empty() && !is_stream_over(stream) {
        deliver_response_data(stream, text, true);
    }
}

/// Sends a local reply while a head is withheld, after it was sent, or for this
/// filter.
pub fn send_local_reply(stream: FilterPtr, status: u32) {
    notify_local_reply(stream, status);
    if is_stream_over(stream) {
        return;
    }
    let begun = borrow_stream(stream).head.is_some();
    if begun {
        borrow_stream(stream).was_broken = true;
        return end_stream(stream);
    }
    let status = status.to_string();
    let mut world = borrow_stream(stream);
    world.buffered_response.clear();
    world.response = make_header_lines([(":status", &*status)]);
    world.response_ended = true;
    drop(world);
    send_response_to_client(stream, Vec::new());
}

pub fn deliver_scheduled_event(stream: FilterPtr, event: u64) {
    // SAFETY: of that stream.
    unsafe {
        envoy_dynamic_module_on_http_filter_scheduled(stream, filter_of_stream(stream), event);
    }
}

/// Marks the client as slow.
pub fn deliver_high_watermark(stream: FilterPtr) {
    borrow_stream(stream).is_behind = true;
    let filter = filter_of_stream(stream);
    // SAFETY: of that stream.
    unsafe {
        envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(
            stream, filter,
        );
    }
}

/// Lets a slow client read. Returns whether it was slow.
pub fn deliver_low_watermark(stream: FilterPtr) -> bool {
    let was_behind = std::mem::take(&mut borrow_stream(stream).is_behind);
    if was_behind {
        let filter = filter_of_stream(stream);
        // SAFETY: of that stream.
        unsafe {
            envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(
                stream, filter,
            );
        }
    }
    was_behind
}
