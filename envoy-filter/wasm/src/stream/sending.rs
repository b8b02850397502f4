//! What goes to the client.
//!
//! Within the hook for a piece, what is in the piece's place goes on. The proxy keeps a
//! piece for which it was told to wait; what is in its place then is bounded by the
//! listener's limit, and goes on when the stream is resumed. After that the proxy would
//! lose what it is told to go on with: such a stream goes by deadlines until its end.

use proxy_wasm::types::MapType;
use sszip_core::exchange::drive::Driver;
use sszip_core::gzip::stream::Flush;

use super::{Act, Exchange, State, RESPONSE};
use crate::abi::{self, Head, Side};

const HEAD: MapType = MapType::HttpResponseHeaders;

/// What the encoder writes at once. Bytes.
const WRITTEN_AT_ONCE: usize = 16 << 10;

/// Until a stream that goes by deadlines goes on. Milliseconds.
const PACE: u64 = 1;

impl Exchange {
    /// The driver's answer, in place of whatever else would come.
    pub(super) fn respond(&mut self) {
        let body = self.body();
        if let Some(exchange) = self.driver.as_ref().and_then(Driver::exchange) {
            let fields = exchange.head_edits().iter().filter_map(|edit| {
                let value = edit.value.as_deref()?;
                Some((edit.name.as_bytes(), value))
            });
            abi::respond(exchange.status(), fields, &body, "");
        }
        self.becomes(State::Responding);
    }

    /// Its head. What its route adds the proxy has put before what the driver says, which
    /// has it already where it is stored; and where the body is empty, as an empty list in
    /// SSZ is, the proxy has taken its type away.
    pub(super) fn responds(&mut self, head: &Head) -> Act {
        let exchange = self.driver.as_ref().and_then(Driver::exchange);
        for edit in exchange.map_or(&[][..], |it| it.head_edits()) {
            let name = edit.name.to_ascii_lowercase();
            let lines = head
                .plain()
                .filter(|(known, _)| *known == name.as_bytes())
                .map(|(_, value)| value);
            let is_taken = name == "content-type" && lines.clone().next().is_none();
            if edit
                .value
                .as_deref()
                .is_some_and(|own| is_taken || has_more(lines, own))
            {
                abi::set(HEAD, &name, edit.value.as_deref());
            }
        }
        self.give_up()
    }

    /// A body, within the hook that came with its last piece, or before what still comes.
    /// Where there is no place for it, it goes past the filters before this one.
    pub(super) fn send(&mut self, body: &[u8]) -> Act {
        let limit = self.root.filter().map_or(0, |it| it.buffer_limit());
        let is_long = self.is_kept && body.len() as u64 > limit;
        let has_place = self.has_body || body.is_empty();
        match (is_long || !has_place, self.is_whole) {
            (false, _) => self.put(body),
            (true, true) => send_beside(body),
            // it was never to be held
            (true, false) => Act::Reset,
        }
    }

    /// In the place of what has come.
    fn put(&self, bytes: &[u8]) -> Act {
        match abi::replace_buffer(RESPONSE, bytes) || bytes.is_empty() {
            true => Act::Continue,
            // behind trailers, say: the proxy has no body any more to which it can be added
            false => Act::Reset,
        }
    }

    /// A piece through the encoder, and on.
    pub(super) fn stream(&mut self, piece: &[u8], is_last: bool) -> Act {
        let flush = if is_last { Flush::Finish } else { Flush::Sync };
        let Some(written) = self.encoded(piece, flush) else {
            return Act::Reset;
        };
        self.ends(is_last);
        if self.is_paced {
            return self.pace(&written);
        }
        self.put(&written)
    }

    fn encoded(&mut self, piece: &[u8], flush: Flush) -> Option<Vec<u8>> {
        let driver = self.driver.as_mut()?;
        let (mut written, mut rest) = (Vec::new(), piece);
        loop {
            let start = written.len();
            written.try_reserve(WRITTEN_AT_ONCE).ok()?;
            written.resize(start + WRITTEN_AT_ONCE, 0);
            let coded = driver.stream(rest, flush, &mut written[start..]);
            let coded = coded.ok()?;
            written.truncate(start + coded.written);
            rest = &rest[coded.consumed..];
            if coded.complete {
                return Some(written);
            }
        }
    }

    /// Goes on with that, soon.
    pub(super) fn pace(&mut self, bytes: &[u8]) -> Act {
        abi::replace_buffer(RESPONSE, b"");
        if self.paced.try_reserve(bytes.len()).is_err() {
            return Act::Reset;
        }
        self.paced.extend_from_slice(bytes);
        self.set_timer_to(PACE);
        Act::Stop
    }

    /// What has come together goes on.
    pub(super) fn send_paced(&mut self) {
        self.is_timed = false;
        let paced = std::mem::take(&mut self.paced);
        abi::replace_buffer(RESPONSE, &paced);
        abi::resume(Side::Response);
    }

    /// Trailers go after what goes by deadlines.
    pub(super) fn pace_trailers(&mut self) -> Act {
        match self.is_paced {
            true => self.pace(b""),
            false => Act::Continue,
        }
    }
}

/// An answer that is longer than what the proxy keeps, past the filters before this one.
fn send_beside(body: &[u8]) -> Act {
    let head = Head::of(HEAD);
    let status = head.get(":status").and_then(abi::digits);
    let fields = head
        .plain()
        .filter(|(name, _)| *name != b"transfer-encoding");
    abi::respond(status.unwrap_or(200) as u16, fields, body, "");
    Act::Stop
}

/// Whether these lines of a field have something before a value, and end with that.
fn has_more<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone, value: &[u8]) -> bool {
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
