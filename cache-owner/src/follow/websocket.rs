//! JSON-RPC over a WebSocket: calls with their responses, and notifications.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::HeaderMap;
use sszip_connect::connector::{NodeConnection, NodeConnector};
use sszip_connect::error_text::format_error_causes;
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::{mpsc, oneshot, Notify};
use tokio::time::{timeout, Instant};
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::WebSocketStream;

use super::execution::{self, RpcMessageKind as Kind};

/// Maximum length of a message in bytes.
const MAX_MESSAGE_BYTES: usize = 8 << 20;

/// First and longest pause before a reconnection; it doubles with each failure.
const FIRST_RECONNECT_PAUSE: Duration = Duration::from_millis(250);
const MAX_RECONNECT_PAUSE: Duration = Duration::from_secs(15);

/// Id of the subscription request; calls have higher ids.
const SUBSCRIPTION_ID: u64 = 0;

/// A JSON-RPC call that waits to be written to the WebSocket, with the channel of its response.
struct QueuedWebSocketCall {
    id: u64,
    request: String,
    answer: oneshot::Sender<Bytes>,
}

/// The WebSocket client of a followed node; its connection is opened on demand and shared by all
/// calls.
pub struct WebSocketNodeClient {
    connector: NodeConnector,
    url: String,
    fields: HeaderMap,
    timeout: Duration,
    /// Notified of new heads.
    news: Arc<Notify>,
    state: Mutex<WebSocketReconnectState>,
    opening: tokio::sync::Mutex<()>,
}

/// The state of the connection: its call queue while it is open, and the pause before the next
/// attempt.
#[derive(Default)]
struct WebSocketReconnectState {
    calls: Option<mpsc::UnboundedSender<QueuedWebSocketCall>>,
    id: u64,
    wait: Duration,
    not_before: Option<Instant>,
    why: String,
}

impl WebSocketNodeClient {
    /// Creates a client of the node at `url`, without a connection; `news` is notified of new
    /// heads.
    pub fn new(
        connector: NodeConnector,
        url: &str,
        fields: HeaderMap,
        timeout: Duration,
        news: Arc<Notify>,
    ) -> Self {
        Self {
            connector,
            url: url.to_owned(),
            fields,
            timeout,
            news,
            state: Mutex::new(WebSocketReconnectState {
                id: SUBSCRIPTION_ID,
                wait: FIRST_RECONNECT_PAUSE,
                ..WebSocketReconnectState::default()
            }),
            opening: tokio::sync::Mutex::default(),
        }
    }

    /// Sends a JSON-RPC request, which `make` encodes with its id, and returns the response.
    ///
    /// # Errors
    /// The reason why there is no response. The message is for operators.
    pub async fn send_call(&self, make: impl Fn(u64) -> String) -> Result<Bytes, String> {
        let called = async {
            let calls = self.open_websocket_call_queue().await?;
            let id = {
                let mut state = lock_ignoring_poison(&self.state);
                state.id += 1;
                state.id
            };
            let (answer, answered) = oneshot::channel();
            let request = make(id);
            let call = QueuedWebSocketCall {
                id,
                request,
                answer,
            };
            let closed = || "the connection was closed".to_owned();
            calls.send(call).map_err(|_| closed())?;
            answered.await.map_err(|_| closed())
        };
        match timeout(self.timeout, called).await {
            Ok(answer) => answer,
            Err(_) => {
                // a connection that hangs may do so permanently
                let why = format!("no response within {} ms", self.timeout.as_millis());
                self.record_connection_failure(&why);
                Err(why)
            }
        }
    }

    /// Returns the queue of the open connection, or opens a connection.
    async fn open_websocket_call_queue(
        &self,
    ) -> Result<mpsc::UnboundedSender<QueuedWebSocketCall>, String> {
        // one attempt at a time
        let _opening = self.opening.lock().await;
        {
            let state = lock_ignoring_poison(&self.state);
            if let Some(calls) = state.calls.as_ref().filter(|calls| !calls.is_closed()) {
                return Ok(calls.clone());
            }
            if state.not_before.is_some_and(|at| Instant::now() < at) {
                return Err(state.why.clone());
            }
        }
        match timeout(self.timeout, self.connect_websocket()).await {
            Ok(Ok(stream)) => {
                let (calls, queue) = mpsc::unbounded_channel();
                let mut state = lock_ignoring_poison(&self.state);
                state.calls = Some(calls.clone());
                "the connection was closed".clone_into(&mut state.why);
                // reconnected at once only if it has worked for a while
                state.not_before = Some(Instant::now() + state.wait);
                tokio::spawn(run_node_websocket(stream, queue, Arc::clone(&self.news)));
                Ok(calls)
            }
            Ok(Err(why)) => {
                self.record_connection_failure(&why);
                Err(why)
            }
            Err(_) => {
                let why = format!("no connection within {} ms", self.timeout.as_millis());
                self.record_connection_failure(&why);
                Err(why)
            }
        }
    }

    async fn connect_websocket(&self) -> Result<WebSocketStream<NodeConnection>, String> {
        let mut request = self
            .url
            .as_str()
            .into_client_request()
            .map_err(|error| format_error_causes(&error))?;
        request.headers_mut().extend(self.fields.clone());
        let stream = self.connector.open_node_connection().await;
        let stream = stream.map_err(|error| format_error_causes(&error))?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        let (stream, _) = client_async_with_config(request, stream, Some(config))
            .await
            .map_err(|error| format_error_causes(&error))?;
        Ok(stream)
    }

    /// Resets the pauses after a response: the next failure counts as the first one.
    pub fn reset_backoff(&self) {
        let mut state = lock_ignoring_poison(&self.state);
        state.wait = FIRST_RECONNECT_PAUSE;
        state.not_before = None;
    }

    fn record_connection_failure(&self, why: &str) {
        let mut state = lock_ignoring_poison(&self.state);
        state.calls = None;
        why.clone_into(&mut state.why);
        state.not_before = Some(Instant::now() + state.wait);
        state.wait = (state.wait * 2).min(MAX_RECONNECT_PAUSE);
    }
}

/// Carries calls and responses until either side closes the connection.
async fn run_node_websocket(
    mut stream: WebSocketStream<NodeConnection>,
    mut queue: mpsc::UnboundedReceiver<QueuedWebSocketCall>,
    news: Arc<Notify>,
) {
    let mut waiting: HashMap<u64, oneshot::Sender<Bytes>> = HashMap::new();
    // a node without subscriptions responds with an error, and is polled
    let subscribe = Message::text(execution::encode_head_subscription(SUBSCRIPTION_ID));
    if stream.send(subscribe).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            call = queue.recv() => {
                let Some(QueuedWebSocketCall { id, request, answer }) = call else {
                    break;
                };
                // calls whose caller has stopped waiting
                waiting.retain(|_, answer| !answer.is_closed());
                waiting.insert(id, answer);
                if stream.send(Message::text(request)).await.is_err() {
                    return;
                }
            }
            message = stream.next() => match message {
                Some(Ok(Message::Text(text))) => match execution::classify_websocket_message(&text) {
                    Kind::Answer(id) => if let Some(answer) = waiting.remove(&id) {
                        // the caller may have stopped waiting
                        let _ = answer.send(Bytes::from(text));
                    },
                    Kind::Notification => news.notify_one(),
                    Kind::Other => {}
                },
                // the library answers pings with the next read
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return,
            }
        }
    }
    // a failure needs no action
    let _ = stream.close(None).await;
}
