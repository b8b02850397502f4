//! What a look-up finds.

use std::sync::Arc;

use super::fill::Fill;
use super::part::Mixed;
use super::waits::Waits;
use crate::cache::entry::Entry;
use crate::cache::reason::Reason;
use crate::cache::stale::Failure;
use crate::cache::status::CacheStatus;
use crate::cache::Key;
use crate::exchange::answer::{Answer, Decoding};
use crate::exchange::bound::Bound;
use crate::exchange::unjudged::Unjudged;
use crate::jsonrpc::limit::Permit;
use crate::jsonrpc::request::Call;
use crate::metrics::CallOfBatch;

/// What came of one, with what the next state needs.
#[derive(Debug)]
pub(in crate::exchange) enum Found {
    Nothing,
    Answer(Box<Answer>),
    ToDecode(Box<Decoding>),
    Part(Box<Mixed>),
    OnItsWay(Box<Waits>),
}

/// What a look-up has found out, and is of account later.
#[derive(Debug, Default)]
pub(in crate::exchange) struct Looked {
    /// When it was, and what the host said then.
    pub(in crate::exchange) at: u64,
    pub(in crate::exchange) may_code: bool,
    pub(in crate::exchange) host_writes_vary: bool,
    pub(in crate::exchange) forwards_codings: bool,
    pub(in crate::exchange) rpc_method: Vec<u8>,
    /// Of a batch.
    pub(in crate::exchange) rpc_methods: Vec<u8>,
    /// Of each call that was judged what it is answered with, if it may not be made.
    pub(in crate::exchange) ruled: Vec<Option<Arc<Entry>>>,
    /// Why the request is refused for its head.
    pub(in crate::exchange) refused: Option<Unjudged>,
    /// For those that are limited, until the node has answered.
    pub(in crate::exchange) permits: Vec<Permit>,
    /// For how long what is given had been stored, in milliseconds.
    pub(in crate::exchange) age: Option<u64>,
    /// What the answer to a single call may be.
    pub(in crate::exchange) bound: Option<Bound>,
    /// Calls that were denied.
    pub(in crate::exchange) denied: usize,
    /// Of a batch with some of these: it without them, and its body, for where nothing
    /// else is stored.
    pub(in crate::exchange) allowed: Option<(Box<Mixed>, Vec<u8>)>,
    /// The id of one whose result is to be SSZ, as it was written.
    pub(in crate::exchange) rpc_id: Vec<u8>,
    /// The cache has no use for the request's body.
    pub(in crate::exchange) is_for_others: bool,
    /// The body was coded and could be decoded, or could not.
    pub(in crate::exchange) was_decoded: Option<bool>,
    /// It was looked up again since what answers vary on was learnt while it waited.
    pub(in crate::exchange) is_parted: bool,
    pub(in crate::exchange) batch_size: Option<usize>,
    /// Of these, answers that came from the cache.
    pub(in crate::exchange) batch_hits: usize,
    /// Each of its calls, for those who count.
    pub(in crate::exchange) batch_calls: Vec<CallOfBatch>,
    /// What a single answer is stored under.
    pub(in crate::exchange) key: Option<Key>,
    /// Why what was found could not be given out.
    pub(in crate::exchange) unreadable: Option<Reason>,
    /// As what else than a hit a stored answer is given out.
    pub(in crate::exchange) given_as: Option<CacheStatus>,
    /// The node has to answer, since the request's headers may choose another chain.
    pub(in crate::exchange) is_unverified: bool,
    /// What may be sent in place of the node's answer.
    pub(in crate::exchange) stand_in: Option<StandIn>,
    /// How the node failed, as the host has said.
    pub(in crate::exchange) failed: Option<Failed>,
    /// The status of the node's answer that another one stands in for.
    pub(in crate::exchange) forward_status: Option<u16>,
    /// What the request changes.
    pub(in crate::exchange) changing: Option<Box<Changing>>,
    /// What another exchange is to fetch.
    pub(in crate::exchange) update: Option<Box<Fill>>,
    /// Where that is a call of a batch.
    pub(in crate::exchange) update_of_one: Option<OneOfBatch>,
}

/// A call of a batch, for which the node is asked alone.
#[derive(Debug)]
pub(in crate::exchange) struct OneOfBatch {
    pub(in crate::exchange) body: Vec<u8>,
    pub(in crate::exchange) method: Vec<u8>,
    pub(in crate::exchange) key: Key,
}

/// The methods of a batch that are named take no more, in bytes.
const NAMED: usize = 512;

impl Looked {
    /// Says which methods a batch calls.
    pub(in crate::exchange) fn name_methods(&mut self, calls: &[Call<'_>]) {
        if !self.rpc_methods.is_empty() {
            return;
        }
        let mut named: Vec<&[u8]> = Vec::with_capacity(4);
        for call in calls {
            let method = call.method;
            // as in nearly all
            if named.last() == Some(&method) || named.contains(&method) {
                continue;
            }
            let is_full = self.rpc_methods.len() + method.len() >= NAMED;
            let name = if is_full { b"*" } else { method };
            if !named.is_empty() {
                self.rpc_methods.push(b',');
            }
            self.rpc_methods.extend_from_slice(name);
            if is_full {
                break;
            }
            named.push(method);
        }
    }
}

/// What may be sent in place of the node's answer.
#[derive(Debug)]
pub(in crate::exchange) struct StandIn {
    pub(in crate::exchange) key: Key,
    pub(in crate::exchange) entry: Arc<Entry>,
    /// What it is to be sent under; `None`: it is a resource.
    pub(in crate::exchange) id: Option<Vec<u8>>,
    /// The last purge that was known when it was found.
    pub(in crate::exchange) generation: u64,
    /// The node was asked whether it is still right.
    pub(in crate::exchange) is_asked_for: bool,
}

impl StandIn {
    /// For another request.
    pub(in crate::exchange) fn again(&self) -> Self {
        Self {
            key: self.key,
            entry: Arc::clone(&self.entry),
            id: self.id.clone(),
            generation: self.generation,
            is_asked_for: false,
        }
    }
}

/// What the host has said of the node's answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct Failed {
    pub(in crate::exchange) failure: Failure,
    /// When, in milliseconds of the look-up's clock.
    pub(in crate::exchange) now: u64,
    /// A stored answer is to be sent instead.
    pub(in crate::exchange) is_stood_in_for: bool,
}

/// A request that does, if it succeeds.
#[derive(Debug)]
pub(in crate::exchange) struct Changing {
    /// What GETs of the same place have.
    pub(in crate::exchange) namespace: Vec<u8>,
    /// The host that it was sent to.
    pub(in crate::exchange) host: Vec<u8>,
}
