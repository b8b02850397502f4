//! Sends the filter's own response as fast as the client reads it.

use std::cell::Cell;

use sszip_core::exchange::drive::ExchangeDriver;

use crate::envoy::EnvoyStreamHandle;
use crate::thread_pool;

/// Maximum size of a piece for Envoy, in bytes. Shorter pieces are joined.
const MAX_PIECE_BYTES: usize = 64 << 10;

/// The unsent rest of the filter's own response, for a client that reads slowly.
pub struct UnsentResponseRemainder {
    /// Driver of the response; `None` only after a drop.
    driver: Option<Box<ExchangeDriver>>,
    /// Number of bytes of the body that were passed to Envoy.
    sent: usize,
}

impl UnsentResponseRemainder {
    /// Sends the head of the driver's response.
    pub fn send_response_head(driver: Box<ExchangeDriver>, stream: EnvoyStreamHandle) -> Self {
        if let Some(exchange) = driver.available_exchange() {
            let is_all = exchange.body_slices().all(<[u8]>::is_empty);
            stream.send_response_head(
                exchange.stored_response_status(),
                exchange.head_edits(),
                is_all,
            );
        }
        let driver = Some(driver);
        Self { driver, sent: 0 }
    }

    /// Sends the body until the client `is_behind`, and returns the unsent rest.
    pub fn send_until_backpressure(
        mut self,
        stream: EnvoyStreamHandle,
        is_behind: &Cell<bool>,
    ) -> Option<Self> {
        (!self.send_body_pieces(stream, is_behind)).then_some(self)
    }

    /// Sends the body until the client `is_behind`. Returns whether all of it is sent.
    fn send_body_pieces(&mut self, stream: EnvoyStreamHandle, is_behind: &Cell<bool>) -> bool {
        let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(|driver| driver.available_exchange())
        else {
            return true;
        };
        let total: usize = exchange.body_slices().map(<[u8]>::len).sum();
        let mut skipped = self.sent;
        let mut together = Vec::new();
        for piece in exchange.body_slices() {
            let (skips, rest) = piece.split_at(skipped.min(piece.len()));
            skipped -= skips.len();
            for part in rest.chunks(MAX_PIECE_BYTES) {
                let is_last = self.sent + together.len() + part.len() == total;
                let is_alone = together.is_empty() && (is_last || part.len() == MAX_PIECE_BYTES);
                let is_added = !is_alone && together.try_reserve(part.len()).is_ok();
                if is_added {
                    together.extend_from_slice(part);
                    if !is_last && together.len() < MAX_PIECE_BYTES {
                        continue;
                    }
                }
                if !together.is_empty() {
                    let is_end = is_last && is_added;
                    self.sent += together.len();
                    stream.send_response_piece(&together, is_end);
                    together.clear();
                    if !is_end && is_behind.get() {
                        return false;
                    }
                }
                if !is_added {
                    self.sent += part.len();
                    stream.send_response_piece(part, is_last);
                    if !is_last && is_behind.get() {
                        return false;
                    }
                }
            }
        }
        true
    }
}

impl Drop for UnsentResponseRemainder {
    fn drop(&mut self) {
        if let Some(job) = self
            .driver
            .as_mut()
            .and_then(|driver| driver.take_exchange_as_teardown_job())
        {
            thread_pool::run_detached_job(job);
        }
    }
}
