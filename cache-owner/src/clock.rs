//! The machine's clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{clock_gettime, ClockId};
use sszip_core::cache::owner::ClockReading;

/// Reads the monotonic clock, which all processes of the machine share, and the system clock.
pub fn read_clocks() -> ClockReading {
    // the same for all processes of a machine, and never set back
    let monotonic = clock_gettime(ClockId::Monotonic);
    let milliseconds = monotonic.tv_sec * 1_000 + monotonic.tv_nsec / 1_000_000;
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    ClockReading {
        monotonic: u64::try_from(milliseconds).unwrap_or_default(),
        unix: u64::try_from(unix.as_millis()).unwrap_or(u64::MAX),
    }
}
