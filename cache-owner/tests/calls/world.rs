//! Two sandboxes, an owner, a node, and the messages between them.

use std::sync::Arc;

use sszip_core::cache::chain::{ChainChange, HeightUnit};
use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::process::owner_client::OwnerClient;
use sszip_core::cache::CacheKey;
use sszip_core::time_constants::memory_lease;

use crate::callout_owner::CalloutOwner;
use crate::history::{ChainEvent, Coverage, EventHistory, Moment, RequestedPurge};
use crate::keys::{cache_key, KEYS, NAMESPACE};
use crate::memory_store::{MemoryStore, StoreContents};
use crate::network::CalloutNetwork;
use crate::sandbox::SimulatedSandbox;
use crate::steps::WorldStep;

/// The simulated machine: sandboxes, an owner, a node, and the messages in flight between them.
pub struct SimulatedWorld {
    now: Moment,
    names: usize,
    contents: Arc<StoreContents>,
    owner: Option<CalloutOwner>,
    network: CalloutNetwork,
    history: EventHistory,
}

impl SimulatedWorld {
    pub fn new() -> Self {
        let mut world = Self {
            now: Moment {
                step: 0,
                ms: 10_000,
                head: 10,
            },
            names: 0,
            contents: Arc::default(),
            owner: None,
            network: CalloutNetwork::new(2),
            history: EventHistory::default(),
        };
        world.start_owner();
        // its purges wait no longer for processes of an earlier owner
        world.now.ms += 2 * memory_lease();
        world
    }

    /// Numbers of what the clients have received.
    pub fn coverage(&self) -> Coverage {
        self.history.coverage
    }

    fn clocks(&self) -> ClockReading {
        ClockReading {
            monotonic: self.now.ms,
            unix: 1_700_000_000_000 + self.now.ms,
        }
    }

    /// Starts an owner that follows the chain and knows nothing of it.
    fn start_owner(&mut self) {
        let now = self.clocks();
        let store = MemoryStore {
            contents: Arc::clone(&self.contents),
            // replies to lookups of some keys are late
            disk: Box::new(|key: &CacheKey| key[0] & 1 == 0),
        };
        let owner = Owner::new(Box::new(store), 16 << 20, now);
        owner.start_following_chain(NAMESPACE, HeightUnit::Blocks, now);
        self.owner = Some(CalloutOwner::new(owner));
        let is_final = ChainChange::Final(Some(self.now.head - 5));
        let head = ChainChange::Head(self.now.head);
        self.change_chain(&[ChainChange::ChainVerified(true), head, is_final]);
        // the operator repeats those that were not reported as complete
        for purge in std::mem::take(&mut self.history.pending_purges) {
            self.purge(purge.key_number);
        }
    }

    /// Reports changes of the chain to the owner.
    fn change_chain(&self, changes: &[ChainChange]) {
        for change in changes {
            if let Some(CalloutOwner { owner, .. }) = &self.owner {
                owner.apply_chain_change(&NAMESPACE, *change);
            }
        }
    }

    /// Purges a key or everything, for the operator.
    fn purge(&mut self, key_number: Option<u8>) {
        let Some(CalloutOwner { owner, .. }) = &self.owner else {
            return;
        };
        let scope = match key_number {
            Some(key_number) => PurgeScope::Key(cache_key(key_number)),
            None => PurgeScope::Everything,
        };
        let now = self.clocks();
        self.history.pending_purges.push(RequestedPurge {
            key_number,
            generation: owner.purge_entries(&scope, || now).unwrap(),
            began: self.now.step,
        });
    }

    /// Whether a sandbox has an open session.
    pub fn has_session(&self, sandbox: usize) -> bool {
        self.network.sandboxes[sandbox].link.is_owner_reachable()
    }

    pub fn run_step(&mut self, step: WorldStep) {
        self.now.step += 1;
        // no step ends before the next begins
        self.now.ms += 1;
        match step {
            WorldStep::LookUp(at, key_number) => {
                let (name, now) = (self.next_client_name(), self.now);
                let sandbox = &mut self.network.sandboxes[at];
                sandbox.look_up_key(name, key_number, now, &mut self.history);
            }
            WorldStep::LookUpAll(at) => {
                let name = self.next_client_name();
                self.network.sandboxes[at].look_up_all_keys(name, self.now);
            }
            WorldStep::PurgeByClient(at) => {
                let name = self.next_client_name();
                self.network.sandboxes[at].request_purge(name, self.now);
            }
            WorldStep::Disconnect(at, which) => {
                self.network.sandboxes[at].disconnect_client(which);
            }
            WorldStep::Evict(at, key_number) => self.network.sandboxes[at].evict_key(key_number),
            WorldStep::NodeResponds(at, which, outcome) => {
                self.network.sandboxes[at].receive_node_response(which, outcome, self.now.ms);
            }
            WorldStep::Deliver(which) => {
                let now = self.clocks();
                self.network
                    .deliver_request(which, self.owner.as_mut(), now);
            }
            WorldStep::Reply(which) => self.network.deliver_response(which, self.now.ms),
            WorldStep::Damage(which) => self.network.deliver_damaged_response(which, self.now.ms),
            WorldStep::Fail(which) => {
                let now = self.clocks();
                self.network.fail_callout(which, self.owner.as_mut(), now);
            }
            WorldStep::Lose(which) => self.network.lose_message(which),
            WorldStep::Purge(key_number) => self.purge(Some(key_number).filter(|it| *it < KEYS)),
            WorldStep::Head => self.add_block(None),
            WorldStep::Reorg(depth) => self.add_block(Some(self.now.head - depth)),
            WorldStep::Pass(milliseconds) => {
                self.now.ms += milliseconds;
                if self.owner.is_none() {
                    self.start_owner();
                }
            }
            WorldStep::Restart(at_once) => {
                // polls that wait there get no response
                self.owner = None;
                if at_once {
                    self.start_owner();
                }
            }
        }
        self.make_progress();
    }

    fn next_client_name(&mut self) -> usize {
        self.names += 1;
        self.names
    }

    /// Adds a block to the chain, after the blocks from `replaced_from` were replaced. Without a
    /// reorganisation, the final block advances.
    fn add_block(&mut self, replaced_from: Option<u64>) {
        self.now.head += 1;
        let head = ChainChange::Head(self.now.head);
        match replaced_from {
            Some(from) => {
                self.change_chain(&[ChainChange::Reorg { from }, head]);
                let event = ChainEvent::Reorg(from);
                self.history.record_chain_event(self.now, event);
            }
            None => self.change_chain(&[head, ChainChange::Final(Some(self.now.head - 5))]),
        }
        let event = ChainEvent::Head(self.now.head);
        self.history.record_chain_event(self.now, event);
    }

    /// Has the owner respond, ends callouts that have timed out, and resumes the sandboxes.
    fn make_progress(&mut self) {
        let (clocks, now) = (self.clocks(), self.now);
        if let Some(owner) = &mut self.owner {
            self.network.send_responses(owner.take_responses(clocks));
            let is_complete = |generation| !owner.owner.is_purge_incomplete(generation);
            self.history.complete_purges(is_complete);
        }
        self.network
            .fail_timed_out_callouts(self.owner.as_mut(), clocks);
        for at in 0..self.network.sandboxes.len() {
            self.network.send_callouts(at, now.ms);
            // a sandbox resumes few of them in each of its calls
            if self.network.sandboxes[at].resume_woken_client(now, &mut self.history) {
                self.network.send_callouts(at, now.ms);
            }
        }
    }

    /// Completes all that is in flight, after which no client waits.
    pub fn finish_all(&mut self) {
        for _ in 0..1_000 {
            self.deliver_everything();
            let mut sandboxes = self.network.sandboxes.iter();
            if !sandboxes.any(SimulatedSandbox::has_waiting_requests) {
                break;
            }
        }
        for sandbox in &self.network.sandboxes {
            assert!(!sandbox.has_waiting_requests());
        }
        // lost messages time out
        for _ in 0..150 {
            self.deliver_everything();
        }
        assert!(self.history.pending_purges.is_empty());
        for SimulatedSandbox { link, shared, .. } in &self.network.sandboxes {
            assert_eq!(link.ms_until_next_callout(self.now.ms), None);
            let may_send = shared.may_send_from_memory(self.now.ms);
            assert_eq!(may_send, link.has_started_callouts());
        }
        let owner = &self.owner.as_ref().unwrap().owner;
        assert_eq!(owner.owner_status_json()["leases"], 0);
    }

    fn deliver_everything(&mut self) {
        for _ in 0..self.network.request_count() {
            self.run_step(WorldStep::Deliver(0));
        }
        for _ in 0..self.network.response_count() {
            self.run_step(WorldStep::Reply(0));
        }
        for at in 0..self.network.sandboxes.len() {
            for _ in 0..self.network.sandboxes[at].fetch_count() {
                self.run_step(WorldStep::NodeResponds(at, 0, 7));
            }
        }
        self.run_step(WorldStep::Pass(100));
    }
}
