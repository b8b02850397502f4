//! Simulated callbacks of Envoy, under the names by which the module calls them.

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use super::config;
use super::primitives::{borrowed_buffer, copy_module_buffer, HeaderLines};
use super::stream;
use super::stream_state::borrow_stream;
use crate::abi::*;

#[export_name = "envoy_dynamic_module_callback_http_get_headers_size"]
unsafe extern "C" fn headers_size(stream: FilterPtr, kind: HeaderType) -> usize {
    borrow_stream(stream).header_lines_mut(kind).len()
}

#[export_name = "envoy_dynamic_module_callback_http_get_headers"]
unsafe extern "C" fn get_headers(
    stream: FilterPtr,
    kind: HeaderType,
    fields: *mut EnvoyHeader,
) -> bool {
    for (at, (key, value)) in borrow_stream(stream)
        .header_lines_mut(kind)
        .iter()
        .enumerate()
    {
        let (key, value) = (borrowed_buffer(key), borrowed_buffer(value));
        // SAFETY: there is room for all of them.
        unsafe { fields.add(at).write(EnvoyHeader { key, value }) };
    }
    true
}

#[export_name = "envoy_dynamic_module_callback_http_set_header"]
unsafe extern "C" fn set_header(
    stream: FilterPtr,
    kind: HeaderType,
    name: ModuleBuffer<'_>,
    value: ModuleBuffer<'_>,
) -> bool {
    let (name, value) = (
        copy_module_buffer(name).to_ascii_lowercase(),
        copy_module_buffer(value),
    );
    let mut world = borrow_stream(stream);
    let fields = world.header_lines_mut(kind);
    fields.retain(|(known, _)| *known != name);
    if !value.is_empty() {
        fields.push((name, value));
    }
    true
}

#[export_name = "envoy_dynamic_module_callback_http_get_body_chunks_size"]
unsafe extern "C" fn chunks_size(stream: FilterPtr, kind: BodyType) -> usize {
    borrow_stream(stream).body_buffer_slices(kind).len()
}

#[export_name = "envoy_dynamic_module_callback_http_get_body_chunks"]
unsafe extern "C" fn get_body_chunks(
    stream: FilterPtr,
    kind: BodyType,
    into: *mut EnvoyBuffer,
) -> bool {
    for (at, piece) in borrow_stream(stream)
        .body_buffer_slices(kind)
        .into_iter()
        .enumerate()
    {
        // SAFETY: there is room for all of them.
        unsafe { into.add(at).write(piece) };
    }
    true
}

#[export_name = "envoy_dynamic_module_callback_http_received_buffered_request_body"]
unsafe extern "C" fn received_is_buffered(stream: FilterPtr) -> bool {
    borrow_stream(stream).is_same
}

#[export_name = "envoy_dynamic_module_callback_http_append_body"]
unsafe extern "C" fn append_body(
    stream: FilterPtr,
    kind: BodyType,
    more: ModuleBuffer<'_>,
) -> bool {
    borrow_stream(stream)
        .body_buffer_mut(kind)
        .extend(copy_module_buffer(more));
    true
}

#[export_name = "envoy_dynamic_module_callback_http_drain_body"]
unsafe extern "C" fn drain_body(stream: FilterPtr, kind: BodyType, number: usize) -> bool {
    borrow_stream(stream).body_buffer_mut(kind).drain(..number);
    true
}

#[export_name = "envoy_dynamic_module_callback_http_get_buffer_limit"]
unsafe extern "C" fn buffer_limit(stream: FilterPtr) -> u64 {
    borrow_stream(stream).limit
}

#[export_name = "envoy_dynamic_module_callback_http_set_buffer_limit"]
unsafe extern "C" fn set_buffer_limit(stream: FilterPtr, limit: u64) {
    borrow_stream(stream).limit = limit;
}

#[export_name = "envoy_dynamic_module_callback_http_filter_continue_decoding"]
unsafe extern "C" fn continue_decoding(of: FilterPtr) {
    if !std::mem::replace(&mut borrow_stream(of).goes_on, true) {
        stream::send_request_to_node(of);
    }
}

#[export_name = "envoy_dynamic_module_callback_http_filter_continue_encoding"]
unsafe extern "C" fn continue_encoding(of: FilterPtr) {
    if !std::mem::replace(&mut borrow_stream(of).goes_on, true) {
        stream::send_response_to_client(of, Vec::new());
    }
}

#[export_name = "envoy_dynamic_module_callback_http_filter_reset_stream"]
unsafe extern "C" fn reset_stream(of: FilterPtr, _reason: u32, _details: ModuleBuffer<'_>) {
    borrow_stream(of).was_broken = true;
    stream::end_stream(of);
}

#[export_name = "envoy_dynamic_module_callback_http_send_response"]
unsafe extern "C" fn send_response(
    of: FilterPtr,
    status: u32,
    _headers: *const ModuleHeader<'_>,
    _number: usize,
    _body: ModuleBuffer<'_>,
    _details: ModuleBuffer<'_>,
) {
    stream::send_local_reply(of, status);
}

#[export_name = "envoy_dynamic_module_callback_http_send_response_headers"]
unsafe extern "C" fn send_response_headers(
    of: FilterPtr,
    fields: *const ModuleHeader<'_>,
    number: usize,
    is_all: bool,
) {
    stream::deliver_response_head(of, read_module_headers(fields, number), is_all);
}

#[export_name = "envoy_dynamic_module_callback_http_send_response_data"]
unsafe extern "C" fn send_response_data(of: FilterPtr, piece: ModuleBuffer<'_>, is_last: bool) {
    assert!(!borrow_stream(of).is_behind, "more than the client takes");
    stream::deliver_response_data(of, copy_module_buffer(piece), is_last);
    if !is_last && borrow_stream(of).is_slow {
        stream::deliver_high_watermark(of);
    }
}

#[export_name = "envoy_dynamic_module_callback_get_most_specific_route_config"]
unsafe extern "C" fn route_config(stream: FilterPtr) -> *const c_void {
    borrow_stream(stream)
        .route
        .as_ref()
        .map_or(ptr::null(), |route| route.module_pointer())
}

#[export_name = "envoy_dynamic_module_callback_http_get_cluster_name"]
unsafe extern "C" fn cluster_name(_stream: FilterPtr, name: *mut EnvoyBuffer) -> bool {
    // SAFETY: `name` points at memory of its type.
    unsafe { name.write(borrowed_buffer(b"node")) };
    true
}

#[export_name = "envoy_dynamic_module_callback_http_filter_get_attribute_string"]
unsafe extern "C" fn get_string_attribute(
    _stream: FilterPtr,
    which: StreamAttribute,
    value: *mut EnvoyBuffer,
) -> bool {
    let text: &[u8] = match which {
        StreamAttribute::RequestProtocol => b"HTTP/1.1",
        _ => b"a route",
    };
    // SAFETY: `value` points at memory of its type.
    unsafe { value.write(borrowed_buffer(text)) };
    true
}

/// Returns one connection id for all clients of a worker.
#[export_name = "envoy_dynamic_module_callback_http_filter_get_attribute_int"]
unsafe extern "C" fn get_number_attribute(
    _stream: FilterPtr,
    _which: StreamAttribute,
    value: *mut u64,
) -> bool {
    // SAFETY: `value` points at memory of its type.
    unsafe { value.write(80) };
    true
}

#[export_name = "envoy_dynamic_module_callback_http_filter_scheduler_new"]
unsafe extern "C" fn scheduler_new(stream: FilterPtr) -> SchedulerPtr {
    let events = Arc::clone(&borrow_stream(stream).events);
    Arc::into_raw(events).cast_mut().cast()
}

#[export_name = "envoy_dynamic_module_callback_http_filter_config_scheduler_new"]
unsafe extern "C" fn config_scheduler_new(config: FilterConfigPtr) -> SchedulerPtr {
    // a configuration that is only validated has no simulated Envoy
    let events = config::filter_from_config_pointer(config).map(|it| Arc::clone(it.event_queue()));
    Arc::into_raw(events.unwrap_or_default()).cast_mut().cast()
}

#[export_name = "envoy_dynamic_module_callback_http_filter_scheduler_commit"]
unsafe extern "C" fn scheduler_commit(scheduler: SchedulerPtr, event: u64) {
    // SAFETY: from `scheduler_new`, and not deleted.
    let events = unsafe { &*scheduler.cast::<Mutex<Vec<u64>>>() };
    let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
    events.push(event);
}

#[export_name = "envoy_dynamic_module_callback_http_filter_scheduler_delete"]
unsafe extern "C" fn scheduler_delete(scheduler: SchedulerPtr) {
    // SAFETY: from `scheduler_new`, and not deleted before.
    drop(unsafe { Arc::from_raw(scheduler.cast::<Mutex<Vec<u64>>>()) });
}

#[allow(clippy::too_many_arguments)] // the ABI defines them
#[export_name = "envoy_dynamic_module_callback_http_filter_config_start_http_stream"]
unsafe extern "C" fn start_http_stream(
    main: FilterConfigPtr,
    id: *mut u64,
    _cluster: ModuleBuffer<'_>,
    headers: *const ModuleHeader<'_>,
    number: usize,
    body: ModuleBuffer<'_>,
    _is_all: bool,
    _ms: u64,
) -> CalloutInitResult {
    let callout = config::filter_from_config_pointer(main).and_then(|it| {
        it.send_callout(
            read_module_headers(headers, number),
            copy_module_buffer(body),
        )
    });
    match callout {
        Some(made) => {
            // SAFETY: `id` points at memory of its type.
            unsafe { id.write(made) };
            CalloutInitResult::Success
        }
        None => CalloutInitResult::CannotCreateRequest,
    }
}

#[export_name = "envoy_dynamic_module_callback_http_filter_config_reset_http_stream"]
unsafe extern "C" fn reset_http_stream(main: FilterConfigPtr, id: u64) {
    if let Some(config) = config::filter_from_config_pointer(main) {
        config.reset_callout_in_flight(id);
    }
}

#[export_name = "envoy_dynamic_module_callback_get_concurrency"]
unsafe extern "C" fn worker_concurrency() -> u32 {
    4
}

#[export_name = "envoy_dynamic_module_callback_log_enabled"]
unsafe extern "C" fn log_enabled(level: LogLevel) -> bool {
    level == LogLevel::Error
}

#[export_name = "envoy_dynamic_module_callback_log_v2"]
unsafe extern "C" fn check_log_line(
    _level: LogLevel,
    message: ModuleBuffer<'_>,
    _file: ModuleBuffer<'_>,
    _line: u32,
) {
    let message = copy_module_buffer(message);
    let message = String::from_utf8_lossy(&message);
    assert!(!message.contains("panicked"), "{message}");
}

fn read_module_headers(fields: *const ModuleHeader<'_>, number: usize) -> HeaderLines {
    // SAFETY: the caller passes a valid list of `number` headers.
    let fields = unsafe { std::slice::from_raw_parts(fields, number) };
    let fields = fields.iter().map(|field| {
        let name = copy_module_buffer(field.key).to_ascii_lowercase();
        (name, copy_module_buffer(field.value))
    });
    fields.collect()
}

#[export_name = "envoy_dynamic_module_callback_http_filter_config_scheduler_commit"]
unsafe extern "C" fn config_scheduler_commit(scheduler: SchedulerPtr, event: u64) {
    // SAFETY: the function's contract, which is the same.
    unsafe { scheduler_commit(scheduler, event) };
}

#[export_name = "envoy_dynamic_module_callback_http_filter_config_scheduler_delete"]
unsafe extern "C" fn config_scheduler_delete(scheduler: SchedulerPtr) {
    // SAFETY: the function's contract, which is the same.
    unsafe { scheduler_delete(scheduler) };
}

#[export_name = "envoy_dynamic_module_callback_is_validation_mode"]
unsafe extern "C" fn is_validation_mode() -> bool {
    false
}

#[export_name = "envoy_dynamic_module_callback_http_set_dynamic_metadata_string_batch"]
unsafe extern "C" fn set_metadata(
    _stream: FilterPtr,
    _namespace: ModuleBuffer<'_>,
    _entries: *const ModuleHeader<'_>,
    _number: usize,
) {
}

/// Defines no metric: its id remains 0.
#[export_name = "envoy_dynamic_module_callback_http_filter_config_define_counter"]
unsafe extern "C" fn define_counter(
    _config: FilterConfigPtr,
    _name: ModuleBuffer<'_>,
    _labels: *const ModuleBuffer<'_>,
    _number: usize,
    _id: *mut usize,
) -> MetricsResult {
    0
}

/// Defines no metric: its id remains 0.
#[export_name = "envoy_dynamic_module_callback_http_filter_config_define_gauge"]
unsafe extern "C" fn define_gauge(
    _config: FilterConfigPtr,
    _name: ModuleBuffer<'_>,
    _labels: *const ModuleBuffer<'_>,
    _number: usize,
    _id: *mut usize,
) -> MetricsResult {
    0
}

/// Defines no metric: its id remains 0.
#[export_name = "envoy_dynamic_module_callback_http_filter_config_define_histogram"]
unsafe extern "C" fn define_histogram(
    _config: FilterConfigPtr,
    _name: ModuleBuffer<'_>,
    _labels: *const ModuleBuffer<'_>,
    _number: usize,
    _id: *mut usize,
) -> MetricsResult {
    0
}

#[export_name = "envoy_dynamic_module_callback_http_filter_increment_counter"]
unsafe extern "C" fn increment_counter(
    _stream: FilterPtr,
    _id: usize,
    _labels: *const ModuleBuffer<'_>,
    _number: usize,
    _value: u64,
) -> MetricsResult {
    0
}

#[export_name = "envoy_dynamic_module_callback_http_filter_record_histogram_value"]
unsafe extern "C" fn record_value(
    _stream: FilterPtr,
    _id: usize,
    _labels: *const ModuleBuffer<'_>,
    _number: usize,
    _value: u64,
) -> MetricsResult {
    0
}

#[export_name = "envoy_dynamic_module_callback_http_filter_config_set_gauge"]
unsafe extern "C" fn set_gauge(
    _config: FilterConfigPtr,
    _id: usize,
    _labels: *const ModuleBuffer<'_>,
    _number: usize,
    _value: u64,
) -> MetricsResult {
    0
}

/// Asserts that the simulated functions have the types that [`abi`](crate::abi) declares.
macro_rules! have_declared_types {
    ($($simulated:ident: $declared:ident;)*) => {
        $(const _: () = { let _ = [$declared, $simulated]; };)*
    };
}

have_declared_types! {
    log_enabled: envoy_dynamic_module_callback_log_enabled;
    check_log_line: envoy_dynamic_module_callback_log_v2;
    worker_concurrency: envoy_dynamic_module_callback_get_concurrency;
    route_config: envoy_dynamic_module_callback_get_most_specific_route_config;
    cluster_name: envoy_dynamic_module_callback_http_get_cluster_name;
    get_string_attribute: envoy_dynamic_module_callback_http_filter_get_attribute_string;
    get_number_attribute: envoy_dynamic_module_callback_http_filter_get_attribute_int;
    headers_size: envoy_dynamic_module_callback_http_get_headers_size;
    get_headers: envoy_dynamic_module_callback_http_get_headers;
    set_header: envoy_dynamic_module_callback_http_set_header;
    chunks_size: envoy_dynamic_module_callback_http_get_body_chunks_size;
    get_body_chunks: envoy_dynamic_module_callback_http_get_body_chunks;
    received_is_buffered: envoy_dynamic_module_callback_http_received_buffered_request_body;
    append_body: envoy_dynamic_module_callback_http_append_body;
    drain_body: envoy_dynamic_module_callback_http_drain_body;
    buffer_limit: envoy_dynamic_module_callback_http_get_buffer_limit;
    set_buffer_limit: envoy_dynamic_module_callback_http_set_buffer_limit;
    continue_decoding: envoy_dynamic_module_callback_http_filter_continue_decoding;
    continue_encoding: envoy_dynamic_module_callback_http_filter_continue_encoding;
    reset_stream: envoy_dynamic_module_callback_http_filter_reset_stream;
    send_response: envoy_dynamic_module_callback_http_send_response;
    send_response_headers: envoy_dynamic_module_callback_http_send_response_headers;
    send_response_data: envoy_dynamic_module_callback_http_send_response_data;
    scheduler_new: envoy_dynamic_module_callback_http_filter_scheduler_new;
    scheduler_commit: envoy_dynamic_module_callback_http_filter_scheduler_commit;
    scheduler_delete: envoy_dynamic_module_callback_http_filter_scheduler_delete;
    config_scheduler_new: envoy_dynamic_module_callback_http_filter_config_scheduler_new;
    start_http_stream: envoy_dynamic_module_callback_http_filter_config_start_http_stream;
    reset_http_stream: envoy_dynamic_module_callback_http_filter_config_reset_http_stream;
    config_scheduler_commit: envoy_dynamic_module_callback_http_filter_config_scheduler_commit;
    config_scheduler_delete: envoy_dynamic_module_callback_http_filter_config_scheduler_delete;
    is_validation_mode: envoy_dynamic_module_callback_is_validation_mode;
    set_metadata: envoy_dynamic_module_callback_http_set_dynamic_metadata_string_batch;
    define_counter: envoy_dynamic_module_callback_http_filter_config_define_counter;
    define_gauge: envoy_dynamic_module_callback_http_filter_config_define_gauge;
    define_histogram: envoy_dynamic_module_callback_http_filter_config_define_histogram;
    increment_counter: envoy_dynamic_module_callback_http_filter_increment_counter;
    record_value: envoy_dynamic_module_callback_http_filter_record_histogram_value;
    set_gauge: envoy_dynamic_module_callback_http_filter_config_set_gauge;
}
