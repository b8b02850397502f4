//! JSON-RPC over WebSocket, with `eth_subscribe` to `newHeads`.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use hyper::header::{self, HeaderValue};
use hyper::http::request;
use hyper::{Response, StatusCode};
use serde_json::{json, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc::{unbounded_channel, UnboundedSender};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::WebSocketStream;

use crate::rpc::RpcError;
use crate::stats::RequestCounters;

use super::digest::derive_hash;
use super::feed::{ChainEvent, ChainEventReceiver};
use super::methods::{SUBSCRIBE, UNSUBSCRIBE};
use super::params::CallParams;
use super::SimulatedNode;

/// Returns the head of the response that accepts a WebSocket, or `None` if the request is not an
/// upgrade to version 13.
pub fn accept_websocket(head: &request::Parts) -> Option<Response<()>> {
    let headers = &head.headers;
    let version = headers.get(header::SEC_WEBSOCKET_VERSION)?;
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?;
    if version != "13" {
        return None;
    }
    let accept = derive_accept_key(key.as_bytes());
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    fields.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    fields.insert(header::SEC_WEBSOCKET_ACCEPT, accept.parse().ok()?);
    Some(response)
}

/// The `newHeads` subscriptions of one WebSocket connection.
#[derive(Debug)]
pub struct ClientHeadSubscriptions {
    ids: RefCell<Vec<String>>,
    events: RefCell<ChainEventReceiver>,
}

impl ClientHeadSubscriptions {
    fn new(events: ChainEventReceiver) -> Self {
        Self {
            ids: RefCell::default(),
            events: RefCell::new(events),
        }
    }

    /// Responds to the methods that only a WebSocket has.
    pub fn respond_to_subscription_call(
        &self,
        method: &str,
        params: &CallParams,
    ) -> Option<Result<Value, RpcError>> {
        match method {
            SUBSCRIBE => Some(self.add_subscription(params)),
            UNSUBSCRIBE => Some(self.remove_subscription(params)),
            _ => None,
        }
    }

    /// Adds a subscription to `newHeads`, the only kind, and returns its id. Earlier events are not
    /// delivered.
    fn add_subscription(&self, params: &CallParams) -> Result<Value, RpcError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        match params.required_param(0)?.as_str() {
            Some("newHeads") => (),
            _ => {
                let message = "no such subscription in eth namespace";
                return Err(RpcError::new(-32601, message));
            }
        }
        if self.ids.borrow().is_empty() {
            // The state is locked while a call is handled: all queued events precede the
            // subscription.
            while self.events.borrow_mut().try_recv().is_ok() {}
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let digest = derive_hash("subscription", &[&number.to_be_bytes()]);
        let id = format!("0x{}", hex::encode(&digest.0[..16]));
        self.ids.borrow_mut().push(id.clone());
        Ok(json!(id))
    }

    /// Removes a subscription; an unknown id is an error.
    fn remove_subscription(&self, params: &CallParams) -> Result<Value, RpcError> {
        let id = params.required_param(0)?.as_str();
        let mut ids = self.ids.borrow_mut();
        match ids.iter().position(|known| Some(known.as_str()) == id) {
            Some(at) => {
                ids.remove(at);
                Ok(json!(true))
            }
            None => Err(RpcError::server_error("subscription not found")),
        }
    }

    /// Returns the notifications of a new head, one per subscription; other events have none.
    fn subscription_notifications(&self, event: &ChainEvent) -> Vec<Message> {
        let ChainEvent::Header(header) = event else {
            return Vec::new();
        };
        let notification = |id: &String| {
            let params = json!({"subscription": id, "result": header});
            let json = json!({
                "jsonrpc": "2.0",
                "method": "eth_subscription",
                "params": params,
            });
            Message::text(json.to_string())
        };
        self.ids.borrow().iter().map(notification).collect()
    }
}

/// Serves a connection that was accepted, until the client or the node closes it.
pub async fn serve_websocket(
    socket: impl AsyncRead + AsyncWrite + Unpin,
    read_already: Bytes,
    simulation: Arc<SimulatedNode>,
    stats: Arc<RequestCounters>,
    mut stop: watch::Receiver<bool>,
) {
    let read_already = read_already.to_vec();
    let mut socket =
        WebSocketStream::from_partially_read(socket, read_already, Role::Server, None).await;
    let Some(events) = simulation.listen_if_up() else {
        // A peer that does not wait for the close frame has closed already.
        let _ = socket.close(None).await;
        return;
    };
    let mut subscriptions = ClientHeadSubscriptions::new(events);
    let (delayed, mut released) = unbounded_channel();
    loop {
        let next = tokio::select! {
            message = socket.next() => match message {
                Some(Ok(message)) => respond_to_message(&simulation, &stats, &subscriptions, &message, &delayed),
                Some(Err(_)) | None => return,
            },
            event = next_event(&mut subscriptions) => match event {
                Some(event) => subscriptions.subscription_notifications(&event),
                None => break,
            },
            Some(text) = released.recv() => vec![Message::text(text)],
            _ = stop.wait_for(|stop| *stop) => break,
        };
        if send_messages(&mut socket, next).await.is_err() {
            return;
        }
    }
    let _ = socket.close(None).await;
}

/// Sends the messages, and flushes the socket once.
async fn send_messages(
    socket: &mut WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>,
    messages: Vec<Message>,
) -> Result<(), tungstenite::Error> {
    for message in messages {
        socket.feed(message).await?;
    }
    // Replies to pings and closes are flushed too.
    socket.flush().await
}

/// Returns the next event, or `None` once the feed is closed.
async fn next_event(subscriptions: &mut ClientHeadSubscriptions) -> Option<Arc<ChainEvent>> {
    std::future::poll_fn(|cx| subscriptions.events.get_mut().poll_recv(cx)).await
}

/// Responds to one message; a delayed response is sent to the channel later.
fn respond_to_message(
    simulation: &SimulatedNode,
    stats: &RequestCounters,
    subscriptions: &ClientHeadSubscriptions,
    message: &Message,
    delayed: &UnboundedSender<String>,
) -> Vec<Message> {
    let body: &[u8] = match message {
        Message::Text(text) => text.as_ref(),
        Message::Binary(bytes) => bytes,
        _ => return Vec::new(),
    };
    let state = simulation.read_state();
    let answered = simulation.respond_from_state(&state, body, stats, Some(subscriptions));
    let text = String::from_utf8_lossy(&answered.payload.to_single_slice()).into_owned();
    if text.is_empty() {
        return Vec::new();
    }
    let Some(hold) = answered.hold else {
        return vec![Message::text(text)];
    };
    let delayed = delayed.clone();
    tokio::spawn(async move {
        hold.wait_for_end().await;
        // The connection may be closed by then.
        let _ = delayed.send(text);
    });
    Vec::new()
}
