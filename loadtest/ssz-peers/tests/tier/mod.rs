//! The part of tests that `make test` leaves to `make test-all` (tests/tiers.py).

/// Returns a number of repetitions: `many`, or `few` in `make test`.
pub fn times(few: u64, many: u64) -> u64 {
    match std::env::var("SSZIP_TIER") {
        Ok(tier) if tier != "all" => few,
        _ => many,
    }
}
