//! Thread pool for jobs: one queue for all workers. Its threads serve no
//! connections, and leave one processor core to the workers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use sszip_core::exchange::drive::OffLoopJob;

use crate::abi::LogLevel;
use crate::clock;
use crate::envoy::{write_envoy_log, EnvoyEventScheduler};
use crate::process::PROCESS;

static THREAD_POOL: LazyLock<ThreadPool> = LazyLock::new(ThreadPool::start_pool_threads);
static QUEUED_JOBS: AtomicUsize = AtomicUsize::new(0);

/// The slot of a stream into which the thread pool returns a job that has run.
pub type FinishedJobSlot = Arc<Mutex<Option<OffLoopJob>>>;

/// The pool of threads that run jobs from one queue.
struct ThreadPool {
    queue: Mutex<Sender<QueuedJob>>,
    threads: usize,
}

/// A job in the queue of the pool, with the stream to notify.
struct QueuedJob {
    job: OffLoopJob,
    /// Stream that waits for the job; `None`: no stream.
    reply: Option<(FinishedJobSlot, Arc<EnvoyEventScheduler>, u64)>,
}

/// Enqueues a job; when it has run, it is put into `slot`, and the stream is sent `event`. Without
/// pool threads the job runs at once.
pub fn run_job_on_pool(
    job: OffLoopJob,
    slot: &FinishedJobSlot,
    scheduler: &Arc<EnvoyEventScheduler>,
    event: u64,
) {
    let reply = (Arc::clone(slot), Arc::clone(scheduler), event);
    THREAD_POOL.enqueue_job(QueuedJob {
        job,
        reply: Some(reply),
    });
}

/// Enqueues a job that no stream waits for; the pool stores its result.
pub fn run_detached_job(job: OffLoopJob) {
    THREAD_POOL.enqueue_job(QueuedJob { job, reply: None });
}

/// Returns the number of jobs that wait for a thread.
pub fn queued_job_count() -> usize {
    QUEUED_JOBS.load(Ordering::Relaxed)
}

impl ThreadPool {
    /// Starts one thread per concurrent job. If the system refuses a thread, the pool is smaller;
    /// it may have none.
    fn start_pool_threads() -> Self {
        let (queue, jobs) = channel();
        let jobs = Arc::new(Mutex::new(jobs));
        let threads = (0..OffLoopJob::max_concurrent_jobs()).filter(|_| {
            let jobs = Arc::clone(&jobs);
            let thread = std::thread::Builder::new().name("sszip-coder".into());
            thread.spawn(move || run_queued_jobs(&jobs)).is_ok()
        });
        let threads = threads.count();
        Self {
            queue: Mutex::new(queue),
            threads,
        }
    }

    /// Queues a job; a pool without threads runs it at once.
    fn enqueue_job(&self, job: QueuedJob) {
        if self.threads == 0 {
            return job.run_and_report_job();
        }
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        QUEUED_JOBS.fetch_add(1, Ordering::Relaxed);
        let sent = queue.send(job);
        drop(queue);
        if let Err(unsent) = sent {
            QUEUED_JOBS.fetch_sub(1, Ordering::Relaxed);
            unsent.0.run_and_report_job();
        }
    }
}

/// Runs jobs until the queue is closed.
fn run_queued_jobs(jobs: &Mutex<Receiver<QueuedJob>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => {
                QUEUED_JOBS.fetch_sub(1, Ordering::Relaxed);
                job.run_and_report_job();
            }
            Err(_) => return,
        }
    }
}

/// Logs the pending lines about hit verifications.
pub fn log_hit_verification_lines() {
    while let Some(line) = PROCESS.shared.verified.take_log_line() {
        write_envoy_log(LogLevel::Error, &line);
    }
}

impl QueuedJob {
    /// Runs the job, and notifies its stream or stores its result.
    fn run_and_report_job(mut self) {
        match self.reply {
            Some((slot, scheduler, event)) => {
                // the stream had the only other reference: it is gone
                let is_stream_gone = Arc::strong_count(&slot) == 1;
                if !is_stream_gone || self.job.runs_without_client() {
                    self.job.run_job();
                }
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.job);
                scheduler.schedule_event(event);
            }
            None => {
                self.job.run_job();
                self.job.store_built_entry(clock::monotonic_ms());
                log_hit_verification_lines();
            }
        }
    }
}
