//! The exchange of one stream: passes the proxy's calls to the core's driver,
//! and executes the driver's steps. It makes no decisions.

mod pieces;
mod purge;
pub mod redirect;
mod request;
pub mod response;
mod sending;

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::types::{Action, BufferType, MapType};
use sszip_core::exchange::drive::{Driver, Lack, Step};
use sszip_core::variable::Variable;

use self::pieces::Pieces;
use crate::abi::{self, Head, Side};
use crate::root::Root;
use crate::timers::Due;

/// Action that a call of the proxy leads to.
pub enum Act {
    /// Continue the stream.
    Continue,
    /// Stop the stream until more of it arrives or another event occurs.
    Stop,
    /// Send the driver's response in place of any other.
    Respond,
    /// Respond with 502, since there is no response to send.
    Fail(Lack),
    /// Reset the stream, because its response cannot be completed.
    Reset,
}

/// State of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The exchange takes no part in the stream.
    Passing,
    /// The request body is being buffered.
    Reading,
    /// A lookup is in progress, or another request fetches the response.
    Waiting,
    /// A purge is in progress.
    Purging,
    /// The request was forwarded, and the response head is awaited.
    Forwarded,
    /// The driver's response is being sent.
    Responding,
    /// The response body is passed on, and observed if the driver needs it.
    Showing,
    /// The response head is withheld, and the body is buffered in the driver.
    Holding,
    /// The response body passes through the encoder.
    Streaming,
}

/// A stream context as the SDK calls it.
pub struct Handle {
    pub id: u32,
    pub root: Rc<Root>,
    exchange: Rc<RefCell<Exchange>>,
}

/// The exchange of a stream.
#[derive(Debug)]
pub struct Exchange {
    id: u32,
    root: Rc<Root>,
    state: State,
    driver: Option<Driver>,
    /// Number of the last deadline.
    timer: u64,
    /// The deadline is set and has not passed.
    is_timed: bool,
    /// Number of bytes of the request body that have arrived.
    body_length: usize,
    /// Pieces of a request body of unknown length: together with a long piece
    /// they would exceed the proxy's buffer limit.
    taken: Pieces,
    /// Piece that follows them, and is forwarded with the next one.
    rest: Vec<u8>,
    /// The proxy buffers the response body, up to its limit.
    is_kept: bool,
    /// A deadline has resumed the response. From here on the proxy would buffer
    /// bytes that a hook lets pass, so that all of them are sent by deadlines.
    is_paced: bool,
    /// Bytes that wait for the next of these deadlines.
    paced: Vec<u8>,
    /// Probes to send to the node.
    questions: Vec<Driver>,
    /// The response has a body, whose bytes can be replaced.
    has_body: bool,
    /// The response is complete.
    is_whole: bool,
    /// The driver observes the body, which is sent unchanged.
    is_shown: bool,
}

impl Handle {
    /// Creates the exchange of a stream context.
    pub fn new(id: u32, root: &Rc<Root>) -> Self {
        let exchange = Exchange {
            id,
            root: Rc::clone(root),
            state: State::Passing,
            driver: None,
            timer: 0,
            is_timed: false,
            body_length: 0,
            taken: Pieces::default(),
            rest: Vec::new(),
            is_kept: false,
            is_paced: false,
            paced: Vec::new(),
            questions: Vec::new(),
            has_body: false,
            is_whole: false,
            is_shown: false,
        };
        let exchange = Rc::new(RefCell::new(exchange));
        let root = Rc::clone(root);
        root.knows(id, &exchange);
        Self { id, root, exchange }
    }

    /// Runs a hook of the stream.
    pub fn hook(&mut self, call: impl FnOnce(&mut Exchange) -> Act) -> Action {
        self.root.calls(self.id, true);
        let action = {
            let mut exchange = self.exchange.borrow_mut();
            let act = call(&mut exchange);
            exchange.perform(act)
        };
        self.root.settle(self.id);
        action
    }

    /// Reports a finished stream, before the proxy writes its access log.
    pub fn logged(&mut self) {
        let mut exchange = self.exchange.borrow_mut();
        if exchange.state == State::Purging {
            purge::is_left();
        }
        exchange.is_over();
        exchange.leave_questions();
    }

    /// Ends the stream.
    pub fn ended(&mut self) {
        let mut exchange = self.exchange.borrow_mut();
        exchange.may_go_on();
        exchange.becomes(State::Passing);
        exchange.forget();
        drop(exchange);
        self.root.forget(self.id);
    }
}

impl Exchange {
    /// Performs an action within a call for this stream, and returns the
    /// proxy's action.
    fn perform(&mut self, act: Act) -> Action {
        match act {
            Act::Continue => return Action::Continue,
            Act::Stop => {}
            Act::Respond => self.respond(),
            Act::Fail(lack) => {
                let nothing = std::iter::empty();
                abi::respond(502, nothing, b"", lack.name());
            }
            Act::Reset => abi::reset(),
        }
        Action::Pause
    }

    /// Performs an action within a call for another context.
    fn perform_later(&mut self, side: Side, act: Act) {
        if let Action::Continue = self.perform(act) {
            abi::resume(side);
        }
    }

    /// Reports a finished exchange to access logs and metrics.
    fn report(&mut self) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        note(Some(driver));
        self.count();
    }

    fn count(&mut self) {
        let tally = self.driver.as_mut().and_then(|driver| driver.tally(None));
        if let Some(tally) = tally {
            self.root.metrics.count(&tally);
        }
    }

    /// Drops the driver after a misuse; the stream continues without it.
    fn give_up(&mut self) -> Act {
        self.becomes(State::Passing);
        self.forget();
        Act::Continue
    }

    fn fail(&mut self, step: &Step) -> Act {
        self.becomes(State::Passing);
        self.report();
        match step {
            Step::Fail(lack) => Act::Fail(*lack),
            _ => Act::Reset,
        }
    }

    fn forget(&mut self) {
        self.driver = None;
    }

    /// Changes the state, and cancels the deadline of the previous one.
    fn becomes(&mut self, state: State) {
        self.state = state;
        self.is_timed = false;
    }

    /// Sets the driver's deadline, unless one is set.
    fn set_timer(&mut self) {
        let due = self.driver.as_ref().and_then(Driver::next_timer);
        if let Some(milliseconds) = due {
            self.set_timer_to(milliseconds);
        }
    }

    fn set_timer_to(&mut self, milliseconds: u64) {
        if !self.is_timed {
            self.timer += 1;
            self.is_timed = true;
            let kind = Due::Stream(self.id, self.timer);
            self.root.set_timer(kind, milliseconds);
        }
    }

    /// Schedules a wakeup of a stream within its own hook, which must return
    /// first.
    pub fn wakes_soon(&mut self) {
        self.is_timed = false;
        self.set_timer_to(1);
    }

    /// Handles a deadline. Returns whether it was still set.
    pub fn due(&mut self, number: u64) -> bool {
        if !self.is_timed || number != self.timer {
            return false;
        }
        self.is_timed = false;
        match self.state {
            _ if self.is_paced => self.send_paced(),
            State::Holding => self.release(),
            State::Waiting | State::Purging => self.woken(),
            _ => {}
        }
        true
    }

    /// Enqueues the probes, now that the head of the upstream request is final.
    fn leave_questions(&mut self) {
        for question in self.questions.drain(..) {
            if self.root.questions.has_room() {
                let head = Head::of(MapType::HttpRequestHeaders);
                let cluster = abi::property(CLUSTER);
                self.root.questions.leave(question, cluster, &head);
            }
        }
    }

    /// Ends the exchange: a response that was buffered or streaming is
    /// truncated.
    fn is_over(&mut self) {
        if let (State::Holding | State::Streaming, Some(driver)) = (self.state, &mut self.driver) {
            // the result of the abort does not matter
            let _ = driver.cut_short();
            self.becomes(State::Passing);
        }
        self.report();
    }

    /// Completes the response, if the proxy has all of it.
    fn ends(&mut self, is_last: bool) {
        if !is_last {
            return;
        }
        self.becomes(State::Passing);
        if let Some(driver) = &mut self.driver {
            let job = driver.sent(abi::monotonic());
            self.root.run(job);
            self.root.log_lines();
            self.root.stir();
        }
        self.report();
        self.forget();
    }
}

/// Sets the values that access logs show:
/// `%FILTER_STATE(wasm.sszip.mode:PLAIN)%`.
fn note(driver: Option<&Driver>) {
    let exchange = driver.and_then(Driver::exchange);
    for variable in Variable::ALL {
        if let Some(text) = variable.text(exchange) {
            let name = variable.name().replacen('_', ".", 1);
            abi::note(&name, &text);
        }
    }
}

const CLUSTER: &str = "xds\0cluster_name";
const REQUEST: BufferType = BufferType::HttpRequestBody;
const RESPONSE: BufferType = BufferType::HttpResponseBody;
