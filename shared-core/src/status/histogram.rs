//! Histograms of durations, whose buckets grow by a third or a half: two for each doubling.

/// Binary logarithm of the first bucket's bound in microseconds.
const FIRST_BOUND_LOG2: u32 = 4;

/// Number of bounds: 16 µs, 24, 32, 48 and so on to 67 s. The last bucket has no bound.
const BOUND_COUNT: usize = 2 * (26 - FIRST_BOUND_LOG2 as usize) + 1;

/// Number of buckets.
pub const BUCKET_COUNT: usize = BOUND_COUNT + 1;

/// Returns the index of the bucket that counts a duration in microseconds.
pub fn bucket_index(microseconds: u64) -> usize {
    let below = microseconds.saturating_sub(1);
    if below >> FIRST_BOUND_LOG2 == 0 {
        return 0;
    }
    let doublings = 63 - below.leading_zeros();
    let half = below >> (doublings - 1) & 1;
    let bucket = 2 * (doublings - FIRST_BOUND_LOG2) as usize + half as usize + 1;
    bucket.min(BOUND_COUNT)
}

/// Returns the upper bound of a bucket in microseconds, or `None` for the last one, which has none.
pub fn bucket_upper_bound(bucket: usize) -> Option<u64> {
    let doubling = 1 << (FIRST_BOUND_LOG2 as usize + bucket.div_ceil(2));
    (bucket < BOUND_COUNT).then_some(match bucket % 2 {
        0 => doubling,
        // between this doubling and the previous one
        _ => doubling / 4 * 3,
    })
}

/// Estimates a quantile in microseconds, by linear interpolation within a bucket. `None`: the
/// histogram is empty.
pub fn estimate_quantile(buckets: &[u64; BUCKET_COUNT], part: f64) -> Option<u64> {
    let all: u64 = buckets.iter().sum();
    let wanted = (all as f64 * part).ceil().max(1.0) as u64;
    let mut before = 0;
    for (bucket, count) in buckets.iter().enumerate() {
        if before + count >= wanted && *count > 0 {
            let lowest = bucket
                .checked_sub(1)
                .and_then(bucket_upper_bound)
                .unwrap_or(0);
            let highest = bucket_upper_bound(bucket).unwrap_or(lowest);
            let within = (wanted - before) as f64 / *count as f64;
            return Some(lowest + ((highest - lowest) as f64 * within) as u64);
        }
        before += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{bucket_index, bucket_upper_bound, estimate_quantile, BUCKET_COUNT};

    #[test]
    fn durations_are_counted_in_the_first_bucket_that_includes_them() {
        let bounds: Vec<_> = (0..BUCKET_COUNT).map_while(bucket_upper_bound).collect();
        assert_eq!(bounds[..6], [16, 24, 32, 48, 64, 96]);
        assert_eq!(
            (bounds.last(), bounds.len()),
            (Some(&(1 << 26)), BUCKET_COUNT - 1)
        );
        let times = (0..5000).chain(bounds.iter().flat_map(|it| [it - 1, *it, it + 1]));
        for time in times.chain([u64::MAX]) {
            let first = bounds.iter().position(|bound| time <= *bound);
            assert_eq!(
                bucket_index(time),
                first.unwrap_or(BUCKET_COUNT - 1),
                "{time}"
            );
        }
    }

    #[test]
    fn quantiles_are_interpolated_within_their_bucket() {
        let mut buckets = [0; BUCKET_COUNT];
        assert_eq!(estimate_quantile(&buckets, 0.5), None);
        for time in 1..=1000u64 {
            buckets[bucket_index(time * 100)] += 1;
        }
        let half = estimate_quantile(&buckets, 0.5).unwrap();
        assert!((45_000..55_000).contains(&half), "{half}");
        let most = estimate_quantile(&buckets, 0.99).unwrap();
        assert!((95_000..=131_072).contains(&most), "{most}");
        buckets = [0; BUCKET_COUNT];
        buckets[BUCKET_COUNT - 1] = 1;
        assert_eq!(estimate_quantile(&buckets, 0.5), Some(1 << 26));
    }
}
