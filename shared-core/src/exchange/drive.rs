//! The driver: receives a host's events, and returns the next step.
//!
//! The driver owns an exchange, the fill of its response, and the jobs that take too long for an
//! event loop. No panic leaves it: after a panic the response is sent as without sszip; it fails
//! where that would present a part of a response as complete, or send JSON to a client that accepts
//! only SSZ.

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

/// Progress of the lookup of stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seeking {
    /// No body was requested from the host.
    Start,
    /// The request's body is needed; `whole`: the complete body, in any format.
    Body { whole: bool },
    /// The lookup is done, or will not happen.
    Over,
}

/// An exchange with its background update and reservations. See the [module](self).
#[derive(Debug)]
pub struct Driver {
    /// The exchange; `None` while a job has it.
    exchange: Option<Box<Exchange>>,
    /// Driver of the background update.
    update: Option<Box<Driver>>,
    seeking: Seeking,
    /// Memory of the host's copy of the request's body; `None` without a copy or memory.
    room: Option<Reservation>,
    /// Whether there was no memory for the copy.
    lacks_room: bool,
    /// Memory of the request's body that the host keeps.
    kept: Option<Reservation>,
    /// Whether the request's body is longer than the longest that is kept.
    is_too_long: bool,
    /// Bytes of the body that the upstream sent, if the host reports them.
    node_sent: Option<u64>,
    /// Whether other filters change the body.
    is_changed: bool,
    /// Whether this exchange was the first to detect that other filters change bodies here.
    is_news: bool,
    /// Whether the encoder of the stream holds no input back.
    is_flushed: bool,
    /// Whether the host has received the metrics of this exchange.
    is_counted: bool,
    /// Whether the request was forwarded: the response is no stored response.
    is_forwarded: bool,
    /// Microseconds from the request's head to the head of the node's response.
    node_elapsed: Option<u64>,
}

impl Driver {
    /// Returns a driver for a request to a route with these settings.
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

    /// The exchange, for reading; `None` while a job has it.
    pub fn exchange(&self) -> Option<&Exchange> {
        self.exchange.as_deref()
    }

    /// Returns the exchange for `event`, or [`Misuse`] while a job has it.
    fn open(&mut self, event: Event) -> Result<&mut Exchange, Misuse> {
        let state = State::Coding;
        self.exchange.as_deref_mut().ok_or(Misuse { state, event })
    }

    /// Calls the function with the exchange, for events that have no result; skipped while a job
    /// has the exchange.
    pub fn tell<T>(&mut self, what: impl FnOnce(&mut Exchange) -> T) -> Option<T> {
        self.exchange.as_deref_mut().map(what)
    }

    /// Handles the client's request head.
    ///
    /// # Errors
    /// [`Misuse`] unless it is the first event.
    pub fn request_head<'a, I>(&mut self, head: RequestHead<'_, I>) -> Result<(), Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        self.open(Event::RequestHead)?.request_head(head)
    }

    /// Compares the upstream's body with the body that arrived, at its end: not all filters that
    /// change a body show it before.
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
                // the job was not run because the client disconnected
                State::Cut
                | State::Coding
                | State::Merging
                | State::Decoding
                | State::Rewriting => Step::Fail(Lack::of(exchange.mode)),
                State::AwaitingHead if exchange.is_rewritten() => Step::ForwardRewritten,
                // a stored part of the batch is not available, and the batch may not be forwarded
                // whole
                State::AwaitingPart => Step::ForwardRewritten,
                // the stored response is not available
                State::AwaitingHead => Step::Forward,
                _ if exchange.mode == Mode::Hit || exchange.is_ours() => Step::Respond,
                _ => Step::Send,
            },
            None => Step::Await,
        }
    }

    /// Returns the step after a job of [`Step::OffLoop`] has run.
    pub fn done(&mut self, job: Job) -> Step {
        match job.0 {
            Work::Answer(exchange) => {
                self.exchange = Some(exchange);
                self.coded()
            }
            // these jobs belong to no exchange any more
            Work::Store(_) | Work::Forget(_) => Step::Await,
        }
    }

    /// Ends the exchange for a client that has disconnected; borrowed bodies stay valid.
    pub fn abandon(&mut self) {
        self.update = None;
        self.tell(Exchange::abandon);
    }
}
