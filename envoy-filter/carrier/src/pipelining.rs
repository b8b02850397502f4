//! Pipelined requests of an HTTP/1 client.
//!
//! Envoy closes a connection when a request begins while two responses are unsent, and a response
//! from a hook is unsent until Envoy has read all input. If an upstream response ends with an empty
//! piece, its end counts as unsent as well, until there is more to send.
//!
//! Every second response of the filter on a connection, and its first one after an upstream
//! response, is therefore sent in a later event, by which time the previous response is sent.

use std::cell::Cell;

/// Number of connections of a thread that are distinguished for certain.
const CONNECTIONS: usize = 1024;

thread_local! {
    /// Connections that may have an unsent response, by id modulo the length; 0: none.
    static UNSENT_CONNECTIONS: [Cell<u64>; CONNECTIONS] = const { [const { Cell::new(0) }; CONNECTIONS] };
}

/// The connection of a request, and whether the previous response on it may be unsent.
#[derive(Clone, Copy, Debug, Default)]
pub struct PipelinePosition {
    connection: u64,
    follows_unsent: bool,
}

impl PipelinePosition {
    /// Marks the connection of a request that begins as having an unsent response. `connection`:
    /// its id; 0: unknown.
    pub fn record_request(connection: u64) -> Self {
        Self {
            connection,
            follows_unsent: swap_unsent_connection(connection, connection) == connection
                && connection != 0,
        }
    }

    /// Whether a response that is ready must be sent in a later event. `protocol`: reads the
    /// version of HTTP of the request.
    pub fn delays_response<Protocol: AsRef<[u8]>>(
        self,
        protocol: impl FnOnce() -> Protocol,
    ) -> bool {
        let delays = self.follows_unsent && protocol().as_ref().starts_with(b"HTTP/1");
        if delays {
            swap_unsent_connection(self.connection, 0);
        }
        delays
    }
}

/// Replaces the table's entry of a connection, and returns the previous one.
fn swap_unsent_connection(connection: u64, entry: u64) -> u64 {
    UNSENT_CONNECTIONS.with(|all| all[connection as usize % CONNECTIONS].replace(entry))
}

#[cfg(test)]
mod tests {
    use super::{PipelinePosition, CONNECTIONS};

    /// Returns which of `count` responses on a connection are delayed, each sent before the next
    /// request begins.
    fn delayed_responses(connection: u64, protocol: &str, count: usize) -> Vec<bool> {
        let requests = (0..count).map(|_| PipelinePosition::record_request(connection));
        requests
            .map(|position| position.delays_response(|| protocol))
            .collect()
    }

    #[test]
    fn every_second_response_of_an_http_1_connection_is_delayed() {
        let expected = [false, true, false, true, false];
        assert_eq!(delayed_responses(1, "HTTP/1.1", 5), expected);
        assert_eq!(delayed_responses(2, "HTTP/1.0", 5), expected);
        assert_eq!(delayed_responses(3, "HTTP/2", 3), [false; 3]);
        assert_eq!(delayed_responses(0, "HTTP/1.1", 3), [false; 3]);
    }

    #[test]
    fn response_after_an_upstream_response_is_delayed() {
        // the upstream's response is not the filter's to delay
        PipelinePosition::record_request(1);
        PipelinePosition::record_request(1);
        assert_eq!(delayed_responses(1, "HTTP/1.1", 2), [true, false]);
    }

    #[test]
    fn responses_of_other_connections_are_not_delayed() {
        let first = PipelinePosition::record_request(5);
        let second = PipelinePosition::record_request(6);
        assert!(!first.delays_response(|| "HTTP/1.1") && !second.delays_response(|| "HTTP/1.1"));
        // the same slot of the table
        PipelinePosition::record_request(7);
        let other = PipelinePosition::record_request(7 + CONNECTIONS as u64);
        assert!(!other.delays_response(|| "HTTP/1.1"));
    }

    #[test]
    fn protocol_is_read_only_if_the_previous_response_may_be_unsent() {
        let position = PipelinePosition::record_request(8);
        assert!(!position.delays_response(|| -> &str { unreachable!("the first request") }));
    }
}
