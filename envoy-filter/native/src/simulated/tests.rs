use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use super::chance::Chance;
use super::config::Main;
use super::worker::Worker;
use super::{round, streams, PAUSE};

const WORKERS: u64 = 4;

/// Filters of one are of account to those of others.
static TURN: Mutex<()> = Mutex::new(());

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

#[test]
fn streams_come_to_their_ends() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut left = Vec::new();
    for seed in 1..=number("SSZIP_ROUNDS", 300) {
        left.extend(round(&mut Chance::of_seed(seed)).left());
    }
    // deadlines that do not count any more, and jobs that nobody waits for
    let deadline = Instant::now() + Duration::from_secs(20);
    while left.iter().any(|one| one.strong_count() > 0) {
        sleep(Duration::from_millis(10));
        assert!(Instant::now() < deadline, "a scheduler is left");
    }
}

#[test]
fn bytes_decide_as_well() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    streams(b"");
    streams(b"what a fuzzer makes up");
    streams(&[255; 4000]);
}

/// They share the filter, its routes, the cache and jobs, and the main thread replaces the
/// filter meanwhile.
#[test]
fn workers_come_to_their_ends() {
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
    let chance = &mut Chance::of_seed(seed);
    let main = &Main::new(chance);
    let going = &AtomicUsize::new(WORKERS as usize);
    scope(|scope| {
        for worker in 0..WORKERS {
            scope.spawn(move || {
                let _leaves = Leaves(going);
                let chance = &mut Chance::of_seed(seed * WORKERS + worker);
                let mut worker = Worker::new(20);
                while worker.has_more() {
                    if !worker.step(chance, main) {
                        sleep(PAUSE);
                    }
                }
                worker.judge();
            });
        }
        while going.load(Ordering::Acquire) > 0 {
            if !main.step(chance) {
                sleep(PAUSE);
            }
        }
    });
}

/// A worker that has panicked is gone, too.
struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
