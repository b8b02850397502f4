//! Listening sockets, threads, connections.
//!
//! Every worker thread runs its own single-threaded runtime and accepts on the
//! same sockets, so that a connection never moves between threads.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

use crate::chain;
use crate::faults::ResettableSocket;
use crate::handler::{self, FaultyResponse, ReplayNode, ReplayResponseSource};
use crate::stats::OpenConnection;

/// Time without accepts after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// An address on which the node listens: TCP or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("expected a path after unix:".to_owned()),
            Some(path) => Ok(ListenAddress::Unix(path.into())),
            None => text
                .parse()
                .map(ListenAddress::Tcp)
                .map_err(|_| "expected IP:PORT, [IPV6]:PORT or unix:PATH".to_owned()),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Tcp(address) => write!(f, "http://{address}"),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket of the node. The file of a Unix socket is removed when the listener is
/// dropped.
#[derive(Debug)]
pub enum NodeListener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

impl NodeListener {
    /// Binds the address. A socket file that is left of an earlier process is removed first.
    pub fn bind_address(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => {
                let listener = std::net::TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                Ok(NodeListener::Tcp(listener))
            }
            ListenAddress::Unix(path) => {
                remove_stale_socket(path);
                let listener = std::os::unix::net::UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(NodeListener::Unix(listener, path.clone()))
            }
        }
    }

    /// Returns the bound address, with the actual port for port 0.
    pub fn bound_address(&self) -> io::Result<ListenAddress> {
        match self {
            NodeListener::Tcp(listener) => listener.local_addr().map(ListenAddress::Tcp),
            NodeListener::Unix(_, path) => Ok(ListenAddress::Unix(path.clone())),
        }
    }
}

impl Drop for NodeListener {
    fn drop(&mut self) {
        if let NodeListener::Unix(_, path) = self {
            // The file may have been removed already, which is no error.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the socket file of a process that has ended.
fn remove_stale_socket(path: &Path) {
    let is_socket = path
        .metadata()
        .is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        // If it can't be removed, bind fails and reports the error.
        let _ = std::fs::remove_file(path);
    }
}

/// Starts `threads` workers. Connections end after their current response when `stop` becomes
/// true; the channel is closed when the last connection has ended.
pub fn start_server_workers(
    node: &Arc<ReplayNode>,
    listeners: &[NodeListener],
    threads: usize,
    stop: &watch::Receiver<bool>,
) -> io::Result<()> {
    for index in 0..threads {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        for listener in listeners {
            let (node, stop) = (node.clone(), stop.clone());
            let _context = runtime.enter();
            match listener {
                NodeListener::Tcp(listener) => {
                    let listener = TcpListener::from_std(listener.try_clone()?)?;
                    runtime.spawn(accept_tcp(listener, node, stop));
                }
                NodeListener::Unix(listener, _) => {
                    let listener = UnixListener::from_std(listener.try_clone()?)?;
                    runtime.spawn(accept_unix(listener, node, stop));
                }
            }
        }
        // The process ends with the main thread: workers run until then.
        std::thread::Builder::new()
            .name(format!("worker-{index}"))
            .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
    }
    Ok(())
}

/// Accepts and serves connections until `stop` is true.
async fn accept_tcp(listener: TcpListener, node: Arc<ReplayNode>, mut stop: watch::Receiver<bool>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                // Without it, small pieces wait for the peer's acknowledgement; an error for a
                // peer that has closed is noticed when serving.
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve_until_closed(stream, node.clone(), stop.clone()));
            }
            Err(error) => pause_after_accept_error(&error).await,
        }
    }
}

/// Accepts and serves connections until `stop` is true.
async fn accept_unix(
    listener: UnixListener,
    node: Arc<ReplayNode>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(serve_until_closed(stream, node.clone(), stop.clone()));
            }
            Err(error) => pause_after_accept_error(&error).await,
        }
    }
}

/// Prints the error and pauses, so that a lack of descriptors does not keep a processor busy. A
/// connection that the peer has aborted needs neither.
async fn pause_after_accept_error(error: &io::Error) {
    if error.kind() != ErrorKind::ConnectionAborted {
        eprintln!("replay-node: accept: {error}");
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Serves one connection until it ends.
async fn serve_until_closed<S: ResettableSocket>(
    socket: S,
    node: Arc<ReplayNode>,
    mut stop: watch::Receiver<bool>,
) {
    let _open = OpenConnection::new(node.stats.clone());
    let upgraded = Arc::new(AtomicBool::new(false));
    let (shared, becomes) = (node.clone(), upgraded.clone());
    // Boxed because hyper returns the socket only for futures that are `Unpin`.
    let service = service_fn(move |request| {
        Box::pin(handler::handle_request(
            shared.clone(),
            request,
            becomes.clone(),
        ))
    });
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
    let mut stopping = false;
    let result = loop {
        tokio::select! {
            result = poll_fn(|cx| connection.poll_without_shutdown(cx)) => break result,
            _ = stop.wait_for(|stop| *stop), if !stopping => stopping = true,
        }
        Pin::new(&mut connection).graceful_shutdown();
    };
    let parts = connection.into_parts();
    let socket = parts.io.into_inner();
    if let (ReplayResponseSource::Chain(simulation), true) =
        (&node.source, upgraded.load(Ordering::Relaxed))
    {
        let (simulation, stats) = (simulation.clone(), node.stats.clone());
        return chain::serve_websocket(socket, parts.read_buf, simulation, stats, stop).await;
    }
    let raw = match &result {
        Ok(()) => None,
        Err(error) => error
            .source()
            .and_then(|source| source.downcast_ref::<FaultyResponse>()),
    };
    if let Some(raw) = raw.cloned() {
        tokio::select! {
            // Faults make peers close the connection: an error is expected.
            _ = raw.plan.execute_socket_operations(socket) => (),
            _ = stop.wait_for(|stop| *stop) => (),
        }
        drop(raw.in_flight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_parsed_and_displayed() {
        for (text, shown) in [
            ("127.0.0.1:0", "http://127.0.0.1:0"),
            ("[::1]:8545", "http://[::1]:8545"),
            ("unix:/tmp/x", "unix:/tmp/x"),
        ] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), shown);
        }
        for text in ["", "unix:", "8545", "localhost", "127.0.0.1:65536"] {
            text.parse::<ListenAddress>().unwrap_err();
        }
    }
}
