//! Teardown of a sent response: the memory of a long one is freed by a job.

use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::memory::MemoryBudget;

use crate::setup::{config_of_process, request_head, response_head, JSON};

/// Returns a driver that has buffered a response of `length` bytes, which compression did not
/// shorten.
fn buffered_response(budget: &MemoryBudget, length: usize) -> ExchangeDriver {
    let config = config_of_process(budget.clone(), &["comp_level 0", "max_oneshot 64m"]);
    let mut driver = ExchangeDriver::new(config);
    let fields = [(&b"Accept-Encoding"[..], &b"gzip"[..])];
    driver
        .handle_request_head(request_head(b"GET", &fields))
        .unwrap();
    let head = response_head(200, Some(length as u64), &[JSON]);
    assert!(matches!(
        driver.handle_response_head(head),
        Ok(HostStep::Buffer)
    ));
    driver.handle_body_piece(&vec![b' '; length]).unwrap();
    match driver.handle_body_end().unwrap() {
        HostStep::RunJob(mut job) => {
            // the exchange is on another thread
            assert!(driver.take_exchange_as_teardown_job().is_none());
            job.run_job();
            assert!(matches!(driver.resume_after_job(job), HostStep::Send));
        }
        step => assert!(matches!(step, HostStep::Send)),
    }
    driver
}

#[test]
fn long_response_is_freed_by_a_job() {
    let budget = MemoryBudget::new();
    let mut driver = buffered_response(&budget, 40 << 20);
    let mut job = driver.take_exchange_as_teardown_job().unwrap();
    assert!(driver.take_exchange_as_teardown_job().is_none());
    drop(driver);
    assert!(
        budget.reserved_bytes() > 32 << 20,
        "what is not forgotten yet counts"
    );
    job.run_job();
    assert_eq!(budget.reserved_bytes(), 0);
    job.store_built_entry(0);
}

#[test]
fn short_response_is_freed_with_its_driver() {
    let budget = MemoryBudget::new();
    let mut driver = buffered_response(&budget, 20 << 20);
    assert!(driver.take_exchange_as_teardown_job().is_none());
    drop(driver);
    assert_eq!(budget.reserved_bytes(), 0);
}
