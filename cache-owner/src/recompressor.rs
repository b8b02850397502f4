//! Recompression of entries on their way to the disk.
//!
//! One thread recompresses, at the lowest priority, so that other work of the machine goes first.
//! It has no part of the owner but the entry, so that nothing waits for it, not even a stop. When
//! its queue is full, further entries go to the disk unchanged.

use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Arc;

use sszip_core::cache::class::Class;
use sszip_core::cache::entry::recompress::{is_recompressible, recompress};
use sszip_core::cache::owner::memory_tier::MemoryEntry;
use tokio::sync::oneshot;

/// Maximum number of queued entries.
const MOST_WAITING: usize = 32;

/// The lowest scheduling priority (nice).
const LOWEST: i32 = 19;

/// The handle of the recompression thread, which ends when all handles are dropped.
#[derive(Clone, Debug)]
pub struct Recompressor(SyncSender<Job>);

#[derive(Debug)]
struct Job {
    entry: Arc<MemoryEntry>,
    done: oneshot::Sender<Option<Vec<u8>>>,
}

impl Recompressor {
    /// Starts the recompression thread at the lowest priority.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start() -> Result<Self, std::io::Error> {
        let (jobs, wait) = sync_channel::<Job>(MOST_WAITING);
        std::thread::Builder::new()
            .name("sszip-coder".into())
            .spawn(move || {
                // of this thread alone; if it is refused, the thread has the default priority
                let _ = rustix::process::setpriority_process(None, LOWEST);
                for Job { entry, done } in wait {
                    if !done.is_closed() {
                        // the receiver may be gone
                        let _ = done.send(recompress(entry.body()));
                    }
                }
            })?;
        Ok(Self(jobs))
    }

    /// Recompresses an entry at a higher level. Returns `None` if the entry is to stay unchanged.
    pub async fn recompress(&self, entry: &Arc<MemoryEntry>) -> Option<Vec<u8>> {
        // entries that may change soon are not worth it
        if entry.attributes().class != Class::Immutable || !is_recompressible(entry.body()) {
            return None;
        }
        let (done, coded) = oneshot::channel();
        let entry = Arc::clone(entry);
        self.0.try_send(Job { entry, done }).ok()?;
        coded.await.ok()?
    }
}
