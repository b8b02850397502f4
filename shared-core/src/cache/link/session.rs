//! The state of the session, and whether an owner that has opened it replies.

use super::owner_health::OwnerOutage;
use crate::cache::owner_protocol::owner_message::RefusalReason;
use crate::cache::owner_protocol::process_message::max_clock_difference;
use crate::cache::owner_protocol::protocol_error::ProtocolError;
use crate::cache::CacheNamespace;

/// Number of unacknowledged events in effect from which on they are acknowledged although no other
/// message is to be sent. The owner keeps them until then.
const MAX_UNACKNOWLEDGED_EVENTS: u64 = 1_000;

/// Number of lookups in a row that time out until no further ones are sent.
const SILENT_LOOKUPS: u8 = 3;

/// Time for which no lookups are sent then, in milliseconds.
const SILENCE_PAUSE_MS: u64 = 250;

/// The session of this process at the owner.
#[derive(Debug, Default)]
pub(super) struct SessionState {
    pub(super) stage: SessionStage,
    /// Number of the session.
    pub(super) number: u64,
    /// Number of the last session request.
    pub(super) attempt: u32,
    /// The clock of the last session request, in milliseconds.
    pub(super) requested_at: u64,
    /// Whether any owner has opened a session.
    pub(super) was_open: bool,
    /// Whether no owner exists, as far as is known.
    pub(super) is_alone: bool,
    /// Number of the last event that is in effect.
    pub(super) applied_event: u64,
    /// Number of the last event that was acknowledged.
    pub(super) acknowledged_event: u64,
    /// Whether a purge is in effect that was not acknowledged.
    pub(super) has_unacknowledged_purge: bool,
    /// End of a send lease, and the number of the event that has to be in effect before.
    pub(super) coming_lease: Option<(u64, u64)>,
    /// Chains that the owner has reported since the session began, until it has reported all.
    pub(super) reported_chains: Option<Vec<CacheNamespace>>,
    /// Number of messages that follow and are a late reply which was handled before.
    pub(super) repeated_messages: u16,
    /// The reason why the last session could not be opened, if the owner is no owner for this
    /// process.
    pub(super) unusable: Option<OwnerOutage>,
}

/// The progress of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SessionStage {
    #[default]
    Closed,
    /// The request for a session has to be sent.
    Unsent,
    /// The request was sent.
    Requested,
    Open,
}

/// The error of a message that ends the session.
pub(super) struct SessionLoss;

impl SessionState {
    /// Has a session requested with the next frame.
    pub(super) fn request_session(&mut self) {
        self.stage = SessionStage::Unsent;
    }

    /// Whether the session has to be requested; it has been at `now`, afterwards.
    pub(super) fn take_session_request(&mut self, now: u64) -> bool {
        let is_unsent = self.stage == SessionStage::Unsent;
        if is_unsent {
            self.stage = SessionStage::Requested;
            self.attempt += 1;
            self.requested_at = now;
        }
        is_unsent
    }

    /// Records at `now` that the owner has refused the session for `reason`.
    pub(super) fn record_refusal(&mut self, reason: RefusalReason, now: u64) {
        // with one clock, a request is delayed by no more than the time until its refusal: if that was
        // short, the clocks differ; otherwise the request may have been late, and is repeated
        let is_prompt = now.saturating_sub(self.requested_at) <= max_clock_difference();
        if reason == RefusalReason::ClockDiffers && is_prompt {
            self.unusable = Some(OwnerOutage::OtherClock);
        }
    }

    /// Whether the session is open.
    pub(super) fn is_open(&self) -> bool {
        self.stage == SessionStage::Open
    }

    /// Whether the session is open or was requested.
    pub(super) fn is_open_or_requested(&self) -> bool {
        self.stage != SessionStage::Closed
    }

    /// Returns the reason why the owner can't be used, if it can't.
    pub(super) fn outage(&self) -> Option<OwnerOutage> {
        let outage = self.unusable.unwrap_or(OwnerOutage::Silent);
        (!self.is_open()).then_some(outage)
    }

    /// Records bytes that no owner of this version sends.
    pub(super) fn record_protocol_error(&mut self, error: ProtocolError) {
        if matches!(
            error,
            ProtocolError::UnknownPreface | ProtocolError::OtherVersion(_)
        ) {
            self.unusable = Some(OwnerOutage::OtherVersion);
        }
    }

    /// Whether events have to be acknowledged although no other message is to be sent.
    pub(super) fn has_urgent_acknowledgement(&self) -> bool {
        let unacknowledged = self.applied_event - self.acknowledged_event;
        self.has_unacknowledged_purge || unacknowledged >= MAX_UNACKNOWLEDGED_EVENTS
    }

    /// Takes the number of the last event that is in effect, if it was not acknowledged.
    pub(super) fn take_acknowledgement(&mut self) -> Option<u64> {
        let is_due = self.acknowledged_event < self.applied_event;
        self.acknowledged_event = self.applied_event;
        self.has_unacknowledged_purge = false;
        is_due.then_some(self.applied_event)
    }
}

/// Stops lookups at an owner that is connected and does not reply.
#[derive(Debug, Default)]
pub(super) struct SilentOwnerBreaker {
    /// Number of lookups that have timed out since the last reply.
    late: u8,
    /// End of the pause, in milliseconds of the host's clock.
    paused_until: u64,
}

impl SilentOwnerBreaker {
    /// Records a reply.
    pub(super) fn record_reply(&mut self) {
        *self = Self::default();
    }

    /// Records a lookup that has timed out.
    pub(super) fn record_late_lookup(&mut self, now: u64) {
        self.late = self.late.saturating_add(1);
        if self.late >= SILENT_LOOKUPS {
            self.paused_until = now.saturating_add(SILENCE_PAUSE_MS);
        }
    }

    /// Whether no lookup is sent at `now`.
    pub(super) fn is_open(&self, now: u64) -> bool {
        now < self.paused_until
    }
}
