//! A worker with its concurrent streams.

#[cfg(test)]
use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};

use super::chance::Chance;
use super::config::Main;
use super::course::Course;

/// Maximum number of concurrent streams.
const AT_ONCE: usize = 6;

/// Maximum duration of a worker's streams.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Worker {
    /// Number of streams that have not begun.
    number: usize,
    going: Vec<Course>,
    over: Vec<Course>,
    deadline: Instant,
}

impl Worker {
    pub fn new(number: usize) -> Self {
        Self {
            number,
            going: Vec::new(),
            over: Vec::new(),
            deadline: Instant::now() + PATIENCE,
        }
    }

    pub fn has_more(&self) -> bool {
        self.number > 0 || !self.going.is_empty()
    }

    /// Performs the next event of a stream. Returns whether there was one.
    pub fn step(&mut self, chance: &mut Chance<'_>, main: &Main) -> bool {
        while self.number > 0 && self.going.len() < AT_ONCE {
            self.number -= 1;
            self.going.push(Course::new(chance, main));
        }
        assert!(Instant::now() < self.deadline, "a stream does not end");
        let at = chance.below(self.going.len());
        let has_done = self.going[at].step(chance);
        if self.going[at].is_over() {
            self.over.push(self.going.swap_remove(at));
        }
        has_done
    }

    /// Asserts that all clients received the right responses.
    pub fn judge(&self) {
        self.over.iter().for_each(Course::judge);
    }

    /// Events of the schedulers that are left, as long as there are any.
    #[cfg(test)]
    pub fn left(&self) -> impl Iterator<Item = Weak<Mutex<Vec<u64>>>> + '_ {
        self.over.iter().map(Course::left)
    }
}
