//! Streaming compression of a response body.

use sszip_core::exchange::drive::ExchangeDriver;
use sszip_core::gzip::stream::FlushMode;
use sszip_envoy_carrier::encode;

use super::{StreamAction, StreamExchange};
use crate::abi::BodyType;
use crate::envoy::EnvoyStreamHandle;

/// Size at which output is flushed and sent, in bytes: the cost of a flush is
/// then negligible.
const FLUSH_BYTES: usize = 16 << 10;

impl StreamExchange {
    /// Compresses the pieces that the present hook received, and sends the output.
    pub(super) fn compress_received_pieces(
        &mut self,
        stream: EnvoyStreamHandle,
        is_last: bool,
    ) -> StreamAction {
        let pieces = self.observe_received_pieces(stream);
        self.compress_and_send_pieces(stream, pieces.iter(), pieces.len(), is_last)
    }

    /// Compresses pieces, and sends the output once it is flushed. Envoy accepts no more bytes
    /// after the stream continues, until more of the body arrives: the stream therefore continues
    /// only with flushed output, and the rest waits for a deadline.
    pub(super) fn compress_and_send_pieces<'a>(
        &mut self,
        stream: EnvoyStreamHandle,
        pieces: impl Iterator<Item = &'a [u8]>,
        received: usize,
        is_last: bool,
    ) -> StreamAction {
        for piece in pieces {
            if !self.compress_piece(piece, FlushMode::None) {
                return StreamAction::Reset(
                    "sszip: the encoder failed, or the body does not have the announced length",
                );
            }
        }
        let is_sent =
            is_last || self.encoder_output.len() >= FLUSH_BYTES || self.flushes_each_piece();
        let flush = if is_last {
            FlushMode::Finish
        } else {
            FlushMode::Sync
        };
        if is_sent && !self.compress_piece(b"", flush) {
            return StreamAction::Reset(
                "sszip: the encoder failed, or the body does not have the announced length",
            );
        }
        if is_sent {
            stream.append_to_body_buffer(
                BodyType::ReceivedResponse,
                &std::mem::take(&mut self.encoder_output),
            );
        }
        stream.drain_body(BodyType::ReceivedResponse, received);
        if !is_sent {
            self.arm_driver_deadline(stream);
            return StreamAction::Stop;
        }
        self.is_timed = false;
        self.finish_sent_response(stream, is_last);
        StreamAction::Continue
    }

    /// Whether the encoder's output is flushed after each piece of the response.
    pub(super) fn flushes_each_piece(&self) -> bool {
        let timer = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::next_timeout_ms);
        timer.is_some_and(|ms| ms == 0)
    }

    /// Compresses a piece into `encoder_output`. Returns whether the encoder succeeded.
    pub(super) fn compress_piece(&mut self, piece: &[u8], flush: FlushMode) -> bool {
        let Some(driver) = &mut self.driver else {
            return false;
        };
        encode::append_encoded_piece(driver, piece, flush, &mut self.encoder_output).is_some()
    }

    /// Sends all input that the encoder has received; a failed encoder resets the stream.
    pub(super) fn flush_encoder(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        if !self.compress_piece(b"", FlushMode::Sync) {
            return StreamAction::Reset("sszip: the encoder failed");
        }
        stream.append_to_body_buffer(
            BodyType::BufferedResponse,
            &std::mem::take(&mut self.encoder_output),
        );
        StreamAction::Continue
    }
}
