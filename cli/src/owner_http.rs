//! HTTP requests to the owner of a machine's cache, over its Unix socket (docs/owner-protocol.md).

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hyper::Method;
use serde_json::Value;
use sszip_core::config::endpoint::{NodeEndpoint, NodeSocketAddress};

use crate::http_client::{
    run_blocking, ConnectFailureKind, ConnectionOptions, HttpClient, HttpError,
};
use crate::server_text::printable;
use crate::target::Target;
use crate::CommandError;

/// Maximum length of a response. The owner's are some kilobytes long.
const MAX_RESPONSE_BYTES: usize = 8 << 20;

/// A request to an owner.
pub struct OwnerRequest<'a> {
    /// Method and target: `GET /v1/status`.
    pub line: &'a str,
    /// JSON, or empty.
    pub body: &'a str,
    /// Timeout of the request and its response.
    pub timeout: Duration,
}

/// Returns the target of an owner's socket.
pub fn owner_target(socket: &Path) -> Target {
    Target {
        text: socket.display().to_string(),
        endpoint: NodeEndpoint {
            transport: NodeSocketAddress::Unix(socket.into()),
            is_websocket: false,
            authority: "localhost".into(),
            path: "/".into(),
        },
    }
}

/// Sends a request to the owner that listens on `socket`, and returns the JSON of its response.
///
/// # Errors
/// No owner listens there, it does not respond in time, or it reports an error.
pub fn send_owner_request(
    socket: &Path,
    request: &OwnerRequest<'_>,
) -> Result<Value, CommandError> {
    let (method, path) = request
        .line
        .split_once(' ')
        .unwrap_or(("GET", request.line));
    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
    let options = ConnectionOptions {
        ca: None,
        headers: Vec::new(),
        timeout: request.timeout,
        max_response: MAX_RESPONSE_BYTES,
        connections: 1,
    };
    let client = HttpClient::new(&owner_target(socket), &options)?;
    let body = Bytes::copy_from_slice(request.body.as_bytes());
    let reply = run_blocking(async {
        let reply = client.send(method, Some(path), &[], body).await;
        reply.map_err(|error| owner_error(socket, &error))
    })?;
    let unexpected = || {
        CommandError::Data(format!(
            "{} is not the socket of an sszip owner",
            socket.display()
        ))
    };
    let json: Value = serde_json::from_slice(&reply.body).map_err(|_| unexpected())?;
    match (reply.status.as_u16(), json["detail"].as_str()) {
        (200, _) => Ok(json),
        (_, Some(detail)) => Err(CommandError::Data(printable(detail))),
        _ => Err(unexpected()),
    }
}

fn owner_error(socket: &Path, error: &HttpError) -> CommandError {
    let owner = socket.display();
    CommandError::Data(match error {
        HttpError::Timeout(after) => format!(
            "the owner at {owner} does not respond: no response within {} s",
            after.as_secs()
        ),
        HttpError::Connect(failure) if failure.kind == ConnectFailureKind::Permission => {
            format!("cannot open the socket {owner}: {failure}; run the command as its user")
        }
        HttpError::Connect(failure) => format!(
            "cannot query the owner at {owner}: {failure}; check that sszip-cached, nginx or \
             Envoy runs, and the path of its socket"
        ),
        HttpError::Cut(_) | HttpError::TooLong(_) => {
            format!("{owner} is not the socket of an sszip owner: {error}")
        }
    })
}
