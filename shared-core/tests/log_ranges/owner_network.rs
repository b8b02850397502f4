//! The owner of all processes of a world, which follows the chain, and the callouts in flight to it.

use std::collections::VecDeque;
use std::sync::Arc;

use sszip_core::cache::chain::{ChainChange, ChainIdentity, HeightUnit};
use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::link::callouts::CalloutId;
use sszip_core::cache::owner::{ClockReading, Owner};
use sszip_core::cache::vary_key::named_cache_namespace;
use sszip_core::cache::CacheKey;

use super::blockchain::Blockchain;
use super::callout_owner::{CalloutNumber, CalloutOwner, CalloutResponse};
use super::memory_store::{MemoryStore, StoreContents};
use super::proxy_process::{ProxyProcess, NAMESPACE};

/// The facts about the chain that the owner has published.
#[derive(Clone, Debug, Default)]
pub struct KnownChain {
    pub head: u64,
    /// The step in which the head became the head.
    pub head_step: u64,
    /// The steps of the reorganisations that have replaced known blocks, and the lowest replaced
    /// heights.
    pub reorgs: Vec<(u64, u64)>,
}

/// An owner, and the callouts of the processes to it.
pub struct OwnerNetwork {
    owner: CalloutOwner,
    in_flight: Vec<(CalloutNumber, usize, CalloutId)>,
    /// Responses to the callouts of each process that have not arrived.
    responses: Vec<VecDeque<(CalloutId, CalloutResponse)>>,
    last_number: CalloutNumber,
    /// Number of reorganisations of the chain that were evaluated.
    evaluated_reorgs: usize,
    pub known: KnownChain,
}

pub fn clocks(monotonic: u64) -> ClockReading {
    ClockReading {
        monotonic,
        unix: 1_700_000_000_000 + monotonic,
    }
}

impl OwnerNetwork {
    /// Creates an owner that follows the chain, for a number of processes.
    pub fn new(chain: &Blockchain, processes: usize, now: u64) -> Self {
        let store = MemoryStore {
            contents: Arc::new(StoreContents::default()),
            // late replies to lookups
            disk: Box::new(|_: &CacheKey| true),
        };
        let owner = Owner::new(Box::new(store), 64 << 20, clocks(now));
        let namespace = named_cache_namespace(NAMESPACE.as_bytes());
        owner.start_following_chain(namespace, HeightUnit::Blocks, clocks(now));
        let identity = ChainIdentity {
            chain_id: Some(1),
            genesis: chain.view.block(0).unwrap().hash,
        };
        owner.set_chain_identity(&namespace, Some(identity));
        let mut network = Self {
            owner: CalloutOwner::new(owner),
            in_flight: Vec::new(),
            responses: (0..processes).map(|_| VecDeque::new()).collect(),
            last_number: 0,
            evaluated_reorgs: 0,
            known: KnownChain::default(),
        };
        network.follow_chain(chain);
        network
    }

    /// Publishes the present state of the chain, as after a poll of its node.
    pub fn follow_chain(&mut self, chain: &Blockchain) {
        let namespace = named_cache_namespace(NAMESPACE.as_bytes());
        let owner = &self.owner.owner;
        owner.set_recent_blocks(&namespace, chain.view.newest_blocks());
        let head = chain.view.head();
        let mut reorgs = std::mem::take(&mut self.known.reorgs);
        // blocks that the owner has never seen are not replaced for it
        let is_known = |reorg: &&(u64, u64)| reorg.1 <= self.known.head;
        let replaced = chain.reorgs[self.evaluated_reorgs..]
            .iter()
            .filter(is_known);
        let replaced: Vec<_> = replaced.copied().collect();
        if let Some(from) = replaced.iter().map(|(_, from)| *from).min() {
            owner.apply_chain_change(&namespace, ChainChange::Reorg { from });
        }
        reorgs.extend(replaced);
        self.evaluated_reorgs = chain.reorgs.len();
        owner.apply_chain_change(&namespace, ChainChange::Head(head));
        let last_final = Some(chain.last_final);
        owner.apply_chain_change(&namespace, ChainChange::Final(last_final));
        self.known = KnownChain {
            head,
            head_step: chain.head_step,
            reorgs,
        };
    }

    /// Purges all entries.
    pub fn purge_everything(&self, now: u64) {
        let purged = self
            .owner
            .owner
            .purge_entries(&PurgeScope::Everything, || clocks(now));
        purged.unwrap();
    }

    /// Makes the callouts of a process that are due, and handles the responses that have arrived,
    /// until there are none of either. The process knows the owner's chain then.
    pub fn synchronize(&mut self, number: usize, process: &mut ProxyProcess, now: u64) {
        let shared = &process.resources.shared;
        loop {
            while let Some(callout) = process.link.next_callout(shared, now) {
                self.last_number += 1;
                self.in_flight.push((self.last_number, number, callout.id));
                self.owner
                    .receive_callout(self.last_number, &callout.body, clocks(now));
            }
            for (callout, response) in self.owner.take_responses(clocks(now)) {
                let at = self.in_flight.iter().position(|it| it.0 == callout);
                let (_, sender, id) = self.in_flight.swap_remove(at.unwrap());
                self.responses[sender].push_back((id, response));
            }
            if self.responses[number].is_empty() {
                break;
            }
            while let Some((id, (status, body))) = self.responses[number].pop_front() {
                let result = Some((status, &*body));
                process.link.handle_callout_result(shared, id, result, now);
            }
        }
        process.known = self.known.clone();
        process.known_heads.push(self.known.head);
    }
}
