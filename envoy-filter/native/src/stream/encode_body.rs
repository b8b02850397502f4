//! Streaming compression of a response body.

use sszip_core::exchange::drive::Driver;
use sszip_core::gzip::stream::Flush;
use sszip_envoy_carrier::encode;

use super::response::observe_piece;
use super::{Exchange, StreamAction};
use crate::abi::BodyType;
use crate::envoy::Stream;

/// Size at which output is flushed and sent, in bytes: the cost of a flush is
/// then negligible.
const SENT_AT_ONCE: usize = 16 << 10;

impl Exchange {
    /// Compresses the pieces that the present hook received, and sends the output.
    pub(super) fn send(&mut self, stream: Stream, is_last: bool) -> StreamAction {
        let pieces = stream.pieces(BodyType::ReceivedResponse);
        if let Some(driver) = &mut self.driver {
            pieces.iter().for_each(|piece| observe_piece(driver, piece));
        }
        self.stream_pieces(stream, pieces.iter(), pieces.len(), is_last)
    }

    /// Compresses pieces. Envoy accepts no more bytes after the stream
    /// continues, until more of the body arrives: the stream therefore
    /// continues only with flushed output, and the rest waits for a deadline.
    pub(super) fn stream_pieces<'a>(
        &mut self,
        stream: Stream,
        pieces: impl Iterator<Item = &'a [u8]>,
        received: usize,
        is_last: bool,
    ) -> StreamAction {
        for piece in pieces {
            if !self.encode(piece, Flush::None) {
                return StreamAction::Reset(
                    "sszip: the encoder failed, or the body does not have the announced length",
                );
            }
        }
        let is_sent = is_last || self.written.len() >= SENT_AT_ONCE || self.flushes_at_once();
        let flush = if is_last { Flush::Finish } else { Flush::Sync };
        if is_sent && !self.encode(b"", flush) {
            return StreamAction::Reset(
                "sszip: the encoder failed, or the body does not have the announced length",
            );
        }
        if is_sent {
            stream.append(
                BodyType::ReceivedResponse,
                &std::mem::take(&mut self.written),
            );
        }
        stream.drain(BodyType::ReceivedResponse, received);
        if !is_sent {
            self.set_timer(stream);
            return StreamAction::Stop;
        }
        self.is_timed = false;
        self.complete_response(stream, is_last);
        StreamAction::Continue
    }

    pub(super) fn flushes_at_once(&self) -> bool {
        let timer = self.driver.as_ref().and_then(Driver::next_timeout_ms);
        timer.is_some_and(|ms| ms == 0)
    }

    /// Compresses a piece into `written`. Returns whether it could.
    pub(super) fn encode(&mut self, piece: &[u8], flush: Flush) -> bool {
        let Some(driver) = &mut self.driver else {
            return false;
        };
        encode::encode(driver, piece, flush, &mut self.written).is_some()
    }

    pub(super) fn flush(&mut self, stream: Stream) -> StreamAction {
        if !self.encode(b"", Flush::Sync) {
            return StreamAction::Reset("sszip: the encoder failed");
        }
        stream.append(
            BodyType::BufferedResponse,
            &std::mem::take(&mut self.written),
        );
        StreamAction::Continue
    }
}
