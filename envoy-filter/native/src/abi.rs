//! The part of Envoy's C ABI for dynamic modules that this module uses, as of
//! Envoy 1.40 (`source/extensions/dynamic_modules/abi/abi.h`). It is released,
//! and changes only by additions (envoy #47435).
//!
//! All callbacks are called on the thread that the hook came on, but those of
//! schedulers, which any thread may call. Hooks of a configuration come on the main
//! thread.

#![allow(unsafe_code)] // it is C's

use std::ffi::{c_char, c_void};
use std::marker::PhantomData;

/// What Envoy is told the module was written for; it warns if that is another
/// one than its own.
pub const VERSION: *const c_char = c"v0.2.0".as_ptr();

/// `DynamicModuleHttpFilter`, of a stream.
pub type FilterPtr = *mut c_void;
/// `DynamicModuleHttpFilterConfig`.
pub type FilterConfigPtr = *mut c_void;
/// What tells a filter something on its own thread.
pub type SchedulerPtr = *mut c_void;
/// `envoy_dynamic_module_type_metrics_result`; 0: it is done.
pub type MetricsResult = u32;

/// Bytes that Envoy owns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnvoyBuffer {
    /// May be NULL when there are none.
    pub ptr: *const u8,
    /// In bytes.
    pub length: usize,
}

impl EnvoyBuffer {
    /// None.
    pub const NONE: Self = Self {
        ptr: std::ptr::null(),
        length: 0,
    };

    /// The bytes.
    ///
    /// # Safety
    /// They are there as long as `'a`, and nobody changes them.
    pub unsafe fn bytes<'a>(self) -> &'a [u8] {
        match self.ptr.is_null() {
            true => &[],
            // SAFETY: the function's contract.
            false => unsafe { std::slice::from_raw_parts(self.ptr, self.length) },
        }
    }
}

/// Bytes of the module's, for the time of a call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleBuffer<'a> {
    ptr: *const u8,
    length: usize,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> ModuleBuffer<'a> {
    /// No value at all.
    pub const NONE: Self = Self {
        ptr: std::ptr::null(),
        length: 0,
        bytes: PhantomData,
    };

    /// These.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            ptr: bytes.as_ptr(),
            length: bytes.len(),
            bytes: PhantomData,
        }
    }
}

/// A header field of the module's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ModuleHeader<'a> {
    /// Its name.
    pub key: ModuleBuffer<'a>,
    /// Its value.
    pub value: ModuleBuffer<'a>,
}

/// A header field of Envoy's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EnvoyHeader {
    /// Its name.
    pub key: EnvoyBuffer,
    /// Its value.
    pub value: EnvoyBuffer,
}

/// Which header fields.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderType {
    /// Of the request.
    Request = 0,
    /// Of the response.
    Response = 2,
    /// After the response's body.
    ResponseTrailers = 3,
}

/// Which bytes of a body.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyType {
    /// Those the hook is called for, of the request.
    ReceivedRequest = 0,
    /// Those that are kept, of the request.
    BufferedRequest = 1,
    /// Those the hook is called for, of the response.
    ReceivedResponse = 2,
    /// Those that are kept, of the response.
    BufferedResponse = 3,
}

/// How a stream goes on after a hook for its headers.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadersStatus {
    /// To the next filter.
    Continue = 0,
    /// They wait; the body comes to this filter.
    StopIteration = 1,
    /// Everything waits.
    StopAllIterationAndBuffer = 3,
}

/// How a stream goes on after a hook for its body.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyStatus {
    /// To the next filter.
    Continue = 0,
    /// It is kept, and what comes to more than the limit is an error.
    StopIterationAndBuffer = 1,
    /// It is not kept.
    StopIterationNoBuffer = 3,
}

/// How a stream goes on after a hook for its trailers.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrailersStatus {
    /// To the next filter.
    Continue = 0,
    /// They wait.
    StopIteration = 1,
}

/// What becomes of a reply of Envoy's own.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalReplyStatus {
    /// It is sent.
    Continue = 0,
}

/// What becomes of a request of ours.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalloutResult {
    /// It is under way.
    Success = 0,
    /// There was no room for it, or its node can't be asked.
    CannotCreateRequest = 1,
    /// There is no such cluster.
    ClusterNotFound = 2,
    /// Its head lacks something.
    MissingRequiredHeaders = 3,
    /// There is another one of that number.
    DuplicateCalloutId = 4,
}

/// Of a line of the log.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// For who looks into it.
    Debug = 1,
    /// What is worth a line.
    Info = 2,
    /// What an operator should look at.
    Warn = 3,
    /// What does not work.
    Error = 4,
}

/// An attribute of a request.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// `request.protocol`.
    RequestProtocol = 10,
    /// `destination.port`.
    DestinationPort = 27,
    /// `connection.id`.
    ConnectionId = 28,
    /// `xds.route_name`.
    XdsRouteName = 61,
}

macro_rules! callbacks {
    ($($(#[$doc:meta])* $name:ident: fn($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        extern "C" {
            $($(#[$doc])* pub fn $name($($argument: $type),*) $(-> $result)?;)*
        }

        /// Without Envoy there is what is simulated; the rest says nothing.
        #[cfg(any(test, feature = "simulated"))]
        mod without_envoy {
            #![allow(unused_variables, improper_ctypes_definitions)]
            use super::*;

            $(#[no_mangle]
            extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                if let Some(simulated) = crate::simulated::of(stringify!($name)) {
                    type Simulated = extern "C" fn($($type),*) $(-> $result)?;
                    // SAFETY: it is of this type.
                    let simulated = unsafe { std::mem::transmute::<*const (), Simulated>(simulated) };
                    return simulated($($argument),*);
                }
                // SAFETY: numbers, false and NULL.
                $(unsafe { std::mem::zeroed::<$result>() })?
            })*
        }
    };
}

callbacks! {
    /// Writes a line to the log, under `dynamic_modules`.
    envoy_dynamic_module_callback_log_v2: fn(
        level: LogLevel, message: ModuleBuffer<'_>, file: ModuleBuffer<'_>, line: u32
    );
    /// Whether that level is logged.
    envoy_dynamic_module_callback_log_enabled: fn(level: LogLevel) -> bool;
    /// Whether Envoy only checks its configuration.
    envoy_dynamic_module_callback_is_validation_mode: fn() -> bool;
    /// How many workers there are.
    envoy_dynamic_module_callback_get_concurrency: fn() -> u32;

    /// How many fields there are.
    envoy_dynamic_module_callback_http_get_headers_size: fn(
        filter: FilterPtr, kind: HeaderType
    ) -> usize;
    /// Writes them to `fields`, which has room for all of them. They are there
    /// until the hook returns or one of them is changed.
    envoy_dynamic_module_callback_http_get_headers: fn(
        filter: FilterPtr, kind: HeaderType, fields: *mut EnvoyHeader
    ) -> bool;
    /// One line more of a field; none with an empty value.
    envoy_dynamic_module_callback_http_add_header: fn(
        filter: FilterPtr, kind: HeaderType, name: ModuleBuffer<'_>, value: ModuleBuffer<'_>
    ) -> bool;
    /// The only line of a field; without a value it is removed.
    envoy_dynamic_module_callback_http_set_header: fn(
        filter: FilterPtr, kind: HeaderType, name: ModuleBuffer<'_>, value: ModuleBuffer<'_>
    ) -> bool;

    /// In how many pieces the bytes are.
    envoy_dynamic_module_callback_http_get_body_chunks_size: fn(
        filter: FilterPtr, kind: BodyType
    ) -> usize;
    /// Writes the pieces to `chunks`, which has room for all of them. They are
    /// there until the hook returns or the body is changed.
    envoy_dynamic_module_callback_http_get_body_chunks: fn(
        filter: FilterPtr, kind: BodyType, chunks: *mut EnvoyBuffer
    ) -> bool;
    /// How many bytes there are.
    envoy_dynamic_module_callback_http_get_body_size: fn(
        filter: FilterPtr, kind: BodyType
    ) -> usize;
    /// Within a hook for a body: whether the bytes that it is called for are those that
    /// are kept, since a filter before this one has kept them.
    envoy_dynamic_module_callback_http_received_buffered_request_body: fn(
        filter: FilterPtr
    ) -> bool;
    /// Copies bytes to the end.
    envoy_dynamic_module_callback_http_append_body: fn(
        filter: FilterPtr, kind: BodyType, bytes: ModuleBuffer<'_>
    ) -> bool;
    /// Takes bytes from the start.
    envoy_dynamic_module_callback_http_drain_body: fn(
        filter: FilterPtr, kind: BodyType, number: usize
    ) -> bool;
    /// How many bytes may be kept of a body.
    envoy_dynamic_module_callback_http_get_buffer_limit: fn(filter: FilterPtr) -> u64;
    /// Sets that.
    envoy_dynamic_module_callback_http_set_buffer_limit: fn(filter: FilterPtr, bytes: u64);

    /// Answers with this, through the filters. Its hooks are not called for it.
    envoy_dynamic_module_callback_http_send_response: fn(
        filter: FilterPtr,
        status: u32,
        headers: *const ModuleHeader<'_>,
        number: usize,
        body: ModuleBuffer<'_>,
        details: ModuleBuffer<'_>
    );
    /// Begins an answer; `:status` is the first of its headers.
    envoy_dynamic_module_callback_http_send_response_headers: fn(
        filter: FilterPtr, headers: *const ModuleHeader<'_>, number: usize, is_all: bool
    );
    /// Goes on with it.
    envoy_dynamic_module_callback_http_send_response_data: fn(
        filter: FilterPtr, bytes: ModuleBuffer<'_>, is_last: bool
    );
    /// Goes on with a request that waits.
    envoy_dynamic_module_callback_http_filter_continue_decoding: fn(filter: FilterPtr);
    /// Goes on with a response that waits.
    envoy_dynamic_module_callback_http_filter_continue_encoding: fn(filter: FilterPtr);
    /// Breaks the stream off.
    envoy_dynamic_module_callback_http_filter_reset_stream: fn(
        filter: FilterPtr, reason: u32, details: ModuleBuffer<'_>
    );

    /// What tells this filter something.
    envoy_dynamic_module_callback_http_filter_scheduler_new: fn(
        filter: FilterPtr
    ) -> SchedulerPtr;
    /// Has the filter's hook `scheduled` called on its thread, if it is there still.
    envoy_dynamic_module_callback_http_filter_scheduler_commit: fn(
        scheduler: SchedulerPtr, event: u64
    );
    /// Done with it.
    envoy_dynamic_module_callback_http_filter_scheduler_delete: fn(scheduler: SchedulerPtr);
    /// The number of the worker whose stream it is.
    envoy_dynamic_module_callback_http_filter_get_worker_index: fn(filter: FilterPtr) -> u32;

    /// Makes a request of ours; what comes of it its hooks say, but none of them before
    /// this returns. No redirection, and no route's settings. After `ms` it is broken
    /// off, or answered 504 if there was no answer; 0: never.
    envoy_dynamic_module_callback_http_filter_config_start_http_stream: fn(
        config: FilterConfigPtr,
        id: *mut u64,
        cluster: ModuleBuffer<'_>,
        headers: *const ModuleHeader<'_>,
        number: usize,
        body: ModuleBuffer<'_>,
        is_all: bool,
        ms: u64
    ) -> CalloutResult;
    /// Breaks it off, if it is there still. Its hook for that is called.
    envoy_dynamic_module_callback_http_filter_config_reset_http_stream: fn(
        config: FilterConfigPtr, id: u64
    );

    /// The configuration of the route, or NULL.
    envoy_dynamic_module_callback_get_most_specific_route_config: fn(
        filter: FilterPtr
    ) -> *const c_void;
    /// The name of the cluster that the route goes to.
    envoy_dynamic_module_callback_http_get_cluster_name: fn(
        filter: FilterPtr, name: *mut EnvoyBuffer
    ) -> bool;
    /// An attribute that is a text. It is there as long as the route.
    envoy_dynamic_module_callback_http_filter_get_attribute_string: fn(
        filter: FilterPtr, attribute: Attribute, value: *mut EnvoyBuffer
    ) -> bool;
    /// An attribute that is a number.
    envoy_dynamic_module_callback_http_filter_get_attribute_int: fn(
        filter: FilterPtr, attribute: Attribute, value: *mut u64
    ) -> bool;
    /// What access logs have as `%DYNAMIC_METADATA(NAMESPACE:KEY)%`: names and texts.
    envoy_dynamic_module_callback_http_set_dynamic_metadata_string_batch: fn(
        filter: FilterPtr,
        namespace: ModuleBuffer<'_>,
        entries: *const ModuleHeader<'_>,
        number: usize
    );

    /// Makes a counter, when the filter's configuration is read, and says its number, from
    /// 1 on. Labels, if there are any, get a value with each count.
    envoy_dynamic_module_callback_http_filter_config_define_counter: fn(
        config: FilterConfigPtr,
        name: ModuleBuffer<'_>,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        id: *mut usize
    ) -> MetricsResult;
    /// The same, of a gauge.
    envoy_dynamic_module_callback_http_filter_config_define_gauge: fn(
        config: FilterConfigPtr,
        name: ModuleBuffer<'_>,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        id: *mut usize
    ) -> MetricsResult;
    /// The same, of a histogram.
    envoy_dynamic_module_callback_http_filter_config_define_histogram: fn(
        config: FilterConfigPtr,
        name: ModuleBuffer<'_>,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        id: *mut usize
    ) -> MetricsResult;
    /// So much more.
    envoy_dynamic_module_callback_http_filter_increment_counter: fn(
        filter: FilterPtr, id: usize, labels: *const ModuleBuffer<'_>, number: usize, value: u64
    ) -> MetricsResult;
    /// One value more.
    envoy_dynamic_module_callback_http_filter_record_histogram_value: fn(
        filter: FilterPtr, id: usize, labels: *const ModuleBuffer<'_>, number: usize, value: u64
    ) -> MetricsResult;
    /// What there is now. On the main thread.
    envoy_dynamic_module_callback_http_filter_config_set_gauge: fn(
        config: FilterConfigPtr,
        id: usize,
        labels: *const ModuleBuffer<'_>,
        number: usize,
        value: u64
    ) -> MetricsResult;

    /// What tells the filter's configuration something, on the main thread.
    envoy_dynamic_module_callback_http_filter_config_scheduler_new: fn(
        config: FilterConfigPtr
    ) -> SchedulerPtr;
    /// Has its hook `config_scheduled` called there, if it is there still.
    envoy_dynamic_module_callback_http_filter_config_scheduler_commit: fn(
        scheduler: SchedulerPtr, event: u64
    );
    /// Done with it.
    envoy_dynamic_module_callback_http_filter_config_scheduler_delete: fn(
        scheduler: SchedulerPtr
    );
}

/// The layout and the numbers of the header (`abi.h` of Envoy 1.40), by its names without
/// `envoy_dynamic_module_type_`. A change here by mistake fails here, and not in Envoy.
#[cfg(test)]
mod layout {
    use super::*;
    use std::mem::{align_of, offset_of, size_of};

    #[test]
    fn structs_lie_as_the_header_has_them() {
        // envoy_buffer, module_buffer: { const char* ptr; size_t length; }
        assert_eq!(
            (size_of::<EnvoyBuffer>(), align_of::<EnvoyBuffer>()),
            (16, 8)
        );
        assert_eq!(offset_of!(EnvoyBuffer, ptr), 0);
        assert_eq!(offset_of!(EnvoyBuffer, length), 8);
        assert_eq!(
            (
                size_of::<ModuleBuffer<'_>>(),
                align_of::<ModuleBuffer<'_>>()
            ),
            (16, 8)
        );
        assert_eq!(offset_of!(ModuleBuffer<'_>, ptr), 0);
        assert_eq!(offset_of!(ModuleBuffer<'_>, length), 8);
        // envoy_http_header, module_http_header: { const char* key_ptr; size_t key_length;
        // const char* value_ptr; size_t value_length; }. module_key_value_pair is two
        // module_buffer, which is the same.
        assert_eq!(
            (size_of::<EnvoyHeader>(), align_of::<EnvoyHeader>()),
            (32, 8)
        );
        assert_eq!(offset_of!(EnvoyHeader, key), 0);
        assert_eq!(offset_of!(EnvoyHeader, value), 16);
        assert_eq!(
            (
                size_of::<ModuleHeader<'_>>(),
                align_of::<ModuleHeader<'_>>()
            ),
            (32, 8)
        );
        assert_eq!(offset_of!(ModuleHeader<'_>, key), 0);
        assert_eq!(offset_of!(ModuleHeader<'_>, value), 16);
        // opaque pointers
        assert_eq!(
            [size_of::<FilterPtr>(), size_of::<FilterConfigPtr>()],
            [8, 8]
        );
        assert_eq!(size_of::<SchedulerPtr>(), 8);
    }

    #[test]
    fn enums_are_unsigned_ints() {
        assert_eq!(size_of::<HeaderType>(), 4);
        assert_eq!(size_of::<BodyType>(), 4);
        assert_eq!(size_of::<HeadersStatus>(), 4);
        assert_eq!(size_of::<BodyStatus>(), 4);
        assert_eq!(size_of::<TrailersStatus>(), 4);
        assert_eq!(size_of::<LocalReplyStatus>(), 4);
        assert_eq!(size_of::<LogLevel>(), 4);
        assert_eq!(size_of::<Attribute>(), 4);
        assert_eq!(size_of::<MetricsResult>(), 4);
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        // http_header_type: RequestHeader, RequestTrailer, ResponseHeader, ResponseTrailer
        assert_eq!(
            [HeaderType::Request as u32, HeaderType::Response as u32],
            [0, 2]
        );
        // http_body_type: ReceivedRequestBody, BufferedRequestBody, ReceivedResponseBody,
        // BufferedResponseBody
        assert_eq!(BodyType::ReceivedRequest as u32, 0);
        assert_eq!(BodyType::BufferedRequest as u32, 1);
        assert_eq!(BodyType::ReceivedResponse as u32, 2);
        assert_eq!(BodyType::BufferedResponse as u32, 3);
        // on_http_filter_request_headers_status, ..._response_headers_status: Continue,
        // StopIteration, ContinueAndDontEndStream, StopAllIterationAndBuffer,
        // StopAllIterationAndWatermark
        assert_eq!(HeadersStatus::Continue as u32, 0);
        assert_eq!(HeadersStatus::StopIteration as u32, 1);
        assert_eq!(HeadersStatus::StopAllIterationAndBuffer as u32, 3);
        // on_http_filter_request_body_status, ..._response_body_status: Continue,
        // StopIterationAndBuffer, StopIterationAndWatermark, StopIterationNoBuffer
        assert_eq!(BodyStatus::Continue as u32, 0);
        assert_eq!(BodyStatus::StopIterationAndBuffer as u32, 1);
        assert_eq!(BodyStatus::StopIterationNoBuffer as u32, 3);
        // on_http_filter_request_trailers_status, ..._response_trailers_status: Continue,
        // StopIteration
        assert_eq!(
            [
                TrailersStatus::Continue as u32,
                TrailersStatus::StopIteration as u32
            ],
            [0, 1]
        );
        // on_http_filter_local_reply_status: Continue, ContinueAndResetStream
        assert_eq!(LocalReplyStatus::Continue as u32, 0);
        // log_level: Trace, Debug, Info, Warn, Error, Critical, Off
        assert_eq!([LogLevel::Debug as u32, LogLevel::Info as u32], [1, 2]);
        assert_eq!([LogLevel::Warn as u32, LogLevel::Error as u32], [3, 4]);
        // attribute_id: request.path is 0, and destination.port the 28th after source.port;
        // xds.route_name follows xds.listener_metadata
        assert_eq!(
            [
                Attribute::DestinationPort as u32,
                Attribute::XdsRouteName as u32
            ],
            [27, 61]
        );
    }
}
