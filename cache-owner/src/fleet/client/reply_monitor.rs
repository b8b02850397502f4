//! Detection of silence: commands are written to a connection, and nothing is received.
//!
//! The time limits of commands do not detect a silence: the limit of a lookup may be shorter than
//! the time that a healthy server needs over a slow network. Each received byte ends a silence.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::sleep;

/// Records the first write to a connection after which no byte was received.
#[derive(Debug, Default)]
pub(super) struct ReplyMonitor {
    /// Number of the write; 0: bytes were received after all writes.
    unanswered_write: AtomicU64,
}

/// A silence, which ends with the next received byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence(u64);

impl ReplyMonitor {
    /// Waits for a silence of `limit` after a write. The silence is detected before twice this time.
    pub(super) async fn wait_for_silence(&self, limit: Duration) -> Silence {
        loop {
            let silence = Silence(self.unanswered_write.load(Ordering::Relaxed));
            sleep(limit).await;
            if self.is_ongoing(silence) {
                return silence;
            }
        }
    }

    /// Whether nothing was received since this silence began.
    pub(super) fn is_ongoing(&self, silence: Silence) -> bool {
        silence.0 != 0 && self.unanswered_write.load(Ordering::Relaxed) == silence.0
    }
}

/// A connection with a monitor.
#[derive(Debug)]
pub(super) struct MonitoredStream<S> {
    stream: S,
    monitor: Arc<ReplyMonitor>,
    writes: u64,
}

impl<S> MonitoredStream<S> {
    /// Monitors a new connection.
    pub(super) fn new(stream: S, monitor: Arc<ReplyMonitor>) -> Self {
        Self {
            stream,
            monitor,
            writes: 0,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MonitoredStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        this.monitor.unanswered_write.store(0, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MonitoredStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.writes += 1;
        // one task reads and writes
        let unanswered = &this.monitor.unanswered_write;
        if unanswered.load(Ordering::Relaxed) == 0 {
            unanswered.store(this.writes, Ordering::Relaxed);
        }
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
    use tokio::io::{duplex, AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::{timeout, Instant};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);
    const LONG: Duration = Duration::from_secs(60);

    fn connection() -> (
        MonitoredStream<DuplexStream>,
        DuplexStream,
        Arc<ReplyMonitor>,
    ) {
        let (client, server) = duplex(1 << 10);
        let monitor = Arc::<ReplyMonitor>::default();
        let stream = MonitoredStream::new(client, Arc::clone(&monitor));
        (stream, server, monitor)
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_detected_until_bytes_are_received() {
        let (mut stream, mut server, monitor) = connection();
        let begun = Instant::now();
        stream.write_all(b"GET").await.unwrap();
        let silence = monitor.wait_for_silence(LIMIT).await;
        assert_eq!(begun.elapsed(), LIMIT);
        stream.write_all(b"GET").await.unwrap();
        assert!(monitor.is_ongoing(silence));
        server.write_all(b"+").await.unwrap();
        stream.read_u8().await.unwrap();
        assert!(!monitor.is_ongoing(silence));
        stream.write_all(b"GET").await.unwrap();
        assert!(!monitor.is_ongoing(silence), "another write");
        let later = monitor.wait_for_silence(LIMIT).await;
        assert_ne!(later, silence);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_not_silent() {
        let (mut stream, mut server, monitor) = connection();
        assert!(timeout(LONG, monitor.wait_for_silence(LIMIT))
            .await
            .is_err());
        stream.write_all(b"GET").await.unwrap();
        server.write_all(b"+").await.unwrap();
        stream.read_u8().await.unwrap();
        assert!(timeout(LONG, monitor.wait_for_silence(LIMIT))
            .await
            .is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_replies_are_no_silence() {
        let (mut stream, mut server, monitor) = connection();
        let replies = async {
            loop {
                stream.write_all(b"GET").await.unwrap();
                sleep(LIMIT * 9 / 10).await;
                server.write_all(b"+").await.unwrap();
                stream.read_u8().await.unwrap();
            }
        };
        tokio::select! {
            () = replies => {}
            silence = timeout(LONG, monitor.wait_for_silence(LIMIT)) => assert!(silence.is_err()),
        }
    }
}
