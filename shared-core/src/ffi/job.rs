//! Jobs for threads that serve no connections.

use super::exchange::{sszip_exchange, write_host_step};
use super::exchange_types::{sszip_job, sszip_step};
use super::panic::{borrow_mut, catch_panic, catch_panic_status, check_results};
use super::types::sszip_status;

/// Runs a job, which takes some milliseconds for each megabyte; call it once.
/// If the library fails inside, the response is the original, or is not
/// stored.
///
/// # Safety
/// `job` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_job_run(job: *mut sszip_job) -> sszip_status {
    catch_panic_status(|| {
        borrow_mut!(job).0.run_job();
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns whether the job should run although its client is gone, because its
/// result is stored. `false` for NULL.
///
/// # Safety
/// `job` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_job_has_store(job: *const sszip_job) -> bool {
    // SAFETY: the function's contract.
    unsafe { job.as_ref() }.is_some_and(|job| job.0.runs_without_client())
}

/// Stores the result of a job that no exchange waits for, if it has run and
/// its result is stored, and frees the job.
///
/// # Safety
/// `job` is NULL or valid, and is not used after the call.
#[no_mangle]
pub unsafe extern "C" fn sszip_job_store(job: *mut sszip_job, now: u64) -> sszip_status {
    catch_panic_status(|| {
        if job.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        // SAFETY: not NULL; the function's contract.
        unsafe { Box::from_raw(job) }.0.store_built_entry(now);
        sszip_status::SSZIP_STATUS_OK
    })
}

/// Returns a job that releases the memory of a long response off the event
/// loop, since that takes a tenth of a millisecond per megabyte; NULL: there
/// is none. The host owns the job, runs it, and ends it with
/// `sszip_job_store`. If a job is returned, the exchange has ended: all its
/// results are invalid, and only `sszip_exchange_free` may be called for it.
///
/// # Safety
/// `exchange` is NULL or valid.
#[no_mangle]
pub unsafe extern "C" fn sszip_exchange_take_teardown_job(
    exchange: *mut sszip_exchange,
) -> *mut sszip_job {
    // SAFETY: the function's contract.
    let exchange = unsafe { exchange.as_mut() };
    let job = exchange.and_then(|exchange| {
        catch_panic(|| exchange.driver.take_exchange_as_teardown_job()).flatten()
    });
    job.map_or(std::ptr::null_mut(), sszip_job::into_raw)
}

/// Continues an exchange after the job of its `SSZIP_ACTION_RUN_JOB` has run,
/// and returns the next action. Frees the job on any status other than
/// `SSZIP_STATUS_NULL`.
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
    catch_panic_status(|| {
        check_results!(step);
        let driver = &mut borrow_mut!(exchange).driver;
        if job.is_null() {
            return sszip_status::SSZIP_STATUS_NULL;
        }
        // SAFETY: not NULL; the function's contract.
        let next = driver.resume_after_job(unsafe { Box::from_raw(job) }.0);
        // SAFETY: the function's contract.
        unsafe { write_host_step(Ok(next), step) }
    })
}
