//! Background requests, for which no client waits: their request heads, and the heads of their
//! responses.

use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::exchange::HeadEdit;

use crate::head::{parse_decimal, HostMessageHead};
use crate::response::{convert_head_for_driver, is_body_delimited, HookTimestamps};

/// Headers that the router sets about its own processing, and that have other
/// values for another request.
const ROUTER_HEADERS: [&[u8]; 3] = [
    ROUTER_TIMEOUT_HEADER,
    b"x-envoy-attempt-count",
    b"x-envoy-original-path",
];

/// Header with the time for which the router awaits the response.
const ROUTER_TIMEOUT_HEADER: &[u8] = b"x-envoy-expected-rq-timeout-ms";

/// The headers of a background request, with names in lower case, pseudo-headers included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackgroundRequestHeaders(Vec<(Vec<u8>, Vec<u8>)>);

impl BackgroundRequestHeaders {
    /// Copies the headers of a head.
    pub fn from_head(head: &impl HostMessageHead) -> Self {
        let fields = head.iter_headers();
        Self(
            fields
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect(),
        )
    }

    /// Creates the headers of a probe of the node, whose driver is `driver`. `head`: the upstream
    /// request that caused it. `None`: the target of that request has no path for the probe.
    pub fn for_probe(driver: &ExchangeDriver, head: &impl HostMessageHead) -> Option<Self> {
        let path = driver.probe_path(head.target())?;
        let mut headers = Self::from_head(head);
        if let Some(exchange) = driver.available_exchange() {
            headers.apply_head_edits(exchange.upstream_edits());
        }
        headers.set_body_length(0);
        headers.set_header(b":method", b"GET");
        headers.set_header(b":path", &path);
        headers.remove_router_headers();
        Some(headers)
    }

    /// Returns all headers, in order.
    pub fn header_lines(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.0
    }

    /// Returns the values of all lines of the header `name`.
    pub fn header_values<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let named = self.0.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| &**value)
    }

    /// Appends a line to the headers.
    pub fn append_header(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.to_vec(), value.to_vec()));
    }

    /// Sets a header to one line.
    pub fn set_header(&mut self, name: &[u8], value: &[u8]) {
        self.remove_header(name);
        self.append_header(name, value);
    }

    /// Removes all lines of a header.
    pub fn remove_header(&mut self, name: &[u8]) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Applies the head edits of a driver.
    pub fn apply_head_edits(&mut self, edits: &[HeadEdit]) {
        for edit in edits {
            let name = edit.name.to_ascii_lowercase();
            match &edit.value {
                Some(value) => self.set_header(name.as_bytes(), value),
                None => self.remove_header(name.as_bytes()),
            }
        }
    }

    /// Sets `Content-Length` for a body of `length` bytes, and removes other headers that describe
    /// a body.
    pub fn set_body_length(&mut self, length: usize) {
        for name in [
            &b"content-length"[..],
            b"transfer-encoding",
            b"trailer",
            b"expect",
        ] {
            self.remove_header(name);
        }
        if length > 0 {
            self.append_header(b"content-length", length.to_string().as_bytes());
        }
    }

    /// Removes the router's own headers, which must not be sent, and returns the response timeout
    /// in milliseconds, if they contain it.
    pub fn remove_router_headers(&mut self) -> Option<u64> {
        let timeout = self
            .header_values(ROUTER_TIMEOUT_HEADER)
            .next()
            .and_then(parse_decimal);
        for name in ROUTER_HEADERS {
            self.remove_header(name);
        }
        timeout
    }
}

/// Passes the response head of a background request to its driver. `is_all`: the head ends the
/// response. Returns whether the driver needs the body.
pub fn pass_background_head_to_driver(
    driver: &mut ExchangeDriver,
    head: &impl HostMessageHead,
    is_all: bool,
    now: HookTimestamps,
) -> bool {
    let response = convert_head_for_driver(head, is_body_delimited(head, is_all), now.wall);
    let failure = UpstreamFailure::Status(response.status);
    let handled = driver.handle_upstream_head(response.clone(), failure, now.monotonic);
    handled.is_ok() && matches!(driver.handle_response_head(response), Ok(HostStep::Observe))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sszip_core::cache::process::ProcessResources;
    use sszip_core::config::node_capabilities::RouteNodeCapabilities;
    use sszip_core::config::RouteConfigBlock;
    use sszip_core::exchange::drive::{BodyLength, ExchangeDriver};

    use super::{pass_background_head_to_driver, BackgroundRequestHeaders};
    use crate::head::tests::HeadLines;
    use crate::request::start_exchange;
    use crate::response::HookTimestamps;

    const NOW: HookTimestamps = HookTimestamps {
        monotonic: 1,
        wall: 1,
    };

    fn request_head() -> HeadLines {
        HeadLines::new(&[
            (":method", "HEAD"),
            (":path", "/node/eth/v2/beacon/blocks/head?a=b"),
            (":authority", "a"),
            ("x-token", "t"),
            ("accept", "application/octet-stream"),
            ("content-length", "5"),
            ("expect", "100-continue"),
            ("x-envoy-attempt-count", "1"),
        ])
    }

    fn probe_driver() -> ExchangeDriver {
        let mut directives = RouteConfigBlock::default();
        for name in ["enable", "ssz"] {
            directives
                .set_directive(name, &[b"on"])
                .expect("a valid setting");
        }
        let config = Arc::new(directives.resolve_route_config(ProcessResources::default()));
        let mut driver = start_exchange(&config, &request_head()).expect("the head is valid");
        driver.load_node_capabilities(&RouteNodeCapabilities::default());
        driver.required_body(BodyLength::Known(0));
        driver
            .take_node_probe(None, NOW.monotonic)
            .expect("the preset is unknown")
    }

    #[test]
    fn probe_is_a_get_without_the_headers_of_a_body_and_of_the_router() {
        let headers = BackgroundRequestHeaders::for_probe(&probe_driver(), &request_head());
        let headers = headers.expect("the target is a route of the Beacon API");
        let value = |name: &'static str| headers.header_values(name.as_bytes()).next();
        assert_eq!(value(":method"), Some(&b"GET"[..]));
        assert_eq!(value(":path"), Some(&b"/node/eth/v1/config/spec"[..]));
        assert_eq!(value("x-token"), Some(&b"t"[..]));
        assert_eq!(value("accept"), Some(&b"application/json"[..]));
        for name in ["content-length", "expect", "x-envoy-attempt-count"] {
            assert_eq!(value(name), None, "{name}");
        }
    }

    #[test]
    fn body_of_a_probe_is_read_only_if_its_status_is_200() {
        for (status, expected) in [("200", true), ("404", false), ("503", false)] {
            let head = HeadLines::new(&[(":status", status)]);
            let is_read = pass_background_head_to_driver(&mut probe_driver(), &head, false, NOW);
            assert_eq!(is_read, expected, "{status}");
        }
    }
}
