//! A stream: what the proxy says of it goes to the core's driver, and what that says is
//! done. Nothing is decided here.

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

/// What comes of what the proxy says.
pub enum Act {
    /// The stream goes on.
    Continue,
    /// It waits, for more of it or for something else to happen.
    Stop,
    /// The driver's answer, in place of whatever else would come.
    Respond,
    /// A 502, since there is nothing to send.
    Fail(Lack),
    /// What was begun is broken off.
    Reset,
}

/// How far a stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// There is nothing to be done for it.
    Passing,
    /// The request's body is awaited.
    Reading,
    /// What it asks for is looked up, or fetched by another one.
    Waiting,
    /// What it purges is purged.
    Purging,
    /// The response's head is awaited.
    Forwarded,
    /// The driver's answer goes out.
    Responding,
    /// The response's body is shown, and goes on.
    Showing,
    /// The response's head is held, and the body is the driver's.
    Holding,
    /// The response's body goes through the encoder.
    Streaming,
}

/// As the SDK knows it.
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
    /// Of the last deadline.
    timer: u64,
    /// It counts, and has not come.
    is_timed: bool,
    /// The request's body came so far.
    body_length: usize,
    /// What has come of one that does not say how long it is: beside a long piece the
    /// proxy would refuse to keep it.
    taken: Pieces,
    /// What follows that, and goes on with the next piece.
    rest: Vec<u8>,
    /// The proxy keeps what is put into the response's body: no more than its limit.
    is_kept: bool,
    /// The response has gone on by a deadline. The proxy would keep what it is told to go
    /// on with from here on, so that all of it goes by deadlines.
    is_paced: bool,
    /// What waits for the next of them.
    paced: Vec<u8>,
    /// What is to be asked of the node beside.
    questions: Vec<Driver>,
    /// There is a body of the response, into whose place something can be put.
    has_body: bool,
    /// The response has no more.
    is_whole: bool,
    /// The driver wants to see it, though it goes on as it is.
    is_shown: bool,
}

impl Handle {
    /// Of a context.
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

    /// Something happens to it.
    pub fn hook(&mut self, what: impl FnOnce(&mut Exchange) -> Act) -> Action {
        self.root.calls(self.id, true);
        let action = {
            let mut exchange = self.exchange.borrow_mut();
            let act = what(&mut exchange);
            exchange.perform(act)
        };
        self.root.settle(self.id);
        action
    }

    /// It is over, and about to be put into logs.
    pub fn logged(&mut self) {
        let mut exchange = self.exchange.borrow_mut();
        if exchange.state == State::Purging {
            purge::is_left();
        }
        exchange.is_over();
        exchange.leave_questions();
    }

    /// It has ended.
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
    /// Does it within a call that is about this stream, and says what the proxy is to do.
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

    /// The same, within a call that is about something else.
    fn perform_later(&mut self, side: Side, act: Act) {
        if let Action::Continue = self.perform(act) {
            abi::resume(side);
        }
    }

    /// No more comes of the answer: what there is to say of it, for logs and metrics.
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

    /// The driver can't be asked any more.
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

    /// No deadline of the state before counts any more.
    fn becomes(&mut self, state: State) {
        self.state = state;
        self.is_timed = false;
    }

    /// Its deadline, unless one counts already.
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
            let what = Due::Stream(self.id, self.timer);
            self.root.set_timer(what, milliseconds);
        }
    }

    /// It is woken within its own hook, which has to return first.
    pub fn wakes_soon(&mut self) {
        self.is_timed = false;
        self.set_timer_to(1);
    }

    /// A deadline has come; whether it still counts.
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

    /// What went to the node is known now, to logs.
    fn leave_questions(&mut self) {
        for question in self.questions.drain(..) {
            if self.root.questions.has_room() {
                let head = Head::of(MapType::HttpRequestHeaders);
                let cluster = abi::property(CLUSTER);
                self.root.questions.leave(question, cluster, &head);
            }
        }
    }

    /// Nothing more comes: of an answer that was held, or was streaming, more was awaited.
    fn is_over(&mut self) {
        if let (State::Holding | State::Streaming, Some(driver)) = (self.state, &mut self.driver) {
            // there is nothing to be done about it
            let _ = driver.cut_short();
            self.becomes(State::Passing);
        }
        self.report();
    }

    /// All of the answer is with the proxy, if that is so.
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

/// What access logs show: `%FILTER_STATE(wasm.sszip.mode:PLAIN)%`.
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
