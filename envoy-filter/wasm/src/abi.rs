//! Bindings of the proxy's functions (proxy-wasm 0.2.1, and two functions of
//! WASI). The SDK's own functions end the sandbox if the proxy reports an
//! error, and copy each header; the filter uses them only for calls that the
//! SDK must know of.

#![allow(unsafe_code)] // the proxy's functions are foreign

use std::cell::Cell;
use std::ptr::null_mut;

use proxy_wasm::types::{BufferType, MapType};
use sszip_core::exchange::Header;
use sszip_core::memory;
use sszip_envoy_carrier::head::{EnvoyHeaderMap, HostMessageHead};
use sszip_envoy_carrier::response::HookTimestamps;

#[link(wasm_import_module = "env")]
extern "C" {
    fn proxy_log(level: u32, text: *const u8, length: usize) -> u32;
    fn proxy_get_buffer_bytes(
        kind: BufferType,
        start: usize,
        most: usize,
        bytes: *mut *mut u8,
        length: *mut usize,
    ) -> u32;
    fn proxy_set_buffer_bytes(
        kind: BufferType,
        start: usize,
        replaced: usize,
        bytes: *const u8,
        length: usize,
    ) -> u32;
    fn proxy_get_header_map_pairs(kind: MapType, pairs: *mut *mut u8, length: *mut usize) -> u32;
    fn proxy_get_header_map_size(kind: MapType, size: *mut usize) -> u32;
    fn proxy_replace_header_map_value(
        kind: MapType,
        name: *const u8,
        name_length: usize,
        value: *const u8,
        length: usize,
    ) -> u32;
    fn proxy_remove_header_map_value(kind: MapType, name: *const u8, length: usize) -> u32;
    fn proxy_get_property(
        path: *const u8,
        path_length: usize,
        value: *mut *mut u8,
        length: *mut usize,
    ) -> u32;
    fn proxy_set_property(
        path: *const u8,
        path_length: usize,
        value: *const u8,
        length: usize,
    ) -> u32;
    fn proxy_continue_stream(side: u32) -> u32;
    fn proxy_close_stream(side: u32) -> u32;
    fn proxy_send_local_response(
        status: u32,
        details: *const u8,
        details_length: usize,
        body: *const u8,
        body_length: usize,
        pairs: *const u8,
        pairs_length: usize,
        grpc_status: i32,
    ) -> u32;
    fn proxy_call_foreign_function(
        name: *const u8,
        name_length: usize,
        arguments: *const u8,
        length: usize,
        results: *mut *mut u8,
        results_length: *mut usize,
    ) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_length: usize,
        value: *mut *mut u8,
        length: *mut usize,
        version: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(
        key: *const u8,
        key_length: usize,
        value: *const u8,
        length: usize,
        version: u32,
    ) -> u32;
    fn proxy_register_shared_queue(name: *const u8, length: usize, queue: *mut u32) -> u32;
    fn proxy_enqueue_shared_queue(queue: u32, value: *const u8, length: usize) -> u32;
    fn proxy_dequeue_shared_queue(queue: u32, value: *mut *mut u8, length: *mut usize) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_set_tick_period_milliseconds(period: u32) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, length: usize, metric: *mut u32) -> u32;
    fn proxy_increment_metric(metric: u32, by: i64) -> u32;
    fn proxy_record_metric(metric: u32, value: u64) -> u32;
}

extern "C" {
    /// Defined by the SDK, for the proxy.
    fn proxy_on_queue_ready(context: u32, queue: u32);
}

#[link(wasm_import_module = "wasi_snapshot_preview1")]
extern "C" {
    fn clock_time_get(clock: u32, precision: u64, time: *mut u64) -> u32;
    fn random_get(bytes: *mut u8, length: usize) -> u32;
}

const STATUS_OK: u32 = 0;
const NOT_FOUND: u32 = 1;
const CAS_MISMATCH: u32 = 8;
const REALTIME: u32 = 0;
const MONOTONIC: u32 = 1;
/// The direction of a stream, request or response, as proxy-wasm numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDirection {
    Request = 0,
    Response = 1,
}

/// The level of a log line, as proxy-wasm numbers it.
#[derive(Clone, Copy, Debug)]
pub enum LogLevel {
    Info = 2,
    Warn = 3,
    Error = 4,
}

/// The type of a metric, as proxy-wasm numbers it.
#[derive(Clone, Copy, Debug)]
pub enum MetricType {
    Counter = 0,
    Gauge = 1,
    Histogram = 2,
}

/// Takes ownership of bytes that the proxy wrote into memory from the SDK's
/// allocator.
///
/// # Safety
/// `bytes` is NULL or points at `length` bytes of the proxy's last result,
/// which nothing else owns.
unsafe fn take_allocation(bytes: *mut u8, length: usize) -> Vec<u8> {
    match bytes.is_null() || length == 0 {
        true => Vec::new(),
        // SAFETY: the function's contract; the allocation has exactly this
        // length.
        false => unsafe { Vec::from_raw_parts(bytes, length, length) },
    }
}

/// Writes a line to the proxy's log.
pub fn write_proxy_log(level: LogLevel, text: &str) {
    let text = sszip_core::log::escape_log_text(text);
    // SAFETY: the pointer and the length are a string's.
    unsafe { proxy_log(level as u32, text.as_ptr(), text.len()) };
}

thread_local! {
    /// Time of the present call of the proxy in milliseconds of the monotonic clock; 0: the clock
    /// was not read yet.
    static CALL_TIME: Cell<u64> = const { Cell::new(0) };
}

/// Returns the time of the present call of the proxy, in milliseconds of the machine's monotonic
/// clock, which is read once.
pub fn monotonic_ms() -> u64 {
    let known = CALL_TIME.get();
    if known != 0 {
        return known;
    }
    let now = read_clock(MONOTONIC) / 1_000_000;
    CALL_TIME.set(now);
    now
}

/// Forgets the time, so that the clock is read again: a call of the proxy begins, or a job has run.
pub fn expire_call_time() {
    CALL_TIME.set(0);
}

/// Reads the system clock, in seconds since 1970.
pub fn unix_seconds() -> u64 {
    read_clock(REALTIME) / 1_000_000_000
}

/// Reads the monotonic and the system clock.
pub fn read_host_clocks() -> HookTimestamps {
    HookTimestamps {
        monotonic: monotonic_ms(),
        wall: unix_seconds(),
    }
}

fn read_clock(clock: u32) -> u64 {
    let mut time = 0;
    // SAFETY: `time` points at memory of its type.
    unsafe { clock_time_get(clock, 0, &raw mut time) };
    time
}

/// Returns a random name that no other sandbox has.
pub fn unique_wasm_sandbox_name() -> String {
    let (first, second) = (random_number(), random_number());
    format!("w-{:x}-{first:x}{second:016x}", read_clock(REALTIME))
}

/// Returns 64 random bits of the host, or 0 if the host has none.
pub fn random_number() -> u64 {
    let mut random = [0; 8];
    // SAFETY: the pointer and the length are the array's.
    unsafe { random_get(random.as_mut_ptr(), random.len()) };
    u64::from_ne_bytes(random)
}

/// Calls `on_queue_ready` of a root context within a call of one of its streams, as the proxy would
/// call it: the SDK then attributes callouts to the root. Without that, they would end with the
/// stream.
pub fn call_root_context(root: u32) {
    // SAFETY: the function is the SDK's, which looks the context up by its number. It borrows the
    // table of root contexts, which nothing borrows in a call of a stream.
    unsafe { proxy_on_queue_ready(root, 0) };
}

/// The result of reading shared data of the proxy, which all sandboxes read and write.
pub enum SharedDataValue {
    Present(Vec<u8>, u32),
    Absent,
    /// The proxy does not support shared values.
    Unsupported,
}

/// Reads the shared data of the proxy under a key, with the version for a later write.
pub fn read_proxy_shared_data(key: &str) -> SharedDataValue {
    let (mut value, mut length, mut version) = (null_mut(), 0, 0);
    // SAFETY: the key is a string's, and the results point at memory of their
    // types.
    let status = unsafe {
        proxy_get_shared_data(
            key.as_ptr(),
            key.len(),
            &raw mut value,
            &raw mut length,
            &raw mut version,
        )
    };
    match status {
        // SAFETY: the proxy allocated the value for this call.
        STATUS_OK => SharedDataValue::Present(unsafe { take_allocation(value, length) }, version),
        NOT_FOUND => SharedDataValue::Absent,
        _ => SharedDataValue::Unsupported,
    }
}

/// Writes the shared data of the proxy under a key. `Some(false)`: the value has another version
/// than `version` (any version but 0 sets an absent value). `None`: the proxy does not support
/// shared data.
pub fn write_proxy_shared_data(key: &str, value: &[u8], version: u32) -> Option<bool> {
    // SAFETY: each pointer and length belong to one slice.
    let status = unsafe {
        proxy_set_shared_data(
            key.as_ptr(),
            key.len(),
            value.as_ptr(),
            value.len(),
            version,
        )
    };
    match status {
        STATUS_OK => Some(true),
        CAS_MISMATCH => Some(false),
        _ => None,
    }
}

/// Registers a queue of the effective root context under a name that no other has, and returns its
/// number. Returns `None` if the proxy has no queues.
pub fn register_root_queue(name: &str) -> Option<u32> {
    let mut queue = 0;
    // SAFETY: the name is a string's, and the result points at memory of its type.
    let status = unsafe { proxy_register_shared_queue(name.as_ptr(), name.len(), &raw mut queue) };
    (status == STATUS_OK).then_some(queue)
}

/// Appends an empty value to a queue: the proxy calls its root context after the present call.
pub fn post_to_root_queue(queue: u32) -> bool {
    // SAFETY: the value is empty.
    unsafe { proxy_enqueue_shared_queue(queue, "".as_ptr(), 0) == STATUS_OK }
}

/// Removes the next value of a queue.
pub fn take_root_queue_post(queue: u32) {
    let (mut value, mut length) = (null_mut(), 0);
    // SAFETY: the results point at memory of their types.
    let status = unsafe { proxy_dequeue_shared_queue(queue, &raw mut value, &raw mut length) };
    if status == STATUS_OK {
        // SAFETY: the proxy allocated the value for this call.
        drop(unsafe { take_allocation(value, length) });
    }
}

/// Makes a context the one to which the following calls of the proxy apply.
pub fn set_effective_proxy_context(context: u32) -> bool {
    // SAFETY: the argument is a number.
    unsafe { proxy_set_effective_context(context) == STATUS_OK }
}

/// Sets the timer of the context's root to call it every `milliseconds`; 0: never.
pub fn set_root_tick_period(milliseconds: u64) {
    let period = u32::try_from(milliseconds).unwrap_or(u32::MAX);
    // SAFETY: the argument is a number.
    unsafe { proxy_set_tick_period_milliseconds(period) };
}

/// Copies at most `most` bytes from the start of a buffer; `None`: memory is
/// exhausted. The memory is tested first, because the proxy allocates through
/// the SDK, which ends the sandbox if the allocation fails.
pub fn copy_buffer(kind: BufferType, most: usize) -> Option<Vec<u8>> {
    if !memory::can_allocate_now(most) {
        return None;
    }
    let (mut bytes, mut length) = (null_mut(), 0);
    // SAFETY: the results point at memory of their types; the proxy allocated
    // the bytes for this call.
    unsafe {
        match proxy_get_buffer_bytes(kind, 0, most, &raw mut bytes, &raw mut length) {
            STATUS_OK => Some(take_allocation(bytes, length)),
            _ => Some(Vec::new()),
        }
    }
}

/// Replaces all bytes of a buffer. Returns whether the buffer exists.
pub fn replace_buffer(kind: BufferType, bytes: &[u8]) -> bool {
    // SAFETY: the pointer and the length are a slice's.
    unsafe { proxy_set_buffer_bytes(kind, 0, usize::MAX, bytes.as_ptr(), bytes.len()) == STATUS_OK }
}

/// Inserts bytes at the start of a buffer. Returns whether the buffer exists.
pub fn prepend_to_buffer(kind: BufferType, bytes: &[u8]) -> bool {
    // SAFETY: the pointer and the length are a slice's.
    unsafe { proxy_set_buffer_bytes(kind, 0, 0, bytes.as_ptr(), bytes.len()) == STATUS_OK }
}

/// A message head as the proxy serialized it, pseudo-headers included.
#[derive(Debug, Default)]
pub struct SerializedMessageHead(Vec<u8>);

impl SerializedMessageHead {
    /// Copies the headers that the proxy has now; empty: it has none.
    pub fn from_proxy(kind: MapType) -> Self {
        let (mut pairs, mut length) = (null_mut(), 0);
        // SAFETY: the results point at memory of their types; the proxy
        // allocated the bytes for this call.
        unsafe {
            match proxy_get_header_map_pairs(kind, &raw mut pairs, &raw mut length) {
                STATUS_OK => Self(take_allocation(pairs, length)),
                _ => Self::default(),
            }
        }
    }
}

/// Returns the number of bytes of all names and values of a head, pseudo-headers included. `None`:
/// the proxy has no such head.
pub fn header_map_bytes(kind: MapType) -> Option<usize> {
    let mut size = 0;
    // SAFETY: the result points at memory of its type.
    let status = unsafe { proxy_get_header_map_size(kind, &raw mut size) };
    (status == STATUS_OK).then_some(size)
}

impl HostMessageHead for SerializedMessageHead {
    fn iter_headers(&self) -> impl Iterator<Item = Header<'_>> + Clone {
        let (number, sizes) = read_u32(&self.0).unwrap_or((0, &[]));
        let (sizes, texts) = sizes.split_at_checked(number * 8).unwrap_or((&[], &[]));
        SerializedHeaderIter { sizes, texts }
    }
}

/// An iterator over the headers of a [`SerializedMessageHead`]. The proxy serializes the number of headers, the
/// lengths of each name and value, and then the names and values, each followed by a zero.
#[derive(Clone, Debug)]
struct SerializedHeaderIter<'a> {
    sizes: &'a [u8],
    texts: &'a [u8],
}

impl<'a> Iterator for SerializedHeaderIter<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        let (name, sizes) = read_u32(self.sizes)?;
        let (value, sizes) = read_u32(sizes)?;
        self.sizes = sizes;
        Some((self.take_header_text(name)?, self.take_header_text(value)?))
    }
}

impl<'a> SerializedHeaderIter<'a> {
    /// Takes `length` bytes and the NUL after them. `None`: the proxy's text is too short.
    fn take_header_text(&mut self, length: usize) -> Option<&'a [u8]> {
        let (text, rest) = self.texts.split_at_checked(length)?;
        self.texts = rest.get(1..)?;
        Some(text)
    }
}

/// Reads a little-endian number, and returns it with the bytes after it.
fn read_u32(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*number) as usize, rest))
}

/// Returns the headers in the proxy-wasm format: their number, all lengths, and the texts with a
/// NUL each.
fn serialize_headers<'a>(fields: impl Iterator<Item = Header<'a>> + Clone) -> Vec<u8> {
    let (mut count, mut texts) = (0, 0);
    for (name, value) in fields.clone() {
        count += 1;
        texts += name.len() + value.len() + 2;
    }
    let mut pairs = Vec::with_capacity(4 + 8 * count + texts);
    let number = |pairs: &mut Vec<u8>, number: usize| {
        pairs.extend_from_slice(&(number as u32).to_le_bytes());
    };
    number(&mut pairs, count);
    for (name, value) in fields.clone() {
        number(&mut pairs, name.len());
        number(&mut pairs, value.len());
    }
    for text in fields.flat_map(|(name, value)| [name, value]) {
        pairs.extend_from_slice(text);
        pairs.push(0);
    }
    pairs
}

/// The header map of a message of the effective context, as the carrier reads and changes it.
#[derive(Clone, Copy)]
pub struct WasmContextHeaderMap(pub MapType);

impl EnvoyHeaderMap for WasmContextHeaderMap {
    type Head = SerializedMessageHead;

    fn copy_headers(&self) -> SerializedMessageHead {
        SerializedMessageHead::from_proxy(self.0)
    }

    fn set_header(&self, name: &str, value: Option<&[u8]>) {
        let (text, length) = (name.as_ptr(), name.len());
        // SAFETY: each pointer and length belong to one slice.
        unsafe {
            match value {
                Some(value) => {
                    let (value, size) = (value.as_ptr(), value.len());
                    proxy_replace_header_map_value(self.0, text, length, value, size)
                }
                None => proxy_remove_header_map_value(self.0, text, length),
            }
        };
    }
}

/// Returns the property of a path, whose segments are separated by zeros;
/// empty: it has none.
pub fn proxy_property(path: &str) -> Vec<u8> {
    let (mut value, mut length) = (null_mut(), 0);
    let (path, size) = (path.as_ptr(), path.len());
    // SAFETY: the results point at memory of their types; the proxy allocated
    // the bytes for this call.
    unsafe {
        match proxy_get_property(path, size, &raw mut value, &raw mut length) {
            STATUS_OK => take_allocation(value, length),
            _ => Vec::new(),
        }
    }
}

/// Returns the value of a property that is a number; 0: it has none.
pub fn numeric_property(path: &str) -> u64 {
    let value = proxy_property(path);
    value
        .first_chunk::<8>()
        .map_or(0, |value| u64::from_le_bytes(*value))
}

/// Sets a property of the stream, which access logs print.
pub fn set_log_property(name: &str, value: &[u8]) {
    let (path, size) = (name.as_ptr(), name.len());
    // SAFETY: each pointer and length belong to one slice.
    unsafe { proxy_set_property(path, size, value.as_ptr(), value.len()) };
}

/// Property with the name of the cluster to which the route forwards requests.
pub const CLUSTER_PROPERTY: &str = "xds\0cluster_name";

/// Property that stays with a request when the proxy continues it in a new
/// stream.
pub const REQUEST_PROPERTY: &str = "sszip.request";

/// Declares the request property to the proxy: Envoy's `DeclarePropertyArguments` with the name (1)
/// and the life span (5), which is the downstream request (1).
pub fn declare_request_property() {
    const FUNCTION: &str = "declare_property";
    let mut arguments = vec![1 << 3 | 2, REQUEST_PROPERTY.len() as u8];
    arguments.extend_from_slice(REQUEST_PROPERTY.as_bytes());
    arguments.extend_from_slice(&[5 << 3, 1]);
    let (mut results, mut length) = (null_mut(), 0);
    // SAFETY: each pointer and length belong to one slice; the proxy
    // allocated the result for this call.
    unsafe {
        let done = proxy_call_foreign_function(
            FUNCTION.as_ptr(),
            FUNCTION.len(),
            arguments.as_ptr(),
            arguments.len(),
            &raw mut results,
            &raw mut length,
        );
        if done == STATUS_OK {
            drop(take_allocation(results, length));
        }
    }
}

/// Resumes the stopped stream of the effective context after this call.
pub fn resume_stream(side: StreamDirection) {
    // SAFETY: the argument is a number.
    unsafe { proxy_continue_stream(side as u32) };
}

/// Resets the stream of the effective context.
pub fn reset_stream() {
    // SAFETY: the argument is a number.
    unsafe { proxy_close_stream(StreamDirection::Response as u32) };
}

/// Sends a local response after this call, in place of any other. `details` is
/// for access logs.
pub fn send_local_response<'a>(
    status: u16,
    fields: impl Iterator<Item = Header<'a>> + Clone,
    body: &[u8],
    details: &str,
) {
    const NO_GRPC: i32 = -1;
    let pairs = serialize_headers(fields);
    // SAFETY: each pointer and length belong to one slice.
    unsafe {
        proxy_send_local_response(
            u32::from(status),
            details.as_ptr(),
            details.len(),
            body.as_ptr(),
            body.len(),
            pairs.as_ptr(),
            pairs.len(),
            NO_GRPC,
        )
    };
}

/// Defines a metric and returns its id; `None`: the proxy refused.
pub fn define_metric(kind: MetricType, name: &str) -> Option<u32> {
    let mut metric = 0;
    let (text, length) = (name.as_ptr(), name.len());
    // SAFETY: the name is a string's, and `metric` points at memory of its
    // type.
    let defined = unsafe { proxy_define_metric(kind as u32, text, length, &raw mut metric) };
    (defined == STATUS_OK).then_some(metric)
}

/// Adds `by` to the counter with the id `metric`.
pub fn increment_counter(metric: u32, by: u64) {
    let by = i64::try_from(by).unwrap_or(i64::MAX);
    if by > 0 {
        // SAFETY: the arguments are numbers.
        unsafe { proxy_increment_metric(metric, by) };
    }
}

/// Adds a positive or negative number to the gauge with the id `metric`.
pub fn add_to_gauge(metric: u32, by: i64) {
    if by != 0 {
        // SAFETY: the arguments are numbers.
        unsafe { proxy_increment_metric(metric, by) };
    }
}

/// Records a value in the histogram with the id `metric`.
pub fn record_histogram(metric: u32, value: u64) {
    // SAFETY: the arguments are numbers.
    unsafe { proxy_record_metric(metric, value) };
}
