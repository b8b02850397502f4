//! Whether the node behind a place compresses what it was asked for in identity, in a way
//! that is not undone here.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The content codings of a node, as far as they have shown. Shared by all settings that
/// are made of one.
#[derive(Clone, Debug, Default)]
pub struct UpstreamCodings(Arc<AtomicBool>);

impl UpstreamCodings {
    /// Whether a response came in a coding that nobody asked for and that is not undone
    /// here. Its batches are not split: what was split could not be put together.
    pub fn are_unknown(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Such a response came.
    pub fn saw_unknown(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
