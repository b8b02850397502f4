//! Repetitions in the tiers of `make` (tests/tiers.py).

/// Returns a number of repetitions: `many`, or `few` in `make quick` and `make test`.
pub fn times<T>(few: T, many: T) -> T {
    match std::env::var("SSZIP_TIER") {
        Ok(tier) if tier != "all" => few,
        _ => many,
    }
}
