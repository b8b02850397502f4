//! A scripted node, over any transport.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{json, Value};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::broadcast;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::handshake::server;
use tokio_tungstenite::tungstenite::Message;

use super::chain::{hash, TestChain};

/// The way in which the test's node responds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum NodeBehaviour {
    /// The node responds with its chain.
    #[default]
    Healthy,
    /// The node responds to every call with an error.
    Error,
    /// The node responds with this status and an HTML page.
    Page(u16),
    /// The node never responds.
    Silent,
    /// The node responds with a body of this length in bytes.
    Long(usize),
    /// The node requires this header.
    RequiresHeader(&'static str, &'static str),
}

/// The behaviour that a test sets, and the requests that the node has received.
#[derive(Debug, Default)]
pub struct NodeScript {
    pub behaviour: NodeBehaviour,
    pub requests: Vec<String>,
    pub connections: usize,
}

/// A simulated node with a chain, which serves HTTP and WebSockets until it is dropped.
pub struct SimulatedNode {
    runtime: Runtime,
    chain: Arc<Mutex<TestChain>>,
    script: Arc<Mutex<NodeScript>>,
    news: broadcast::Sender<String>,
    running: Arc<Mutex<Vec<AbortHandle>>>,
    address: Option<SocketAddr>,
}

/// The body of the node's responses.
type Body = BoxBody<Bytes, Infallible>;

impl SimulatedNode {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        Self {
            runtime,
            chain: Arc::new(Mutex::new(TestChain::new())),
            script: Arc::default(),
            news: broadcast::channel(16).0,
            running: Arc::default(),
            address: None,
        }
    }

    pub fn chain(&self) -> MutexGuard<'_, TestChain> {
        self.chain.lock().unwrap()
    }

    pub fn script(&self) -> MutexGuard<'_, NodeScript> {
        self.script.lock().unwrap()
    }

    pub fn set(&self, behaviour: NodeBehaviour) {
        self.script().behaviour = behaviour;
    }

    /// Takes the methods and paths requested since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.script().requests)
    }

    /// Listens on TCP, on the port of an earlier call, if any.
    pub fn listen(&mut self) -> SocketAddr {
        self.listen_with(None)
    }

    pub fn listen_with(&mut self, tls: Option<TlsAcceptor>) -> SocketAddr {
        let address = self.address.unwrap_or(([127, 0, 0, 1], 0).into());
        let listener = self.runtime.block_on(async {
            for _ in 0..100 {
                match TcpListener::bind(address).await {
                    Ok(listener) => return listener,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
            panic!("{address} is taken");
        });
        let address = listener.local_addr().unwrap();
        self.address = Some(address);
        let server = self.server();
        self.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                match &tls {
                    None => server.serve_connection(stream),
                    Some(tls) => {
                        let (tls, server) = (tls.clone(), server.clone());
                        server.clone().spawn(async move {
                            if let Ok(stream) = tls.accept(stream).await {
                                server.serve_connection(stream);
                            }
                        });
                    }
                }
            }
        });
        address
    }

    pub fn listen_unix(&mut self, path: &Path) {
        let listener = {
            let _inside = self.runtime.enter();
            UnixListener::bind(path).unwrap()
        };
        let server = self.server();
        self.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.serve_connection(stream);
            }
        });
    }

    /// Closes all connections, and accepts no more.
    pub fn stop(&self) {
        for task in self.running.lock().unwrap().drain(..) {
            task.abort();
        }
    }

    /// Notifies the subscribers of the head.
    pub fn announce_head(&self) {
        let head = hash(self.chain().head());
        // there may be no subscriber
        let _ = self.news.send(head);
    }

    fn server(&self) -> NodeServer {
        NodeServer {
            chain: Arc::clone(&self.chain),
            script: Arc::clone(&self.script),
            news: self.news.clone(),
            running: Arc::clone(&self.running),
        }
    }

    fn spawn(&self, work: impl std::future::Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(work);
        self.running.lock().unwrap().push(task.abort_handle());
    }
}

/// The state that the node's connections share.
#[derive(Clone)]
struct NodeServer {
    chain: Arc<Mutex<TestChain>>,
    script: Arc<Mutex<NodeScript>>,
    news: broadcast::Sender<String>,
    running: Arc<Mutex<Vec<AbortHandle>>>,
}

impl NodeServer {
    fn spawn(self, work: impl std::future::Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(work);
        self.running.lock().unwrap().push(task.abort_handle());
    }

    fn serve_connection<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: T) {
        self.script.lock().unwrap().connections += 1;
        let server = self.clone();
        self.clone().spawn(async move {
            let answer = service_fn(move |request| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            });
            // the client may close the connection at any time
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), answer)
                .with_upgrades()
                .await;
        });
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Body> {
        let behaviour = self.script.lock().unwrap().behaviour.clone();
        let page = |status: u16, body: String| {
            let mut response = Response::new(Full::from(body).boxed());
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response
        };
        match &behaviour {
            NodeBehaviour::Page(status) => {
                let html = "<html><body>Bad Gateway</body></html>";
                let mut response = page(*status, html.into());
                let location = "http://127.0.0.1:1/".parse().unwrap();
                response.headers_mut().insert("location", location);
                return response;
            }
            NodeBehaviour::Silent => std::future::pending().await,
            NodeBehaviour::Long(length) => return page(200, " ".repeat(*length)),
            NodeBehaviour::RequiresHeader(name, value) => {
                if request.headers().get(*name).is_none_or(|has| has != value) {
                    return page(401, "who are you?".into());
                }
            }
            NodeBehaviour::Healthy | NodeBehaviour::Error => {}
        }
        if request.headers().contains_key("upgrade") {
            return self.upgrade(request);
        }
        if request.method() == Method::GET {
            let path = request.uri().to_string();
            self.script.lock().unwrap().requests.push(path.clone());
            if path.starts_with("/eth/v1/events") {
                return self.events();
            }
            let found = self.chain.lock().unwrap().page(&path);
            return match found {
                Some(body) => page(200, body.to_string()),
                None => page(404, r#"{"code":404,"message":"NOT_FOUND"}"#.into()),
            };
        }
        let body = request.body_mut().collect().await.unwrap().to_bytes();
        page(200, self.call(&body))
    }

    fn call(&self, body: &[u8]) -> String {
        let request: Value = serde_json::from_slice(body).unwrap();
        let method = request["method"].as_str().unwrap();
        let mut script = self.script.lock().unwrap();
        script.requests.push(method.to_owned());
        let result = match script.behaviour {
            NodeBehaviour::Error => Err("overloaded".to_owned()),
            _ => self.chain.lock().unwrap().call(method, &request["params"]),
        };
        let id = &request["id"];
        match result {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err(message) => {
                let error = json!({ "code": -32000, "message": message });
                json!({ "jsonrpc": "2.0", "id": id, "error": error })
            }
        }
        .to_string()
    }

    fn events(&self) -> Response<Body> {
        let news = self.news.subscribe();
        // the field's name is in two frames, as a proxy may split it
        let events = futures_util::stream::unfold((news, None), |(mut news, rest)| async move {
            if let Some(rest) = rest {
                return Some((Ok(Frame::data(rest)), (news, None)));
            }
            let root = news.recv().await.ok()?;
            let rest = format!("ent: head\ndata: {{\"block\":\"{root}\"}}\n\n");
            let start = Bytes::from_static(b"ev");
            Some((Ok(Frame::data(start)), (news, Some(Bytes::from(rest)))))
        });
        Response::new(BodyExt::boxed(StreamBody::new(SyncStream::new(events))))
    }

    fn upgrade(&self, request: Request<Incoming>) -> Response<Body> {
        let plain = request.map(|_| ());
        let response = server::create_response(&plain).unwrap();
        let server = self.clone();
        let upgrade = hyper::upgrade::on(plain);
        self.clone().spawn(async move {
            let Ok(upgraded) = upgrade.await else {
                return;
            };
            let role = tokio_tungstenite::tungstenite::protocol::Role::Server;
            let stream = TokioIo::new(upgraded);
            let mut socket =
                tokio_tungstenite::WebSocketStream::from_raw_socket(stream, role, None).await;
            let mut news = server.news.subscribe();
            let mut has_subscribed = false;
            loop {
                let text = tokio::select! {
                    message = socket.next() => match message {
                        Some(Ok(Message::Text(text))) => {
                            has_subscribed |= text.contains("eth_subscribe");
                            server.call(text.as_bytes())
                        }
                        Some(Ok(_)) => continue,
                        Some(Err(_)) | None => return,
                    },
                    Ok(head) = news.recv(), if has_subscribed => json!({
                        "jsonrpc": "2.0",
                        "method": "eth_subscription",
                        "params": { "subscription": "0xabc", "result": { "hash": head } },
                    })
                    .to_string(),
                };
                if socket.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
        });
        response.map(|()| Full::default().boxed())
    }
}

/// A stream wrapped so that it is `Sync`, as a boxed body requires.
struct SyncStream<T>(Mutex<std::pin::Pin<Box<T>>>);

impl<T> SyncStream<T> {
    fn new(stream: T) -> Self {
        Self(Mutex::new(Box::pin(stream)))
    }
}

impl<T: futures_util::Stream> futures_util::Stream for SyncStream<T> {
    type Item = T::Item;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<T::Item>> {
        self.0.lock().unwrap().as_mut().poll_next(context)
    }
}
