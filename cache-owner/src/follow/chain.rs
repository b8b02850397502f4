//! What others see of a chain that is followed, and may tell its follower.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use sszip_core::cache::entry::about::Scope;
use sszip_core::cache::owner::tracker::State;
use sszip_core::cache::Namespace;
use sszip_core::lock::locked;
use tokio::sync::Notify;

use super::node::Node;

/// Blocks that were replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorg {
    /// When that was seen, in milliseconds of the machine's monotonic clock.
    pub at: u64,
    /// The first of them.
    pub from: u64,
    /// How many there were.
    pub blocks: u64,
}

/// So many are told of.
const REORGS: usize = 5;

/// How following a chain goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Its follower's state.
    pub state: State,
    /// The newest block that is known.
    pub head: Option<u64>,
    /// The newest that is final.
    pub last_final: Option<u64>,
    /// When there was a new head, in milliseconds of the machine's monotonic clock.
    pub moved: Option<u64>,
    /// How often blocks were replaced.
    pub reorgs: u64,
    /// The last of these, the newest first.
    pub last_reorgs: Vec<Reorg>,
    /// What went wrong when the node was asked last.
    pub error: Option<String>,
}

impl Status {
    /// What has become of it at `now`; `from`: blocks were replaced from there on.
    pub fn followed_by(&self, next: Self, from: Option<u64>, now: u64) -> Self {
        let is_new = next.head.is_some() && next.head != self.head;
        let mut last_reorgs = self.last_reorgs.clone();
        if let (Some(from), true) = (from, next.reorgs > self.reorgs) {
            let blocks = self.head.map_or(0, |head| (head + 1).saturating_sub(from));
            let reorg = Reorg {
                at: now,
                from,
                blocks,
            };
            last_reorgs.insert(0, reorg);
            last_reorgs.truncate(REORGS);
        }
        Self {
            moved: if is_new { Some(now) } else { self.moved },
            last_reorgs,
            ..next
        }
    }
}

/// A chain that is followed.
pub struct Chain {
    /// Whose answers it is behind.
    pub namespace: Namespace,
    /// What the operator calls it.
    pub name: String,
    /// There may be news: told by whoever knows.
    pub news: Arc<Notify>,
    is_forgotten: AtomicBool,
    node: Mutex<Option<Arc<Node>>>,
    status: Mutex<Status>,
}

impl Chain {
    /// One of which nothing is known yet.
    pub fn new(namespace: Namespace, name: &str) -> Self {
        Self {
            namespace,
            name: name.to_owned(),
            news: Arc::default(),
            is_forgotten: AtomicBool::new(false),
            node: Mutex::default(),
            status: Mutex::default(),
        }
    }

    /// Its node, once it can be asked.
    pub fn node(&self) -> Option<Arc<Node>> {
        locked(&self.node).clone()
    }

    /// This is its node.
    pub fn set_node(&self, node: &Arc<Node>) {
        *locked(&self.node) = Some(Arc::clone(node));
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        locked(&self.status).clone()
    }

    /// It goes like this now.
    pub fn set_status(&self, status: Status) {
        *locked(&self.status) = status;
    }

    /// What is recorded of it was purged, if `scope` has it.
    pub fn purged(&self, scope: &Scope) {
        let is_covered = match scope {
            Scope::Everything => true,
            Scope::Namespace(namespace) => *namespace == self.namespace,
            _ => false,
        };
        if is_covered {
            self.is_forgotten.store(true, Ordering::Release);
            self.news.notify_one();
        }
    }

    /// Whether it was purged since the last call.
    pub fn take_forgotten(&self) -> bool {
        self.is_forgotten.swap(false, Ordering::AcqRel)
    }
}
