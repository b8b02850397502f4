//! What is left of an answer that is out: a long one is forgotten by a job.

use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::memory::Budget;

use crate::setup::{config_of_process, request_head, response_head, JSON};

/// An answer of so many bytes that was held, and then could not be made smaller.
fn held(budget: &Budget, length: usize) -> Driver {
    let config = config_of_process(budget.clone(), &["comp_level 0", "max_oneshot 64m"]);
    let mut driver = Driver::new(config);
    let fields = [(&b"Accept-Encoding"[..], &b"gzip"[..])];
    driver.request_head(request_head(b"GET", &fields)).unwrap();
    let head = response_head(200, Some(length as u64), &[JSON]);
    assert!(matches!(driver.response_head(head), Ok(Step::Hold)));
    driver.piece(&vec![b' '; length]).unwrap();
    match driver.end().unwrap() {
        Step::OffLoop(mut job) => {
            // it is with another thread
            assert!(driver.last_job().is_none());
            job.run();
            assert!(matches!(driver.done(job), Step::Send));
        }
        step => assert!(matches!(step, Step::Send)),
    }
    driver
}

#[test]
fn a_long_answer_is_forgotten_by_a_job() {
    let budget = Budget::new();
    let mut driver = held(&budget, 40 << 20);
    let mut job = driver.last_job().unwrap();
    assert!(driver.last_job().is_none());
    drop(driver);
    assert!(budget.used() > 32 << 20, "what is not forgotten yet counts");
    job.run();
    assert_eq!(budget.used(), 0);
    job.store(0);
}

#[test]
fn a_short_one_is_forgotten_at_once() {
    let budget = Budget::new();
    let mut driver = held(&budget, 20 << 20);
    assert!(driver.last_job().is_none());
    drop(driver);
    assert_eq!(budget.used(), 0);
}
