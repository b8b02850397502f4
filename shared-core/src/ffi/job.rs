//! Work for threads that serve no connections.

use super::exchange::{give_step, sszip_exchange};
use super::panic::{borrow_mut, boundary, caught};
use super::types::{sszip_status, sszip_step};
use crate::exchange::drive::Job;

/// Work that takes too long for an event loop. It belongs to nobody but who has
/// it, and can go to any thread.
pub struct sszip_job(Job);

impl sszip_job {
    pub(super) fn given(job: Job) -> *mut Self {
        Box::into_raw(Box::new(Self(job)))
    }
}

/// How many jobs a process should run at once, at most; the others wait. To be asked
/// after any fork, once the process is bound to its processors.
#[no_mangle]
pub extern "C" fn sszip_jobs_at_once() -> usize {
    caught(Job::at_once).unwrap_or(1)
}

/// Runs it, milliseconds for each megabyte. If the library fails inside, the
/// answer is the original, or nothing is stored.
///
/// # Safety
/// `job` is NULL or valid, and no other thread uses it now.
#[no_mangle]
pub unsafe extern "C" fn sszip_job_run(job: *mut sszip_job) -> sszip_status {
    boundary(|| {
        borrow_mut!(job).0.run();
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Whether it is worth running when its client has gone. `false` for NULL.
///
/// # Safety
/// `job` is NULL or valid, and no other thread uses it now.
#[no_mangle]
pub unsafe extern "C" fn sszip_job_is_to_be_stored(job: *const sszip_job) -> bool {
    // SAFETY: the function's contract.
    unsafe { job.as_ref() }.is_some_and(|job| job.0.is_to_be_stored())
}

/// Of a job that no exchange waits for, once it has run: stores what it has
/// made, and frees it. `sszip_next_woken` may have something to say then.
///
/// # Safety
/// `job` is NULL or valid; it is not to be used any more.
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

/// To be called before `sszip_exchange_free`, once nothing more is used that the
/// exchange gave out: a job that forgets a long answer, since that takes a tenth of a
/// millisecond for each megabyte, or NULL. It ends with `sszip_job_store`.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_last_job(exchange: *mut sszip_exchange) -> *mut sszip_job {
    // SAFETY: the function's contract.
    let exchange = unsafe { exchange.as_mut() };
    let job = exchange.and_then(|exchange| caught(|| exchange.driver.last_job()).flatten());
    job.map_or(std::ptr::null_mut(), sszip_job::given)
}

/// The job that the exchange asked for with `SSZIP_DO_RUN` has run. Frees it.
///
/// # Safety
/// `exchange` and `job` are NULL or valid, and the job is of that exchange; it
/// is not to be used any more. `step` points at memory of its type.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_done(
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
        let next = driver.done(unsafe { Box::from_raw(job) }.0);
        // SAFETY: the function's contract.
        unsafe { give_step(Ok(next), step) }
    })
}
