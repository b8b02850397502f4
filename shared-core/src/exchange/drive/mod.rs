//! The driver: receives a host's events, and returns the next step.
//!
//! The driver owns an exchange, the fill of its response, and the jobs that take too long for an
//! event loop. No panic leaves it: after a panic the response is sent as without sszip; it fails
//! where that would present a part of a response as complete, or send JSON to a client that accepts
//! only SSZ.

mod completion;
mod request;
mod response;
pub(super) mod step;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::config::RouteConfig;
pub use crate::exchange::cache::lookup::request::{
    BodyLength, RequestBodyAvailability, RequiredBody,
};
use crate::exchange::drive::step::OffLoopWork;
pub use crate::exchange::drive::step::{
    ExchangeFailureReason, HostStep, OffLoopJob, OtherFiltersEffect,
};
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::{Header, RequestHead};
use crate::exchange::machine::transitions::{ExchangeEvent, ExchangeState};
use crate::exchange::machine::Exchange;
use crate::memory::MemoryReservation;
use crate::response_mode::ResponseMode;

/// The progress of an exchange's lookup: not begun, waiting for the request's body, or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LookupReadiness {
    /// No body was requested from the host.
    Start,
    /// The request's body is needed; `whole`: the complete body, in any format.
    Body { whole: bool },
    /// The lookup is done, or will not happen.
    Done,
}

/// The interface of a host to one exchange: the host feeds it events, and receives the next step.
/// See the [module](self).
#[derive(Debug)]
pub struct ExchangeDriver {
    /// The exchange; `None` while a job has it.
    available_exchange: Option<Box<Exchange>>,
    /// Drivers of the background updates that the host has not taken.
    updates: VecDeque<ExchangeDriver>,
    seeking: LookupReadiness,
    /// Memory of the host's copy of the request's body; `None` without a copy or memory.
    room: Option<MemoryReservation>,
    /// Whether there was no memory for the copy.
    lacks_room: bool,
    /// Memory of the request's body that the host keeps.
    body_reservation: Option<MemoryReservation>,
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

impl ExchangeDriver {
    /// Returns a driver for a request to a route with these settings.
    pub fn new(config: Arc<RouteConfig>) -> Self {
        Self::from_exchange(Exchange::new(config))
    }

    /// Returns a driver for a new exchange of a client's request or a background request.
    fn from_exchange(exchange: Exchange) -> Self {
        Self {
            available_exchange: Some(Box::new(exchange)),
            updates: VecDeque::new(),
            seeking: LookupReadiness::Start,
            room: None,
            lacks_room: false,
            body_reservation: None,
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

    /// Returns the exchange for reading; `None` while a job has it.
    pub fn available_exchange(&self) -> Option<&Exchange> {
        self.available_exchange.as_deref()
    }

    /// Returns the exchange for `event`, or [`HostMisuse`] while a job has it.
    fn exchange_or_misuse(&mut self, event: ExchangeEvent) -> Result<&mut Exchange, HostMisuse> {
        let state = ExchangeState::Compressing;
        self.available_exchange_mut()
            .ok_or(HostMisuse { state, event })
    }

    /// Returns the exchange for a change, for events that have no result; `None` while a job has it.
    pub fn available_exchange_mut(&mut self) -> Option<&mut Exchange> {
        self.available_exchange.as_deref_mut()
    }

    /// Reads the client's request head, and prepares the head of the upstream request.
    ///
    /// # Errors
    /// [`HostMisuse`] unless it is the first event.
    pub fn handle_request_head<'a, I>(&mut self, head: RequestHead<'_, I>) -> Result<(), HostMisuse>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        self.exchange_or_misuse(ExchangeEvent::RequestHead)?
            .read_request_head(head)
    }

    /// Compares the length of the upstream's body with the length of the body that arrived, at its
    /// end. If they differ, another filter changes bodies: the route is recorded as one with such a
    /// filter. Not all filters that change a body show it before.
    fn detect_filter_by_length(&mut self) {
        if let (Some(sent), Some(exchange)) = (self.node_sent, &mut self.available_exchange) {
            let is_changed = exchange.compare_upstream_with_received(sent);
            self.is_news |=
                is_changed && exchange.route_config.filters.record_filter_changed_body();
        }
    }

    /// Moves the exchange into a job; the host must wait if another job has it.
    fn start_exchange_job(&mut self) -> HostStep {
        match self.available_exchange.take() {
            Some(exchange) => HostStep::RunJob(OffLoopJob(OffLoopWork::PendingWork(exchange))),
            None => HostStep::Await,
        }
    }

    /// Returns the step for the state in which a job has left the exchange.
    fn step_after_job(&self) -> HostStep {
        match self.available_exchange() {
            Some(exchange) => match exchange.exchange_state() {
                // the job was not run because the client disconnected
                ExchangeState::Aborted
                | ExchangeState::Compressing
                | ExchangeState::Merging
                | ExchangeState::Decoding
                | ExchangeState::Rewriting => HostStep::Fail(
                    ExchangeFailureReason::from_response_mode(exchange.response_mode),
                ),
                ExchangeState::AwaitingHead if exchange.is_request_rewritten() => {
                    HostStep::ForwardRewritten
                }
                // a stored part of the batch is not available, and the batch may not be forwarded
                // whole
                ExchangeState::AwaitingPart => HostStep::ForwardRewritten,
                // the stored response is not available
                ExchangeState::AwaitingHead => HostStep::Forward,
                ExchangeState::Waiting => HostStep::Wait,
                _ if exchange.response_mode == ResponseMode::Hit
                    || exchange.is_local_response() =>
                {
                    HostStep::Respond
                }
                _ => HostStep::Send,
            },
            None => HostStep::Await,
        }
    }

    /// Returns the step after a job of [`HostStep::RunJob`] has run.
    pub fn resume_after_job(&mut self, job: OffLoopJob) -> HostStep {
        match job.0 {
            OffLoopWork::PendingWork(exchange) => {
                self.available_exchange = Some(exchange);
                let step = self.step_after_job();
                if !matches!(step, HostStep::Wait) {
                    // the lookup that the job belongs to, if any, is not repeated
                    self.seeking = LookupReadiness::Done;
                    self.body_reservation = None;
                }
                step
            }
            // these jobs belong to no exchange any more
            OffLoopWork::Store(_) | OffLoopWork::Teardown(_) => HostStep::Await,
        }
    }

    /// Ends the exchange for a client that has disconnected; borrowed bodies stay valid.
    pub fn abandon_client_exchange(&mut self) {
        self.updates.clear();
        if let Some(exchange) = self.available_exchange_mut() {
            exchange.abandon_client_request();
        }
    }
}
