//! The time of a call.

/// The time of a call, in milliseconds of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTime {
    /// Milliseconds of the machine's monotonic clock, the same in all its processes: for leases
    /// and the lifetimes of entries in memory.
    pub monotonic: u64,
    /// Milliseconds since 1970: for the lifetimes of entries on disk.
    pub unix: u64,
}
