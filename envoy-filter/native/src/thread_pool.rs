//! Thread pool for jobs: one queue for all workers. Its threads serve no
//! connections, and leave one processor core to the workers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use sszip_core::exchange::drive::Job;

use crate::abi::LogLevel;
use crate::clock;
use crate::envoy::{log, Scheduler};
use crate::process::PROCESS;

static POOL: LazyLock<ThreadPool> = LazyLock::new(ThreadPool::start);
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The slot of a stream into which a thread returns a job that has run.
pub type CompletionTarget = Arc<Mutex<Option<Job>>>;

struct ThreadPool {
    queue: Mutex<Sender<Work>>,
    threads: usize,
}

struct Work {
    job: Job,
    /// Stream that waits for the job; `None`: no stream.
    reply: Option<(CompletionTarget, Arc<Scheduler>, u64)>,
}

/// Runs a job, puts it into `place`, and sends the stream `event`. Without pool
/// threads the job runs at once.
pub fn run(job: Job, place: &CompletionTarget, scheduler: &Arc<Scheduler>, event: u64) {
    let reply = (Arc::clone(place), Arc::clone(scheduler), event);
    POOL.take(Work {
        job,
        reply: Some(reply),
    });
}

/// Runs a job that no stream waits for, and stores its result.
pub fn run_detached(job: Job) {
    POOL.take(Work { job, reply: None });
}

/// Returns the number of jobs that wait for a thread.
pub fn waiting() -> usize {
    WAITING.load(Ordering::Relaxed)
}

impl ThreadPool {
    fn start() -> Self {
        let (queue, work) = channel();
        let work = Arc::new(Mutex::new(work));
        let threads = (0..Job::max_concurrency()).filter(|_| {
            let work = Arc::clone(&work);
            let thread = std::thread::Builder::new().name("sszip-coder".into());
            thread.spawn(move || serve(&work)).is_ok()
        });
        let threads = threads.count();
        Self {
            queue: Mutex::new(queue),
            threads,
        }
    }

    fn take(&self, work: Work) {
        if self.threads == 0 {
            return work.run();
        }
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        WAITING.fetch_add(1, Ordering::Relaxed);
        let refused = queue.send(work);
        drop(queue);
        if let Err(refused) = refused {
            WAITING.fetch_sub(1, Ordering::Relaxed);
            refused.0.run();
        }
    }
}

fn serve(work: &Mutex<Receiver<Work>>) {
    loop {
        let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(work) => {
                WAITING.fetch_sub(1, Ordering::Relaxed);
                work.run();
            }
            Err(_) => return,
        }
    }
}

/// Logs the pending lines about verified hits.
pub fn log_lines() {
    while let Some(line) = PROCESS.shared.verified.take_line() {
        log(LogLevel::Error, &line);
    }
}

impl Work {
    fn run(mut self) {
        match self.reply {
            Some((place, scheduler, event)) => {
                // the stream had the only other reference: it is gone
                let is_left = Arc::strong_count(&place) == 1;
                if !is_left || self.job.runs_without_client() {
                    self.job.run();
                }
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.job);
                scheduler.commit(event);
            }
            None => {
                self.job.run();
                self.job.store(clock::monotonic());
                log_lines();
            }
        }
    }
}
