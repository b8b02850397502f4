//! Heads of responses, and the step that follows them.

use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::exchange::{Header, HostMisuse, ResponseHead};

use crate::head::{EnvoyHeaderMap, HostMessageHead};

/// Header that a route may add with the value `%UPSTREAM_PROTOCOL%`, since Envoy does not report
/// the upstream's protocol to filters. The filter removes it.
const UPSTREAM_PROTOCOL: &str = "sszip-upstream-protocol";

/// The head of a response as the upstream sent it, or Envoy for a local reply.
#[derive(Clone, Debug)]
pub struct ReceivedResponseHead<Head> {
    /// The head without the header of the upstream's protocol.
    pub head: Head,
    /// Whether the end of the body is distinguishable from an abort.
    is_delimited: bool,
}

/// The time of one hook, by the host's two clocks.
#[derive(Clone, Copy, Debug)]
pub struct HookTimestamps {
    /// Milliseconds of the monotonic clock.
    pub monotonic: u64,
    /// Seconds since 1970.
    pub wall: u64,
}

impl<Head: HostMessageHead> ReceivedResponseHead<Head> {
    /// Reads a response head, and removes the header of the upstream's protocol. `is_all`: the
    /// head ends the response.
    pub fn read_response_head(headers: &impl EnvoyHeaderMap<Head = Head>, is_all: bool) -> Self {
        let head = headers.copy_headers();
        let is_delimited = is_body_delimited(&head, is_all);
        let has_protocol = head.header_value(UPSTREAM_PROTOCOL).is_some();
        if !has_protocol {
            return Self { head, is_delimited };
        }
        headers.set_header(UPSTREAM_PROTOCOL, None);
        Self {
            head: headers.copy_headers(),
            is_delimited,
        }
    }

    /// Passes the head to the driver, and returns the next step. A stored response that replaces
    /// the upstream's also replaces the head in Envoy. `failure`: the status of the response, or
    /// the failure for which Envoy itself responded.
    ///
    /// # Errors
    /// [`HostMisuse`] unless the driver awaits a response head.
    pub fn pass_response_head_to_driver(
        &self,
        driver: &mut ExchangeDriver,
        headers: &impl EnvoyHeaderMap<Head = Head>,
        failure: UpstreamFailure,
        now: HookTimestamps,
    ) -> Result<HostStep, HostMisuse> {
        let response = convert_head_for_driver(&self.head, self.is_delimited, now.wall);
        if !driver.handle_upstream_head(response.clone(), failure, now.monotonic)? {
            return driver.handle_response_head(response);
        }
        replace_response_head(&self.head, driver, headers);
        let stored = headers.copy_headers();
        driver.handle_response_head(convert_head_for_driver(
            &stored,
            self.is_delimited,
            now.wall,
        ))
    }
}

/// Whether the end of the body is distinguishable from an abort. It is not in HTTP/1, if the body
/// ends with the connection.
pub fn is_body_delimited(head: &impl HostMessageHead, is_all: bool) -> bool {
    let codings = head.header_value("transfer-encoding").unwrap_or_default();
    is_all
        || head.content_length().is_some()
        || codings.to_ascii_lowercase().ends_with(b"chunked")
        || matches!(
            head.header_value(UPSTREAM_PROTOCOL),
            Some(b"HTTP/2" | b"HTTP/3")
        )
}

/// Converts a response head to the form that the driver reads. `wall` is the time in seconds since
/// 1970.
pub fn convert_head_for_driver<Head: HostMessageHead>(
    head: &Head,
    is_delimited: bool,
    wall: u64,
) -> ResponseHead<impl Iterator<Item = Header<'_>> + Clone> {
    ResponseHead {
        status: head.status(),
        content_length: head.content_length(),
        fields: head.regular_headers(),
        delimited: is_delimited,
        now: wall,
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
    }
}

/// Whether the client receives the response with which Envoy itself reports `failure`: no other
/// response replaces it.
pub fn passes_local_failure_reply(
    driver: &mut ExchangeDriver,
    failure: UpstreamFailure,
    now: u64,
) -> bool {
    !driver.handle_upstream_failure(failure, now) && !driver.can_respond_without_upstream(failure)
}

/// Applies the driver's head edits and its status to the response head.
pub fn edit_response_head(driver: Option<&ExchangeDriver>, headers: &impl EnvoyHeaderMap) {
    if let Some(exchange) = driver.and_then(ExchangeDriver::available_exchange) {
        headers.apply_edits(exchange.head_edits());
        if exchange.stored_response_status() != 0 {
            set_response_status(headers, exchange.stored_response_status());
        }
    }
}

/// Replaces the response head by the head of the driver's response.
fn replace_response_head(
    head: &impl HostMessageHead,
    driver: &ExchangeDriver,
    headers: &impl EnvoyHeaderMap,
) {
    let names: Vec<_> = head
        .regular_headers()
        .map(|(name, _)| name.to_vec())
        .collect();
    for name in names {
        headers.set_header(&String::from_utf8_lossy(&name), None);
    }
    if let Some(exchange) = driver.available_exchange() {
        headers.apply_edits(exchange.head_edits());
        set_response_status(headers, exchange.stored_response_status());
    }
}

fn set_response_status(headers: &impl EnvoyHeaderMap, status: u16) {
    headers.set_header(":status", Some(status.to_string().as_bytes()));
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use sszip_core::cache::process::ProcessResources;
    use sszip_core::cache::use_stale::UpstreamFailure;
    use sszip_core::config::RouteConfigBlock;
    use sszip_core::exchange::drive::{BodyLength, HostStep};

    use super::{edit_response_head, is_body_delimited, HookTimestamps, ReceivedResponseHead};
    use crate::head::tests::{HeadLines, MemoryHeaders};
    use crate::head::{EnvoyHeaderMap, HostMessageHead};
    use crate::request::start_exchange;

    #[test]
    fn end_of_a_body_is_distinguishable_by_length_coding_or_protocol() {
        for (line, expected) in [
            (("content-length", "5"), true),
            (("transfer-encoding", "gzip, Chunked"), true),
            (("transfer-encoding", "gzip"), false),
            (("sszip-upstream-protocol", "HTTP/2"), true),
            (("sszip-upstream-protocol", "HTTP/1.1"), false),
        ] {
            assert_eq!(
                is_body_delimited(&HeadLines::new(&[line]), false),
                expected,
                "{line:?}"
            );
        }
        assert!(
            is_body_delimited(&HeadLines::new(&[]), true)
                && !is_body_delimited(&HeadLines::new(&[]), false)
        );
    }

    #[test]
    fn protocol_of_the_upstream_is_removed_from_the_head() {
        let lines = HeadLines::new(&[(":status", "200"), ("sszip-upstream-protocol", "HTTP/2")]);
        let headers = MemoryHeaders(RefCell::new(lines));
        let received = ReceivedResponseHead::read_response_head(&headers, false);
        assert!(received.is_delimited);
        assert_eq!(received.head, HeadLines::new(&[(":status", "200")]));
        assert_eq!(headers.copy_headers(), received.head);
    }

    #[test]
    fn compressible_response_is_buffered_and_its_head_is_edited() {
        let mut directives = RouteConfigBlock::default();
        directives
            .set_directive("enable", &[b"on"])
            .expect("a valid setting");
        let config = Arc::new(directives.resolve_route_config(ProcessResources::default()));
        let request = HeadLines::new(&[
            (":method", "GET"),
            (":path", "/"),
            (":authority", "a"),
            ("accept-encoding", "gzip"),
        ]);
        let mut driver = start_exchange(&config, &request).expect("the head is valid");
        driver.required_body(BodyLength::Known(0));
        let body = vec![b'a'; 5000];
        let response = HeadLines::new(&[
            (":status", "200"),
            ("content-type", "application/json"),
            ("content-length", "5000"),
        ]);
        let headers = MemoryHeaders(RefCell::new(response));
        let received = ReceivedResponseHead::read_response_head(&headers, false);
        let now = HookTimestamps {
            monotonic: 1,
            wall: 1,
        };
        let failure = UpstreamFailure::Status(received.head.status());
        let step = received.pass_response_head_to_driver(&mut driver, &headers, failure, now);
        assert!(matches!(step, Ok(HostStep::Buffer)), "{step:?}");
        assert!(matches!(
            driver.handle_body_piece(&body),
            Ok(HostStep::Await)
        ));
        let step = match driver.handle_body_end() {
            Ok(HostStep::RunJob(mut job)) => {
                job.run_job();
                driver.resume_after_job(job)
            }
            step => step.expect("a body is awaited"),
        };
        assert!(matches!(step, HostStep::Send), "{step:?}");
        edit_response_head(Some(&driver), &headers);
        let head = headers.copy_headers();
        assert_eq!(head.header_value("content-encoding"), Some(&b"gzip"[..]));
        assert!(head.content_length().is_some_and(|length| length < 5000));
    }
}
