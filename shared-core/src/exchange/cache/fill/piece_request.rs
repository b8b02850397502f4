//! The request for a piece of a range, as the call that waits for the piece sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use crate::cache::reason::Reason;

/// Whether the node has begun to respond to the request for a piece, and the cause if the response
/// is not used: the node, the client's filter, or another one. A host may drop the request before.
/// Clones share the state.
#[derive(Clone, Debug, Default)]
pub(in crate::exchange) struct PieceRequestState(Arc<PieceResponseFlags>);

#[derive(Debug, Default)]
struct PieceResponseFlags {
    is_received: AtomicBool,
    is_filter_refused: AtomicBool,
    /// Another cause than the node prevents the use of the response.
    has_other_cause: AtomicBool,
}

impl PieceRequestState {
    /// Records that the head of a response with this status was received.
    pub(in crate::exchange) fn record_response(&self, status: u16) {
        self.0.is_received.store(true, Ordering::Relaxed);
        // only the client's filter makes the request long
        if status == 413 {
            self.record_refused_filter();
        } else if concerns_client(status) {
            self.record_other_cause();
        }
    }

    /// Records that the node has refused the call for the logs of the piece: its filter matches too
    /// many logs, or is too long or invalid, as far as is known.
    pub(in crate::exchange) fn record_refused_filter(&self) {
        self.0.is_filter_refused.store(true, Ordering::Relaxed);
    }

    /// Records the reason why the response is not stored, before its flight ends.
    pub(in crate::exchange) fn record_rejection(&self, reason: Reason) {
        // the filter of the client matches many logs, or its headers select the coding
        if matches!(reason, Reason::Memory | Reason::Length | Reason::Coding) {
            self.record_other_cause();
        }
    }

    fn record_other_cause(&self) {
        self.0.has_other_cause.store(true, Ordering::Relaxed);
    }

    /// Whether the node has refused the call because of its filter.
    pub(in crate::exchange) fn is_filter_refused(&self) -> bool {
        self.0.is_filter_refused.load(Ordering::Relaxed)
    }

    /// Whether the node has responded, and is at fault if its response is not used.
    pub(in crate::exchange) fn is_node_at_fault(&self) -> bool {
        let flags = &self.0;
        flags.is_received.load(Ordering::Relaxed)
            && !self.is_filter_refused()
            && !flags.has_other_cause.load(Ordering::Relaxed)
    }
}

/// Whether a response with this status concerns the client, whose head the request has: its
/// credentials, its rate or its path. The body is sszip's own: nodes that reject batches send 400 or
/// 422.
fn concerns_client(status: u16) -> bool {
    matches!(status, 300..=499) && !matches!(status, 400 | 422)
}

#[cfg(test)]
mod tests {
    use super::PieceRequestState;
    use crate::cache::reason::Reason;

    #[test]
    fn node_is_at_fault_unless_the_status_concerns_the_client() {
        assert!(!PieceRequestState::default().is_node_at_fault());
        for (status, is_cause) in [
            (200, true),
            (204, true),
            (302, false),
            (400, true),
            (401, false),
            (402, false),
            (403, false),
            (404, false),
            (407, false),
            (413, false),
            (422, true),
            (429, false),
            (431, false),
            (500, true),
            (502, true),
            (503, true),
        ] {
            let request = PieceRequestState::default();
            request.record_response(status);
            assert_eq!(request.is_node_at_fault(), is_cause, "{status}");
            assert_eq!(request.is_filter_refused(), status == 413, "{status}");
        }
    }

    #[test]
    fn node_is_at_fault_for_a_rejection_unless_memory_or_the_client_is() {
        for (reason, is_cause) in [
            (Reason::Memory, false),
            (Reason::Length, false),
            (Reason::Coding, false),
            (Reason::Status, true),
            (Reason::Result, true),
            (Reason::Cut, true),
            (Reason::Type, true),
            (Reason::WrongChain, true),
        ] {
            let request = PieceRequestState::default();
            request.record_response(200);
            request.record_rejection(reason);
            assert_eq!(request.is_node_at_fault(), is_cause, "{reason:?}");
        }
    }
}
