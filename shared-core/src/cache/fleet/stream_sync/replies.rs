//! The replies of the server, and their effect on the phase and on the ids of records.

use super::commands::StreamReply;
use super::record_pages::StreamReading;
use super::{
    PendingCommand, StreamSync, SyncPhase, CONFIRM_INTERVAL_MS, FENCE_INTERVAL_MS,
    POLL_INTERVAL_MS, RAISE_STEP_MS,
};
use crate::cache::clock::ClockReading;
use crate::cache::fleet::stream_record::StreamId;

impl StreamSync {
    /// Receives the reply to the pending command.
    pub fn complete_command(&mut self, reply: StreamReply, now: ClockReading) {
        let at = now.monotonic;
        match self.pending.take() {
            None => {}
            Some(PendingCommand::Page) => self.complete_page(reply, now),
            Some(PendingCommand::Fence { id }) => {
                self.next_command = match reply {
                    StreamReply::Failed => at + POLL_INTERVAL_MS,
                    _ => at,
                };
                match reply {
                    StreamReply::Done => {
                        self.next_fence = at + FENCE_INTERVAL_MS;
                        self.counters.fences += 1;
                        self.record_accepted_id(id);
                    }
                    StreamReply::IdTooLow => self.raise_id(id),
                    _ => {}
                }
                // another owner may have written one
                self.phase = SyncPhase::Reading(StreamReading::default());
            }
            Some(PendingCommand::Poll { sent }) => match reply {
                StreamReply::Records(records) => self.complete_poll(&records, sent, now),
                _ => self.next_command = at + POLL_INTERVAL_MS,
            },
            Some(PendingCommand::Publish { name, id }) => match reply {
                StreamReply::Done => {
                    self.own.mark_published(&name, id, at);
                    self.counters.published += 1;
                    self.record_accepted_id(id);
                    self.next_command = at;
                }
                StreamReply::IdTooLow => {
                    self.raise_id(id);
                    self.next_command = at;
                }
                StreamReply::NoStream => self.restart_reading(at),
                StreamReply::Records(_) | StreamReply::Failed => {
                    self.next_append = at + POLL_INTERVAL_MS;
                }
            },
            Some(PendingCommand::Confirm { position }) => match reply {
                StreamReply::Done => {
                    self.confirmed = Some(position);
                    // no other confirmation was sent meanwhile
                    self.confirmed_counter = Some(self.counter);
                    self.next_confirm = at + CONFIRM_INTERVAL_MS;
                }
                // with the next poll
                _ => self.fresh_until = 0,
            },
        }
    }

    fn record_accepted_id(&mut self, id: StreamId) {
        self.highest = self.highest.max(id);
        (self.raised, self.refusals) = (0, 0);
    }

    /// Chooses a higher id after a refused one: first by the records that are read meanwhile.
    fn raise_id(&mut self, refused: StreamId) {
        let step = RAISE_STEP_MS << self.refusals.min(16);
        if self.refusals > 0 {
            self.raised = refused.milliseconds.saturating_add(step);
        }
        self.refusals += 1;
    }

    /// Reads the whole stream again, as it does not have the known records any more.
    pub(super) fn restart_reading(&mut self, now: u64) {
        self.phase = SyncPhase::Reading(StreamReading::default());
        self.next_command = now;
        self.current_until = 0;
        self.is_position_known = false;
        self.local.clear_mark();
    }
}
