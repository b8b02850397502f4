//! Envoy as far as this module sees it, and many streams that go through it with what
//! happens to them in orders that are random: no hook panics, nothing is asked of a stream
//! that has ended, every stream comes to its end, what the node has answered is what the
//! client gets, and no scheduler is left.

#![allow(unsafe_code)] // it is C's

mod callbacks;
mod chance;
mod config;
mod course;
mod node;
mod stream;
#[cfg(test)]
mod tests;
mod worker;
mod world;

use std::thread::sleep;
use std::time::Duration;

use self::chance::Chance;
use self::config::Main;
use self::worker::Worker;

pub use self::callbacks::of;

/// For as long as nothing can happen but what others do.
const PAUSE: Duration = Duration::from_micros(50);

/// Streams on one worker, with a main thread that has its turns between theirs. These bytes
/// decide.
pub fn streams(bytes: &[u8]) {
    round(&mut Chance::of_bytes(bytes));
}

fn round(chance: &mut Chance<'_>) -> Worker {
    let main = Main::new(chance);
    let mut worker = Worker::new(10);
    while worker.has_more() {
        let mut has_done = worker.step(chance, &main);
        if !has_done || chance.once_in(4) {
            has_done |= main.step(chance);
        }
        if !has_done {
            sleep(PAUSE);
        }
    }
    worker.judge();
    // what is under way in the background ends by itself, or with the filter
    if chance.below(2) == 0 {
        while main.step(chance) {}
    }
    worker
}
