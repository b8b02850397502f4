//! What time it is.

/// The time of a call, in milliseconds of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Of the machine's monotonic clock, the same in all its processes:
    /// leases and the lives of entries in memory.
    pub monotonic: u64,
    /// Since 1970: the lives of entries on disk.
    pub unix: u64,
}
