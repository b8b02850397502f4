//! The time of a call.

/// The time at which the owner is called, on the monotonic and the wall clock, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// Milliseconds of the machine's monotonic clock, the same in all its processes: for leases
    /// and the lifetimes of entries in memory.
    pub monotonic: u64,
    /// Milliseconds since 1970: for the lifetimes of entries on disk.
    pub unix: u64,
}
