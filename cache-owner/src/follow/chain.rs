//! The state of a followed chain, shared by its follower and the rest of the owner.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::owner::tracker::State;
use sszip_core::cache::CacheNamespace;
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::Notify;

use super::node::NodeClient;

/// A reorganisation of a followed chain, as the status reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentReorg {
    /// Time when it was seen, in milliseconds of the machine's monotonic clock.
    pub at: u64,
    /// The first replaced block.
    pub from: u64,
    /// Number of replaced blocks.
    pub blocks: u64,
}

/// Maximum number of reorganisations in the status.
const MAX_SHOWN_REORGS: usize = 5;

/// The state of one followed chain as the owner's status reports it: head, finality and past
/// reorganisations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedChainStatus {
    /// State of the tracker.
    pub state: State,
    /// The newest known block.
    pub head: Option<u64>,
    /// The newest final block.
    pub last_final: Option<u64>,
    /// Time of the last new head, in milliseconds of the machine's monotonic clock.
    pub moved: Option<u64>,
    /// Time between two blocks in milliseconds.
    pub block_time: Option<u64>,
    /// Number of reorganisations.
    pub reorgs: u64,
    /// The last reorganisations, the newest first.
    pub last_reorgs: Vec<RecentReorg>,
    /// The error of the last poll.
    pub error: Option<String>,
}

impl FollowedChainStatus {
    /// Returns the status `next`, completed by the time of the last head and the past reorgs of
    /// this one; `from` is the lowest replaced block, if any.
    pub fn merge_history_into_status(&self, next: Self, from: Option<u64>, now: u64) -> Self {
        let is_new = next.head.is_some() && next.head != self.head;
        let mut last_reorgs = self.last_reorgs.clone();
        if let (Some(from), true) = (from, next.reorgs > self.reorgs) {
            let blocks = self.head.map_or(0, |head| (head + 1).saturating_sub(from));
            let reorg = RecentReorg {
                at: now,
                from,
                blocks,
            };
            last_reorgs.insert(0, reorg);
            last_reorgs.truncate(MAX_SHOWN_REORGS);
        }
        Self {
            moved: if is_new { Some(now) } else { self.moved },
            last_reorgs,
            ..next
        }
    }
}

/// A followed chain: its namespace, node and status, shared by its follower and the rest of the
/// owner.
pub struct FollowedChain {
    /// The namespace whose responses are of this chain.
    pub namespace: CacheNamespace,
    /// The name of the namespace in the configuration.
    pub name: String,
    /// Notified when the chain may have changed.
    pub news: Arc<Notify>,
    is_forgotten: AtomicBool,
    node_client: Mutex<Option<Arc<NodeClient>>>,
    follow_status: Mutex<FollowedChainStatus>,
}

impl FollowedChain {
    /// Creates a chain whose node and state are not known yet.
    pub fn new(namespace: CacheNamespace, name: &str) -> Self {
        Self {
            namespace,
            name: name.to_owned(),
            news: Arc::default(),
            is_forgotten: AtomicBool::new(false),
            node_client: Mutex::default(),
            follow_status: Mutex::default(),
        }
    }

    /// Returns the client of the chain's node, once its configuration and certificates were read.
    pub fn node_client(&self) -> Option<Arc<NodeClient>> {
        lock_ignoring_poison(&self.node_client).clone()
    }

    /// Sets the client of the chain's node.
    pub fn set_node_client(&self, node: &Arc<NodeClient>) {
        *lock_ignoring_poison(&self.node_client) = Some(Arc::clone(node));
    }

    /// Returns the present state of the followed chain.
    pub fn follow_status(&self) -> FollowedChainStatus {
        lock_ignoring_poison(&self.follow_status).clone()
    }

    /// Replaces the state that the owner's status reports for the chain.
    pub fn set_follow_status(&self, status: FollowedChainStatus) {
        *lock_ignoring_poison(&self.follow_status) = status;
    }

    /// Records that the chain's record was purged, if `scope` covers it.
    pub fn mark_chain_record_purged(&self, scope: &PurgeScope) {
        let is_covered = match scope {
            PurgeScope::Everything => true,
            PurgeScope::Namespace(namespace) => *namespace == self.namespace,
            _ => false,
        };
        if is_covered {
            self.is_forgotten.store(true, Ordering::Release);
            self.news.notify_one();
        }
    }

    /// Returns whether the chain's record was purged since the last call.
    pub fn take_chain_record_purged(&self) -> bool {
        self.is_forgotten.swap(false, Ordering::AcqRel)
    }
}
