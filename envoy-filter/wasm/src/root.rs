//! What the streams of a filter share, in one sandbox.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use proxy_wasm::types::BufferType;
use sszip_core::cache::process::wake::{EventLoop, Queue, Waiter, Wake};
use sszip_core::cache::process::Process;
use sszip_core::exchange::drive::Job;
use sszip_core::metrics::{self, GAUGES};

use crate::abi::{self, Level};
use crate::config::Filter;
use crate::metrics::Metrics;
use crate::questions::Questions;
use crate::store::Store;
use crate::stream::{self, Exchange};
use crate::timers::{Due, Timers};

/// Gauges say what was so at most that long ago, in milliseconds.
const SHOWN_EVERY: u64 = 1000;

/// So many streams go on within one call, of the timer or of an answer. The proxy does what
/// it is told of other streams than the one that it calls about after the call, each within
/// the one before: with some two hundred there is no stack left, and the sandbox fails.
const MOST_AT_ONCE: u32 = 32;

/// As the SDK knows it.
pub struct Handle(pub Rc<Root>);

/// Of a filter that is configured.
#[derive(Debug)]
pub struct Root {
    /// Its context.
    pub id: u32,
    /// What its exchanges share.
    pub process: Process,
    filter: OnceCell<Filter>,
    store: OnceCell<Store>,
    /// What is asked of nodes.
    pub questions: Questions,
    /// Those that may be woken, or have a deadline, by their contexts.
    streams: RefCell<HashMap<u32, Weak<RefCell<Exchange>>>>,
    woken: Arc<Queue>,
    event_loop: EventLoop,
    timers: RefCell<Timers>,
    /// When it will be called for the calls, in milliseconds of the monotonic clock.
    calls_at: Cell<u64>,
    /// The context that the SDK has called: it is what the SDK gives answers to.
    called: Cell<u32>,
    /// The stream of which a hook runs: it goes on when that returns.
    hooked: Cell<Option<u32>>,
    /// How many may still go on before the next such call.
    room: Cell<u32>,
    /// Some wait for that call.
    is_put_off: Cell<bool>,
    /// Of what its requests come to.
    pub metrics: Metrics,
}

impl Handle {
    /// Of a context.
    pub fn new(id: u32) -> Self {
        let process = Process::default();
        let woken = Arc::<Queue>::default();
        let event_loop = process
            .shared
            .event_loop(Arc::clone(&woken) as Arc<dyn Wake>);
        Self(Rc::new(Root {
            id,
            process,
            filter: OnceCell::new(),
            store: OnceCell::new(),
            questions: Questions::default(),
            streams: RefCell::default(),
            woken,
            event_loop,
            timers: RefCell::default(),
            calls_at: Cell::new(u64::MAX),
            called: Cell::new(id),
            hooked: Cell::new(None),
            room: Cell::new(MOST_AT_ONCE),
            is_put_off: Cell::new(false),
            metrics: Metrics::default(),
        }))
    }
}

impl Root {
    /// Reads the configuration. Whether it is right.
    pub fn configure(root: &Rc<Self>, length: usize) -> bool {
        let json = abi::buffer(BufferType::PluginConfiguration, length).unwrap_or_default();
        match Filter::new(&json, &root.process) {
            Ok((filter, warnings)) => {
                for warning in warnings {
                    abi::log(Level::Warn, &format!("sszip: {warning}"));
                }
                if let Some(cluster) = filter.owner() {
                    let deadline = filter.lookup_timeout();
                    let _ = root.store.set(Store::new(cluster, deadline, &root.process));
                }
                let _ = root.filter.set(filter);
                abi::declare_of_request();
                root.set_timer(Due::Gauges, SHOWN_EVERY);
                root.plan();
                true
            }
            Err(error) => {
                abi::log(Level::Error, &format!("sszip: {error}"));
                false
            }
        }
    }

    /// What it is configured to do, unless that was refused.
    pub fn filter(&self) -> Option<&Filter> {
        self.filter.get()
    }

    /// By which a stream is woken.
    pub fn waiter(&self, stream: u32) -> Waiter {
        self.event_loop.waiter(stream as usize)
    }

    /// A stream may be woken from here on.
    pub fn knows(&self, id: u32, stream: &Rc<RefCell<Exchange>>) {
        self.streams.borrow_mut().insert(id, Rc::downgrade(stream));
    }

    /// It has ended.
    pub fn forget(&self, id: u32) {
        self.streams.borrow_mut().remove(&id);
        if let Some(store) = self.store.get() {
            store.forget(id, &self.process);
        }
    }

    /// Has something done in so many milliseconds.
    pub fn set_timer(&self, what: Due, milliseconds: u64) {
        self.timers
            .borrow_mut()
            .set(what, milliseconds, abi::monotonic());
    }

    /// Runs a job that comes of an answer, here and now.
    pub fn run(&self, job: Option<Job>) {
        if let Some(mut job) = job {
            job.run();
            job.store(abi::monotonic());
        }
    }

    /// A context is called, and its hook runs if it is a stream that waits for what it says.
    pub fn calls(&self, context: u32, is_hook: bool) {
        self.called.set(context);
        self.hooked.set(is_hook.then_some(context));
    }

    /// Asks the owner of the store for what a stream has asked of it, in its name. It is
    /// asked soon, by the root, where another context is called.
    pub fn call(&self, stream: u32) {
        let Some(store) = self.store.get() else {
            return;
        };
        match self.called.get() == stream {
            true => store.call_own(stream, self.waiter(stream), &self.process),
            false => store.stir(),
        }
    }

    /// Asks the owner, and nodes, for what is asked in nobody's name. It is called.
    fn ask(&self) {
        if let Some(store) = self.store.get() {
            store.call(self.id, &self.process);
        }
        self.questions.ask();
    }

    /// Something may be asked of it that nobody waits for.
    pub fn stir(&self) {
        if let Some(store) = self.store.get() {
            store.stir();
        }
    }

    /// A call was answered, or was not.
    pub fn answered(&self, token: u32, fields: usize, length: usize) {
        if self.questions.answered(token, fields, length) {
            return;
        }
        let Some(store) = self.store.get() else {
            return;
        };
        // what has come over a connection comes within no other call
        if store.answered(token, fields, length, &self.process) {
            self.room.set(MOST_AT_ONCE);
        }
    }

    /// Its timer.
    pub fn ticked(&self) {
        self.calls(self.id, false);
        self.room.set(MOST_AT_ONCE);
        self.is_put_off.set(false);
        let now = abi::monotonic();
        while self.room.get() > 0 {
            let due = self.timers.borrow_mut().next(now);
            match due {
                Some(Due::Stream(id, number)) => self.of(id, |exchange| {
                    if exchange.due(number) {
                        self.takes_room();
                    }
                }),
                Some(Due::Calls) => {
                    self.calls_at.set(u64::MAX);
                    abi::become_context(self.id);
                    self.ask();
                }
                Some(Due::Gauges) => {
                    let now = metrics::gauges(&self.process, 0);
                    self.metrics.show(&now);
                    self.set_timer(Due::Gauges, SHOWN_EVERY);
                }
                Some(Due::Forgotten) => stream::redirect::forget(),
                // below, after this call
                Some(Due::Woken) => {}
                None => break,
            }
        }
        abi::become_context(self.id);
        self.timers.borrow_mut().begin(now);
    }

    /// The sandbox ends, after its last stream: it takes its part of the gauges with it, which
    /// those of all workers share.
    pub fn show_nothing(&self) {
        self.metrics.show(&[0; GAUGES.len()]);
    }

    /// A stream that is there, in its own context.
    fn of(&self, id: u32, what: impl FnOnce(&mut Exchange)) {
        let known = self.streams.borrow().get(&id).and_then(Weak::upgrade);
        if let Some(exchange) = known {
            // it is in use by nobody: each call is of one stream
            if let (true, Ok(mut exchange)) = (abi::become_context(id), exchange.try_borrow_mut()) {
                what(&mut exchange);
            }
        }
    }

    /// Whether one more may go on now; the others do by the timer.
    fn takes_room(&self) -> bool {
        let room = self.room.get();
        self.room.set(room.saturating_sub(1));
        if room == 0 && !self.is_put_off.replace(true) {
            self.set_timer(Due::Woken, 1);
        }
        room > 0
    }

    /// Who was woken and may go on now.
    fn next_woken(&self) -> Option<u32> {
        match self.takes_room() {
            true => match self.woken.next() {
                Some(id) => Some(id as u32),
                None => {
                    self.room.set(self.room.get() + 1);
                    None
                }
            },
            false => None,
        }
    }

    /// Logs what was found out by answers.
    pub fn log_lines(&self) {
        while let Some(line) = self.process.shared.verified.take_line() {
            abi::log(Level::Error, &line);
        }
    }

    /// After each call: those go on who were woken, and what was asked for is asked of
    /// the store, soon. `context` is the one that was called.
    pub fn settle(&self, context: u32) {
        self.wake(context);
        self.hooked.set(None);
        // what many ask for is asked for at each answer, and not a timer later
        if context == self.id && self.is_to_ask() {
            self.ask();
            self.wake(context);
        }
        self.plan();
    }

    fn wake(&self, context: u32) {
        while let Some(id) = self.next_woken() {
            match self.hooked.get() == Some(id) {
                true => self.of(id, Exchange::wakes_soon),
                false => self.of(id, Exchange::woken),
            }
            abi::become_context(context);
        }
    }

    /// Whether something is to be asked in nobody's name.
    fn is_to_ask(&self) -> bool {
        self.store.get().is_some_and(Store::waits) || self.questions.wait()
    }

    /// Has the root called when something is to be asked, or given up.
    fn plan(&self) {
        let after = match self.is_to_ask() {
            true => Some(1),
            false => self.store.get().and_then(Store::next_tick),
        };
        if let Some(after) = after {
            let at = abi::monotonic().saturating_add(after);
            if at < self.calls_at.get() {
                self.calls_at.set(at);
                self.set_timer(Due::Calls, after);
            }
        }
    }
}
