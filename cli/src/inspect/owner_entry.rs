//! The entry of a key at the owner of a machine's cache (docs/owner-protocol.md, `HTTP`).

use std::path::Path;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{HeaderMap, AGE};
use hyper::{Method, StatusCode};

use super::MAX_RESPONSE_BYTES;
use crate::http_client::{connection_error, ConnectionOptions, HttpClient, HttpError, HttpReply};
use crate::owner_http::owner_target;
use crate::server_text::printable;
use crate::target::Target;
use crate::CommandError;

/// Connections to one owner, for lookups of entries.
pub struct OwnerEntries {
    client: HttpClient,
    target: Target,
}

/// The attributes of an entry; absent ones are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerEntry {
    /// `memory`; or `disk`: on disk, or being written there.
    pub tier: Option<String>,
    /// The class: `immutable`, `unfinalized`, `tip`, `config` or `resource`.
    pub class: Option<String>,
    /// The first half of the hash of the namespace, in hex digits.
    pub namespace: Option<String>,
    /// The JSON-RPC method.
    pub method: Option<String>,
    /// The number of the block.
    pub block: Option<u64>,
    /// Remaining TTL.
    pub fresh: Option<Duration>,
    /// Time since the request was sent to the node.
    pub age: Option<Duration>,
    /// Length of the encoded entry in bytes.
    pub length: u64,
}

/// The failure of a lookup at the owner.
#[derive(Debug)]
pub enum OwnerFailure {
    /// The owner did not respond.
    Http(HttpError),
    /// The owner has too many requests.
    Busy,
    /// The response is not from an owner of this version.
    Foreign(StatusCode),
}

impl OwnerFailure {
    /// Returns the cause, on one line.
    pub fn cause(&self) -> String {
        match self {
            Self::Http(error) => error.to_string(),
            Self::Busy => "it has too many requests".into(),
            Self::Foreign(status) => format!("unexpected response (HTTP {})", status.as_u16()),
        }
    }
}

impl OwnerEntries {
    /// Prepares connections to the owner at a socket.
    pub fn at_socket(
        socket: &Path,
        timeout: Duration,
        connections: usize,
    ) -> Result<Self, CommandError> {
        let target = owner_target(socket);
        // the headers of the user are the proxy's
        let options = ConnectionOptions {
            ca: None,
            headers: Vec::new(),
            timeout,
            max_response: MAX_RESPONSE_BYTES,
            connections,
        };
        let client = HttpClient::new(&target, &options)?;
        Ok(Self { client, target })
    }

    /// Returns the entry of a key; `None` if the owner has none. The entry is offered to the store
    /// on disk by its second request.
    pub async fn find(&self, key: &str) -> Result<Option<OwnerEntry>, OwnerFailure> {
        let path = format!("/v1/entries/{}", key.to_ascii_lowercase());
        let sent = self
            .client
            .send(Method::GET, Some(&path), &[], Bytes::new());
        let reply = sent.await.map_err(OwnerFailure::Http)?;
        let is_owner = reply.headers.contains_key("sszip-generation");
        match (reply.status, is_owner) {
            (StatusCode::OK, true) => Ok(Some(OwnerEntry::from_reply(&reply))),
            (StatusCode::NOT_FOUND, true) => Ok(None),
            (StatusCode::SERVICE_UNAVAILABLE, _) => Err(OwnerFailure::Busy),
            (status, _) => Err(OwnerFailure::Foreign(status)),
        }
    }

    /// Returns the error of the command for a failed lookup.
    pub fn command_error(&self, failure: &OwnerFailure) -> CommandError {
        let target = &self.target;
        match failure {
            OwnerFailure::Http(error) => connection_error(target, error),
            OwnerFailure::Busy => CommandError::Data(format!(
                "cannot query the owner at {target}: {}; repeat the command later",
                failure.cause()
            )),
            OwnerFailure::Foreign(_) => CommandError::Data(format!(
                "cannot query the owner at {target}: {}; check that it is the socket of an owner \
                 of this command's version (sszip doctor)",
                failure.cause()
            )),
        }
    }
}

impl OwnerEntry {
    fn from_reply(reply: &HttpReply) -> Self {
        let headers = &reply.headers;
        Self {
            tier: text_header(headers, "sszip-tier"),
            class: text_header(headers, "sszip-class"),
            namespace: text_header(headers, "sszip-namespace"),
            method: text_header(headers, "sszip-method"),
            block: number_header(headers, "sszip-block"),
            fresh: number_header(headers, "sszip-fresh").map(Duration::from_millis),
            age: number_header(headers, AGE.as_str()).map(Duration::from_secs),
            length: reply.body.len() as u64,
        }
    }

    /// Whether the entry is on disk, or being written there.
    pub fn is_on_disk(&self) -> bool {
        self.tier.as_deref() == Some("disk")
    }
}

fn text_header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(printable(headers.get(name)?.to_str().ok()?))
}

fn number_header(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
