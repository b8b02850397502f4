use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use super::config::SimulatedMainThread;
use super::event_choices::EventChoices;
use super::worker::SimulatedWorker;
use super::{run_streams, simulate_streams, simulate_worker, IDLE_PAUSE};
use crate::process::PROCESS;

const WORKERS: u64 = 4;

/// Lock of the tests: filters of one test affect the filters of another.
static TEST_LOCK: Mutex<()> = Mutex::new(());

fn number_from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn every_stream_and_scheduler_ends_after_random_events() {
    let _turn = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let mut left = Vec::new();
    for seed in 1..=number_from_environment("SSZIP_ROUNDS", 300) {
        left.extend(simulate_worker(&mut EventChoices::from_seed(seed)).remaining_events());
    }
    // pending deadlines and jobs without a stream still hold schedulers
    let deadline = Instant::now() + Duration::from_secs(20);
    while left.iter().any(|one| one.strong_count() > 0) {
        sleep(Duration::from_millis(10));
        assert!(Instant::now() < deadline, "a scheduler is left");
    }
}

/// Calls for logs wait for pieces, while requests for them are not sent, fail, are reset or take too
/// long, and clients leave. Each of the other clients receives the right response, once.
#[test]
fn split_calls_end_with_one_right_response_when_requests_for_pieces_fail() {
    let _turn = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut assembled, mut batches, mut streams) = (0, 0, 0);
    for seed in 1..=number_from_environment("SSZIP_ROUNDS", 300) / 2 {
        // the output of a failed test shows it
        println!("seed {seed}");
        let chance = &mut EventChoices::from_seed(seed);
        let main = SimulatedMainThread::for_log_calls(chance);
        let counts = run_streams(chance, &main, 20).assembled_response_counts();
        assembled += counts[0];
        batches += counts[1];
        streams += 20;
    }
    assert!(
        (1..streams).contains(&assembled),
        "{assembled} of {streams}"
    );
    assert!(batches > 0, "no batch was assembled");
    // jobs without a stream may still lead flights
    let deadline = Instant::now() + Duration::from_secs(20);
    let flights = &PROCESS.shared.flights;
    while flights.flight_count() + flights.total_waiter_count() > 0 {
        sleep(Duration::from_millis(10));
        assert!(Instant::now() < deadline, "a flight is left");
    }
}

#[test]
fn streams_end_when_bytes_choose_the_events() {
    let _turn = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    simulate_streams(b"");
    simulate_streams(b"what a fuzzer makes up");
    simulate_streams(&[255; 4000]);
}

/// The workers share the filter, its routes, the cache and jobs, while the main
/// thread replaces the filter.
#[test]
fn streams_complete_while_the_main_thread_replaces_the_filter() {
    let _turn = TEST_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let end = Instant::now() + Duration::from_secs(number_from_environment("SSZIP_SECONDS", 3));
    for seed in 1.. {
        run_workers(seed);
        if Instant::now() >= end {
            return;
        }
    }
}

fn run_workers(seed: u64) {
    let chance = &mut EventChoices::from_seed(seed);
    let main = &SimulatedMainThread::new(chance);
    let going = &AtomicUsize::new(WORKERS as usize);
    scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || {
                let _leaves = WorkerEndGuard(going);
                let chance = &mut EventChoices::from_seed(seed * WORKERS + worker);
                let mut worker = SimulatedWorker::new(20);
                while worker.has_more_streams() {
                    if !worker.run_next_event(chance, main) {
                        sleep(IDLE_PAUSE);
                    }
                }
                worker.check_responses();
            });
        }
        while going.load(Ordering::Acquire) > 0 {
            if !main.deliver_pending_filter_events(chance) {
                sleep(IDLE_PAUSE);
            }
        }
    });
}

/// A guard that counts its worker as ended when it is dropped, by a panic too.
struct WorkerEndGuard<'a>(&'a AtomicUsize);

impl Drop for WorkerEndGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
