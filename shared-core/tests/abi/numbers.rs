//! Enumerations and struct sizes of the C ABI are checked as numbers: a host that was built with
//! another header receives a status, and the call has no effect.

use std::mem::{offset_of, zeroed};
use std::ptr::{null, null_mut};

use rustix::mm::{mmap_anonymous, mprotect, munmap, MapFlags, MprotectFlags, ProtFlags};
use sszip_core::ffi::sszip_status::*;
use sszip_core::ffi::*;
use sszip_core::log_variable::LogVariable;

fn text(text: &'static str) -> sszip_str {
    sszip_str {
        data: text.as_ptr(),
        len: text.len(),
    }
}

/// A host in Rust that calls the C ABI: a route with a cache, and exchanges on it.
struct Host {
    plan: *mut sszip_validated_config,
    config: *const sszip_config,
    exchanges: Vec<*mut sszip_exchange>,
}

fn plan() -> *mut sszip_validated_config {
    let mut plan = null_mut();
    // SAFETY: the pointer is valid.
    let made = unsafe { sszip_validated_config_new(text(""), text(""), &mut plan) };
    assert_eq!(made, SSZIP_STATUS_OK);
    plan
}

/// Returns a directive with the value `on`.
fn directive(name: &'static str) -> sszip_directive {
    sszip_directive {
        size: size_of::<sszip_directive>(),
        name: text(name),
        values: Box::leak(Box::new(text("on"))),
        nvalues: 1,
        file: text("f"),
        line: 1,
    }
}

fn place() -> sszip_route {
    // SAFETY: all zeros are a valid value.
    sszip_route {
        size: size_of::<sszip_route>(),
        ..unsafe { zeroed() }
    }
}

impl Host {
    fn new() -> Self {
        let (plan, mut block, mut message) = (plan(), 0, text(""));
        // SAFETY: all pointers are valid.
        let rules = unsafe {
            for name in ["sszip", "sszip_cache"] {
                let set =
                    sszip_validated_config_set(plan, &mut block, &directive(name), &mut message);
                assert_eq!(set, SSZIP_STATUS_OK);
            }
            let mut rules = zeroed::<sszip_route_settings>();
            let added = sszip_validated_config_add_route(
                plan,
                &mut block,
                0,
                &place(),
                &mut rules,
                &mut message,
            );
            assert_eq!(added, SSZIP_STATUS_OK);
            assert_eq!(sszip_validated_config_start(plan, 1), SSZIP_STATUS_OK);
            rules
        };
        Self {
            plan,
            config: rules.config,
            exchanges: Vec::new(),
        }
    }

    /// Creates an exchange without a request head.
    fn new_exchange(&mut self) -> *mut sszip_exchange {
        let mut exchange = null_mut();
        // SAFETY: the configuration is freed last.
        let made = unsafe { sszip_exchange_new(self.config, &mut exchange) };
        assert_eq!(made, SSZIP_STATUS_OK);
        self.exchanges.push(exchange);
        exchange
    }

    /// Creates an exchange with a request head.
    fn exchange_with_request_head(&mut self) -> *mut sszip_exchange {
        let exchange = self.new_exchange();
        // SAFETY: both are valid.
        let taken = unsafe { sszip_exchange_request_head(exchange, &request()) };
        assert_eq!(taken, SSZIP_STATUS_OK);
        exchange
    }

    /// Creates an exchange whose body is streamed.
    fn streaming_exchange(&mut self) -> *mut sszip_exchange {
        let exchange = self.exchange_with_request_head();
        let mut step = unset_step();
        let head = sszip_response_head {
            unbuffered: true,
            ..response()
        };
        // SAFETY: all are valid.
        let taken = unsafe { sszip_exchange_response_head(exchange, &head, &mut step) };
        assert_eq!(taken, SSZIP_STATUS_OK);
        assert_eq!(step.action, sszip_action::SSZIP_ACTION_STREAM);
        exchange
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for exchange in self.exchanges.drain(..) {
            // SAFETY: made above, and not freed.
            unsafe { sszip_exchange_free(exchange) };
        }
        // SAFETY: the plan was made above, and not freed.
        unsafe { sszip_validated_config_free(self.plan) };
    }
}

/// Leaks an array of headers, which lives as long as the test.
fn fields<const N: usize>(fields: [(&'static str, &'static str); N]) -> *const sszip_header {
    let fields = fields.map(|(name, value)| sszip_header {
        name: text(name),
        value: text(value),
    });
    Box::leak(Box::new(fields)).as_ptr()
}

fn request() -> sszip_request_head {
    sszip_request_head {
        size: size_of::<sszip_request_head>(),
        method: text("POST"),
        target: text("/"),
        fields: fields([
            ("Content-Type", "application/json"),
            ("Accept-Encoding", "gzip"),
        ]),
        nfields: 2,
    }
}

fn response() -> sszip_response_head {
    sszip_response_head {
        size: size_of::<sszip_response_head>(),
        fields: fields([("Content-Type", "application/json")]),
        nfields: 1,
        content_length: -1,
        now: 0,
        status: 200,
        delimited: true,
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
    }
}

/// Returns a step that no call reports, as an initial value.
fn unset_step() -> sszip_step {
    sszip_step {
        action: sszip_action::SSZIP_ACTION_WAIT,
        job: null_mut(),
        reason: null(),
    }
}

fn lookup_request() -> sszip_lookup_request {
    // SAFETY: all zeros are a valid value.
    let nothing: sszip_lookup_request = unsafe { zeroed() };
    sszip_lookup_request {
        size: size_of::<sszip_lookup_request>(),
        body_state: 0,
        body: text(r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}"#),
        ..nothing
    }
}

/// Returns numbers that no enumeration of `most` values has, some with a valid lowest byte.
fn unknown_numbers(most: u32) -> impl Iterator<Item = u32> {
    [most, most + 1, 0x100, 0x101, 0x1_0000, 0x7FFF_FFFF]
        .into_iter()
        .chain([0x8000_0000, u32::MAX - 1, u32::MAX])
}

#[test]
fn stream_refuses_an_unknown_flush() {
    let mut host = Host::new();
    let exchange = host.streaming_exchange();
    let mut output = [0; 1024];
    let mut stream = |flush| {
        let mut progress = sszip_progress {
            consumed: 77,
            written: 77,
            complete: false,
        };
        // SAFETY: all pointers are valid, and the output has that length.
        let status = unsafe {
            sszip_exchange_stream(
                exchange,
                text("[1]"),
                flush,
                output.as_mut_ptr(),
                output.len(),
                &mut progress,
            )
        };
        (status, progress.consumed)
    };
    for number in unknown_numbers(3) {
        assert_eq!(stream(number), (SSZIP_STATUS_MISUSE, 77), "{number}");
    }
    // the state of the stream is unchanged
    for flush in [
        sszip_flush::SSZIP_FLUSH_NONE,
        sszip_flush::SSZIP_FLUSH_SYNC,
        sszip_flush::SSZIP_FLUSH_FINISH,
    ] {
        assert_eq!(stream(flush as u32), (SSZIP_STATUS_OK, 3));
    }
}

#[test]
fn failure_functions_refuse_an_unknown_failure() {
    let mut host = Host::new();
    let exchange = host.exchange_with_request_head();
    for function in [
        sszip_exchange_upstream_failed,
        sszip_exchange_would_serve_stale,
    ] {
        let fails = |number| {
            let mut serves_stale = true;
            // SAFETY: both are valid.
            let status = unsafe { function(exchange, number, 502, 0, &mut serves_stale) };
            (status, serves_stale)
        };
        for number in unknown_numbers(5) {
            assert_eq!(fails(number), (SSZIP_STATUS_MISUSE, true), "{number}");
        }
        for failure in [
            sszip_failure::SSZIP_FAILURE_STATUS,
            sszip_failure::SSZIP_FAILURE_ERROR,
            sszip_failure::SSZIP_FAILURE_TIMEOUT,
            sszip_failure::SSZIP_FAILURE_INVALID_HEADER,
            sszip_failure::SSZIP_FAILURE_CONNECT,
        ] {
            assert_eq!(fails(failure as u32), (SSZIP_STATUS_OK, false));
        }
    }
}

#[test]
fn lookup_refuses_an_unknown_kind_of_body() {
    let mut host = Host::new();
    let exchange = host.exchange_with_request_head();
    let look_up = |number| {
        let lookup = sszip_lookup_request {
            body_state: number,
            ..lookup_request()
        };
        let mut step = unset_step();
        // SAFETY: all are valid.
        unsafe { sszip_exchange_lookup(exchange, &lookup, &mut step) }
    };
    for number in unknown_numbers(3) {
        assert_eq!(look_up(number), SSZIP_STATUS_MISUSE, "{number}");
    }
    let unread = sszip_request_body::SSZIP_BODY_AWAITS_CONTINUE;
    assert_eq!(look_up(unread as u32), SSZIP_STATUS_OK);
}

#[test]
fn link_refuses_an_unknown_connection_result() {
    for number in unknown_numbers(3) {
        let status = sszip_link_connected(number, 0);
        assert_eq!(status, SSZIP_STATUS_MISUSE, "{number}");
    }
    for opened in [
        sszip_connect_result::SSZIP_CONNECT_OPEN,
        sszip_connect_result::SSZIP_CONNECT_FAILED,
        sszip_connect_result::SSZIP_CONNECT_REFUSED,
    ] {
        assert_eq!(sszip_link_connected(opened as u32, 0), SSZIP_STATUS_OK);
    }
}

#[test]
fn unknown_variable_number_has_no_name() {
    for number in (0..=99).chain([usize::MAX]) {
        let name = sszip_variable_name(number);
        let is_one = number < LogVariable::ALL.len();
        assert_eq!(name.data.is_null(), !is_one, "{number}");
        assert_eq!(name.len == 0, !is_one, "{number}");
    }
}

/// The first `length` bytes of a struct, followed by memory that cannot be read.
struct TruncatedStruct {
    pages: *mut u8,
    length: usize,
}

const PAGE: usize = 64 << 10;

impl TruncatedStruct {
    fn new<T>(whole: &T, length: usize) -> Self {
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the pages are new; the second is made inaccessible, and the bytes fit into the
        // first.
        unsafe {
            let pages = mmap_anonymous(null_mut(), 2 * PAGE, access, kind).unwrap();
            let pages = pages.cast::<u8>();
            mprotect(pages.add(PAGE).cast(), PAGE, MprotectFlags::empty()).unwrap();
            let start = pages.add(PAGE - length);
            start.copy_from_nonoverlapping(std::ptr::from_ref(whole).cast(), length);
            Self { pages, length }
        }
    }

    fn pointer<T>(&self) -> *const T {
        self.pages.wrapping_add(PAGE - self.length).cast()
    }
}

impl Drop for TruncatedStruct {
    fn drop(&mut self) {
        // SAFETY: mapped above, and not borrowed.
        unsafe { munmap(self.pages.cast(), 2 * PAGE).unwrap() };
    }
}

/// Runs `call` with sizes that the struct does not have, set by `sized`.
fn other_sizes<T>(sized: impl Fn(usize) -> T, mut call: impl FnMut(*const T) -> sszip_status) {
    let own = size_of::<T>();
    for size in [0, 1, 7, own - 1, own + 1, own + 8, 2 * own, usize::MAX] {
        assert_eq!(call(&sized(size)), SSZIP_STATUS_MISUSE, "{size}");
    }
    // the struct of an older host ends earlier, at the end of the readable memory
    for size in (8..own).step_by(8) {
        let short = TruncatedStruct::new(&sized(size), size);
        assert_eq!(call(short.pointer()), SSZIP_STATUS_MISUSE, "{size}");
    }
    assert_eq!(call(null()), SSZIP_STATUS_NULL);
    assert_eq!(call(&sized(own)), SSZIP_STATUS_OK);
}

#[test]
fn struct_size_is_the_first_member() {
    assert_eq!(offset_of!(sszip_request_head, size), 0);
    assert_eq!(offset_of!(sszip_response_head, size), 0);
    assert_eq!(offset_of!(sszip_lookup_request, size), 0);
    assert_eq!(offset_of!(sszip_directive, size), 0);
    assert_eq!(offset_of!(sszip_route, size), 0);
}

#[test]
fn directive_and_route_of_another_size_are_refused() {
    let (plan, mut block, mut message) = (plan(), 0, text(""));
    other_sizes(
        |size| sszip_directive {
            size,
            ..directive("sszip")
        },
        // SAFETY: valid for its declared size.
        |directive| unsafe {
            sszip_validated_config_set(plan, &mut block, directive, &mut message)
        },
    );
    other_sizes(
        |size| sszip_route { size, ..place() },
        // SAFETY: valid for its declared size.
        |place| unsafe {
            let mut rules = zeroed::<sszip_route_settings>();
            sszip_validated_config_add_route(plan, &mut block, 0, place, &mut rules, &mut message)
        },
    );
    // SAFETY: made above.
    unsafe { sszip_validated_config_free(plan) };
}

#[test]
fn request_head_of_another_size_is_refused() {
    let mut host = Host::new();
    let exchange = host.new_exchange();
    other_sizes(
        |size| sszip_request_head { size, ..request() },
        // SAFETY: valid for its declared size.
        |head| unsafe { sszip_exchange_request_head(exchange, head) },
    );
}

#[test]
fn lookup_request_of_another_size_is_refused() {
    let mut host = Host::new();
    let exchange = host.exchange_with_request_head();
    other_sizes(
        |size| sszip_lookup_request {
            size,
            ..lookup_request()
        },
        |lookup| {
            let mut step = unset_step();
            // SAFETY: valid for its declared size.
            let status = unsafe { sszip_exchange_lookup(exchange, lookup, &mut step) };
            let is_forward = step.action == sszip_action::SSZIP_ACTION_FORWARD;
            assert_eq!(is_forward, status == SSZIP_STATUS_OK);
            status
        },
    );
}

#[test]
fn response_head_of_another_size_is_refused() {
    let mut host = Host::new();
    let exchange = host.exchange_with_request_head();
    let sized = |size| sszip_response_head { size, ..response() };
    other_sizes(sized, |head| {
        let mut replaced = true;
        // SAFETY: valid for its declared size.
        let status = unsafe { sszip_exchange_upstream_head(exchange, head, 0, 0, &mut replaced) };
        assert_eq!(replaced, status != SSZIP_STATUS_OK);
        status
    });
    other_sizes(sized, |head| {
        let mut step = unset_step();
        // SAFETY: valid for its declared size.
        let status = unsafe { sszip_exchange_response_head(exchange, head, &mut step) };
        let is_buffered = step.action == sszip_action::SSZIP_ACTION_BUFFER;
        assert_eq!(is_buffered, status == SSZIP_STATUS_OK);
        status
    });
}
