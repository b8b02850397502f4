//! The driver: a host tells it what happened, and it says what to do next.
//!
//! It owns an exchange, what is to be stored of its answer, and the work that
//! takes too long for an event loop. No panic leaves it: what it was about then
//! goes on as if there were no sszip, or, where that would pass a part of an
//! answer off as all of it, or JSON to a client that takes SSZ only, fails.

mod after;
mod request;
mod response;

use std::sync::Arc;

use super::actions::Misuse;
pub use super::cache::asked::{BodyLength, Need, RequestBody};
use super::head::{Field, RequestHead};
use super::machine::Exchange;
use super::step::Work;
pub use super::step::{Beside, Job, Lack, Step};
use super::transitions::{Event, State};
use crate::config::Config;
use crate::memory::Reservation;
use crate::mode::Mode;

/// How far looking for stored answers has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seeking {
    /// Nothing was asked for yet.
    Start,
    /// The request's body; all of it, in whatever form.
    Body { whole: bool },
    /// They were looked up, or never will be.
    Over,
}

/// An exchange and what comes of it. See the [module](self).
#[derive(Debug)]
pub struct Driver {
    /// `None` while a job has it.
    exchange: Option<Box<Exchange>>,
    /// What is to be fetched in the background.
    update: Option<Box<Driver>>,
    seeking: Seeking,
    /// For the host's copy of the request's body; `None`: there is none, or no room.
    room: Option<Reservation>,
    /// There was no room for it.
    lacks_room: bool,
    /// For what the host keeps of the request's body.
    kept: Option<Reservation>,
    /// The request's body is longer than what is ever kept.
    is_too_long: bool,
    /// Bytes that the node has sent of the body, where the host shows them.
    node_sent: Option<u64>,
    /// Others change the body.
    is_changed: bool,
    /// It was not known before that others change bodies here.
    is_news: bool,
    /// The encoder of a stream keeps nothing.
    is_flushed: bool,
    /// The host was told what to count of it.
    is_counted: bool,
    /// The node was asked: what answers is no stored answer.
    is_forwarded: bool,
    /// Microseconds from the request's head to that of the node's response.
    node_elapsed: Option<u64>,
}

impl Driver {
    /// One for a request at a place with these settings.
    pub fn new(config: Arc<Config>) -> Self {
        Self::of(Exchange::new(config))
    }

    fn of(exchange: Exchange) -> Self {
        Self {
            exchange: Some(Box::new(exchange)),
            update: None,
            seeking: Seeking::Start,
            room: None,
            lacks_room: false,
            kept: None,
            is_too_long: false,
            node_sent: None,
            is_changed: false,
            is_news: false,
            is_flushed: false,
            is_counted: false,
            is_forwarded: false,
            node_elapsed: None,
        }
    }

    /// The exchange, to be read; `None` while a job has it.
    pub fn exchange(&self) -> Option<&Exchange> {
        self.exchange.as_deref()
    }

    /// The same, for what the host has to say of it; `event` is what that is.
    fn open(&mut self, event: Event) -> Result<&mut Exchange, Misuse> {
        let state = State::Coding;
        self.exchange.as_deref_mut().ok_or(Misuse { state, event })
    }

    /// For what has no answer, and is of no account while a job has it.
    pub fn tell<T>(&mut self, what: impl FnOnce(&mut Exchange) -> T) -> Option<T> {
        self.exchange.as_deref_mut().map(what)
    }

    /// The client's request head.
    ///
    /// # Errors
    /// [`Misuse`] unless it is the first event.
    pub fn request_head<'a, I>(&mut self, head: RequestHead<'_, I>) -> Result<(), Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        self.open(Event::RequestHead)?.request_head(head)
    }

    /// At the end of a body: not all who change one say so before.
    fn compare_with_node(&mut self) {
        if let (Some(sent), Some(exchange)) = (self.node_sent, &mut self.exchange) {
            let is_changed = exchange.node_sent(sent);
            self.is_news |= is_changed && exchange.config.filters.saw_change();
        }
    }

    fn off_loop(&mut self) -> Step {
        match self.exchange.take() {
            Some(exchange) => Step::OffLoop(Job(Work::Answer(exchange))),
            None => Step::Await,
        }
    }

    fn coded(&self) -> Step {
        match self.exchange() {
            Some(exchange) => match exchange.state() {
                // it was not run: nobody wanted it
                State::Cut
                | State::Coding
                | State::Merging
                | State::Decoding
                | State::Rewriting => Step::Fail(Lack::of(exchange.mode)),
                State::AwaitingHead if exchange.is_rewritten() => Step::ForwardRewritten,
                // what was stored of a batch is not to be had, and it may not go on whole
                State::AwaitingPart => Step::ForwardRewritten,
                // what was stored is not to be had
                State::AwaitingHead => Step::Forward,
                _ if exchange.mode == Mode::Hit || exchange.is_ours() => Step::Respond,
                _ => Step::Send,
            },
            None => Step::Await,
        }
    }

    /// A job of [`Step::OffLoop`] has run.
    pub fn done(&mut self, job: Job) -> Step {
        match job.0 {
            Work::Answer(exchange) => {
                self.exchange = Some(exchange);
                self.coded()
            }
            // they are of no exchange any more
            Work::Store(_) | Work::Forget(_) => Step::Await,
        }
    }

    /// Nothing more comes of it, and nobody waits for it; what it gave out
    /// stays.
    pub fn abandon(&mut self) {
        self.update = None;
        self.tell(Exchange::abandon);
    }
}
