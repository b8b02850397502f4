//! Detection of nodes that compress a response although identity was requested, with a content
//! coding that is not decoded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The detection of a node that sends a content coding that was not requested and is not decoded.
/// Clones share one value.
#[derive(Clone, Debug, Default)]
pub struct UnrequestedCodingDetection(Arc<AtomicBool>);

impl UnrequestedCodingDetection {
    /// Whether a response had a content coding that was not requested and can't be decoded. Batches
    /// of this node are not split, because their parts could not be merged.
    pub fn has_sent_unknown_coding(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Records that a response had a content coding that was not requested and can't be decoded.
    pub fn record_unknown_coding(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
