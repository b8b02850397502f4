//! The client of a node, for all protocols.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use sszip_core::cache::owner::tracker::{BlockHash, NodeQuery, NodeResult};
use sszip_core::config::endpoint::NodeEndpoint;
use sszip_core::config::head_source::{HeadSource, NodeApi};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::connect::NodeConnector;
use super::http::{node_request_headers, HttpNodeClient};
use super::websocket::WebSocketNodeClient;
use super::{beacon, execution};

/// Minimum and maximum timeout of a request, which otherwise is the poll interval.
const MIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause before an event stream is opened again, and time without bytes after which it is
/// closed: heads come every 12 seconds, and nodes send comments.
const REOPEN_PAUSE: Duration = Duration::from_secs(5);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// The client of a followed node: JSON-RPC over HTTP or a WebSocket, or the Beacon API.
pub enum NodeClient {
    /// JSON-RPC over HTTP.
    Execution(HttpNodeClient),
    /// JSON-RPC over a WebSocket.
    WebSocket(WebSocketNodeClient),
    /// The Beacon API.
    Beacon(HttpNodeClient),
}

impl NodeClient {
    /// Creates the client of the followed node. `news` is notified of new heads, as far as the node
    /// reports them without a poll.
    ///
    /// # Errors
    /// The configuration is invalid. The message is for operators.
    pub fn new(follow: &HeadSource, news: Arc<Notify>) -> Result<Self, String> {
        let endpoint = NodeEndpoint::parse_url(&follow.url).ok_or("the URL is invalid")?;
        let timeout =
            Duration::from_millis(follow.interval).clamp(MIN_REQUEST_TIMEOUT, MAX_REQUEST_TIMEOUT);
        Ok(match (follow.api, endpoint.is_websocket) {
            (NodeApi::Execution, false) => {
                Self::Execution(HttpNodeClient::new(follow, &endpoint, timeout)?)
            }
            (NodeApi::Execution, true) => {
                let connector = NodeConnector::new(&endpoint, follow.ca.as_deref())?;
                let fields = node_request_headers(follow)?;
                let socket =
                    WebSocketNodeClient::new(connector, &follow.url, fields, timeout, news);
                Self::WebSocket(socket)
            }
            (NodeApi::Beacon, false) => {
                Self::Beacon(HttpNodeClient::new(follow, &endpoint, timeout)?)
            }
            (NodeApi::Beacon, true) => {
                return Err("the Beacon API is not available over WebSockets".into());
            }
        })
    }

    /// Sends a tracker's query to the node, and returns the result.
    ///
    /// # Errors
    /// The reason why there is no result: the node fails or is unreachable. The message is for
    /// operators.
    pub async fn query_node(&self, query: NodeQuery) -> Result<NodeResult, String> {
        match self {
            Self::Execution(http) => {
                let body = http
                    .post_json(execution::encode_tracker_query(query, 1))
                    .await?;
                execution::decode_query_response(query, &body)
            }
            Self::WebSocket(socket) => {
                let body = socket
                    .send_call(|id| execution::encode_tracker_query(query, id))
                    .await?;
                socket.reset_backoff();
                execution::decode_query_response(query, &body)
            }
            Self::Beacon(http) => beacon::query_beacon_node(http, query).await,
        }
    }

    /// Queries the number of the block that contains a transaction. Returns `None` if no block
    /// does, or if the protocol of this node has no transactions.
    ///
    /// # Errors
    /// The errors of [`query_node`](Self::query_node).
    pub async fn query_transaction_block(
        &self,
        transaction: &BlockHash,
    ) -> Result<Option<u64>, String> {
        let body = match self {
            Self::Execution(http) => {
                http.post_json(execution::encode_transaction_receipt_request(
                    transaction,
                    1,
                ))
                .await?
            }
            Self::WebSocket(socket) => {
                let request = |id| execution::encode_transaction_receipt_request(transaction, id);
                socket.send_call(request).await?
            }
            Self::Beacon(_) => return Ok(None),
        };
        execution::decode_receipt_block_number(&body)
    }

    /// Notifies `news` of each event that the node sends. Never returns.
    pub async fn listen_for_heads(&self, news: &Notify) {
        let Self::Beacon(http) = self else {
            // a WebSocket notifies on its own
            return std::future::pending().await;
        };
        loop {
            // the node is polled too: a missing stream is no error
            if let Ok(mut body) = http.open_node_event_stream(beacon::EVENTS_PATH).await {
                while let Ok(Some(Ok(frame))) = timeout(SILENCE_TIMEOUT, body.frame()).await {
                    let is_event =
                        |bytes: &bytes::Bytes| bytes.windows(6).any(|part| part == b"event:");
                    if frame.data_ref().is_some_and(is_event) {
                        news.notify_one();
                    }
                }
            }
            sleep(REOPEN_PAUSE).await;
        }
    }
}
