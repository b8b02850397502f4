//! A dynamic module of the tests, compiled with the module's own `abi.rs`: it records what a
//! running Envoy returns for the types and values that are declared there.
//!
//! The request's head and the first piece of its body are stopped, until the last piece arrives.
//! It buffers the first piece of a response, and drops later pieces.

#![allow(clippy::missing_safety_doc)]

#[allow(dead_code)]
#[path = "../../envoy-filter/native/src/abi.rs"]
mod abi;

use std::ffi::{c_char, c_void};
use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;

use abi::*;

/// Appends a line to the file that the test reads.
fn record(name: &str, value: impl Display) {
    let path = std::env::var_os("SSZIP_PROBE").expect("the test sets it");
    let file = OpenOptions::new().create(true).append(true).open(path);
    let line = format!("{name}={value}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .expect("the file can be written");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the value of a header that occurs once.
fn header(stream: FilterPtr, kind: HeaderType, name: &str) -> String {
    let empty = EnvoyHeader {
        key: EnvoyBuffer::NONE,
        value: EnvoyBuffer::NONE,
    };
    // SAFETY: within a hook; there is room for all headers.
    unsafe {
        let number = envoy_dynamic_module_callback_http_get_headers_size(stream, kind);
        let mut all = vec![empty; number];
        envoy_dynamic_module_callback_http_get_headers(stream, kind, all.as_mut_ptr());
        let found = all
            .iter()
            .find(|header| header.key.as_slice() == name.as_bytes());
        found.map_or("none".into(), |header| text(header.value.as_slice()))
    }
}

fn body(stream: FilterPtr, kind: BodyType) -> String {
    // SAFETY: within a hook; there is room for all slices.
    unsafe {
        let number = envoy_dynamic_module_callback_http_get_body_chunks_size(stream, kind);
        let mut all = vec![EnvoyBuffer::NONE; number];
        if number > 0 {
            envoy_dynamic_module_callback_http_get_body_chunks(stream, kind, all.as_mut_ptr());
        }
        all.iter().map(|slice| text(slice.as_slice())).collect()
    }
}

fn attribute(stream: FilterPtr, attribute: StreamAttribute) -> String {
    let mut value = EnvoyBuffer::NONE;
    // SAFETY: within a hook.
    unsafe {
        envoy_dynamic_module_callback_http_filter_get_attribute_string(
            stream,
            attribute,
            &raw mut value,
        );
        text(value.as_slice())
    }
}

fn number(stream: FilterPtr, attribute: StreamAttribute) -> u64 {
    let mut value = 0;
    // SAFETY: within a hook.
    unsafe {
        envoy_dynamic_module_callback_http_filter_get_attribute_int(
            stream,
            attribute,
            &raw mut value,
        )
    };
    value
}

fn start_callout(config: FilterConfigPtr, cluster: &str, with_headers: bool) -> CalloutInitResult {
    let lines = [
        (":method", "GET"),
        (":path", "/callout"),
        (":authority", "probe"),
    ];
    let headers = lines.map(|(key, value)| ModuleHeader {
        key: ModuleBuffer::new(key.as_bytes()),
        value: ModuleBuffer::new(value.as_bytes()),
    });
    let mut id = 0;
    // SAFETY: within a hook; the headers are valid during the call.
    unsafe {
        envoy_dynamic_module_callback_http_filter_config_start_http_stream(
            config,
            &raw mut id,
            ModuleBuffer::new(cluster.as_bytes()),
            headers.as_ptr(),
            if with_headers { headers.len() } else { 0 },
            ModuleBuffer::new(b""),
            true,
            1000,
        )
    }
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    VERSION
}

#[no_mangle]
pub unsafe extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    envoy: FilterConfigPtr,
    name: EnvoyBuffer,
    config: EnvoyBuffer,
) -> *const c_void {
    record("filter name", text(name.as_slice()));
    record("filter config", text(config.as_slice()));
    for (level, line) in [
        (LogLevel::Info, "info"),
        (LogLevel::Warn, "warn"),
        (LogLevel::Error, "error"),
    ] {
        let line = format!("probe logs {line}");
        envoy_dynamic_module_callback_log_v2(
            level,
            ModuleBuffer::new(line.as_bytes()),
            ModuleBuffer::NONE,
            0,
        );
    }
    let scheduler = envoy_dynamic_module_callback_http_filter_config_scheduler_new(envoy);
    envoy_dynamic_module_callback_http_filter_config_scheduler_commit(scheduler, 7);
    1 as *const c_void
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_config_scheduled(
    envoy: FilterConfigPtr,
    _config: *const c_void,
    event: u64,
) {
    record("event", event);
    record(
        "callout to no cluster",
        format!("{:?}", start_callout(envoy, "elsewhere", true)),
    );
    record(
        "callout without headers",
        format!("{:?}", start_callout(envoy, "probed", false)),
    );
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(_config: *mut c_void) {}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_new(
    _config: *const c_void,
    _stream: FilterPtr,
) -> *const c_void {
    1 as *const c_void
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_destroy(_filter: *const c_void) {}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    stream: FilterPtr,
    _filter: *const c_void,
    is_all: bool,
) -> HeadersStatus {
    record("request path", header(stream, HeaderType::Request, ":path"));
    record("protocol", attribute(stream, StreamAttribute::RequestProtocol));
    record("route", attribute(stream, StreamAttribute::XdsRouteName));
    record("port", number(stream, StreamAttribute::DestinationPort));
    record(
        "has connection",
        number(stream, StreamAttribute::ConnectionId) > 0,
    );
    if is_all {
        return HeadersStatus::Continue;
    }
    HeadersStatus::StopIteration
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    stream: FilterPtr,
    _filter: *const c_void,
    is_last: bool,
) -> BodyStatus {
    let (buffered, received) = (
        body(stream, BodyType::BufferedRequest),
        body(stream, BodyType::ReceivedRequest),
    );
    record("request body", format!("{buffered}+{received}"));
    match is_last {
        true => BodyStatus::Continue,
        false => BodyStatus::StopIterationAndBuffer,
    }
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(
    _stream: FilterPtr,
    _filter: *const c_void,
) -> TrailersStatus {
    TrailersStatus::Continue
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    stream: FilterPtr,
    _filter: *const c_void,
    _is_all: bool,
) -> HeadersStatus {
    record(
        "response status",
        header(stream, HeaderType::Response, ":status"),
    );
    let (name, value) = (ModuleBuffer::new(b"probe"), ModuleBuffer::new(b"set"));
    // SAFETY: within a hook.
    unsafe {
        envoy_dynamic_module_callback_http_set_header(stream, HeaderType::Response, name, value)
    };
    HeadersStatus::StopIteration
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    stream: FilterPtr,
    _filter: *const c_void,
    _is_last: bool,
) -> BodyStatus {
    let (buffered, received) = (
        body(stream, BodyType::BufferedResponse),
        body(stream, BodyType::ReceivedResponse),
    );
    record("response body", format!("{buffered}+{received}"));
    match buffered.is_empty() {
        true => BodyStatus::StopIterationAndBuffer,
        false => BodyStatus::StopIterationNoBuffer,
    }
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    stream: FilterPtr,
    _filter: *const c_void,
) -> TrailersStatus {
    record(
        "response trailer",
        header(stream, HeaderType::ResponseTrailers, "trailer-of-node"),
    );
    record(
        "response buffered",
        body(stream, BodyType::BufferedResponse),
    );
    TrailersStatus::Continue
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    _stream: FilterPtr,
    _filter: *const c_void,
) {
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
    _stream: FilterPtr,
    _filter: *const c_void,
    _event: u64,
) {
}

#[no_mangle]
pub extern "C" fn envoy_dynamic_module_on_http_filter_http_callout_done(
    _stream: FilterPtr,
    _filter: *const c_void,
    _id: u64,
    _result: u32,
    _headers: *const EnvoyHeader,
    _number: usize,
    _body: *const EnvoyBuffer,
    _pieces: usize,
) {
}

macro_rules! unused_hooks {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(#[no_mangle]
        pub extern "C" fn $name(_stream: FilterPtr, _filter: *const c_void, $($argument: $type),*) {})*
    };
}

unused_hooks! {
    envoy_dynamic_module_on_http_filter_http_stream_headers(
        _id: u64, _headers: *const EnvoyHeader, _number: usize, _is_all: bool
    );
    envoy_dynamic_module_on_http_filter_http_stream_data(
        _id: u64, _body: *const EnvoyBuffer, _pieces: usize, _is_last: bool
    );
    envoy_dynamic_module_on_http_filter_http_stream_trailers(
        _id: u64, _headers: *const EnvoyHeader, _number: usize
    );
    envoy_dynamic_module_on_http_filter_http_stream_complete(_id: u64);
    envoy_dynamic_module_on_http_filter_http_stream_reset(_id: u64, _reason: u32);
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark();
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark();
}
