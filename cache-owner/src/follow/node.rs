//! The client of a node, for all protocols.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use sszip_core::cache::owner::tracker::{BlockHash, NodeQuery, NodeResult};
use sszip_core::config::endpoint::Endpoint;
use sszip_core::config::head_source::{Api, HeadSource};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::connect::Connector;
use super::http::{request_headers, HttpNode};
use super::websocket::WebSocket;
use super::{beacon, execution};

/// Minimum and maximum timeout of a request, which otherwise is the poll interval.
const LEAST_TIMEOUT: Duration = Duration::from_secs(2);
const MOST_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause before an event stream is opened again, and time without bytes after which it is
/// closed: heads come every 12 seconds, and nodes send comments.
const REOPEN: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_secs(120);

/// The client of a followed node, in the protocol of its API and URL.
pub enum NodeClient {
    /// JSON-RPC over HTTP.
    Execution(HttpNode),
    /// JSON-RPC over a WebSocket.
    WebSocket(WebSocket),
    /// The Beacon API.
    Beacon(HttpNode),
}

impl NodeClient {
    /// Creates the client of the followed node. `news` is notified of new heads, as far as the node
    /// reports them without a poll.
    ///
    /// # Errors
    /// The configuration is invalid. The message is for operators.
    pub fn new(follow: &HeadSource, news: Arc<Notify>) -> Result<Self, String> {
        let endpoint = Endpoint::parse(&follow.url).ok_or("the URL is invalid")?;
        let timeout = Duration::from_millis(follow.interval).clamp(LEAST_TIMEOUT, MOST_TIMEOUT);
        Ok(match (follow.api, endpoint.is_websocket) {
            (Api::Execution, false) => Self::Execution(HttpNode::new(follow, &endpoint, timeout)?),
            (Api::Execution, true) => {
                let connector = Connector::new(&endpoint, follow.ca.as_deref())?;
                let fields = request_headers(follow)?;
                let socket = WebSocket::new(connector, &follow.url, fields, timeout, news);
                Self::WebSocket(socket)
            }
            (Api::Beacon, false) => Self::Beacon(HttpNode::new(follow, &endpoint, timeout)?),
            (Api::Beacon, true) => {
                return Err("the Beacon API is not available over WebSockets".into());
            }
        })
    }

    /// Sends a query of the tracker to the node.
    ///
    /// # Errors
    /// The reason why there is no result: the node fails or is unreachable. The message is for
    /// operators.
    pub async fn query(&self, query: NodeQuery) -> Result<NodeResult, String> {
        match self {
            Self::Execution(http) => {
                let body = http.post(execution::request(query, 1)).await?;
                execution::decode_response(query, &body)
            }
            Self::WebSocket(socket) => {
                let body = socket.call(|id| execution::request(query, id)).await?;
                socket.reset_backoff();
                execution::decode_response(query, &body)
            }
            Self::Beacon(http) => beacon::query(http, query).await,
        }
    }

    /// Queries the number of the block of a transaction. Returns `None` if it is in no block, or if
    /// the protocol of this node has no transactions.
    ///
    /// # Errors
    /// The errors of [`query`](Self::query).
    pub async fn transaction_block(&self, transaction: &BlockHash) -> Result<Option<u64>, String> {
        let body = match self {
            Self::Execution(http) => http.post(execution::receipt(transaction, 1)).await?,
            Self::WebSocket(socket) => {
                let request = |id| execution::receipt(transaction, id);
                socket.call(request).await?
            }
            Self::Beacon(_) => return Ok(None),
        };
        execution::receipt_block(&body)
    }

    /// Notifies `news` of the events that the node sends. Never returns.
    pub async fn listen(&self, news: &Notify) {
        let Self::Beacon(http) = self else {
            // a WebSocket notifies on its own
            return std::future::pending().await;
        };
        loop {
            // the node is polled too: a missing stream is no error
            if let Ok(mut body) = http.events(beacon::EVENTS).await {
                while let Ok(Some(Ok(frame))) = timeout(SILENCE, body.frame()).await {
                    let is_event =
                        |bytes: &bytes::Bytes| bytes.windows(6).any(|part| part == b"event:");
                    if frame.data_ref().is_some_and(is_event) {
                        news.notify_one();
                    }
                }
            }
            sleep(REOPEN).await;
        }
    }
}
