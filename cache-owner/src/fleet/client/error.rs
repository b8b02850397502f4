//! Errors of commands, and their effect on the circuit breaker.

use redis::{ErrorKind, RedisError, ServerError};
use sszip_core::cache::fleet::breaker::Outcome;
use sszip_core::cache::fleet::reply_limit::ReplyViolation;
use sszip_core::log::escape_log_text;

/// Maximum length of a text of the server in errors and log lines, in characters.
const MAX_TEXT: usize = 120;

/// The reason why a command has no result. Texts of the server are escaped and short.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    /// The server has not replied in time.
    #[error("no reply in time")]
    Timeout,
    /// Too many lookups are in flight.
    #[error("too many lookups are in flight")]
    Busy,
    /// The command was not sent: there is no connection, or the circuit breaker is open.
    #[error("the server is not used at present")]
    Open,
    /// The connection failed.
    #[error("{0}")]
    Connection(String),
    /// The server replied with an error.
    #[error("the server rejected the command: {0}")]
    Rejected(String),
    /// A reply is longer than its limit. The connection was closed.
    #[error("a reply is longer than its limit")]
    ReplyTooLong,
}

/// Returns the error of a command whose connection failed. `violation`: the limit that the server's
/// bytes violated, if that is the reason.
pub(super) fn connection_error(
    error: &RedisError,
    violation: Option<ReplyViolation>,
) -> FleetError {
    use ReplyViolation::{Bulk, Depth, Elements, Length, Line, Memory, Reply, Terminator, Type};
    match violation {
        Some(Bulk | Elements | Reply | Line | Depth) => FleetError::ReplyTooLong,
        Some(violation @ (Type | Length | Terminator | Memory)) => {
            FleetError::Connection(violation.name().into())
        }
        None => FleetError::Connection(match error.kind() {
            // its text contains the received bytes
            ErrorKind::Parse => "the server sent an invalid reply".into(),
            // its text has no reply of the server
            ErrorKind::AuthenticationFailed => {
                "the server rejected the user or the password; check user= and password_file="
                    .into()
            }
            _ => bound_text(&error.to_string()),
        }),
    }
}

/// Returns the text of a server's error.
pub(super) fn format_server_error(error: &ServerError) -> String {
    let text = match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    };
    bound_text(&text)
}

/// Returns the outcome of a command to which the server replied with an error. Most errors are of
/// the command: the server works.
pub(super) fn outcome_of_server_error(error: &ServerError) -> Outcome {
    match error.code() {
        "LOADING" | "BUSY" | "MASTERDOWN" | "CLUSTERDOWN" | "MOVED" | "ASK" | "NOAUTH"
        | "WRONGPASS" | "NOPERM" | "DENIED" => Outcome::Failure,
        "ERR" if is_client_limit(error) => Outcome::Failure,
        _ => Outcome::Success,
    }
}

/// Whether the server refuses the connection, as it has too many.
fn is_client_limit(error: &ServerError) -> bool {
    let details = error.details().unwrap_or_default();
    details.starts_with("max number of clients")
}

/// Returns the outcome of a lookup to which the server replied with an error. Only an error about
/// the value of its key is of the lookup: with others, all lookups would wait for an error.
pub(super) fn outcome_of_lookup_error(error: &ServerError) -> Outcome {
    match error.code() {
        "WRONGTYPE" => Outcome::Success,
        _ => Outcome::Failure,
    }
}

/// Whether a server that replies to a store with this error refuses writes, and may serve reads.
/// Stores have no errors about the value of their key.
pub(super) fn refuses_writes(error: &ServerError) -> bool {
    error.code() == "NOPERM" || outcome_of_server_error(error) == Outcome::Success
}

/// Escapes a text of the server and limits its length.
pub(super) fn bound_text(text: &str) -> String {
    // escapes make it longer, never shorter
    let start: String = text.chars().take(MAX_TEXT).collect();
    let escaped = escape_log_text(&start);
    let end = escaped.char_indices().nth(MAX_TEXT);
    match end {
        Some((end, _)) => escaped.get(..end).unwrap_or_default().to_owned(),
        None => escaped.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{bound_text, MAX_TEXT};

    #[test]
    fn text_of_a_server_is_escaped_and_bounded() {
        assert_eq!(bound_text("ERR a\r\nb"), "ERR a\\r\\nb");
        assert_eq!(bound_text(&"\u{1b}".repeat(9_000)).len(), MAX_TEXT);
        assert_eq!(bound_text(&"\u{e9}".repeat(200)).chars().count(), MAX_TEXT);
        assert_eq!(bound_text(""), "");
    }
}
