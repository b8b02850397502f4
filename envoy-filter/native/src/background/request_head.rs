//! Request heads of background requests.

use sszip_core::exchange::HeadEdit;
use sszip_envoy_carrier::head::{parse_decimal, HostMessageHead};

use crate::envoy::EnvoyHead;

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
    pub fn from_head(head: &EnvoyHead) -> Self {
        let fields = head.iter_headers();
        Self(
            fields
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect(),
        )
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
