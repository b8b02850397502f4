//! Detection of silence: commands are written to a connection, and nothing is received.
//!
//! The time limits of commands do not detect a silence: the limit of a lookup may be shorter than
//! the time that a healthy server needs over a slow network. Each received byte ends a silence.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

/// Records the first write to a connection after which no byte was received. One task reads and
/// writes the connection.
#[derive(Debug, Default)]
pub(in crate::fleet) struct ReplyMonitor {
    /// Number of writes.
    writes: AtomicU64,
    /// Number of the write; 0: bytes were received after all writes.
    unanswered_write: AtomicU64,
}

/// A silence, which ends with the next received byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fleet) struct Silence(u64);

impl ReplyMonitor {
    /// Records that bytes were written.
    pub(in crate::fleet) fn record_write(&self) {
        let number = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        if self.unanswered_write.load(Ordering::Relaxed) == 0 {
            self.unanswered_write.store(number, Ordering::Relaxed);
        }
    }

    /// Records that bytes were received.
    pub(in crate::fleet) fn record_received_bytes(&self) {
        self.unanswered_write.store(0, Ordering::Relaxed);
    }

    /// Waits for a silence of `limit` after a write. The silence is detected before twice this time.
    pub(in crate::fleet) async fn wait_for_silence(&self, limit: Duration) -> Silence {
        loop {
            let silence = Silence(self.unanswered_write.load(Ordering::Relaxed));
            sleep(limit).await;
            if self.is_ongoing(silence) {
                return silence;
            }
        }
    }

    /// Whether nothing was received since this silence began.
    pub(in crate::fleet) fn is_ongoing(&self, silence: Silence) -> bool {
        silence.0 != 0 && self.unanswered_write.load(Ordering::Relaxed) == silence.0
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{timeout, Instant};

    use super::*;

    const LIMIT: Duration = Duration::from_secs(2);
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn silence_is_detected_until_bytes_are_received() {
        let monitor = ReplyMonitor::default();
        let begun = Instant::now();
        monitor.record_write();
        let silence = monitor.wait_for_silence(LIMIT).await;
        assert_eq!(begun.elapsed(), LIMIT);
        monitor.record_write();
        assert!(monitor.is_ongoing(silence));
        monitor.record_received_bytes();
        assert!(!monitor.is_ongoing(silence));
        monitor.record_write();
        assert!(!monitor.is_ongoing(silence), "another write");
        let later = monitor.wait_for_silence(LIMIT).await;
        assert_ne!(later, silence);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connection_is_not_silent() {
        let monitor = ReplyMonitor::default();
        assert!(timeout(LONG, monitor.wait_for_silence(LIMIT))
            .await
            .is_err());
        monitor.record_write();
        monitor.record_received_bytes();
        assert!(timeout(LONG, monitor.wait_for_silence(LIMIT))
            .await
            .is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_replies_are_no_silence() {
        let monitor = ReplyMonitor::default();
        let replies = async {
            loop {
                monitor.record_write();
                sleep(LIMIT * 9 / 10).await;
                monitor.record_received_bytes();
            }
        };
        tokio::select! {
            () = replies => {}
            silence = timeout(LONG, monitor.wait_for_silence(LIMIT)) => assert!(silence.is_err()),
        }
    }
}
