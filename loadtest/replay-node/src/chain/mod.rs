//! A simulated chain instead of recordings: consistent, deterministic, and
//! changed by tests while proxies in front of it are watched. Every answer is
//! a function of the chain's state and the request.
//!
//! `model` is the chain, `contents` what is in its blocks, `view` what a node
//! knows of it. `methods`, `state`, `logs` and `beacon` answer; `control`
//! changes; `driver` lets it go on by itself; `feed` and `socket` tell of it.

mod args;
mod beacon;
mod contents;
mod control;
mod digest;
mod driver;
mod feed;
mod logs;
mod methods;
mod model;
mod params;
mod routes;
mod socket;
mod state;
mod view;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::payload::Payload;
use crate::rpc::{self, Found, Source};
use crate::stats::Stats;
use contents::Contents;
use control::{Command, CommandError};
use driver::Driver;
use feed::{Feed, Seen};
use methods::METHODS;
use model::{Chain, Genesis};
use params::Params;
use view::View;

pub use args::{ChainArgs, Down};
pub use feed::{EventStream, Events};
pub use routes::{control, get, is_control, is_websocket, Got};
pub use socket::{accept, converse};

/// The chain, and how the node in front of it behaves.
#[derive(Debug)]
pub struct State {
    chain: Chain,
    contents: Contents,
    down: Down,
    lag: u64,
    syncing: bool,
    stalled: bool,
    finality: bool,
    /// For how long answers are held back, by method.
    holds: BTreeMap<String, (Duration, watch::Sender<()>)>,
}

impl State {
    fn new(genesis: Genesis) -> Self {
        Self {
            contents: Contents::new(&genesis),
            chain: Chain::new(genesis),
            down: Down::No,
            lag: 0,
            syncing: false,
            stalled: false,
            finality: true,
            holds: BTreeMap::new(),
        }
    }

    /// What the node knows.
    fn view(&self) -> View<'_> {
        self.view_behind(self.lag)
    }

    /// What a node that is up to date knows.
    fn honest(&self) -> View<'_> {
        self.view_behind(0)
    }

    fn view_behind(&self, lag: u64) -> View<'_> {
        View::new(
            &self.chain,
            &self.contents,
            lag,
            self.finality,
            self.syncing,
        )
    }

    fn hold(&self, method: &str) -> Option<Hold> {
        let hold = self.holds.get(method).or_else(|| self.holds.get("*"));
        hold.map(|(time, end)| Hold {
            time: *time,
            end: end.subscribe(),
        })
    }
}

/// Why an answer is held back.
#[derive(Clone, Debug)]
pub struct Hold {
    /// For how long, unless the command is withdrawn.
    time: Duration,
    /// Closed when it is.
    end: watch::Receiver<()>,
}

impl Hold {
    /// Returns when the answer may be sent.
    pub async fn over(mut self) {
        // either way it is over
        let _ = tokio::time::timeout(self.time, self.end.changed()).await;
    }
}

/// A chain that is served.
#[derive(Debug)]
pub struct Simulation {
    state: RwLock<State>,
    feed: Feed,
    /// How often each of [`METHODS`] was called.
    calls: Vec<AtomicU64>,
}

/// The answer to a request body.
#[derive(Debug)]
pub struct Answered {
    /// As in [`rpc::Exchange`].
    pub method: String,
    pub payload: Payload,
    pub hold: Option<Hold>,
}

impl Simulation {
    pub fn new(args: &ChainArgs, seed: u64) -> Self {
        let genesis = Genesis {
            seed,
            chain_id: args.chain_id,
            time: args.chain_genesis_time,
            length: args.chain_length,
            transactions: args.chain_transactions,
        };
        Self {
            state: RwLock::new(State::new(genesis)),
            feed: Feed::default(),
            calls: METHODS.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state, step by step, and tells those who listen what became
    /// of the head with each. Nobody sees the state between two steps; an
    /// error leaves out the rest.
    fn change(
        &self,
        steps: impl IntoIterator<Item = impl FnOnce(&mut State) -> Result<(), CommandError>>,
    ) -> Result<(), CommandError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for step in steps {
            let before = Seen::new(&state.view());
            step(&mut state)?;
            if state.down != Down::No {
                self.feed.close();
            }
            if self.feed.has_listeners() {
                self.feed.tell(feed::events(&state.view(), &before));
            }
        }
        Ok(())
    }

    fn command(&self, commands: Vec<Command>) -> Result<(), CommandError> {
        let steps = commands
            .into_iter()
            .map(|command| move |state: &mut State| command.run(state));
        self.change(steps)
    }

    /// Answers a request body as the node does that the chain is served by.
    pub fn answer(&self, body: &[u8], stats: &Stats) -> Answered {
        let state = self.read();
        self.answer_from(&state, body, stats, None)
    }

    fn answer_from(
        &self,
        state: &State,
        body: &[u8],
        stats: &Stats,
        subscriptions: Option<&socket::Subscriptions>,
    ) -> Answered {
        let calls = Calls {
            view: state.view(),
            subscriptions,
            counted: Some((&self.calls, state)),
            hold: RefCell::default(),
        };
        calls.answer(body, stats)
    }

    /// The answer of an honest node that is up to date and there, uncounted.
    fn honest_answer(&self, body: &[u8]) -> Payload {
        let state = self.read();
        let calls = Calls {
            view: state.honest(),
            subscriptions: None,
            counted: None,
            hold: RefCell::default(),
        };
        calls.answer(body, &Stats::default()).payload
    }

    /// How often each method was called, methods without a call left out.
    pub fn calls(&self) -> BTreeMap<&str, u64> {
        let counts = self.calls.iter().map(|calls| calls.load(Ordering::Relaxed));
        let named = METHODS.iter().map(|(name, _)| *name).zip(counts);
        named.filter(|(_, calls)| *calls > 0).collect()
    }

    pub fn down(&self) -> Down {
        self.read().down
    }

    /// Ends event streams and WebSocket connections.
    pub fn close(&self) {
        self.feed.close();
    }

    /// Events from now on, unless the node is down.
    fn listen_if_up(&self) -> Option<Events> {
        // Locked, so that going down ends what begins here.
        let state = self.read();
        (state.down == Down::No).then(|| self.feed.listen())
    }
}

/// Lets slots pass as the options say, for ever.
pub async fn drive(simulation: Arc<Simulation>, args: ChainArgs, seed: u64) {
    let Some(slot) = args.chain_slot_ms else {
        return;
    };
    let mut driver = Driver::new(seed, args.chain_reorgs, args.chain_missed);
    let mut ticks = tokio::time::interval(Duration::from_millis(slot));
    // A machine that is too busy gets a slower chain, not a burst of blocks.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let step = simulation.change([|state: &mut State| {
            if !state.stalled {
                driver.step(&mut state.chain);
            }
            Ok(())
        }]);
        debug_assert!(step.is_ok(), "a step has nothing to refuse");
    }
}

/// The methods, as one request body calls them: all see the same state.
struct Calls<'a> {
    view: View<'a>,
    subscriptions: Option<&'a socket::Subscriptions>,
    /// Where calls are counted, and by what they are held back.
    counted: Option<(&'a [AtomicU64], &'a State)>,
    /// The longest by which a call is held back.
    hold: RefCell<Option<Hold>>,
}

impl Calls<'_> {
    fn answer(&self, body: &[u8], stats: &Stats) -> Answered {
        let exchange = rpc::answer(body, self, stats);
        Answered {
            method: exchange.method.into_owned(),
            payload: exchange.reply.payload(),
            hold: self.hold.take(),
        }
    }
}

impl Source for Calls<'_> {
    fn find(&self, method: &str, params: Option<&RawValue>) -> Found<'_> {
        let Some(index) = METHODS.iter().position(|(name, _)| *name == method) else {
            return Found::UnknownMethod;
        };
        if let Some((calls, state)) = self.counted {
            calls[index].fetch_add(1, Ordering::Relaxed);
            let mut longest = self.hold.borrow_mut();
            let hold = state.hold(method);
            if hold.as_ref().map(|it| it.time) > longest.as_ref().map(|it| it.time) {
                *longest = hold;
            }
        }
        let answer = Params::new(params).and_then(|params| {
            let subscribed = self
                .subscriptions
                .and_then(|subscriptions| subscriptions.answer(method, &params));
            subscribed.unwrap_or_else(|| METHODS[index].1(&self.view, &params))
        });
        match answer {
            Ok(result) => Found::Result(result.to_string()),
            Err(failure) => Found::Failure(failure),
        }
    }
}
