//! Pipelined requests of an HTTP/1 client. Envoy closes a connection when a request begins while two
//! responses are unsent, and a response from a hook is unsent until Envoy has read all input.
//!
//! Every second response of the filter on a connection, and its first one after a node's response, is
//! therefore sent in a later call of the root, by which time the previous response is sent.

use std::cell::Cell;

use crate::abi;

/// Number of connections of a worker that are distinguished for certain.
const CONNECTIONS: usize = 1024;

/// Property with the number of a request's connection.
const CONNECTION_ID_PROPERTY: &str = "connection\0id";

/// Property with the version of HTTP.
const PROTOCOL_PROPERTY: &str = "request\0protocol";

thread_local! {
    /// Connections that may have an unsent response, by id modulo the length; 0: none.
    static UNSENT_CONNECTIONS: [Cell<u64>; CONNECTIONS] = const { [const { Cell::new(0) }; CONNECTIONS] };
}

/// The connection of a request, and whether it may have an unsent response.
#[derive(Clone, Copy, Debug, Default)]
pub struct PipelinePosition {
    connection: u64,
    follows_unsent: bool,
}

impl PipelinePosition {
    /// Marks the connection of the effective context's request as having an unsent response.
    pub fn for_request() -> Self {
        let id = abi::proxy_property(CONNECTION_ID_PROPERTY);
        let connection = id
            .first_chunk::<8>()
            .map_or(0, |id| u64::from_le_bytes(*id));
        Self {
            connection,
            follows_unsent: connection != 0 && swap_entry(connection, connection) == connection,
        }
    }

    /// Whether the response must be sent in a later call of the root.
    pub fn delays_response(self) -> bool {
        let delays =
            self.follows_unsent && abi::proxy_property(PROTOCOL_PROPERTY).starts_with(b"HTTP/1");
        if delays {
            swap_entry(self.connection, 0);
        }
        delays
    }
}

/// Replaces the table's entry of a connection, and returns the previous one.
fn swap_entry(connection: u64, known: u64) -> u64 {
    UNSENT_CONNECTIONS.with(|all| all[connection as usize % CONNECTIONS].replace(known))
}
