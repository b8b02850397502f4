//! The subset of Envoy's C ABI for dynamic modules that this module uses, of
//! Envoy 1.40 (`source/extensions/dynamic_modules/abi/abi.h`). The ABI is
//! released, and changes only by additions (envoy #47435).
//!
//! Each type names its counterpart in `abi.h`, where `type_` is short for
//! `envoy_dynamic_module_type_`. A module that is compiled from this file
//! compares layouts and values with a running Envoy (tests/envoy/test_abi.py).
//!
//! Callbacks are called on the thread of the hook, except the callbacks of
//! schedulers, which any thread may call. Envoy calls the hooks of a
//! configuration on the main thread.

#![allow(unsafe_code)] // the C ABI

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

/// ABI version that the module reports to Envoy, which warns if its own version
/// is different.
pub const VERSION: *const c_char = c"v0.2.0".as_ptr();

/// The filter of one stream (`type_http_filter_envoy_ptr`).
pub type FilterPtr = *mut c_void;
/// The configuration of a filter (`type_http_filter_config_envoy_ptr`).
pub type FilterConfigPtr = *mut c_void;
/// Envoy's scheduler, which calls a hook of a filter on the filter's own
/// thread (`type_http_filter_scheduler_module_ptr`, and the same for a
/// configuration).
pub type SchedulerPtr = *mut c_void;
/// The result of a callback for metrics (`type_metrics_result`); 0 is success.
pub type MetricsResult = u32;

/// A slice of bytes that Envoy owns, as its callbacks return it
/// (`type_envoy_buffer`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnvoyBuffer {
    /// First byte; may be NULL if there are none.
    pub ptr: *const u8,
    /// Length in bytes.
    pub length: usize,
}

impl EnvoyBuffer {
    /// An empty buffer.
    pub const NONE: Self = Self {
        ptr: std::ptr::null(),
        length: 0,
    };

    /// Returns the bytes of the buffer.
    ///
    /// # Safety
    /// The bytes are valid and unchanged during `'a`.
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        match self.ptr.is_null() {
            true => &[],
            // SAFETY: the function's contract.
            false => unsafe { std::slice::from_raw_parts(self.ptr, self.length) },
        }
    }
}

/// Bytes that the module owns, borrowed for the time of a call
/// (`type_module_buffer`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleBuffer<'a> {
    ptr: *const u8,
    length: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> ModuleBuffer<'a> {
    /// An absent value.
    pub const NONE: Self = Self {
        ptr: std::ptr::null(),
        length: 0,
        bytes: PhantomData,
    };

    /// Borrows `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            ptr: bytes.as_ptr(),
            length: bytes.len(),
            bytes: PhantomData,
        }
    }
}

/// A header whose name and value the module owns, passed to Envoy's callbacks
/// (`type_module_http_header`, and with the same layout
/// `type_module_key_value_pair`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleHeader<'a> {
    /// Header name.
    pub key: ModuleBuffer<'a>,
    /// Header value.
    pub value: ModuleBuffer<'a>,
}

/// A header whose name and value Envoy owns, passed to the module's hooks
/// (`type_envoy_http_header`).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnvoyHeader {
    /// Header name.
    pub key: EnvoyBuffer,
    /// Header value.
    pub value: EnvoyBuffer,
}

/// The header map of a stream that a callback reads or changes
/// (`type_http_header_type`).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderType {
    /// Request headers.
    Request = 0,
    /// Response headers.
    Response = 2,
    /// Response trailers.
    ResponseTrailers = 3,
}

/// The body buffer of a stream that a callback reads or changes
/// (`type_http_body_type`).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyType {
    /// Bytes of the request body that the hook is called for.
    ReceivedRequest = 0,
    /// Bytes of the request body that Envoy buffers.
    BufferedRequest = 1,
    /// Bytes of the response body that the hook is called for.
    ReceivedResponse = 2,
    /// Bytes of the response body that Envoy buffers.
    BufferedResponse = 3,
}

/// The status that a hook for headers returns to Envoy
/// (`type_on_http_filter_request_headers_status`, and the same for responses).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadersStatus {
    /// Continue with the next filter.
    Continue = 0,
    /// Stop the headers; the body is passed to this filter.
    StopIteration = 1,
}

/// The status that a hook for a body returns to Envoy
/// (`type_on_http_filter_request_body_status`, and the same for responses).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStatus {
    /// Continue with the next filter.
    Continue = 0,
    /// Buffer the bytes; a body above the buffer limit is an error.
    StopIterationAndBuffer = 1,
    /// Stop without buffering the bytes.
    StopIterationNoBuffer = 3,
}

/// The status that a hook for trailers returns to Envoy
/// (`type_on_http_filter_request_trailers_status`, and the same for responses).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrailersStatus {
    /// Continue with the next filter.
    Continue = 0,
    /// Stop the trailers.
    StopIteration = 1,
}

/// The status that the hook for a local reply returns to Envoy
/// (`type_on_http_filter_local_reply_status`).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalReplyHookStatus {
    /// Send the local reply.
    Continue = 0,
}

/// The result of starting a callout (`type_http_callout_init_result`). Envoy may return any of its
/// values, so all of them are here.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalloutInitResult {
    /// The callout is in flight.
    Success = 0,
    /// The request head lacks a required header.
    MissingRequiredHeaders = 1,
    /// The cluster does not exist.
    ClusterNotFound = 2,
    /// A callout with this id exists.
    DuplicateCalloutId = 3,
    /// The request cannot be created, or its upstream is not available.
    CannotCreateRequest = 4,
}

/// The level of a line in Envoy's log (`type_log_level`).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Events of normal operation.
    Info = 2,
    /// Conditions that an operator should examine.
    Warn = 3,
    /// Failures.
    Error = 4,
}

/// An attribute of a request that a callback reads: its route, cluster, protocol or connection
/// (`type_attribute_id`).
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamAttribute {
    /// `request.protocol`.
    RequestProtocol = 10,
    /// `destination.port`.
    DestinationPort = 27,
    /// `connection.id`.
    ConnectionId = 28,
    /// `xds.xds_route_name`.
    XdsRouteName = 61,
}

extern "C" {
    /// Writes a line to the log, under `dynamic_modules`.
    pub fn envoy_dynamic_module_callback_log_v2(
        level: LogLevel,
        message: ModuleBuffer<'_>,
        file: ModuleBuffer<'_>,
        line: u32,
    );
    /// Returns whether lines of that level are logged.
    pub fn envoy_dynamic_module_callback_log_enabled(level: LogLevel) -> bool;
    /// Returns whether Envoy only validates its configuration.
    pub fn envoy_dynamic_module_callback_is_validation_mode() -> bool;
    /// Returns the number of worker threads.
    pub fn envoy_dynamic_module_callback_get_concurrency() -> u32;

    /// Returns the number of headers.
    pub fn envoy_dynamic_module_callback_http_get_headers_size(
        filter: FilterPtr,
        kind: HeaderType,
    ) -> usize;
    /// Writes the headers to `fields`, which has room for all of them. They are
    /// valid until the hook returns or a header is changed.
    pub fn envoy_dynamic_module_callback_http_get_headers(
        filter: FilterPtr,
        kind: HeaderType,
        fields: *mut EnvoyHeader,
    ) -> bool;
    /// Sets a header to one line; without a value the header is removed.
    pub fn envoy_dynamic_module_callback_http_set_header(
        filter: FilterPtr,
        kind: HeaderType,
        name: ModuleBuffer<'_>,
        value: ModuleBuffer<'_>,
    ) -> bool;

    /// Returns the number of slices of the body buffer.
    pub fn envoy_dynamic_module_callback_http_get_body_chunks_size(
        filter: FilterPtr,
        kind: BodyType,
    ) -> usize;
    /// Writes the slices to `chunks`, which has room for all of them. They are
    /// valid until the hook returns or the body is changed.
    pub fn envoy_dynamic_module_callback_http_get_body_chunks(
        filter: FilterPtr,
        kind: BodyType,
        chunks: *mut EnvoyBuffer,
    ) -> bool;
    /// Returns, within a hook for a body, whether the received bytes are the
    /// buffered bytes, because a filter before this one buffered them.
    pub fn envoy_dynamic_module_callback_http_received_buffered_request_body(
        filter: FilterPtr,
    ) -> bool;
    /// Appends a copy of the bytes to the body buffer.
    pub fn envoy_dynamic_module_callback_http_append_body(
        filter: FilterPtr,
        kind: BodyType,
        bytes: ModuleBuffer<'_>,
    ) -> bool;
    /// Removes bytes from the start of the body buffer.
    pub fn envoy_dynamic_module_callback_http_drain_body(
        filter: FilterPtr,
        kind: BodyType,
        number: usize,
    ) -> bool;
    /// Returns the buffer limit of the stream, in bytes.
    pub fn envoy_dynamic_module_callback_http_get_buffer_limit(filter: FilterPtr) -> u64;
    /// Sets the buffer limit of the stream.
    pub fn envoy_dynamic_module_callback_http_set_buffer_limit(filter: FilterPtr, bytes: u64);

    /// Sends a local reply through the filters. The hooks of this filter are
    /// not called for it.
    pub fn envoy_dynamic_module_callback_http_send_response(
        filter: FilterPtr,
        status: u32,
        headers: *const ModuleHeader<'_>,
        number: usize,
        body: ModuleBuffer<'_>,
        details: ModuleBuffer<'_>,
    );
    /// Starts a response; `:status` is the first of its headers.
    pub fn envoy_dynamic_module_callback_http_send_response_headers(
        filter: FilterPtr,
        headers: *const ModuleHeader<'_>,
        number: usize,
        is_all: bool,
    );
    /// Continues the response with a piece of its body.
    pub fn envoy_dynamic_module_callback_http_send_response_data(
        filter: FilterPtr,
        bytes: ModuleBuffer<'_>,
        is_last: bool,
    );
    /// Resumes a stopped request.
    pub fn envoy_dynamic_module_callback_http_filter_continue_decoding(filter: FilterPtr);
    /// Resumes a stopped response.
    pub fn envoy_dynamic_module_callback_http_filter_continue_encoding(filter: FilterPtr);
    /// Resets the stream.
    pub fn envoy_dynamic_module_callback_http_filter_reset_stream(
        filter: FilterPtr,
        reason: u32,
        details: ModuleBuffer<'_>,
    );

    /// Creates the scheduler of this filter.
    pub fn envoy_dynamic_module_callback_http_filter_scheduler_new(
        filter: FilterPtr,
    ) -> SchedulerPtr;
    /// Schedules a call of the filter's hook `scheduled` on its thread. No call
    /// follows if the filter is gone.
    pub fn envoy_dynamic_module_callback_http_filter_scheduler_commit(
        scheduler: SchedulerPtr,
        event: u64,
    );
    /// Deletes the scheduler.
    pub fn envoy_dynamic_module_callback_http_filter_scheduler_delete(scheduler: SchedulerPtr);

    /// Starts a callout. Its hooks report the result, none of them before this
    /// function returns. The callout follows no redirects and has no route
    /// settings. After `ms` milliseconds Envoy resets it, or responds 504 if
    /// there was no response yet; 0: no timeout.
    pub fn envoy_dynamic_module_callback_http_filter_config_start_http_stream(
        config: FilterConfigPtr,
        id: *mut u64,
        cluster: ModuleBuffer<'_>,
        headers: *const ModuleHeader<'_>,
        number: usize,
        body: ModuleBuffer<'_>,
        is_all: bool,
        ms: u64,
    ) -> CalloutInitResult;
    /// Resets the callout, if it is still in flight. Its hook for a reset is
    /// called.
    pub fn envoy_dynamic_module_callback_http_filter_config_reset_http_stream(
        config: FilterConfigPtr,
        id: u64,
    );

    /// Returns the route's configuration, or NULL.
    pub fn envoy_dynamic_module_callback_get_most_specific_route_config(
        filter: FilterPtr,
    ) -> *const c_void;
    /// Writes the name of the route's cluster.
    pub fn envoy_dynamic_module_callback_http_get_cluster_name(
        filter: FilterPtr,
        name: *mut EnvoyBuffer,
    ) -> bool;
    /// Writes an attribute that is a string. It is valid as long as the route.
    pub fn envoy_dynamic_module_callback_http_filter_get_attribute_string(
        filter: FilterPtr,
        attribute: StreamAttribute,
        value: *mut EnvoyBuffer,
    ) -> bool;
    /// Writes an attribute that is a number.
    pub fn envoy_dynamic_module_callback_http_filter_get_attribute_int(
        filter: FilterPtr,
        attribute: StreamAttribute,
        value: *mut u64,
    ) -> bool;
    /// Sets the names and values that access logs read as
    /// `%DYNAMIC_METADATA(NAMESPACE:KEY)%`.
    pub fn envoy_dynamic_module_callback_http_set_dynamic_metadata_string_batch(
        filter: FilterPtr,
        namespace: ModuleBuffer<'_>,
        entries: *const ModuleHeader<'_>,
        number: usize,
    );

    /// Defines a counter while the filter's configuration is read, and writes
    /// its id, from 1 on. Each count adds the values of its labels, if there
    /// are any.
    pub fn envoy_dynamic_module_callback_http_filter_config_define_counter(
        config: FilterConfigPtr,
        name: ModuleBuffer<'_>,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        id: *mut usize,
    ) -> MetricsResult;
    /// Defines a gauge; its id and labels are like a counter's.
    pub fn envoy_dynamic_module_callback_http_filter_config_define_gauge(
        config: FilterConfigPtr,
        name: ModuleBuffer<'_>,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        id: *mut usize,
    ) -> MetricsResult;
    /// Defines a histogram; its id and labels are like a counter's.
    pub fn envoy_dynamic_module_callback_http_filter_config_define_histogram(
        config: FilterConfigPtr,
        name: ModuleBuffer<'_>,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        id: *mut usize,
    ) -> MetricsResult;
    /// Adds `value` to a counter.
    pub fn envoy_dynamic_module_callback_http_filter_increment_counter(
        filter: FilterPtr,
        id: usize,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        value: u64,
    ) -> MetricsResult;
    /// Records a value in a histogram.
    pub fn envoy_dynamic_module_callback_http_filter_record_histogram_value(
        filter: FilterPtr,
        id: usize,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        value: u64,
    ) -> MetricsResult;
    /// Sets a gauge. On the main thread only.
    pub fn envoy_dynamic_module_callback_http_filter_config_set_gauge(
        config: FilterConfigPtr,
        id: usize,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        value: u64,
    ) -> MetricsResult;

    /// Creates the scheduler of the filter's configuration, for the main
    /// thread.
    pub fn envoy_dynamic_module_callback_http_filter_config_scheduler_new(
        config: FilterConfigPtr,
    ) -> SchedulerPtr;
    /// Schedules a call of the hook `config_scheduled` on the main thread. No
    /// call follows if the configuration is gone.
    pub fn envoy_dynamic_module_callback_http_filter_config_scheduler_commit(
        scheduler: SchedulerPtr,
        event: u64,
    );
    /// Deletes the scheduler.
    pub fn envoy_dynamic_module_callback_http_filter_config_scheduler_delete(
        scheduler: SchedulerPtr,
    );
}
