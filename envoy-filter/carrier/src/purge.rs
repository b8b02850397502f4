//! Purges: requests that are not forwarded, and their lines in the log.

use sszip_core::cache::process::wake::WaitingRequestId;
use sszip_core::exchange::drive::ExchangeDriver;
use sszip_core::exchange::PurgeHttpRequest;

use crate::head::HostMessageHead;

/// A log line about a finished purge. The client's address is in the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeLogLine {
    /// The line.
    pub text: String,
    /// The purge failed.
    pub is_error: bool,
}

/// Creates the core's purge request from a request head; `now` is the monotonic clock in
/// milliseconds.
pub fn create_purge_request_from_head(
    head: &impl HostMessageHead,
    waiter: WaitingRequestId,
    now: u64,
) -> PurgeHttpRequest<'_> {
    PurgeHttpRequest {
        method: head.request_method(),
        query: head.query(),
        namespace: None,
        waiter,
        now,
    }
}

/// Formats the line about a finished purge; `None`: the driver has no response.
pub fn purge_result_line(query: &[u8], driver: &ExchangeDriver) -> Option<PurgeLogLine> {
    let exchange = driver.available_exchange()?;
    let body: Vec<u8> = exchange.body_slices().flatten().copied().collect();
    Some(format_purge_result(
        query,
        exchange.stored_response_status(),
        &body,
    ))
}

/// Returns the log line for a purge; a status of 500 or more makes it an error.
fn format_purge_result(query: &[u8], status: u16, body: &[u8]) -> PurgeLogLine {
    let query = query.escape_ascii();
    let body = body.trim_ascii_end().escape_ascii();
    PurgeLogLine {
        text: format!("purge of \"{query}\": {status} {body}"),
        is_error: status >= 500,
    }
}

/// Formats the line about a client that closed its connection before the response. The owner
/// continues the purge.
pub fn abandoned_purge_line(query: &[u8]) -> String {
    let query = query.escape_ascii();
    format!(
        "purge of \"{query}\": the client closed the connection before the response; the purge \
         continues"
    )
}

#[cfg(test)]
mod tests {
    use super::{abandoned_purge_line, format_purge_result};

    #[test]
    fn purge_lines_are_single_lines_and_have_the_status() {
        let line = format_purge_result(b"key=a\nb", 200, b"{\"purged\":1}\n");
        assert_eq!(line.text, "purge of \"key=a\\nb\": 200 {\\\"purged\\\":1}");
        assert!(!line.is_error);
        assert!(
            format_purge_result(b"", 503, b"").is_error
                && !format_purge_result(b"", 405, b"").is_error
        );
        assert!(abandoned_purge_line(b"a\nb").starts_with("purge of \"a\\nb\": "));
    }
}
