//! The calls by which the host carries the bytes of the connection.

use std::sync::atomic::Ordering;

use super::connection::{ConnectionState, LinkAction, OpenConnection};
use super::{LinkState, OwnerLink};
use crate::cache::owner_protocol::frame::FrameDecoder;
use crate::cache::owner_protocol::owner_message::OwnerMessage;
use crate::cache::owner_protocol::protocol_error::ProtocolError;
use crate::cache::process::ProcessCacheState;
use crate::lock::lock_ignoring_poison;
use crate::time_constants::link_silence;

impl OwnerLink {
    /// Returns the next action of the host, which calls it until `None` after each other call.
    /// `now` is in milliseconds of the host's clock, here and everywhere.
    pub fn next_action(&self) -> Option<LinkAction> {
        // before the state is read: what is queued afterwards wakes the driver again
        self.is_driver_woken.store(false, Ordering::Release);
        let mut state = lock_ignoring_poison(&self.state);
        if let Some(action) = state.connection.actions.pop_front() {
            return Some(action);
        }
        if std::mem::take(&mut state.connection.needs_tick) {
            return Some(LinkAction::Tick);
        }
        let has_messages = state.has_messages_to_send();
        let open = state.connection.open_connection()?;
        if open.is_writing || open.output.is_empty() && !has_messages {
            return None;
        }
        open.is_writing = true;
        Some(LinkAction::Write)
    }

    /// Reports that the connection was opened, or could not be opened.
    pub fn handle_connection_opened(&self, shared: &ProcessCacheState, is_open: bool, now: u64) {
        let mut state = lock_ignoring_poison(&self.state);
        if !matches!(state.connection.state, ConnectionState::Connecting) {
            return;
        }
        if !is_open {
            self.handle_closed(&mut state, shared, now);
            return;
        }
        state.connection.state = ConnectionState::Open(Box::new(OpenConnection::new(now)));
        state.session.request_session();
    }

    /// Passes the pieces that have to be written to the connection to `write`, which returns the
    /// number of bytes that it has written. There are no pieces if nothing has to be written.
    pub fn pass_unwritten_pieces(
        &self,
        shared: &ProcessCacheState,
        now: u64,
        write: impl FnOnce(&mut dyn Iterator<Item = &[u8]>) -> usize,
    ) {
        let mut state = lock_ignoring_poison(&self.state);
        let open = state.connection.open_connection();
        let frame = match open.is_some_and(|open| open.output.reserve_only_frame()) {
            true => self.take_frame(&mut state, shared, now),
            false => None,
        };
        let Some(open) = state.connection.open_connection() else {
            return;
        };
        if let Some(frame) = frame {
            open.output.push_frame(frame);
        }
        open.is_writing = !open.output.is_empty();
        let written = write(&mut open.output.unwritten_pieces());
        open.output.record_written_bytes(written);
    }

    /// Reports that `bytes` bytes of the pieces were written.
    pub fn report_written_bytes(&self, bytes: usize) {
        let mut state = lock_ignoring_poison(&self.state);
        if let Some(open) = state.connection.open_connection() {
            open.output.record_written_bytes(bytes);
        }
    }

    /// Passes a buffer for bytes of the connection to `take`. Returns `false` if the connection has
    /// to be closed.
    pub fn pass_read_buffer(&self, take: impl FnOnce(&mut [u8])) -> bool {
        let mut state = lock_ignoring_poison(&self.state);
        let open = state.connection.open_connection();
        open.and_then(|open| open.decoder.read_buffer().ok())
            .map(take)
            .is_some()
    }

    /// Reports that `bytes` bytes were read into the buffer of
    /// [`pass_read_buffer`](Self::pass_read_buffer).
    pub fn report_read_bytes(&self, shared: &ProcessCacheState, bytes: usize, now: u64) {
        let mut state = lock_ignoring_poison(&self.state);
        let Some(open) = state.connection.open_connection() else {
            return;
        };
        open.since = now;
        open.decoder.record_read_bytes(bytes);
        let mut messages = Vec::new();
        let decoded = decode_messages(&mut open.decoder, &mut messages);
        for message in messages {
            if self
                .handle_message(&mut state, shared, message, now)
                .is_err()
            {
                return self.close_connection(&mut state, shared, now);
            }
        }
        if let Err(error) = decoded {
            state.session.record_protocol_error(error);
            self.close_connection(&mut state, shared, now);
        }
    }

    /// Reports that the connection was closed.
    pub fn handle_connection_closed(&self, shared: &ProcessCacheState, now: u64) {
        let mut state = lock_ignoring_poison(&self.state);
        self.handle_closed(&mut state, shared, now);
    }

    /// Ends requests that have timed out, and opens or closes the connection. Returns the
    /// milliseconds until the next call if nothing else happens.
    pub fn tick(&self, shared: &ProcessCacheState, now: u64) -> u64 {
        let mut state = lock_ignoring_poison(&self.state);
        state.connection.needs_tick = false;
        self.expire_late_jobs(&mut state, shared, now);
        let open = state.connection.open_connection();
        if open.is_some_and(|open| now >= open.since.saturating_add(link_silence())) {
            self.close_connection(&mut state, shared, now);
        }
        let connection = &mut state.connection;
        if matches!(connection.state, ConnectionState::Closed { retry_at } if retry_at <= now) {
            connection.state = ConnectionState::Connecting;
            connection.actions.push_back(LinkAction::Connect);
        }
        let connection_due = state.connection.next_due(now);
        let due = state.jobs.next_due().unwrap_or(connection_due);
        let wait = due.min(connection_due).saturating_sub(now).max(1);
        state.connection.tick_at = now.saturating_add(wait);
        wait
    }

    /// Has the host close the connection.
    fn close_connection(&self, state: &mut LinkState, shared: &ProcessCacheState, now: u64) {
        state.connection.actions.push_back(LinkAction::Close);
        self.handle_closed(state, shared, now);
    }

    /// Ends the session of a connection that was closed or could not be opened.
    fn handle_closed(&self, state: &mut LinkState, shared: &ProcessCacheState, now: u64) {
        let connection = &mut state.connection;
        if matches!(connection.state, ConnectionState::Closed { .. }) {
            return;
        }
        connection.close_until_retry(now);
        self.handle_session_lost(state, shared);
    }
}

/// Decodes the messages of all complete frames.
fn decode_messages(
    decoder: &mut FrameDecoder,
    messages: &mut Vec<OwnerMessage>,
) -> Result<(), ProtocolError> {
    while let Some(frame) = decoder.next_frame()? {
        for message in frame {
            if let Some(message) = OwnerMessage::decode_message(&message?)? {
                messages
                    .try_reserve(1)
                    .map_err(|_| ProtocolError::OutOfMemory)?;
                messages.push(message);
            }
        }
    }
    Ok(())
}
