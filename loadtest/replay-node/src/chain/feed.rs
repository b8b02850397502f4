//! Event feed of the chain: its listeners, and the events of a change.

use std::collections::HashSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use serde_json::{json, Value};
use tokio::sync::mpsc::{unbounded_channel, UnboundedReceiver, UnboundedSender};

use crate::sample::values::Word;
use crate::stats::InFlightRequestGuard;

use super::model::{self, BlockIndex, EPOCH_SLOTS};
use super::view::SimulatedNodeView;

/// An event of the simulated chain: a header for `newHeads`, or an event of the Beacon API.
#[derive(Debug, PartialEq)]
pub enum ChainEvent {
    /// Header for `newHeads`.
    Header(Value),
    /// Event of the Beacon API.
    Beacon { topic: &'static str, data: Value },
}

/// The end of a feed from which one listener takes the events.
pub type ChainEventReceiver = UnboundedReceiver<Arc<ChainEvent>>;

/// The feed that sends each event of the chain to all listeners.
#[derive(Debug, Default)]
pub struct SimulatedChainFeed {
    listeners: Mutex<Vec<UnboundedSender<Arc<ChainEvent>>>>,
}

impl SimulatedChainFeed {
    /// Adds a listener, which receives all later events, and stays until its receiver is dropped.
    pub fn add_listener(&self) -> ChainEventReceiver {
        let (sender, receiver) = unbounded_channel();
        self.lock_listeners().push(sender);
        receiver
    }

    /// Whether any listener is left; those whose receivers were dropped are removed.
    pub fn has_listeners(&self) -> bool {
        let mut listeners = self.lock_listeners();
        listeners.retain(|listener| !listener.is_closed());
        !listeners.is_empty()
    }

    pub fn publish_events(&self, events: Vec<ChainEvent>) {
        let mut listeners = self.lock_listeners();
        for event in events.into_iter().map(Arc::new) {
            listeners.retain(|listener| listener.send(event.clone()).is_ok());
        }
    }

    /// Ends the event streams of all listeners.
    pub fn close_streams(&self) {
        self.lock_listeners().clear();
    }

    fn lock_listeners(&self) -> std::sync::MutexGuard<'_, Vec<UnboundedSender<Arc<ChainEvent>>>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The head and the finality of a node before a change, from which the events of the change follow.
#[derive(Clone, Copy, Debug)]
pub struct HeadBeforeChange {
    head: BlockIndex,
    hash: Word,
    finalized: Option<Word>,
}

impl HeadBeforeChange {
    /// Records the head and the finalized block, for a comparison after a change of the chain.
    pub fn new(view: &SimulatedNodeView<'_>) -> Self {
        Self {
            head: view.head_block,
            hash: view.head_block().hash,
            finalized: finalized_block(view).map(|block| block.hash),
        }
    }
}

fn finalized_block<'a>(view: &SimulatedNodeView<'a>) -> Option<&'a model::SimulatedBlock> {
    let at = view.canonical_at_number(view.finality_for_tag?.finalized)?;
    Some(view.chain.block_by_index(at))
}

/// Returns the events that follow from a change of the chain. `newHeads` receives each new block up
/// to the head; the Beacon API receives each block on top of the old head, or a reorg and its head,
/// and the checkpoint that became final.
pub fn events_of_change(
    view: &SimulatedNodeView<'_>,
    before: &HeadBeforeChange,
) -> Vec<ChainEvent> {
    let mut events = Vec::new();
    if view.head_block().hash != before.hash {
        // A chain that was replaced may have a block of this hash at another index.
        let same_chain = view.chain.by_hash(&before.hash) == Some(before.head);
        if same_chain {
            branch_events(view, before.head, &mut events);
        } else {
            events.push(ChainEvent::Header(view.new_heads_header(view.head_block)));
            events.push(head_event(view, view.head_block));
        }
    }
    let now = finalized_block(view);
    if let Some(block) = now.filter(|block| before.finalized != Some(block.hash)) {
        events.push(ChainEvent::Beacon {
            topic: "finalized_checkpoint",
            data: json!({
                "block": block.root,
                "state": model::beacon_state_root(&block.hash),
                "epoch": (block.slot / EPOCH_SLOTS).to_string(),
                "execution_optimistic": view.syncing,
            }),
        });
    }
    events
}

/// Appends the events of the blocks from the common ancestor of `old` and the head. A
/// reorganisation has a `chain_reorg` event first, and one `head` event only.
fn branch_events(view: &SimulatedNodeView<'_>, old: BlockIndex, events: &mut Vec<ChainEvent>) {
    let ancestor = view.chain.common_ancestor(old, view.head_block);
    let branch = view.chain.branch_blocks(ancestor, view.head_block);
    if ancestor != old {
        events.push(reorg_event(view, ancestor, old));
        events.extend(
            branch
                .iter()
                .map(|at| ChainEvent::Header(view.new_heads_header(*at))),
        );
        events.push(head_event(view, view.head_block));
        return;
    }
    for at in branch {
        events.push(ChainEvent::Header(view.new_heads_header(at)));
        events.push(head_event(view, at));
    }
}

/// Returns the `head` event of a block.
fn head_event(view: &SimulatedNodeView<'_>, at: BlockIndex) -> ChainEvent {
    let block = view.chain.block_by_index(at);
    let parent = block.parent.map(|parent| view.chain.block_by_index(parent));
    let before = parent.map_or(0, |parent| parent.slot / EPOCH_SLOTS);
    ChainEvent::Beacon {
        topic: "head",
        data: json!({
            "slot": block.slot.to_string(),
            "block": block.root,
            "state": model::beacon_state_root(&block.hash),
            "epoch_transition": block.slot / EPOCH_SLOTS > before,
            "previous_duty_dependent_root": parent.map_or(block.root, |parent| parent.root),
            "current_duty_dependent_root": parent.map_or(block.root, |parent| parent.root),
            "execution_optimistic": view.syncing,
        }),
    }
}

/// Returns the `chain_reorg` event for a change from `old` to the head, with the number of slots
/// since their common ancestor.
fn reorg_event(view: &SimulatedNodeView<'_>, ancestor: BlockIndex, old: BlockIndex) -> ChainEvent {
    let (old, new) = (view.chain.block_by_index(old), view.head_block());
    let depth = old.slot - view.chain.block_by_index(ancestor).slot;
    ChainEvent::Beacon {
        topic: "chain_reorg",
        data: json!({
            "slot": new.slot.to_string(),
            "depth": depth.to_string(),
            "old_head_block": old.root,
            "new_head_block": new.root,
            "old_head_state": model::beacon_state_root(&old.hash),
            "new_head_state": model::beacon_state_root(&new.hash),
            "epoch": (new.slot / EPOCH_SLOTS).to_string(),
            "execution_optimistic": view.syncing,
        }),
    }
}

/// The body of `/eth/v1/events`: server-sent events of the subscribed topics, until the feed
/// closes.
#[derive(Debug)]
pub struct BeaconEventStreamBody {
    events: ChainEventReceiver,
    topics: HashSet<String>,
    in_flight: InFlightRequestGuard,
}

impl BeaconEventStreamBody {
    pub fn new(
        events: ChainEventReceiver,
        topics: HashSet<String>,
        in_flight: InFlightRequestGuard,
    ) -> Self {
        Self {
            events,
            topics,
            in_flight,
        }
    }
}

impl Body for BeaconEventStreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        while let Poll::Ready(event) = self.events.poll_recv(cx) {
            match event.as_deref() {
                None => return Poll::Ready(None),
                Some(ChainEvent::Beacon { topic, data }) if self.topics.contains(*topic) => {
                    let text = format!("event: {topic}\ndata: {data}\n\n");
                    self.in_flight.count_sent_bytes(text.len());
                    return Poll::Ready(Some(Ok(Frame::data(text.into()))));
                }
                Some(_) => (),
            }
        }
        Poll::Pending
    }
}
