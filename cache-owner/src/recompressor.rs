//! Recompression of entries on their way to the disk.
//!
//! One thread recompresses, at the lowest priority, so that other work of the machine goes first.
//! It has no part of the owner but the entry, so that nothing waits for it, not even a stop. When
//! its queue is full, further entries go to the disk unchanged.

use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Arc;

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::recompress::{is_entry_recompressible, recompress_entry};
use sszip_core::cache::owner::memory_tier::OwnerMemoryEntry;
use tokio::sync::oneshot;

/// Maximum number of queued entries.
const MAX_QUEUED_ENTRIES: usize = 32;

/// The lowest scheduling priority (nice).
const LOWEST_PRIORITY: i32 = 19;

/// The handle of the thread that recompresses entries before they are written to disk. The thread
/// ends when all handles are dropped.
#[derive(Clone, Debug)]
pub struct Recompressor(SyncSender<RecompressionJob>);

/// An entry in the queue of the recompression thread, with the channel of its new bytes.
#[derive(Debug)]
struct RecompressionJob {
    entry: Arc<OwnerMemoryEntry>,
    done: oneshot::Sender<Option<Vec<u8>>>,
}

impl Recompressor {
    /// Starts the recompression thread at the lowest priority.
    ///
    /// # Errors
    /// The system cannot create a thread.
    pub fn start_recompressor() -> Result<Self, std::io::Error> {
        let (jobs, wait) = sync_channel::<RecompressionJob>(MAX_QUEUED_ENTRIES);
        std::thread::Builder::new()
            .name("sszip-coder".into())
            .spawn(move || {
                // of this thread alone; if it is refused, the thread has the default priority
                let _ = rustix::process::setpriority_process(None, LOWEST_PRIORITY);
                for RecompressionJob { entry, done } in wait {
                    if !done.is_closed() {
                        // the receiver may be gone
                        let _ = done.send(recompress_entry(entry.encoded_bytes()));
                    }
                }
            })?;
        Ok(Self(jobs))
    }

    /// Recompresses an entry at a higher level. Returns `None` if the entry is to stay unchanged.
    pub async fn recompress_entry(&self, entry: &Arc<OwnerMemoryEntry>) -> Option<Vec<u8>> {
        // entries that may change soon are not worth it
        if entry.entry_store_attributes().class != LifetimeClass::Immutable
            || !is_entry_recompressible(entry.encoded_bytes())
        {
            return None;
        }
        let (done, coded) = oneshot::channel();
        let entry = Arc::clone(entry);
        self.0.try_send(RecompressionJob { entry, done }).ok()?;
        coded.await.ok()?
    }
}
