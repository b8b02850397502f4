//! Jobs for threads that serve no connections.

use super::exchange::{sszip_exchange, write_step};
use super::panic::{borrow_mut, boundary, catch_panic};
use super::types::{sszip_status, sszip_step};
use crate::exchange::drive::Job;

/// Work that takes too long for an event loop. The host that received it owns
/// it, may pass it to any thread, and ends it with exactly one of
/// `sszip_exchange_job_done` and `sszip_job_store`.
pub struct sszip_job(Job);

impl sszip_job {
    pub(super) fn into_raw(job: Job) -> *mut Self {
        Box::into_raw(Box::new(Self(job)))
    }
}

/// Returns the maximum number of jobs that a process should run at a time; the
/// others wait. Call it after the last fork, when the process is bound to its
/// processors.
#[no_mangle]
pub extern "C" fn sszip_max_running_jobs() -> usize {
    catch_panic(Job::max_concurrency).unwrap_or(1)
}

/// Runs a job, which takes milliseconds per megabyte. If the library fails
/// inside, the response is the original, or is not stored.
///
/// # Safety
/// `job` is NULL or valid, and no other thread uses it during the call.
#[no_mangle]
pub unsafe extern "C" fn sszip_job_run(job: *mut sszip_job) -> sszip_status {
    boundary(|| {
        borrow_mut!(job).0.run();
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns whether the job should run although its client is gone, because its
/// result is stored. `false` for NULL.
///
/// # Safety
/// `job` is NULL or valid, and no other thread uses it during the call.
#[no_mangle]
pub unsafe extern "C" fn sszip_job_has_store(job: *const sszip_job) -> bool {
    // SAFETY: the function's contract.
    unsafe { job.as_ref() }.is_some_and(|job| job.0.runs_without_client())
}

/// Stores the result of a job that has run and that no exchange waits for, and
/// frees the job. Call `sszip_next_wakeup` afterwards.
///
/// # Safety
/// `job` is NULL or valid, and is not used after the call.
#[no_mangle]
pub unsafe extern "C" fn sszip_job_store(job: *mut sszip_job, now: u64) -> sszip_status {
    boundary(|| {
        if job.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        // SAFETY: not NULL; the function's contract.
        unsafe { Box::from_raw(job) }.0.store(now);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns a job that releases the memory of a long response off the event
/// loop, since that takes a tenth of a millisecond per megabyte; NULL: there
/// is none. The host owns the job and ends it with `sszip_job_store`. Call it
/// before `sszip_exchange_free`, when no result of the exchange is used any
/// more.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_teardown_job(
    exchange: *mut sszip_exchange,
) -> *mut sszip_job {
    // SAFETY: the function's contract.
    let exchange = unsafe { exchange.as_mut() };
    let job =
        exchange.and_then(|exchange| catch_panic(|| exchange.driver.teardown_job()).flatten());
    job.map_or(std::ptr::null_mut(), sszip_job::into_raw)
}

/// Continues an exchange after the job of its `SSZIP_ACTION_RUN_JOB` has run, and
/// frees the job.
///
/// # Safety
/// `exchange` and `job` are NULL or valid, the job is from that exchange, and
/// is not used after the call. `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_job_done(
    exchange: *mut sszip_exchange,
    job: *mut sszip_job,
    step: *mut sszip_step,
) -> sszip_status {
    boundary(|| {
        let driver = &mut borrow_mut!(exchange).driver;
        if job.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        // SAFETY: not NULL; the function's contract.
        let next = driver.job_done(unsafe { Box::from_raw(job) }.0);
        // SAFETY: the function's contract.
        unsafe { write_step(Ok(next), step) }
    })
}
