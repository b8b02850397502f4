//! Events of the calls for logs that are split into pieces.

/// The ends of a split that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSplitEvent {
    /// The response was assembled from the pieces.
    Assembled,
    /// The call was sent to the node.
    Abandoned,
}

impl LogSplitEvent {
    /// All events.
    pub const ALL: [Self; 2] = [Self::Assembled, Self::Abandoned];
}
