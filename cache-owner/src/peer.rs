//! The client of a connection, and whether it has closed the connection without reading a
//! response: a lease that was granted in it must be released.

use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use sszip_core::cache::owner::processes::OwnerClientName;
use sszip_core::cache::CacheKey;
use sszip_core::lock::lock_ignoring_poison;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

/// The client of one connection, observed so that a lease that it was granted and never read is
/// released.
#[derive(Debug, Default)]
pub struct LeaseDeliveryMonitor(Mutex<LeaseDeliveryState>);

/// The lease that the last response granted, and whether the client has closed the connection.
#[derive(Debug, Default)]
struct LeaseDeliveryState {
    granted: Option<(CacheKey, OwnerClientName)>,
    has_left: bool,
}

impl LeaseDeliveryMonitor {
    /// Records that a request has started, so that the client has read the previous response.
    pub fn record_request_start(&self) {
        lock_ignoring_poison(&self.0).granted = None;
    }

    /// Records that the response grants the client a lease on `key`.
    pub fn record_lease_grant(&self, key: CacheKey, process: OwnerClientName) {
        lock_ignoring_poison(&self.0).granted = Some((key, process));
    }

    /// Returns the lease that the client was granted and has not read, if it closed the connection.
    pub fn take_unread_lease(&self) -> Option<(CacheKey, OwnerClientName)> {
        let mut state = lock_ignoring_poison(&self.0);
        state.granted.take().filter(|_| state.has_left)
    }
}

/// The socket of a connection, which reports to a [`LeaseDeliveryMonitor`] that the client has closed it.
/// A socket that the client closes with unread bytes, or before bytes are written to it, reports an
/// error at this end (`unix(7)`).
#[derive(Debug)]
pub struct CloseReportingSocket {
    socket: UnixStream,
    peer: Arc<LeaseDeliveryMonitor>,
    /// Bytes that were read from the socket before, and are read first.
    first_bytes: Bytes,
}

impl CloseReportingSocket {
    /// Creates the socket whose closing by the client is reported to `peer`. `first_bytes` were read
    /// from it already.
    pub fn new(socket: UnixStream, first_bytes: Bytes, peer: Arc<LeaseDeliveryMonitor>) -> Self {
        Self {
            socket,
            peer,
            first_bytes,
        }
    }

    fn detect_closed_peer<T>(&self, result: Poll<Result<T, Error>>) -> Poll<Result<T, Error>> {
        if let Poll::Ready(Err(error)) = &result {
            if let ErrorKind::ConnectionReset | ErrorKind::BrokenPipe = error.kind() {
                lock_ignoring_poison(&self.peer.0).has_left = true;
            }
        }
        result
    }
}

impl AsyncRead for CloseReportingSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        if !self.first_bytes.is_empty() {
            let length = self.first_bytes.len().min(buffer.remaining());
            buffer.put_slice(&self.first_bytes.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.socket).poll_read(context, buffer);
        self.detect_closed_peer(read)
    }
}

impl AsyncWrite for CloseReportingSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.detect_closed_peer(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, pieces);
        self.detect_closed_peer(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
