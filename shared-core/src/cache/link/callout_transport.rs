//! The callouts of a host without connections that are in flight.

/// The identity of a callout, which the host passes back with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CalloutId(u64);

/// The callouts in flight.
#[derive(Debug, Default)]
pub(super) struct CalloutTransport {
    last_id: u64,
    /// Number of the last data callout.
    pub(super) last_data: u32,
    pub(super) data: Option<CalloutId>,
    pub(super) poll: Option<CalloutId>,
    /// Whether the host makes callouts, so that there is no connection.
    pub(super) is_used: bool,
    /// Time since which entries or releases wait to be sent.
    pub(super) background_since: Option<u64>,
}

impl CalloutTransport {
    pub(super) fn next_id(&mut self) -> CalloutId {
        self.last_id += 1;
        CalloutId(self.last_id)
    }

    /// Forgets the callouts in flight: their answers have no effect.
    pub(super) fn forget_callouts(&mut self) {
        (self.data, self.poll) = (None, None);
    }
}
