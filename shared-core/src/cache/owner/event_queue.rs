//! The queued events of one process, with their numbers.

use std::collections::VecDeque;

use crate::cache::owner_protocol::owner_message::SessionEvent;

/// The events of a process that it has not acknowledged, numbered from 1 on.
#[derive(Debug, Default)]
pub(super) struct OwnerEventQueue {
    events: VecDeque<SessionEvent>,
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
    pub(super) fn push_event(&mut self, event: SessionEvent) {
        self.events.push_back(event);
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
            if let Some(SessionEvent::Purge { generation, .. }) = self.events.pop_front() {
                purged = generation.max(purged);
            }
        }
        Some(purged)
    }

    /// Returns the event after that number, or the first one that is left, with its number.
    pub(super) fn event_after(&self, number: u64) -> Option<(u64, &SessionEvent)> {
        let skipped = number.saturating_sub(self.removed);
        let event = self.events.get(usize::try_from(skipped).ok()?)?;
        Some((self.removed + skipped + 1, event))
    }
}
