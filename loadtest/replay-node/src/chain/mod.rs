//! A simulated chain instead of recordings: consistent, deterministic, and changed by tests while
//! they observe proxies in front of it. Every response is a function of the chain's state and the
//! request.
//!
//! `model` is the chain, `contents` the data of its blocks, `view` the part that a node knows.
//! `methods`, `state`, `logs` and `beacon` respond; `control` changes the chain; `driver` lets it
//! grow by itself; `feed` and `socket` publish its events.

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

use crate::body_slices::SharedBodySlices;
use crate::rpc::{self, CallResponder, ReplayLookupResult};
use crate::stats::RequestCounters;
use contents::ExecutionBlockGenerator;
use control::{SimulatedChainCommand, SimulatedChainCommandError};
use driver::RandomChainGrowth;
use feed::{HeadBeforeChange, SimulatedChainFeed};
use methods::METHODS;
use model::{SimulatedChain, SimulatedChainParameters};
use params::CallParams;
use view::SimulatedNodeView;

pub use args::{OutageMode, SimulatedChainArguments};
pub use feed::{BeaconEventStreamBody, ChainEventReceiver};
pub use routes::{
    is_chain_control_request, is_websocket, respond_to_control, respond_to_get,
    SimulatedGetResponse,
};
pub use socket::{accept_websocket, serve_websocket};

/// The simulated chain, and the present behaviour of its node: lag, delays, outage.
#[derive(Debug)]
pub struct SimulatedNodeState {
    chain: SimulatedChain,
    contents: ExecutionBlockGenerator,
    down: OutageMode,
    lag: u64,
    syncing: bool,
    stalled: bool,
    finality: bool,
    /// Delays of responses by method.
    delays: BTreeMap<String, (Duration, watch::Sender<()>)>,
}

impl SimulatedNodeState {
    fn new(genesis: SimulatedChainParameters) -> Self {
        Self {
            contents: ExecutionBlockGenerator::new(&genesis),
            chain: SimulatedChain::new(genesis),
            down: OutageMode::No,
            lag: 0,
            syncing: false,
            stalled: false,
            finality: true,
            delays: BTreeMap::new(),
        }
    }

    /// Returns the part of the chain that the node knows.
    fn node_view(&self) -> SimulatedNodeView<'_> {
        self.lagging_view(self.lag)
    }

    /// Returns the part of the chain that a node without lag knows.
    fn unlagged_view(&self) -> SimulatedNodeView<'_> {
        self.lagging_view(0)
    }

    /// Returns the view of a node whose head is `lag` blocks behind.
    fn lagging_view(&self, lag: u64) -> SimulatedNodeView<'_> {
        SimulatedNodeView::new(
            &self.chain,
            &self.contents,
            lag,
            self.finality,
            self.syncing,
        )
    }

    /// Returns the delay that was set for the method, or for all methods under `*`.
    fn response_delay(&self, method: &str) -> Option<ResponseDelay> {
        let hold = self.delays.get(method).or_else(|| self.delays.get("*"));
        hold.map(|(time, end)| ResponseDelay {
            time: *time,
            end: end.subscribe(),
        })
    }
}

/// The delay of a response, which ends after a time or by a command.
#[derive(Clone, Debug)]
pub struct ResponseDelay {
    /// Maximum time of the delay; the end of the command ends it earlier.
    time: Duration,
    /// Closed when the command ends.
    end: watch::Receiver<()>,
}

impl ResponseDelay {
    /// Waits until the response may be sent.
    pub async fn wait_for_end(mut self) {
        // a time-out and a closed channel both end the delay
        let _ = tokio::time::timeout(self.time, self.end.changed()).await;
    }
}

/// The simulated node: its chain and behaviour, its event feed and its counters of calls.
#[derive(Debug)]
pub struct SimulatedNode {
    state: RwLock<SimulatedNodeState>,
    feed: SimulatedChainFeed,
    /// Number of calls of each of [`METHODS`].
    calls_by_method: Vec<AtomicU64>,
}

/// The response to a JSON-RPC request body, with the delay before it is sent.
#[derive(Debug)]
pub struct DelayedRpcResponse {
    /// Name of the method, as in [`rpc::RequestBodyReply`].
    pub method: String,
    pub payload: SharedBodySlices,
    pub hold: Option<ResponseDelay>,
}

impl SimulatedNode {
    pub fn new(args: &SimulatedChainArguments, seed: u64) -> Self {
        let genesis = SimulatedChainParameters {
            seed,
            chain_id: args.chain_id,
            time: args.chain_genesis_time,
            length: args.chain_length,
            transactions: args.chain_transactions,
        };
        Self {
            state: RwLock::new(SimulatedNodeState::new(genesis)),
            feed: SimulatedChainFeed::default(),
            calls_by_method: METHODS.iter().map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn read_state(&self) -> RwLockReadGuard<'_, SimulatedNodeState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state step by step, and publishes the events of each step. The state between two
    /// steps is not visible; an error skips the remaining steps.
    fn change_by_steps(
        &self,
        steps: impl IntoIterator<
            Item = impl FnOnce(&mut SimulatedNodeState) -> Result<(), SimulatedChainCommandError>,
        >,
    ) -> Result<(), SimulatedChainCommandError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        for step in steps {
            let before = HeadBeforeChange::new(&state.node_view());
            step(&mut state)?;
            if state.down != OutageMode::No {
                self.feed.close_streams();
            }
            if self.feed.has_listeners() {
                self.feed
                    .publish_events(feed::events_of_change(&state.node_view(), &before));
            }
        }
        Ok(())
    }

    /// Runs the commands in order; the first error ends the run, and the commands before it stay in
    /// effect.
    fn run_commands(
        &self,
        commands: Vec<SimulatedChainCommand>,
    ) -> Result<(), SimulatedChainCommandError> {
        let steps = commands
            .into_iter()
            .map(|command| move |state: &mut SimulatedNodeState| command.run_chain_command(state));
        self.change_by_steps(steps)
    }

    /// Responds to a request body as the simulated node.
    pub fn respond_to_body(&self, body: &[u8], stats: &RequestCounters) -> DelayedRpcResponse {
        let state = self.read_state();
        self.respond_from_state(&state, body, stats, None)
    }

    /// Responds to a request body from a locked state. `subscriptions`: the subscriptions
    /// of the client's WebSocket.
    fn respond_from_state(
        &self,
        state: &SimulatedNodeState,
        body: &[u8],
        stats: &RequestCounters,
        subscriptions: Option<&socket::ClientHeadSubscriptions>,
    ) -> DelayedRpcResponse {
        let calls = CallContext {
            view: state.node_view(),
            subscriptions,
            counted: Some((&self.calls_by_method, state)),
            hold: RefCell::default(),
        };
        calls.respond_to_calls(body, stats)
    }

    /// Returns the response of a node without lag, delay or outage; the request is not counted.
    fn undisturbed_response(&self, body: &[u8]) -> SharedBodySlices {
        let state = self.read_state();
        let calls = CallContext {
            view: state.unlagged_view(),
            subscriptions: None,
            counted: None,
            hold: RefCell::default(),
        };
        calls
            .respond_to_calls(body, &RequestCounters::default())
            .payload
    }

    /// Returns the number of calls by method, without methods that were not called.
    pub fn calls(&self) -> BTreeMap<&str, u64> {
        let counts = self
            .calls_by_method
            .iter()
            .map(|calls| calls.load(Ordering::Relaxed));
        let named = METHODS.iter().map(|(name, _)| *name).zip(counts);
        named.filter(|(_, calls)| *calls > 0).collect()
    }

    pub fn outage_mode(&self) -> OutageMode {
        self.read_state().down
    }

    /// Closes all event streams and WebSocket connections.
    pub fn close_streams(&self) {
        self.feed.close_streams();
    }

    /// Subscribes to events from now on, unless the node is down.
    fn listen_if_up(&self) -> Option<ChainEventReceiver> {
        // The lock ensures that a node that goes down closes this stream too.
        let state = self.read_state();
        (state.down == OutageMode::No).then(|| self.feed.add_listener())
    }
}

/// Lets slots pass as the options specify, without end.
pub async fn grow_chain(simulation: Arc<SimulatedNode>, args: SimulatedChainArguments, seed: u64) {
    let Some(slot) = args.chain_slot_ms else {
        return;
    };
    let mut driver = RandomChainGrowth::new(seed, args.chain_reorgs, args.chain_missed);
    let mut ticks = tokio::time::interval(Duration::from_millis(slot));
    // On a busy machine the chain becomes slower and does not produce blocks in bursts.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let step = simulation.change_by_steps([|state: &mut SimulatedNodeState| {
            if !state.stalled {
                driver.pass_slot(&mut state.chain);
            }
            Ok(())
        }]);
        debug_assert!(step.is_ok(), "a step has nothing to refuse");
    }
}

/// The source of responses to the calls of one request body, which all see the same state of the
/// chain.
struct CallContext<'a> {
    view: SimulatedNodeView<'a>,
    subscriptions: Option<&'a socket::ClientHeadSubscriptions>,
    /// Counters of calls, and the state with the delays.
    counted: Option<(&'a [AtomicU64], &'a SimulatedNodeState)>,
    /// The longest delay of the calls.
    hold: RefCell<Option<ResponseDelay>>,
}

impl CallContext<'_> {
    fn respond_to_calls(&self, body: &[u8], stats: &RequestCounters) -> DelayedRpcResponse {
        let exchange = rpc::respond_to_body(body, self, stats);
        DelayedRpcResponse {
            method: exchange.method.into_owned(),
            payload: exchange.reply.body_slices(),
            hold: self.hold.take(),
        }
    }
}

impl CallResponder for CallContext<'_> {
    fn find_response_to_call(
        &self,
        method: &str,
        params: Option<&RawValue>,
    ) -> ReplayLookupResult<'_> {
        let Some(index) = METHODS.iter().position(|(name, _)| *name == method) else {
            return ReplayLookupResult::UnknownMethod;
        };
        if let Some((calls, state)) = self.counted {
            calls[index].fetch_add(1, Ordering::Relaxed);
            let mut longest = self.hold.borrow_mut();
            let hold = state.response_delay(method);
            if hold.as_ref().map(|it| it.time) > longest.as_ref().map(|it| it.time) {
                *longest = hold;
            }
        }
        let answer = CallParams::new(params).and_then(|params| {
            let subscribed = self.subscriptions.and_then(|subscriptions| {
                subscriptions.respond_to_subscription_call(method, &params)
            });
            subscribed.unwrap_or_else(|| METHODS[index].1(&self.view, &params))
        });
        match answer {
            Ok(result) => ReplayLookupResult::Result(result.to_string()),
            Err(failure) => ReplayLookupResult::Failure(failure),
        }
    }
}
