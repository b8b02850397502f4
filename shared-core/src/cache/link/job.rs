//! Requests of a process to its owner, and their deadlines.

use std::sync::Arc;

use super::message::{Lease, Message};
use crate::cache::chain::Sighting;
use crate::cache::entry::about::About;
use crate::cache::entry::Entry;
use crate::cache::freshness::IfFinal;
use crate::cache::process::flights::Token;
use crate::cache::process::wake::Waiter;
use crate::cache::{Key, Namespace};

/// For how long a lease is asked for, in milliseconds: some calls take a node
/// that long. It ends with the process.
const LEASE: u64 = 60_000;

/// One request to the owner.
#[derive(Debug)]
pub(super) enum Job {
    LookUp(LookUp),
    LookUps {
        keys: Vec<Key>,
        waiter: Waiter,
        due: u64,
        generation: u64,
    },
    Store {
        key: Key,
        entry: Arc<Entry>,
        about: Box<About>,
        if_final: Option<IfFinal>,
    },
    GiveBack(Key),
    Acknowledge(u64),
    /// A block above the head was shown to a client.
    Shows(Namespace, Sighting),
    /// What an operator wants to be purged.
    Purge {
        body: String,
        /// `None`: it has gone, and the purge is done all the same.
        waiter: Option<Waiter>,
        due: u64,
        /// How often it was sent.
        sent: u8,
    },
    /// What it knows of itself.
    Status {
        waiter: Waiter,
        due: u64,
    },
    /// The event stream.
    Listen,
    /// Whoever asked has gone on, perhaps for this key to the node.
    Late(Option<Key>),
}

#[derive(Debug)]
pub(super) struct LookUp {
    pub(super) key: Key,
    pub(super) token: Token,
    /// Only one is to ask the node, so the owner is asked for its lease.
    pub(super) leases: bool,
    /// When its time is over, in milliseconds of the host's clock.
    pub(super) due: u64,
    /// The last purge that was known when it was sent.
    pub(super) generation: u64,
    /// What another process fetches is of no use here: its lease is not asked
    /// for.
    pub(super) waits_in_vain: bool,
    /// An event came before the answer that it belongs to.
    pub(super) missed_event: bool,
}

impl LookUp {
    /// Whether its lease is asked for.
    pub(super) fn wants_lease(&self) -> bool {
        self.leases && !self.waits_in_vain
    }
}

impl Job {
    /// Nobody waits for it under that name any more.
    pub(super) fn forget(&mut self, gone: Waiter) {
        match self {
            Self::LookUps { waiter, .. } | Self::Status { waiter, .. } if *waiter == gone => {
                *self = Self::Late(None);
            }
            // it is done all the same
            Self::Purge { waiter, .. } if *waiter == Some(gone) => *waiter = None,
            _ => {}
        }
    }

    /// What is sent; `None`: there is no way to, perhaps for want of memory.
    /// `now` is in milliseconds of the host's clock.
    pub(super) fn message(&self, process: &str, now: u64) -> Option<Message> {
        Some(match self {
            Self::LookUp(look_up) => {
                let lease = Lease {
                    process,
                    milliseconds: LEASE,
                    wait: 0,
                };
                Message::look_up(&look_up.key, look_up.wants_lease().then_some(lease))
            }
            Self::LookUps { keys, .. } => Message::look_ups(keys)?,
            Self::Store {
                key,
                entry,
                about,
                if_final,
            } => Message::store(key, entry, about, if_final.as_ref(), process, now)?,
            Self::GiveBack(key) => Message::give_back(key, process),
            Self::Acknowledge(generation) => Message::acknowledge(*generation, process),
            Self::Shows(namespace, sighting) => Message::shows(namespace, *sighting),
            Self::Purge { body, .. } => Message::purge(body)?,
            Self::Status { .. } => Message::status(),
            Self::Listen => Message::listen(process),
            Self::Late(_) => return None,
        })
    }
}
