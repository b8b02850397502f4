//! A worker with its concurrent streams.

#[cfg(test)]
use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};

use super::config::SimulatedMainThread;
use super::event_choices::EventChoices;
use super::stream_scenario::StreamScenario;

/// Maximum number of concurrent streams.
const MAX_CONCURRENT_STREAMS: usize = 6;

/// Maximum duration of a worker's streams.
const WORKER_TIMEOUT: Duration = Duration::from_secs(60);

/// A simulated worker thread of Envoy, with its concurrent streams.
pub struct SimulatedWorker {
    /// Number of streams that have not begun.
    number: usize,
    going: Vec<StreamScenario>,
    over: Vec<StreamScenario>,
    deadline: Instant,
}

impl SimulatedWorker {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            going: Vec::new(),
            over: Vec::new(),
            deadline: Instant::now() + WORKER_TIMEOUT,
        }
    }

    pub fn has_more_streams(&self) -> bool {
        self.number > 0 || !self.going.is_empty()
    }

    /// Performs the next event of a stream. Returns whether there was one.
    pub fn run_next_event(
        &mut self,
        chance: &mut EventChoices<'_>,
        main: &SimulatedMainThread,
    ) -> bool {
        while self.number > 0 && self.going.len() < MAX_CONCURRENT_STREAMS {
            self.number -= 1;
            self.going.push(StreamScenario::new(chance, main));
        }
        assert!(Instant::now() < self.deadline, "a stream does not end");
        let at = chance.choose_below(self.going.len());
        let has_done = self.going[at].run_next_event(chance);
        if self.going[at].is_over() {
            self.over.push(self.going.swap_remove(at));
        }
        has_done
    }

    /// Asserts that all clients received the right responses.
    pub fn check_responses(&self) {
        self.over.iter().for_each(StreamScenario::check_response);
    }

    /// Numbers of responses that were assembled from pieces: of all, and of those to batches.
    #[cfg(test)]
    pub fn assembled_response_counts(&self) -> [usize; 2] {
        let assembled = || self.over.iter().filter(|it| it.has_assembled_response());
        let batches = assembled().filter(|it| it.is_log_batch());
        [assembled().count(), batches.count()]
    }

    /// Events of the schedulers that are left, as long as there are any.
    #[cfg(test)]
    pub fn remaining_events(&self) -> impl Iterator<Item = Weak<Mutex<Vec<u64>>>> + '_ {
        self.over.iter().map(StreamScenario::remaining_events)
    }
}
