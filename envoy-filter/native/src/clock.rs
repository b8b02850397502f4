//! The machine's clocks.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{clock_gettime, ClockId};
use sszip_envoy_carrier::response::HookTimestamps;

/// Reads `CLOCK_MONOTONIC` in milliseconds, which all processes of the machine share.
pub fn monotonic_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

/// Reads the system clock, in seconds since 1970.
pub fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Reads the monotonic and the system clock.
pub fn read_host_clocks() -> HookTimestamps {
    HookTimestamps {
        monotonic: monotonic_ms(),
        wall: unix_seconds(),
    }
}
