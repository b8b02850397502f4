//! The queued events of one process, with their numbers.

use std::collections::VecDeque;

use crate::cache::owner_event::OwnerEvent;

/// An element of the queue of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueuedEvent {
    /// An event of the owner.
    Owner(OwnerEvent),
    /// A reply that a session has queued among its events.
    LateReply,
}

/// The events of a process that were queued and not removed, numbered from 1 on. An event stream
/// removes an event when it is taken, a session when the process has acknowledged it.
#[derive(Debug, Default)]
pub(super) struct OwnerEventQueue {
    events: VecDeque<QueuedEvent>,
    /// Number of events that were removed, which is the number of the last one.
    removed: u64,
}

impl OwnerEventQueue {
    /// Number of events in the queue.
    pub(super) fn event_count(&self) -> usize {
        self.events.len()
    }

    /// Number of the last event that was queued; 0 if there was none.
    pub(super) fn last_number(&self) -> u64 {
        self.removed + self.events.len() as u64
    }

    /// Appends an event.
    pub(super) fn push_event(&mut self, event: QueuedEvent) {
        self.events.push_back(event);
    }

    /// Removes and returns the first event of the owner.
    pub(super) fn pop_first_event(&mut self) -> Option<OwnerEvent> {
        loop {
            let event = self.events.pop_front()?;
            self.removed += 1;
            if let QueuedEvent::Owner(event) = event {
                return Some(event);
            }
        }
    }

    /// Removes the purges, because their generation is published in another way. Numbers are not
    /// used before this call.
    pub(super) fn remove_purges(&mut self) {
        self.events
            .retain(|event| !matches!(event, QueuedEvent::Owner(OwnerEvent::Purge { .. })));
    }

    /// Removes the events up to `number`. Returns the generation of the last purge among them, 0 if
    /// there is none; or `None` if no event with this number was queued.
    pub(super) fn remove_through(&mut self, number: u64) -> Option<u64> {
        if number > self.last_number() {
            return None;
        }
        let mut purged = 0;
        while self.removed < number {
            self.removed += 1;
            if let Some(QueuedEvent::Owner(OwnerEvent::Purge { generation, .. })) =
                self.events.pop_front()
            {
                purged = generation.max(purged);
            }
        }
        Some(purged)
    }

    /// Returns the event after that number, or the first one that is left, with its number.
    pub(super) fn event_after(&self, number: u64) -> Option<(u64, &QueuedEvent)> {
        let skipped = number.saturating_sub(self.removed);
        let event = self.events.get(usize::try_from(skipped).ok()?)?;
        Some((self.removed + skipped + 1, event))
    }
}
