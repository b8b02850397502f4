//! A byte stream that fails before its reader buffers more than the limits of replies.
//!
//! The client library buffers a reply until it is complete, at any length that the server declares.
//! The stream below it reads the same bytes first (`sszip_core::cache::fleet::reply_limit`), counts
//! what is received and sent, and reports it to the monitor of the connection, if it has one.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{ready, Context, Poll};

use sszip_core::cache::fleet::reply_limit::{ReplyLengthGuard, ReplyLimits, ReplyViolation};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::client::reply_monitor::ReplyMonitor;

/// Number of bytes that were received from and sent to the server, over all connections.
#[derive(Debug, Default)]
pub struct FleetTraffic {
    /// Number of bytes received.
    pub received: AtomicU64,
    /// Number of bytes sent.
    pub sent: AtomicU64,
}

/// A connection whose replies are within the limits.
#[derive(Debug)]
pub struct ReplyLimitStream<S> {
    stream: S,
    guard: ReplyLengthGuard,
    traffic: Arc<FleetTraffic>,
    monitor: Option<Arc<ReplyMonitor>>,
    violation: Arc<OnceLock<ReplyViolation>>,
}

impl<S> ReplyLimitStream<S> {
    /// Limits the replies of a new connection. `violation` is set when the connection fails because
    /// of a limit.
    pub fn new(
        stream: S,
        limits: ReplyLimits,
        traffic: Arc<FleetTraffic>,
        violation: Arc<OnceLock<ReplyViolation>>,
    ) -> Self {
        Self {
            stream,
            guard: ReplyLengthGuard::new(limits),
            traffic,
            monitor: None,
            violation,
        }
    }

    /// Reports writes and received bytes to `monitor`, which has no other connection.
    pub(super) fn monitored_by(self, monitor: Arc<ReplyMonitor>) -> Self {
        Self {
            monitor: Some(monitor),
            ..self
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplyLimitStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        if let Some(monitor) = &this.monitor {
            monitor.record_received_bytes();
        }
        let received = buffer.filled().get(before..).unwrap_or_default();
        let count = u64::try_from(received.len()).unwrap_or(u64::MAX);
        this.traffic.received.fetch_add(count, Ordering::Relaxed);
        if let Err(violation) = this.guard.scan(received) {
            buffer.set_filled(before);
            // the first one is the reason
            let _ = this.violation.set(violation);
            // a kind that the client library takes for the end of the connection
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                violation.name(),
            )));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplyLimitStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        if let Some(monitor) = &this.monitor {
            monitor.record_write();
        }
        let count = u64::try_from(written).unwrap_or(u64::MAX);
        this.traffic.sent.fetch_add(count, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{duplex, AsyncReadExt, AsyncWriteExt};

    use super::*;

    const LIMITS: ReplyLimits = ReplyLimits {
        bulk: 10,
        elements: 4,
        reply: 100,
    };

    #[tokio::test(start_paused = true)]
    async fn writes_and_received_bytes_are_reported_to_the_monitor() {
        const LIMIT: Duration = Duration::from_secs(2);
        let (client, mut server) = duplex(64);
        let monitor = Arc::<ReplyMonitor>::default();
        let mut stream = ReplyLimitStream::new(client, LIMITS, Arc::default(), Arc::default())
            .monitored_by(Arc::clone(&monitor));
        stream.write_all(b"GET").await.unwrap();
        let silence = monitor.wait_for_silence(LIMIT).await;
        assert!(monitor.is_ongoing(silence));
        server.write_all(b"+").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'+');
        assert!(!monitor.is_ongoing(silence));
    }

    #[tokio::test]
    async fn bytes_after_a_violation_are_not_read() {
        let (client, mut server) = duplex(64);
        let (traffic, violation) = (Arc::<FleetTraffic>::default(), Arc::default());
        let mut stream =
            ReplyLimitStream::new(client, LIMITS, Arc::clone(&traffic), Arc::clone(&violation));
        stream.write_all(b"GET").await.unwrap();
        server.write_all(b"$2\r\nab\r\n").await.unwrap();
        let mut buffer = vec![0; 64];
        assert_eq!(stream.read(&mut buffer).await.unwrap(), 8);
        assert_eq!(violation.get(), None);
        for bytes in [&b"$9999999999\r\n"[..], b"$2\r\nab\r\n"] {
            server.write_all(bytes).await.unwrap();
            let error = stream.read(&mut buffer).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionAborted);
            assert_eq!(violation.get(), Some(&ReplyViolation::Bulk));
        }
        assert_eq!(traffic.sent.load(Ordering::Relaxed), 3);
        assert_eq!(traffic.received.load(Ordering::Relaxed), 8 + 13 + 8);
    }
}
