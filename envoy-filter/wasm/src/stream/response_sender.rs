//! Sending of responses to the client.
//!
//! Within the hook for a piece, the bytes in the piece's buffer are sent. If
//! the stream is stopped there, the proxy buffers them up to the listener's
//! limit, and sends them when the stream is resumed. After that, the proxy
//! would lose bytes that a hook lets pass: such a stream is sent by deadlines
//! until its end.

use proxy_wasm::types::MapType;
use sszip_core::exchange::drive::ExchangeDriver;
use sszip_core::exchange::{Exchange, Header};
use sszip_core::gzip::stream::FlushMode;
use sszip_envoy_carrier::encode::append_encoded_piece;
use sszip_envoy_carrier::head::{effective_edits, parse_decimal, EnvoyHeaderMap, HostMessageHead};

use super::{StreamAction, StreamExchange, StreamPhase, RESPONSE_BUFFER};
use crate::abi::{self, SerializedMessageHead, StreamDirection, WasmContextHeaderMap};

const HEAD: WasmContextHeaderMap = WasmContextHeaderMap(MapType::HttpResponseHeaders);

/// Length of the name and the value of a response's status header.
const STATUS_HEADER_BYTES: usize = ":status200".len();

/// Delay between the deadlines of such a stream, in milliseconds.
const PACING_MS: u64 = 1;

impl StreamExchange {
    /// Sends the driver's response in place of any other.
    pub(super) fn send_driver_response(&mut self) {
        if let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange)
        {
            let fields = response_headers(exchange);
            let body = self.contiguous_driver_body();
            abi::send_local_response(exchange.stored_response_status(), fields, &body, "");
        }
        self.enter_stream_phase(StreamPhase::Responding);
    }

    /// Whether a head of `count` headers consists of the status and the headers of the driver's
    /// response, by its length: the proxy only adds headers and values to the head of a response with
    /// a body.
    pub(super) fn is_sent_head_unchanged(&self, count: usize) -> bool {
        let exchange = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange);
        let Some(exchange) = exchange else {
            return false;
        };
        let mut sent = (1, STATUS_HEADER_BYTES);
        for (name, value) in response_headers(exchange) {
            sent = (sent.0 + 1, sent.1 + name.len() + value.len());
        }
        count == sent.0 && abi::header_map_bytes(MapType::HttpResponseHeaders) == Some(sent.1)
    }

    /// Corrects the head of the driver's response after the proxy's changes. The proxy has inserted
    /// the route's headers before the driver's, which contain them already if the response is a
    /// stored one; and if the body is empty, as an empty list in SSZ or the response to HEAD, the
    /// proxy has removed the content type and the content length.
    pub(super) fn correct_response_head(&mut self, head: &SerializedMessageHead) -> StreamAction {
        let exchange = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange);
        for edit in effective_edits(exchange.map_or(&[][..], |it| it.head_edits())) {
            let name = edit.name.to_ascii_lowercase();
            let lines = head
                .regular_headers()
                .filter(|(known, _)| *known == name.as_bytes())
                .map(|(_, value)| value);
            // other filters may change a body, and remove its length
            let is_removable =
                name == "content-type" || name == "content-length" && self.is_complete;
            let is_taken = is_removable && lines.clone().next().is_none();
            if edit
                .value
                .as_deref()
                .is_some_and(|own| is_taken || has_values_before_last(lines, own))
            {
                HEAD.set_header(&name, edit.value.as_deref());
            }
        }
        self.drop_misused_driver()
    }

    /// Sends a body within the hook for its last piece, or before the rest of
    /// it. If there is no buffer for it, it bypasses the filters before this
    /// one.
    pub(super) fn send_response_body(&self, body: &[u8]) -> StreamAction {
        let limit = self
            .root
            .filter_settings()
            .map_or(0, |it| it.buffer_limit());
        let is_long = self.is_buffered && body.len() as u64 > limit;
        let has_place = self.has_body || body.is_empty();
        match (is_long || !has_place, self.is_complete) {
            (false, _) => self.replace_received_bytes(body),
            (true, true) => send_as_local_response(body),
            // a response that cannot be sent this way was not to be buffered
            (true, false) => StreamAction::Reset,
        }
    }

    /// Replaces the received bytes in the proxy's buffer.
    fn replace_received_bytes(&self, bytes: &[u8]) -> StreamAction {
        match abi::replace_buffer(RESPONSE_BUFFER, bytes) || bytes.is_empty() {
            true => StreamAction::Continue,
            // for example after trailers: the proxy has no buffer for the body
            // any more
            false => StreamAction::Reset,
        }
    }

    /// Compresses a piece, and replaces the received bytes by the output or keeps it until the
    /// deadline. A failed encoder resets the stream.
    pub(super) fn send_compressed_piece(&mut self, piece: &[u8], is_last: bool) -> StreamAction {
        let flush = if is_last {
            FlushMode::Finish
        } else {
            FlushMode::Sync
        };
        let Some(written) = self.compress_piece(piece, flush) else {
            return StreamAction::Reset;
        };
        self.finish_sent_response(is_last);
        if self.is_paced {
            return self.collect_for_next_deadline(&written);
        }
        self.replace_received_bytes(&written)
    }

    /// Returns the encoder's output for a piece, which may be empty. `None`: the encoder failed, or
    /// there is no driver.
    fn compress_piece(&mut self, piece: &[u8], flush: FlushMode) -> Option<Vec<u8>> {
        let driver = self.driver.as_mut()?;
        let mut written = Vec::new();
        append_encoded_piece(driver, piece, flush, &mut written)?;
        Some(written)
    }

    /// Collects bytes of a paced response, and sends them at the next deadline.
    pub(super) fn collect_for_next_deadline(&mut self, bytes: &[u8]) -> StreamAction {
        abi::replace_buffer(RESPONSE_BUFFER, b"");
        if self.paced_bytes.try_reserve(bytes.len()).is_err() {
            return StreamAction::Reset;
        }
        self.paced_bytes.extend_from_slice(bytes);
        self.set_deadline_in(PACING_MS);
        StreamAction::Stop
    }

    /// Sends the bytes that were collected for a deadline.
    pub(super) fn send_collected_bytes(&mut self) {
        self.is_timed = false;
        let bytes = std::mem::take(&mut self.paced_bytes);
        abi::replace_buffer(RESPONSE_BUFFER, &bytes);
        abi::resume_stream(StreamDirection::Response);
    }

    /// Delays the trailers of a paced response until its last bytes are sent.
    pub(super) fn delay_trailers_until_sent(&mut self) -> StreamAction {
        match self.is_paced {
            true => self.collect_for_next_deadline(b""),
            false => StreamAction::Continue,
        }
    }
}

/// Iterates over the headers of the driver's response.
fn response_headers(exchange: &Exchange) -> impl Iterator<Item = Header<'_>> + Clone {
    effective_edits(exchange.head_edits()).filter_map(|edit| {
        let value = edit.value.as_deref()?;
        Some((edit.name.as_bytes(), value))
    })
}

/// Sends a response that exceeds the proxy's buffer limit, bypassing the
/// filters before this one.
fn send_as_local_response(body: &[u8]) -> StreamAction {
    let head = HEAD.copy_headers();
    let status = head.header_value(":status").and_then(parse_decimal);
    let fields = head
        .regular_headers()
        .filter(|(name, _)| *name != b"transfer-encoding");
    abi::send_local_response(status.unwrap_or(200) as u16, fields, body, "");
    StreamAction::Stop
}

/// Whether a header has the given value last, and other values before it.
fn has_values_before_last<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone, value: &[u8]) -> bool {
    let before = lines
        .clone()
        .last()
        .and_then(|last| last.strip_suffix(value));
    match before {
        Some(b"") => lines.count() > 1,
        Some(before) => before.trim_ascii_end().ends_with(b","),
        None => false,
    }
}
