//! The client of a node, for all protocols.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use sszip_connect::connector::NodeConnector;
use sszip_core::cache::owner::tracker::{BlockHash, NodeQuery, NodeResult};
use sszip_core::config::endpoint::NodeEndpoint;
use sszip_core::config::head_source::{HeadSource, NodeApi};
use sszip_core::time_constants::min_node_timeout;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::http::{node_request_headers, HttpNodeClient};
use super::websocket::WebSocketNodeClient;
use super::{beacon, execution};

/// Maximum timeout of a request, which otherwise is the poll interval.
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
        let least = Duration::from_millis(min_node_timeout());
        let timeout = Duration::from_millis(follow.interval).clamp(least, MAX_REQUEST_TIMEOUT);
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

    /// Whether the node's API has the duration of a slot, and no timestamps in blocks.
    pub fn reports_slot_time(&self) -> bool {
        matches!(self, Self::Beacon(_))
    }

    /// Queries the duration of a slot in milliseconds; `None` if the node does not report it now.
    pub async fn query_slot_time(&self) -> Option<u64> {
        match self {
            Self::Beacon(http) => beacon::fetch_slot_time(http).await,
            Self::Execution(_) | Self::WebSocket(_) => None,
        }
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
                let mut lines = EventLineDetector::at_line_start();
                while let Ok(Some(Ok(frame))) = timeout(SILENCE_TIMEOUT, body.frame()).await {
                    if frame.data_ref().is_some_and(|data| lines.read_frame(data)) {
                        news.notify_one();
                    }
                }
            }
            sleep(REOPEN_PAUSE).await;
        }
    }
}

/// Detects lines of the field `event` in a stream of server-sent events, whose frames may end
/// anywhere.
struct EventLineDetector {
    /// Number of bytes of the present line, while they are the first ones of [`Self::FIELD`].
    matched: Option<usize>,
}

impl EventLineDetector {
    const FIELD: &[u8] = b"event:";

    fn at_line_start() -> Self {
        Self { matched: Some(0) }
    }

    /// Reads the next bytes of the stream. Returns whether the field's name and colon end in them.
    fn read_frame(&mut self, frame: &[u8]) -> bool {
        let mut is_event = false;
        for &byte in frame {
            self.matched = match self.matched {
                _ if matches!(byte, b'\n' | b'\r') => Some(0),
                Some(matched) if Self::FIELD.get(matched) == Some(&byte) => {
                    is_event |= matched + 1 == Self::FIELD.len();
                    Some(matched + 1)
                }
                _ => None,
            };
        }
        is_event
    }
}

#[cfg(test)]
mod tests {
    use super::EventLineDetector;

    #[test]
    fn event_line_is_detected_wherever_frames_end() {
        let stream = b":\n\nevent: head\r\ndata: {\"event:\":1}\n\n";
        for end in 0..stream.len() {
            let mut lines = EventLineDetector::at_line_start();
            let (first, second) = stream.split_at(end);
            let frames = [first, second].map(|frame| lines.read_frame(frame));
            let is_in_first = end >= b":\n\nevent:".len();
            assert_eq!(frames, [is_in_first, !is_in_first], "{end}");
        }
    }

    #[test]
    fn comments_and_data_are_no_event_lines() {
        let mut lines = EventLineDetector::at_line_start();
        for frame in [
            "events:\n",
            ":event:\n",
            "data: event:\n",
            "e",
            "evenT:",
            " event:",
        ] {
            assert!(!lines.read_frame(frame.as_bytes()), "{frame}");
        }
    }
}
