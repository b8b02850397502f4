//! How the node has answered a request, for counters.

/// Longest response in which JSON-RPC errors are looked for where nothing is stored of it.
/// Bytes.
pub(super) const MOST: usize = 4 << 10;

/// How the node has answered.
#[derive(Debug, Default)]
pub(super) struct Upstream {
    pub(super) status: Option<u16>,
    pub(super) has_failed: bool,
    /// A response that passes, and may be a JSON-RPC error.
    pub(super) watched: Option<Vec<u8>>,
}

impl Upstream {
    /// Status of the node's response; `None`: it has not answered.
    pub(super) fn status(&self) -> Option<u16> {
        self.status
    }

    /// A piece of a response that passes.
    pub(super) fn watch(&mut self, piece: &[u8]) {
        let Some(watched) = &mut self.watched else {
            return;
        };
        if watched.len() + piece.len() > MOST || watched.try_reserve(piece.len()).is_err() {
            self.watched = None;
            return;
        }
        watched.extend_from_slice(piece);
    }
}
