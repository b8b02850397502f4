//! Pipelined requests of an HTTP/1 client. Envoy closes a connection when a
//! request begins while two responses are unsent, and a response from a hook is
//! unsent until Envoy has read all input. If a node's response ends with an
//! empty piece, its end counts as unsent as well, until there is more to send.
//!
//! Every second response of the filter on a connection, and its first one after
//! a node's response, is therefore sent in an event of its own, by which time
//! the previous response is sent.

use std::cell::Cell;

use super::{StreamAction, StreamExchange, StreamPhase, DELAYED_RESPONSE_EVENT};
use crate::envoy::EnvoyStreamHandle;

/// Number of connections of a worker that are distinguished for certain.
const CONNECTIONS: usize = 1024;

thread_local! {
    /// Connections that may have an unsent response, by id modulo the length;
    /// 0: none.
    static UNSENT_CONNECTIONS: [Cell<u64>; CONNECTIONS] = const { [const { Cell::new(0) }; CONNECTIONS] };
}

/// Replaces the table's entry of a connection, and returns the previous one.
fn swap_unsent_response_entry(connection: u64, known: u64) -> u64 {
    UNSENT_CONNECTIONS.with(|all| all[connection as usize % CONNECTIONS].replace(known))
}

impl StreamExchange {
    /// Marks the connection as having an unsent response, and records whether it already had one.
    pub(super) fn record_unsent_response(&mut self, stream: EnvoyStreamHandle) {
        let connection = stream.client_connection_id();
        self.follows_unsent =
            swap_unsent_response_entry(connection, connection) == connection && connection != 0;
        self.connection = connection;
    }

    /// Sends the driver's response at once, or after the previous response of a pipelined HTTP/1
    /// connection.
    pub(super) fn respond_in_pipeline_order(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        if self.follows_unsent && stream.client_protocol().starts_with(b"HTTP/1") {
            swap_unsent_response_entry(self.connection, 0);
            self.enter_stream_phase(StreamPhase::Answering);
            self.stream_scheduler(stream)
                .schedule_event(DELAYED_RESPONSE_EVENT);
            return StreamAction::Stop;
        }
        self.respond_immediately()
    }

    /// Sends the driver's response at once.
    pub(super) fn respond_immediately(&mut self) -> StreamAction {
        self.enter_stream_phase(StreamPhase::Passing);
        let driver = self.driver.take();
        driver.map_or(StreamAction::Continue, |driver| {
            StreamAction::Respond(Box::new(driver))
        })
    }
}
