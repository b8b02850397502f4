//! The request for a piece of a range, as the call that waits for the piece sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::cache::reason::Reason;

/// Whether the node has begun to respond to the request for a piece, and whether the node is the
/// cause if the response is not used. A host may drop the request before. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(in crate::exchange) struct PieceRequestState(Arc<PieceResponseFlags>);

#[derive(Debug, Default)]
struct PieceResponseFlags {
    is_received: AtomicBool,
    /// Another cause than the node prevents the use of the response.
    has_other_cause: AtomicBool,
}

impl PieceRequestState {
    /// Records that the head of a response was received.
    pub(in crate::exchange) fn record_response(&self) {
        self.0.is_received.store(true, Ordering::Relaxed);
    }

    /// Records the reason why the response is not stored, before its flight ends.
    pub(in crate::exchange) fn record_rejection(&self, reason: Reason) {
        if reason == Reason::Memory {
            self.0.has_other_cause.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the node has responded, and is the cause if its response is not used.
    pub(in crate::exchange) fn has_response_of_node(&self) -> bool {
        let flags = &self.0;
        flags.is_received.load(Ordering::Relaxed) && !flags.has_other_cause.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::PieceRequestState;
    use crate::cache::reason::Reason;

    #[test]
    fn node_is_the_cause_of_a_rejection_unless_memory_is() {
        for (reason, is_cause) in [
            (Reason::Memory, false),
            (Reason::Status, true),
            (Reason::Result, true),
            (Reason::Cut, true),
            (Reason::Type, true),
            (Reason::WrongChain, true),
        ] {
            let request = PieceRequestState::default();
            request.record_response();
            request.record_rejection(reason);
            assert_eq!(request.has_response_of_node(), is_cause, "{reason:?}");
        }
    }
}
