//! A simulation of Envoy as this module sees it, in which events of many
//! streams occur in random orders. It asserts that no hook panics, that no
//! callback is called for a stream that has ended, that every stream ends, that
//! the client receives the node's response, and that no scheduler is left.

#![allow(unsafe_code)] // the C ABI

mod callbacks;
mod callouts;
mod config;
mod event_choices;
mod node;
mod owner;
mod primitives;
mod stream;
mod stream_scenario;
mod stream_state;
#[cfg(test)]
mod tests;
mod worker;

use std::thread::sleep;
use std::time::Duration;

use self::config::SimulatedMainThread;
use self::event_choices::EventChoices;
use self::worker::SimulatedWorker;

/// Pause while only other threads can cause an event.
const IDLE_PAUSE: Duration = Duration::from_micros(50);

/// Simulates streams on one worker and a main thread that alternates with it. `bytes` decide the
/// order of the events.
pub fn simulate_streams(bytes: &[u8]) {
    simulate_worker(&mut EventChoices::from_choice_bytes(bytes));
}

fn simulate_worker(chance: &mut EventChoices<'_>) -> SimulatedWorker {
    let main = SimulatedMainThread::new(chance);
    run_streams(chance, &main, 10)
}

/// Runs this number of streams on one worker, and checks their responses.
fn run_streams(
    chance: &mut EventChoices<'_>,
    main: &SimulatedMainThread,
    streams: usize,
) -> SimulatedWorker {
    let mut worker = SimulatedWorker::new(streams);
    while worker.has_more_streams() {
        let mut has_done = worker.run_next_event(chance, main);
        if !has_done || chance.draw_one_in(4) {
            has_done |= main.deliver_pending_filter_events(chance);
        }
        if !has_done {
            sleep(IDLE_PAUSE);
        }
    }
    worker.check_responses();
    // background requests in flight end by themselves, or with the filter
    if chance.choose_below(2) == 0 {
        while main.deliver_pending_filter_events(chance) {}
    }
    worker
}
