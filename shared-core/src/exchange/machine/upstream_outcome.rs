//! The outcome of the upstream request, for counters.

/// Maximum length of a response that is read for JSON-RPC errors although it is not stored.
/// Bytes.
pub(in crate::exchange) const MAX_WATCHED_LENGTH: usize = 4 << 10;

/// The result of an upstream request, for the counters: its status or failure, and a copy of a
/// short body that may be an error.
#[derive(Debug, Default)]
pub(in crate::exchange) struct UpstreamOutcome {
    pub(in crate::exchange) upstream_status: Option<u16>,
    pub(in crate::exchange) has_failed: bool,
    /// Copy of a response that is passed and may be a JSON-RPC error.
    pub(in crate::exchange) watched: Option<Vec<u8>>,
}

impl UpstreamOutcome {
    /// Status of the upstream's response; `None` if there is none.
    pub(in crate::exchange) fn upstream_status(&self) -> Option<u16> {
        self.upstream_status
    }

    /// Copies a piece of a response that is passed, until the copy is too long to be an error.
    pub(in crate::exchange) fn append_watched_piece(&mut self, piece: &[u8]) {
        let Some(watched) = &mut self.watched else {
            return;
        };
        if watched.len() + piece.len() > MAX_WATCHED_LENGTH
            || watched.try_reserve(piece.len()).is_err()
        {
            self.watched = None;
            return;
        }
        watched.extend_from_slice(piece);
    }
}
