//! The processes that hold an event stream: what they are to be told, until
//! when each may send what it has in memory, and when a purge holds in all.
//!
//! A time is given when its event is *taken* by whoever sends it, never when
//! it is queued: a process that reads nothing is given nothing, so that a
//! purge waits for it for [`memory_lease`] at most, whatever lies in between.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::cache::told::Event;
use crate::cache::Key;
use crate::times::{memory_lease, memory_lease_renewal, predecessor_lease};

/// Events that a stream may be behind. Beyond it the stream is closed: the
/// process learns from the next one's `hello` what it has missed.
const MOST_EVENTS: usize = 16_384;

/// Processes at a time.
const MOST_PROCESSES: usize = 1_024;

/// A process's name for itself: 1 to 64 letters, digits, `-`, `.`, `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// `None` if it is none.
    pub fn new(name: &str) -> Option<Self> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        ((1..=64).contains(&name.len()) && name.bytes().all(is_good)).then(|| Self(name.into()))
    }

    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One event stream, of all that there ever were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream(u64);

/// What to do with a stream now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this, and ask again.
    Event(Event),
    /// Nothing before this time (monotonic milliseconds), unless it is woken.
    Idle(u64),
    /// Close it: a newer one has its place, or it is too far behind.
    Close,
}

/// There are too many processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// An acknowledgement of a purge that never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchPurge;

/// All processes.
#[derive(Debug, Default)]
pub struct Processes {
    by_name: HashMap<Name, Process>,
    streams: HashMap<Stream, Name>,
    next_stream: u64,
    woken: Vec<Stream>,
    generation: u64,
    /// Until then processes may have a time that another owner gave them.
    grace: u64,
    purges: BTreeMap<u64, Waiting>,
}

#[derive(Debug, Default)]
struct Process {
    stream: Option<Stream>,
    greeted: bool,
    queue: VecDeque<Event>,
    /// When the next time is to be given.
    due: u64,
    /// The last one given.
    until: u64,
}

/// A purge that is not over.
#[derive(Debug)]
struct Waiting {
    /// Until when it waits in any case.
    grace: u64,
    /// Until when each may send from its memory.
    untils: HashMap<Name, u64>,
}

impl Waiting {
    /// The last millisecond of which it is not over.
    fn last(&self) -> u64 {
        self.untils.values().copied().fold(self.grace, u64::max)
    }
}

impl Processes {
    /// None that is known, at `now`: those that an owner before this one gave
    /// a time are waited for.
    pub fn new(generation: u64, now: u64) -> Self {
        Self {
            generation,
            grace: now.saturating_add(predecessor_lease()),
            ..Self::default()
        }
    }

    /// The owner listens from `now` on: whoever found nobody before that may
    /// take it that there was none for [`predecessor_lease`].
    pub fn listens(&mut self, now: u64) {
        self.grace = now.saturating_add(predecessor_lease());
    }

    /// How many purges have taken effect.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// `name` has opened a stream. One that it had is closed.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn arrive(&mut self, name: &Name, now: u64) -> Result<Stream, TooMany> {
        self.collect(now);
        if self.by_name.len() >= MOST_PROCESSES && !self.by_name.contains_key(name) {
            return Err(TooMany);
        }
        let stream = Stream(self.next_stream);
        self.next_stream += 1;
        let process = self.by_name.entry(name.clone()).or_insert(Process {
            due: now,
            ..Process::default()
        });
        let former = process.stream.replace(stream);
        process.greeted = false;
        process.queue.clear();
        if let Some(former) = former {
            self.streams.remove(&former);
            self.woken.push(former);
        }
        self.streams.insert(stream, name.clone());
        Ok(stream)
    }

    /// Whether a process has a stream.
    pub fn has_stream(&self, name: &Name) -> bool {
        self.by_name
            .get(name)
            .is_some_and(|process| process.stream.is_some())
    }

    /// A stream has ended. Its process, if it has no other. The time that it
    /// was given goes on: it may not have noticed.
    pub fn leave(&mut self, stream: Stream) -> Option<Name> {
        let name = self.streams.remove(&stream)?;
        if let Some(process) = self.by_name.get_mut(&name) {
            process.stream = None;
            process.queue = VecDeque::new();
        }
        Some(name)
    }

    /// What to send on a stream.
    pub fn next(&mut self, stream: Stream, now: u64) -> Next {
        let generation = self.generation;
        let Some(process) = self
            .streams
            .get(&stream)
            .and_then(|name| self.by_name.get_mut(name))
        else {
            return Next::Close;
        };
        if process.queue.len() > MOST_EVENTS {
            return Next::Close;
        }
        if process.greeted {
            if let Some(event) = process.queue.pop_front() {
                return Next::Event(event);
            }
            if now < process.due {
                return Next::Idle(process.due);
            }
        }
        let until = now.saturating_add(memory_lease());
        process.until = until;
        process.due = now.saturating_add(memory_lease_renewal());
        Next::Event(if process.greeted {
            Event::Lease { generation, until }
        } else {
            process.greeted = true;
            // its generation says it
            process
                .queue
                .retain(|event| !matches!(event, Event::Purge { .. }));
            Event::Hello { generation, until }
        })
    }

    /// Tells a process, if it has a stream.
    pub fn tell(&mut self, name: &Name, event: Event) {
        let Some(process) = self.by_name.get_mut(name) else {
            return;
        };
        let Some(stream) = process.stream else {
            return;
        };
        // one more than allowed says that there were too many
        if process.queue.len() <= MOST_EVENTS {
            process.queue.push_back(event);
            self.woken.push(stream);
        }
    }

    /// A purge has taken effect at `now`: tells all, and waits for them.
    /// [`settle`](Self::settle) says when it is over.
    pub fn purge(&mut self, generation: u64, key: Option<Key>, now: u64) {
        self.generation = self.generation.max(generation);
        self.collect(now);
        let untils = self
            .by_name
            .iter()
            .map(|(name, process)| (name.clone(), process.until))
            .collect();
        self.purges.insert(
            generation,
            Waiting {
                grace: self.grace,
                untils,
            },
        );
        self.tell_all(&Event::Purge { generation, key });
    }

    /// Tells all processes that have a stream.
    pub fn tell_all(&mut self, event: &Event) {
        let names: Vec<Name> = self.streams.values().cloned().collect();
        for name in names {
            self.tell(&name, event.clone());
        }
    }

    /// All purges up to `generation` hold in a process.
    ///
    /// # Errors
    /// [`NoSuchPurge`].
    pub fn acknowledge(&mut self, name: &Name, generation: u64) -> Result<(), NoSuchPurge> {
        if generation > self.generation {
            return Err(NoSuchPurge);
        }
        for (_, waiting) in self.purges.range_mut(..=generation) {
            waiting.untils.remove(name);
        }
        Ok(())
    }

    /// The purges that are over at `now`: nothing that they removed can be
    /// sent any more.
    pub fn settle(&mut self, now: u64) -> Vec<u64> {
        let over: Vec<u64> = self
            .purges
            .iter()
            .filter(|(_, waiting)| now > waiting.last())
            .map(|(generation, _)| *generation)
            .collect();
        for generation in &over {
            self.purges.remove(generation);
        }
        over
    }

    /// When [`settle`](Self::settle) will have something to say without an
    /// acknowledgement, monotonic milliseconds.
    pub fn next_settlement(&self) -> Option<u64> {
        self.purges
            .values()
            .map(|waiting| waiting.last().saturating_add(1))
            .min()
    }

    /// The streams that have something to be told since the last call.
    pub fn take_woken(&mut self) -> Vec<Stream> {
        std::mem::take(&mut self.woken)
    }

    /// The processes with a stream.
    pub fn present(&self) -> impl Iterator<Item = &Name> {
        self.streams.values()
    }

    /// Whether a purge is not over yet, as of the last
    /// [`settle`](Self::settle).
    pub fn is_waiting(&self, generation: u64) -> bool {
        self.purges.contains_key(&generation)
    }

    /// How many purges are waiting.
    pub fn waiting(&self) -> usize {
        self.purges.len()
    }

    /// Forgets those that have gone and can't send from memory any more.
    fn collect(&mut self, now: u64) {
        self.by_name
            .retain(|_, process| process.stream.is_some() || process.until >= now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    /// All that a stream is to send now.
    fn drain(processes: &mut Processes, stream: Stream, now: u64) -> Vec<Event> {
        let mut events = Vec::new();
        while let Next::Event(event) = processes.next(stream, now) {
            events.push(event);
        }
        events
    }

    fn hello(generation: u64, until: u64) -> Event {
        Event::Hello { generation, until }
    }

    fn lease(generation: u64, until: u64) -> Event {
        Event::Lease { generation, until }
    }

    const TIME: u64 = 1_000;
    const EVERY: u64 = 250;

    /// After the grace of the start.
    const START: u64 = 10_000;

    fn started() -> Processes {
        Processes::new(5, START - TIME - 1)
    }

    #[test]
    fn names_are_what_the_protocol_says() {
        for good in ["a", "nginx-1.worker_7", &"x".repeat(64)] {
            assert_eq!(name(good).as_str(), good);
        }
        for bad in ["", " ", "a b", "a/b", "é", "a\n", &"x".repeat(65)] {
            assert!(Name::new(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn a_stream_begins_with_hello_and_goes_on_with_times() {
        let mut processes = started();
        let stream = processes.arrive(&name("a"), START).unwrap();
        assert_eq!(
            drain(&mut processes, stream, START),
            [hello(5, START + TIME)]
        );
        assert_eq!(processes.next(stream, START), Next::Idle(START + EVERY));
        assert_eq!(
            drain(&mut processes, stream, START + EVERY),
            [lease(5, START + EVERY + TIME)]
        );
        processes.tell(&name("a"), Event::Filled([1; 32]));
        assert_eq!(processes.take_woken(), [stream]);
        assert_eq!(
            drain(&mut processes, stream, START + 2 * EVERY),
            [Event::Filled([1; 32]), lease(5, START + 2 * EVERY + TIME)]
        );
    }

    #[test]
    fn the_first_second_waits_for_those_of_the_owner_before() {
        let mut processes = Processes::new(5, 0);
        processes.purge(6, None, TIME / 2);
        assert!(processes.settle(TIME).is_empty());
        assert_eq!(processes.settle(TIME + 1), [6]);
    }

    #[test]
    fn the_first_second_waits_for_those_who_found_nobody_until_it_listened() {
        let mut processes = Processes::new(5, 0);
        processes.listens(300);
        processes.purge(6, None, TIME);
        assert!(processes.settle(300 + TIME).is_empty());
        assert_eq!(processes.settle(301 + TIME), [6]);
    }

    #[test]
    fn a_newer_stream_closes_the_older_one() {
        let mut processes = started();
        let old = processes.arrive(&name("a"), START).unwrap();
        let new = processes.arrive(&name("a"), START + 1).unwrap();
        assert_eq!(processes.take_woken(), [old]);
        assert_eq!(processes.next(old, START + 1), Next::Close);
        assert_eq!(processes.leave(old), None);
        assert_eq!(
            drain(&mut processes, new, START + 1),
            [hello(5, START + 1 + TIME)]
        );
    }

    #[test]
    fn one_that_does_not_read_is_given_nothing_and_closed_in_the_end() {
        let mut processes = started();
        let stream = processes.arrive(&name("a"), START).unwrap();
        drain(&mut processes, stream, START);
        for _ in 0..2 * MOST_EVENTS {
            processes.tell(&name("a"), Event::Filled([1; 32]));
        }
        assert_eq!(processes.next(stream, START), Next::Close);
    }

    #[test]
    fn they_are_bounded() {
        let mut processes = started();
        for n in 0..MOST_PROCESSES {
            processes.arrive(&name(&format!("p{n}")), START).unwrap();
        }
        assert_eq!(processes.arrive(&name("q"), START), Err(TooMany));
        assert!(processes.arrive(&name("p7"), START).is_ok());
    }

    mod sequences {
        use proptest::prelude::*;

        use super::*;

        #[derive(Clone, Debug)]
        enum Step {
            Arrive(u8),
            Leave(u8),
            /// The process reads one event, and acts on it.
            Read(u8),
            Acknowledge(u8),
            Purge,
            Pass(u64),
        }

        fn step() -> impl Strategy<Value = Step> {
            let process = 0..3u8;
            prop_oneof![
                2 => process.clone().prop_map(Step::Arrive),
                1 => process.clone().prop_map(Step::Leave),
                6 => process.clone().prop_map(Step::Read),
                4 => process.prop_map(Step::Acknowledge),
                2 => Just(Step::Purge),
                4 => (1..400u64).prop_map(Step::Pass),
            ]
        }

        /// A process as the protocol wants it: it may send what it has while
        /// its time lasts, and forgets it at a purge.
        #[derive(Default)]
        struct Model {
            stream: Option<Stream>,
            until: u64,
            knows: u64,
        }

        proptest! {
            /// When a purge is over, no process may send what it has from
            /// before; and it is over as soon as that is so, whatever they do.
            #[test]
            fn a_purge_holds_in_all(steps in prop::collection::vec(step(), 0..120)) {
                let mut processes = started();
                let mut now = START;
                let mut models: [Model; 3] = Default::default();
                // those that are not over, and until when each process may send
                let mut begun: Vec<(u64, [u64; 3])> = Vec::new();
                let mut generation = 5;
                for step in steps {
                    match step {
                        Step::Arrive(n) => {
                            let stream = processes.arrive(&name(&format!("p{n}")), now).unwrap();
                            models[n as usize].stream = Some(stream);
                        }
                        Step::Leave(n) => {
                            if let Some(stream) = models[n as usize].stream.take() {
                                processes.leave(stream);
                            }
                        }
                        Step::Read(n) => {
                            let model = &mut models[n as usize];
                            let Some(stream) = model.stream else { continue };
                            match processes.next(stream, now) {
                                Next::Event(Event::Hello { generation, until } | Event::Lease { generation, until }) => {
                                    model.knows = generation;
                                    model.until = until;
                                }
                                Next::Event(Event::Purge { generation, .. }) => {
                                    prop_assert!(generation > model.knows);
                                    model.knows = generation;
                                }
                                Next::Event(_) | Next::Idle(_) => {}
                                Next::Close => prop_assert!(false),
                            }
                        }
                        Step::Acknowledge(n) => {
                            let process = name(&format!("p{n}"));
                            let knows = models[n as usize].knows;
                            prop_assert_eq!(processes.acknowledge(&process, generation + 1), Err(NoSuchPurge));
                            processes.acknowledge(&process, knows).unwrap();
                            for (_, untils) in begun.iter_mut().filter(|(purge, _)| *purge <= knows) {
                                untils[n as usize] = 0;
                            }
                        }
                        Step::Purge => {
                            generation += 1;
                            processes.purge(generation, None, now);
                            begun.push((generation, models.each_ref().map(|model| model.until)));
                        }
                        Step::Pass(time) => now += time,
                    }
                    let over = processes.settle(now);
                    for generation in &over {
                        for model in &models {
                            prop_assert!(model.knows >= *generation || now > model.until);
                        }
                    }
                    let last = |untils: &[u64; 3]| untils.iter().copied().max().unwrap_or(0);
                    let ended = begun.iter().filter(|(_, untils)| now > last(untils));
                    prop_assert_eq!(over, ended.map(|(purge, _)| *purge).collect::<Vec<_>>());
                    begun.retain(|(_, untils)| now <= last(untils));
                    let next = begun.iter().map(|(_, untils)| last(untils) + 1).min();
                    prop_assert_eq!(processes.next_settlement(), next);
                }
            }
        }
    }
}
