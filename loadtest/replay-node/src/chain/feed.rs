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
use crate::stats::InFlight;

use super::model::{self, Index, EPOCH};
use super::view::View;

/// An event of the simulated chain: a head for subscribers, or an event of the Beacon API.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// Header for `newHeads`.
    Header(Value),
    /// Event of the Beacon API.
    Beacon { topic: &'static str, data: Value },
}

pub type Events = UnboundedReceiver<Arc<Event>>;

/// The publisher that sends each event of the chain to all listeners.
#[derive(Debug, Default)]
pub struct Feed {
    listeners: Mutex<Vec<UnboundedSender<Arc<Event>>>>,
}

impl Feed {
    pub fn listen(&self) -> Events {
        let (sender, receiver) = unbounded_channel();
        self.lock().push(sender);
        receiver
    }

    pub fn has_listeners(&self) -> bool {
        let mut listeners = self.lock();
        listeners.retain(|listener| !listener.is_closed());
        !listeners.is_empty()
    }

    pub fn publish(&self, events: Vec<Event>) {
        let mut listeners = self.lock();
        for event in events.into_iter().map(Arc::new) {
            listeners.retain(|listener| listener.send(event.clone()).is_ok());
        }
    }

    /// Ends the event streams of all listeners.
    pub fn close(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<UnboundedSender<Arc<Event>>>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Head and finality that a node showed before a change, from which the events of the change
/// follow.
#[derive(Clone, Copy, Debug)]
pub struct ViewSnapshot {
    head: Index,
    hash: Word,
    finalized: Option<Word>,
}

impl ViewSnapshot {
    pub fn new(view: &View<'_>) -> Self {
        Self {
            head: view.head,
            hash: view.head().hash,
            finalized: finalized(view).map(|block| block.hash),
        }
    }
}

fn finalized<'a>(view: &View<'a>) -> Option<&'a model::Block> {
    let at = view.canonical(view.finality?.finalized)?;
    Some(view.chain.block(at))
}

/// Returns the events of a change. `newHeads` receives each new block up to the head; the Beacon
/// API receives each block on top of the old head, or a reorg and its head, and the checkpoint
/// that became final.
pub fn events(view: &View<'_>, before: &ViewSnapshot) -> Vec<Event> {
    let mut events = Vec::new();
    if view.head().hash != before.hash {
        // A chain that was replaced may have a block of this hash at another index.
        let same_chain = view.chain.by_hash(&before.hash) == Some(before.head);
        if same_chain {
            branch_events(view, before.head, &mut events);
        } else {
            events.push(Event::Header(view.header(view.head)));
            events.push(head_event(view, view.head));
        }
    }
    let now = finalized(view);
    if let Some(block) = now.filter(|block| before.finalized != Some(block.hash)) {
        events.push(Event::Beacon {
            topic: "finalized_checkpoint",
            data: json!({
                "block": block.root,
                "state": model::state_root(&block.hash),
                "epoch": (block.slot / EPOCH).to_string(),
                "execution_optimistic": view.syncing,
            }),
        });
    }
    events
}

fn branch_events(view: &View<'_>, old: Index, events: &mut Vec<Event>) {
    let ancestor = view.chain.common_ancestor(old, view.head);
    let branch = view.chain.branch(ancestor, view.head);
    if ancestor != old {
        events.push(reorg_event(view, ancestor, old));
        events.extend(branch.iter().map(|at| Event::Header(view.header(*at))));
        events.push(head_event(view, view.head));
        return;
    }
    for at in branch {
        events.push(Event::Header(view.header(at)));
        events.push(head_event(view, at));
    }
}

fn head_event(view: &View<'_>, at: Index) -> Event {
    let block = view.chain.block(at);
    let parent = block.parent.map(|parent| view.chain.block(parent));
    let before = parent.map_or(0, |parent| parent.slot / EPOCH);
    Event::Beacon {
        topic: "head",
        data: json!({
            "slot": block.slot.to_string(),
            "block": block.root,
            "state": model::state_root(&block.hash),
            "epoch_transition": block.slot / EPOCH > before,
            "previous_duty_dependent_root": parent.map_or(block.root, |parent| parent.root),
            "current_duty_dependent_root": parent.map_or(block.root, |parent| parent.root),
            "execution_optimistic": view.syncing,
        }),
    }
}

fn reorg_event(view: &View<'_>, ancestor: Index, old: Index) -> Event {
    let (old, new) = (view.chain.block(old), view.head());
    let depth = old.slot - view.chain.block(ancestor).slot;
    Event::Beacon {
        topic: "chain_reorg",
        data: json!({
            "slot": new.slot.to_string(),
            "depth": depth.to_string(),
            "old_head_block": old.root,
            "new_head_block": new.root,
            "old_head_state": model::state_root(&old.hash),
            "new_head_state": model::state_root(&new.hash),
            "epoch": (new.slot / EPOCH).to_string(),
            "execution_optimistic": view.syncing,
        }),
    }
}

/// Body of `/eth/v1/events`: server-sent events, until the feed closes.
#[derive(Debug)]
pub struct EventStream {
    events: Events,
    topics: HashSet<String>,
    in_flight: InFlight,
}

impl EventStream {
    pub fn new(events: Events, topics: HashSet<String>, in_flight: InFlight) -> Self {
        Self {
            events,
            topics,
            in_flight,
        }
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        while let Poll::Ready(event) = self.events.poll_recv(cx) {
            match event.as_deref() {
                None => return Poll::Ready(None),
                Some(Event::Beacon { topic, data }) if self.topics.contains(*topic) => {
                    let text = format!("event: {topic}\ndata: {data}\n\n");
                    self.in_flight.sent(text.len());
                    return Poll::Ready(Some(Ok(Frame::data(text.into()))));
                }
                Some(_) => (),
            }
        }
        Poll::Pending
    }
}
