//! Pipelined requests of an HTTP/1 client.
//!
//! Envoy closes a connection when a request begins while two responses are unsent, and a response
//! from a hook is unsent until Envoy has read all input. If an upstream response ends with an empty
//! piece, its end counts as unsent as well, until there is more to send.
//!
//! Every second response of the filter within one read event of a connection, and its first one after
//! an upstream response, is therefore sent in a later event, by which time the previous response is
//! sent. A read event has ended when a request of another connection begins.

use std::cell::Cell;

/// Number of connections of a thread that are distinguished for certain.
const CONNECTIONS: usize = 1024;

thread_local! {
    /// Connections that may have an unsent response, by id modulo the length.
    static UNSENT_RESPONSES: [Cell<UnsentResponse>; CONNECTIONS] =
        const { [const { Cell::new(UnsentResponse::NONE) }; CONNECTIONS] };
    /// The present read event, as far as the filter distinguishes them.
    static READ_EVENT: Cell<ReadEvent> = const { Cell::new(ReadEvent { connection: 0, number: 0 }) };
}

/// A connection that may have an unsent response.
#[derive(Clone, Copy, Debug)]
struct UnsentResponse {
    /// The id of the connection; 0: none.
    connection: u64,
    /// The number of the read event with whose end the response is sent. `None`: it may be unsent
    /// for any time.
    sent_after: Option<u64>,
}

impl UnsentResponse {
    const NONE: Self = Self {
        connection: 0,
        sent_after: None,
    };
}

/// A sequence of calls of the proxy that all concern one connection; it has one or more read events.
#[derive(Clone, Copy, Debug)]
struct ReadEvent {
    connection: u64,
    number: u64,
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
        let event = read_event_of_connection(connection);
        let previous = replace_unsent_response(
            connection,
            UnsentResponse {
                connection,
                sent_after: None,
            },
        );
        Self {
            connection,
            follows_unsent: previous.connection == connection
                && connection != 0
                && previous.sent_after.is_none_or(|last| last == event),
        }
    }

    /// Whether a response that is ready must be sent in a later event; otherwise it is sent in the
    /// present one, which is a read event of the connection. `protocol`: reads the version of HTTP
    /// of the request.
    pub fn delays_response<Protocol: AsRef<[u8]>>(
        self,
        protocol: impl FnOnce() -> Protocol,
    ) -> bool {
        let delays = self.follows_unsent && protocol().as_ref().starts_with(b"HTTP/1");
        match delays {
            true => replace_unsent_response(self.connection, UnsentResponse::NONE),
            false => {
                let sent_after = Some(read_event_of_connection(self.connection));
                let unsent = UnsentResponse {
                    connection: self.connection,
                    sent_after,
                };
                replace_unsent_response(self.connection, unsent)
            }
        };
        delays
    }
}

/// Returns the number of the present read event, which is one of `connection`.
fn read_event_of_connection(connection: u64) -> u64 {
    let mut event = READ_EVENT.get();
    if event.connection != connection {
        event = ReadEvent {
            connection,
            number: event.number + 1,
        };
        READ_EVENT.set(event);
    }
    event.number
}

/// Replaces the table's entry of a connection, and returns the previous one.
fn replace_unsent_response(connection: u64, entry: UnsentResponse) -> UnsentResponse {
    UNSENT_RESPONSES.with(|all| all[connection as usize % CONNECTIONS].replace(entry))
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
    fn every_second_response_within_a_read_event_is_delayed_in_http_1() {
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
    fn response_is_not_delayed_once_another_connection_was_read() {
        for _ in 0..3 {
            assert_eq!(delayed_responses(20, "HTTP/1.1", 1), [false]);
            assert_eq!(delayed_responses(21, "HTTP/1.1", 1), [false]);
        }
        // the head of a request and its body arrive in two read events
        let first = PipelinePosition::record_request(22);
        assert_eq!(delayed_responses(23, "HTTP/1.1", 1), [false]);
        assert!(!first.delays_response(|| "HTTP/1.1"));
        assert_eq!(delayed_responses(22, "HTTP/1.1", 2), [true, false]);
    }

    #[test]
    fn response_after_an_upstream_response_is_delayed_whatever_was_read_since() {
        PipelinePosition::record_request(24);
        PipelinePosition::record_request(25);
        assert_eq!(delayed_responses(24, "HTTP/1.1", 2), [true, false]);
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
