//! Simulated callbacks of Envoy.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use super::config;
use super::stream;
use super::stream_state::{borrowed_buffer, bytes, world};
use crate::abi::*;

extern "C" fn headers_size(stream: FilterPtr, kind: HeaderType) -> usize {
    world(stream).fields(kind).len()
}

extern "C" fn headers(stream: FilterPtr, kind: HeaderType, fields: *mut EnvoyHeader) -> bool {
    for (at, (key, value)) in world(stream).fields(kind).iter().enumerate() {
        let (key, value) = (borrowed_buffer(key), borrowed_buffer(value));
        // SAFETY: there is room for all of them.
        unsafe { fields.add(at).write(EnvoyHeader { key, value }) };
    }
    true
}

extern "C" fn set_header(
    stream: FilterPtr,
    kind: HeaderType,
    name: ModuleBuffer<'_>,
    value: ModuleBuffer<'_>,
) -> bool {
    let (name, value) = (bytes(name).to_ascii_lowercase(), bytes(value));
    let mut world = world(stream);
    let fields = world.fields(kind);
    fields.retain(|(known, _)| *known != name);
    if !value.is_empty() {
        fields.push((name, value));
    }
    true
}

extern "C" fn chunks_size(stream: FilterPtr, kind: BodyType) -> usize {
    world(stream).pieces(kind).len()
}

extern "C" fn chunks(stream: FilterPtr, kind: BodyType, into: *mut EnvoyBuffer) -> bool {
    for (at, piece) in world(stream).pieces(kind).into_iter().enumerate() {
        // SAFETY: there is room for all of them.
        unsafe { into.add(at).write(piece) };
    }
    true
}

extern "C" fn received_is_buffered(stream: FilterPtr) -> bool {
    world(stream).is_same
}

extern "C" fn append_body(stream: FilterPtr, kind: BodyType, more: ModuleBuffer<'_>) -> bool {
    world(stream).part(kind).extend(bytes(more));
    true
}

extern "C" fn drain_body(stream: FilterPtr, kind: BodyType, number: usize) -> bool {
    world(stream).part(kind).drain(..number);
    true
}

extern "C" fn buffer_limit(stream: FilterPtr) -> u64 {
    world(stream).limit
}

extern "C" fn set_buffer_limit(stream: FilterPtr, limit: u64) {
    world(stream).limit = limit;
}

extern "C" fn continue_decoding(of: FilterPtr) {
    if !std::mem::replace(&mut world(of).goes_on, true) {
        stream::send_to_node(of);
    }
}

extern "C" fn continue_encoding(of: FilterPtr) {
    if !std::mem::replace(&mut world(of).goes_on, true) {
        stream::send_to_client(of, Vec::new());
    }
}

extern "C" fn reset(of: FilterPtr, _reason: u32, _details: ModuleBuffer<'_>) {
    world(of).was_broken = true;
    stream::end_stream(of);
}

extern "C" fn send_response(
    of: FilterPtr,
    status: u32,
    _headers: *const ModuleHeader<'_>,
    _number: usize,
    _body: ModuleBuffer<'_>,
    _details: ModuleBuffer<'_>,
) {
    stream::local_reply(of, status);
}

extern "C" fn send_response_headers(
    of: FilterPtr,
    fields: *const ModuleHeader<'_>,
    number: usize,
    is_all: bool,
) {
    stream::response_head(of, read_module_headers(fields, number), is_all);
}

extern "C" fn send_response_data(of: FilterPtr, piece: ModuleBuffer<'_>, is_last: bool) {
    assert!(!world(of).is_behind, "more than the client takes");
    stream::response_data(of, bytes(piece), is_last);
    if !is_last && world(of).is_slow {
        stream::raise_high_watermark(of);
    }
}

extern "C" fn route_config(stream: FilterPtr) -> *const c_void {
    world(stream)
        .route
        .as_ref()
        .map_or(ptr::null(), |route| route.module())
}

extern "C" fn cluster_name(_stream: FilterPtr, name: *mut EnvoyBuffer) -> bool {
    // SAFETY: `name` points at memory of its type.
    unsafe { name.write(borrowed_buffer(b"node")) };
    true
}

extern "C" fn attribute(_stream: FilterPtr, which: Attribute, value: *mut EnvoyBuffer) -> bool {
    let text: &[u8] = match which {
        Attribute::RequestProtocol => b"HTTP/1.1",
        _ => b"a route",
    };
    // SAFETY: `value` points at memory of its type.
    unsafe { value.write(borrowed_buffer(text)) };
    true
}

/// Returns one connection id for all clients of a worker.
extern "C" fn number(_stream: FilterPtr, _which: Attribute, value: *mut u64) -> bool {
    // SAFETY: `value` points at memory of its type.
    unsafe { value.write(80) };
    true
}

extern "C" fn scheduler_new(stream: FilterPtr) -> SchedulerPtr {
    let events = Arc::clone(&world(stream).events);
    Arc::into_raw(events).cast_mut().cast()
}

extern "C" fn config_scheduler_new(config: FilterConfigPtr) -> SchedulerPtr {
    // a configuration that is only validated has no simulated Envoy
    let events = config::filter_config(config).map(|it| Arc::clone(it.events()));
    Arc::into_raw(events.unwrap_or_default()).cast_mut().cast()
}

extern "C" fn scheduler_commit(scheduler: SchedulerPtr, event: u64) {
    // SAFETY: from `scheduler_new`, and not deleted.
    let events = unsafe { &*scheduler.cast::<Mutex<Vec<u64>>>() };
    let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
    events.push(event);
}

extern "C" fn scheduler_delete(scheduler: SchedulerPtr) {
    // SAFETY: from `scheduler_new`, and not deleted before.
    drop(unsafe { Arc::from_raw(scheduler.cast::<Mutex<Vec<u64>>>()) });
}

#[allow(clippy::too_many_arguments)] // the ABI defines them
extern "C" fn start_http_stream(
    main: FilterConfigPtr,
    id: *mut u64,
    _cluster: ModuleBuffer<'_>,
    headers: *const ModuleHeader<'_>,
    number: usize,
    body: ModuleBuffer<'_>,
    _is_all: bool,
    _ms: u64,
) -> CalloutResult {
    let callout = config::filter_config(main)
        .and_then(|it| it.send_callout(read_module_headers(headers, number), bytes(body)));
    match callout {
        Some(made) => {
            // SAFETY: `id` points at memory of its type.
            unsafe { id.write(made) };
            CalloutResult::Success
        }
        None => CalloutResult::CannotCreateRequest,
    }
}

extern "C" fn reset_http_stream(main: FilterConfigPtr, id: u64) {
    if let Some(config) = config::filter_config(main) {
        config.reset_callout(id);
    }
}

extern "C" fn concurrency() -> u32 {
    4
}

extern "C" fn log_enabled(level: LogLevel) -> bool {
    level == LogLevel::Error
}

extern "C" fn log(
    _level: LogLevel,
    message: ModuleBuffer<'_>,
    _file: ModuleBuffer<'_>,
    _line: u32,
) {
    let message = bytes(message);
    let message = String::from_utf8_lossy(&message);
    assert!(!message.contains("panicked"), "{message}");
}

fn read_module_headers(
    fields: *const ModuleHeader<'_>,
    number: usize,
) -> super::stream_state::Fields {
    // SAFETY: the caller passes a valid list of `number` headers.
    let fields = unsafe { std::slice::from_raw_parts(fields, number) };
    let fields = fields.iter().map(|field| {
        let name = bytes(field.key).to_ascii_lowercase();
        (name, bytes(field.value))
    });
    fields.collect()
}

/// Returns the simulated function of a callback; `None`: it is not simulated.
pub fn simulated_callback(name: &str) -> Option<*const ()> {
    let name = name.strip_prefix("envoy_dynamic_module_callback_")?;
    Some(match name {
        "log_enabled" => log_enabled as *const (),
        "log_v2" => log as *const (),
        "get_concurrency" => concurrency as *const (),
        "get_most_specific_route_config" => route_config as *const (),
        "http_get_cluster_name" => cluster_name as *const (),
        "http_filter_get_attribute_string" => attribute as *const (),
        "http_filter_get_attribute_int" => number as *const (),
        "http_get_headers_size" => headers_size as *const (),
        "http_get_headers" => headers as *const (),
        "http_set_header" => set_header as *const (),
        "http_get_body_chunks_size" => chunks_size as *const (),
        "http_get_body_chunks" => chunks as *const (),
        "http_received_buffered_request_body" => received_is_buffered as *const (),
        "http_append_body" => append_body as *const (),
        "http_drain_body" => drain_body as *const (),
        "http_get_buffer_limit" => buffer_limit as *const (),
        "http_set_buffer_limit" => set_buffer_limit as *const (),
        "http_filter_continue_decoding" => continue_decoding as *const (),
        "http_filter_continue_encoding" => continue_encoding as *const (),
        "http_filter_reset_stream" => reset as *const (),
        "http_send_response" => send_response as *const (),
        "http_send_response_headers" => send_response_headers as *const (),
        "http_send_response_data" => send_response_data as *const (),
        "http_filter_scheduler_new" => scheduler_new as *const (),
        "http_filter_scheduler_commit" => scheduler_commit as *const (),
        "http_filter_scheduler_delete" => scheduler_delete as *const (),
        "http_filter_config_scheduler_new" => config_scheduler_new as *const (),
        "http_filter_config_scheduler_commit" => scheduler_commit as *const (),
        "http_filter_config_scheduler_delete" => scheduler_delete as *const (),
        "http_filter_config_start_http_stream" => start_http_stream as *const (),
        "http_filter_config_reset_http_stream" => reset_http_stream as *const (),
        _ => return None,
    })
}
