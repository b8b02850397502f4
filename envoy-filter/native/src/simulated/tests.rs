use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use super::choices::Choices;
use super::config::MainThread;
use super::worker::Worker;
use super::{round, streams, PAUSE};

const WORKERS: u64 = 4;

/// Lock of the tests: filters of one test affect the filters of another.
static TURN: Mutex<()> = Mutex::new(());

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn every_stream_and_scheduler_ends_after_random_events() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut left = Vec::new();
    for seed in 1..=number("SSZIP_ROUNDS", 300) {
        left.extend(round(&mut Choices::from_seed(seed)).remaining_events());
    }
    // pending deadlines and jobs without a stream still hold schedulers
    let deadline = Instant::now() + Duration::from_secs(20);
    while left.iter().any(|one| one.strong_count() > 0) {
        sleep(Duration::from_millis(10));
        assert!(Instant::now() < deadline, "a scheduler is left");
    }
}

#[test]
fn streams_end_when_bytes_choose_the_events() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    streams(b"");
    streams(b"what a fuzzer makes up");
    streams(&[255; 4000]);
}

/// The workers share the filter, its routes, the cache and jobs, while the main
/// thread replaces the filter.
#[test]
fn workers_end_while_the_main_thread_replaces_their_filter() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let end = Instant::now() + Duration::from_secs(number("SSZIP_SECONDS", 3));
    for seed in 1.. {
        workers(seed);
        if Instant::now() >= end {
            return;
        }
    }
}

fn workers(seed: u64) {
    let chance = &mut Choices::from_seed(seed);
    let main = &MainThread::new(chance);
    let going = &AtomicUsize::new(WORKERS as usize);
    scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || {
                let _leaves = Leaves(going);
                let chance = &mut Choices::from_seed(seed * WORKERS + worker);
                let mut worker = Worker::new(20);
                while worker.has_more() {
                    if !worker.step(chance, main) {
                        sleep(PAUSE);
                    }
                }
                worker.check_responses();
            });
        }
        while going.load(Ordering::Acquire) > 0 {
            if !main.step(chance) {
                sleep(PAUSE);
            }
        }
    });
}

/// Counts a worker that has ended or panicked.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
