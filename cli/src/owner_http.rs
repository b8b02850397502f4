//! HTTP requests to the owner of a machine's cache, over its Unix socket (docs/owner-protocol.md).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sszip_core::log::escape_log_text;

use crate::CommandError;

/// Maximum length of a response. The owner's are some kilobytes long.
const MAX_RESPONSE_BYTES: u64 = 8 << 20;

/// A request to an owner.
pub struct OwnerRequest<'a> {
    /// Method and target: `GET /v1/status`.
    pub line: &'a str,
    /// JSON, or empty.
    pub body: &'a str,
    /// Timeout of each read and write.
    pub timeout: Duration,
}

/// Sends a request to the owner that listens on `socket`, and returns the JSON of its response.
///
/// # Errors
/// No owner listens there, it does not respond in time, or it reports an error.
pub fn send_owner_request(
    socket: &Path,
    request: &OwnerRequest<'_>,
) -> Result<Value, CommandError> {
    let owner = socket.display();
    let response = exchange_bytes(socket, request).map_err(|error| {
        CommandError::Data(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!(
                "the owner at {owner} does not respond: no response within {} s",
                request.timeout.as_secs()
            ),
            io::ErrorKind::PermissionDenied => {
                format!("cannot open the socket {owner}: {error}; run the command as its user")
            }
            _ => format!(
                "cannot query the owner at {owner}: {error}; check that sszip-cached, nginx or \
                 Envoy runs, and the path of its socket"
            ),
        })
    })?;
    let unexpected = || CommandError::Data(format!("{owner} is not the socket of an sszip owner"));
    let (status, body) = split_response(&response).ok_or_else(unexpected)?;
    let json: Value = serde_json::from_slice(body).map_err(|_| unexpected())?;
    match (status, json["detail"].as_str()) {
        (200, _) => Ok(json),
        (_, Some(detail)) => Err(CommandError::Data(escape_log_text(detail).into_owned())),
        _ => Err(unexpected()),
    }
}

fn exchange_bytes(socket: &Path, request: &OwnerRequest<'_>) -> io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(request.timeout))?;
    stream.set_write_timeout(Some(request.timeout))?;
    let OwnerRequest { line, body, .. } = request;
    let length = body.len();
    let text = format!(
        "{line} HTTP/1.1\r\nHost: sszip\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes())?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response)?;
    Ok(response)
}

/// Returns the status and the body of a response.
fn split_response(response: &[u8]) -> Option<(u16, &[u8])> {
    const END: &[u8] = b"\r\n\r\n";
    let end = response.windows(END.len()).position(|it| it == END)?;
    let head = std::str::from_utf8(&response[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    Some((status.parse().ok()?, &response[end + END.len()..]))
}
