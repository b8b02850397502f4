//! Repetitions in the tiers of `make` (tests/tiers.py).

/// Returns a number of repetitions: `many`, or `few` in `make quick` and `make test`.
pub fn times(few: u32, many: u32) -> u32 {
    match std::env::var("SSZIP_TIER") {
        Ok(tier) if tier != "all" => few,
        _ => many,
    }
}
