//! Entries that go to the disk are made smaller on the way.
//!
//! One thread does it, at the lowest priority: what the machine has to do
//! otherwise goes first. It has nothing of the owner's but the entry, so that
//! nobody waits for it, an end neither. When more wait than it may keep in
//! memory, others go to the disk as they are.

use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Arc;

use sszip_core::cache::class::Class;
use sszip_core::cache::entry::recompress::{is_wanted, recompress};
use sszip_core::cache::owner::memory::Kept;
use tokio::sync::oneshot;

/// Entries that wait.
const MOST_WAITING: usize = 32;

/// The lowest priority that there is (nice).
const LOWEST: i32 = 19;

/// The thread. It ends when this is dropped.
#[derive(Clone, Debug)]
pub struct Coder(SyncSender<Job>);

#[derive(Debug)]
struct Job {
    kept: Arc<Kept>,
    done: oneshot::Sender<Option<Vec<u8>>>,
}

impl Coder {
    /// Starts it.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start() -> Result<Self, std::io::Error> {
        let (jobs, wait) = sync_channel::<Job>(MOST_WAITING);
        std::thread::Builder::new()
            .name("sszip-coder".into())
            .spawn(move || {
                // of this thread alone; where that is refused it has the usual one
                let _ = rustix::process::setpriority_process(None, LOWEST);
                for Job { kept, done } in wait {
                    if !done.is_closed() {
                        // nobody waits any more
                        let _ = done.send(recompress(kept.body()));
                    }
                }
            })?;
        Ok(Self(jobs))
    }

    /// Another form of an entry; `None`: it is to stay as it is.
    pub async fn recompress(&self, kept: &Arc<Kept>) -> Option<Vec<u8>> {
        // what may change soon is not worth it
        if kept.about().class != Class::Immutable || !is_wanted(kept.body()) {
            return None;
        }
        let (done, coded) = oneshot::channel();
        let kept = Arc::clone(kept);
        self.0.try_send(Job { kept, done }).ok()?;
        coded.await.ok()?
    }
}
