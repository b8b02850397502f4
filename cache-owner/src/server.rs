//! Connections: HTTP/1.1 or frames over the socket.

use std::os::unix::net::UnixListener as StdListener;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sszip_core::cache::owner_protocol::frame::check_preface;
use tokio::io::{join, AsyncReadExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{watch, Semaphore};
use tokio::task::JoinSet;
use tokio::time::error::Elapsed;
use tokio::time::{sleep, timeout};

use crate::file_limit::max_connections;
use crate::frames::connection::{is_frame_connection, serve_frame_connection};
use crate::log::{LogFunction, LogLevel};
use crate::service::OwnerHttpService;
use crate::stop::wait_for_stop;

/// Maximum number of connections. Further ones wait to be accepted.
const CONNECTION_LIMIT: usize = 4_096;

/// Pause of accepting after an error such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Maximum time for responses in flight after a stop.
const STOP_LIMIT: Duration = Duration::from_millis(500);

/// Maximum bytes of a request's head, and of one read.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Maximum bytes of the first read.
const FIRST_READ_BYTES: usize = 4 << 10;

/// Maximum number of headers of a request.
const MAX_HEADERS: usize = 64;

/// Accepts and serves connections until `stop` is true, or its sender is dropped.
///
/// # Errors
/// The listener cannot be used at all.
pub async fn serve_connections(
    listener: StdListener,
    service: Arc<OwnerHttpService>,
    idle: Duration,
    mut stop: watch::Receiver<bool>,
    log: LogFunction,
) -> Result<(), std::io::Error> {
    let listener = UnixListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(max_connections(CONNECTION_LIMIT)));
    let mut fails = false;
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            // the semaphore is never closed
            let permit = Arc::clone(&room).acquire_owned().await;
            (listener.accept().await, permit)
        };
        tokio::select! {
            (accepted, permit) = accepted => match accepted {
                Ok((socket, _)) => {
                    fails = false;
                    let (service, stop) = (Arc::clone(&service), stop.clone());
                    connections.spawn(async move {
                        let _permit = permit;
                        serve_connection(socket, service, idle, stop).await;
                    });
                }
                Err(error) => {
                    if !std::mem::replace(&mut fails, true) {
                        let line = format!(
                            "cannot accept connections: {error}; raise the limit of open files"
                        );
                        log(LogLevel::Error, &line);
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = wait_for_stop(&mut stop) => break,
        }
    }
    drop(listener);
    service.operations.engine.end_sessions();
    let all = async { while connections.join_next().await.is_some() {} };
    // connections that have not ended by then are dropped with the set
    let _ = timeout(STOP_LIMIT, all).await;
    Ok(())
}

async fn serve_connection(
    mut socket: UnixStream,
    service: Arc<OwnerHttpService>,
    idle: Duration,
    mut stop: watch::Receiver<bool>,
) {
    service
        .operations
        .connections
        .fetch_add(1, Ordering::Relaxed);
    let first_bytes = tokio::select! {
        first_bytes = timeout(idle, read_first_bytes(&mut socket)) => first_bytes,
        () = wait_for_stop(&mut stop) => Ok(Vec::new()),
    };
    match first_bytes {
        Err(Elapsed { .. }) => {}
        Ok(first_bytes) if is_frame_connection(&first_bytes) => {
            serve_frame_connection(socket, &first_bytes, &service.operations, idle, stop).await;
        }
        Ok(first_bytes) => {
            serve_http_connection(socket, first_bytes, &service, idle, stop).await;
        }
    }
    service
        .operations
        .connections
        .fetch_sub(1, Ordering::Relaxed);
}

/// Reads the first bytes of a connection, until they show whether it carries frames. Returns fewer
/// bytes if the client has closed the connection.
async fn read_first_bytes(socket: &mut UnixStream) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FIRST_READ_BYTES);
    while matches!(check_preface(&bytes), Ok(false)) && !is_frame_connection(&bytes) {
        // an error occurs again at the next read
        match socket.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    bytes
}

async fn serve_http_connection(
    socket: UnixStream,
    first_bytes: Vec<u8>,
    service: &Arc<OwnerHttpService>,
    idle: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let (reader, writer) = socket.into_split();
    let socket = join(first_bytes.as_slice().chain(reader), writer);
    let answer = service_fn(|request| Arc::clone(service).respond_to_owner_request(request));
    let connection = http1::Builder::new()
        .auto_date_header(false)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .timer(TokioTimer::new())
        .header_read_timeout(idle)
        .serve_connection(TokioIo::new(socket), answer);
    tokio::pin!(connection);
    // an error is the client's: it has closed the connection, or does not send HTTP
    tokio::select! {
        _ = connection.as_mut() => {}
        () = wait_for_stop(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
