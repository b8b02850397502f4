//! Numbers with their units, in at most ten characters, and counters by name.

/// Formats a count: `12345`, `1.23 M`.
pub fn format_count(count: u64) -> String {
    match count {
        0..=999_999 => count.to_string(),
        _ => format_scaled(count as f64, &["", "k", "M", "G", "T", "P", "E"]),
    }
}

/// Formats a value per second.
pub fn format_rate(rate: f64) -> String {
    match rate {
        rate if rate >= 1_000_000.0 => format_count(rate as u64),
        rate if rate >= 100.0 => format!("{rate:.0}"),
        rate => format!("{rate:.1}"),
    }
}

/// Formats a length in bytes: `1.2 GB`, in powers of 1000.
pub fn format_bytes(bytes: f64) -> String {
    match bytes < 1000.0 {
        true => format!("{bytes:.0} B"),
        false => format_scaled(bytes, &["B", "kB", "MB", "GB", "TB", "PB", "EB"]),
    }
}

/// Formats a value between 0 and 1 in percent.
pub fn format_ratio(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// Formats microseconds: `90 us`, `6.1 ms`, `1.2 s`.
pub fn format_latency(microseconds: u64) -> String {
    match microseconds {
        0..=999 => format!("{microseconds} us"),
        _ => format_scaled(
            microseconds as f64,
            &["us", "ms", "s", "ks", "Ms", "Gs", "Ts"],
        ),
    }
}

/// Formats seconds in their two largest units: `42 s`, `3 h 12 min`, `2 d 1 h`.
pub fn format_age(seconds: u64) -> String {
    match seconds {
        0..=59 => format!("{seconds} s"),
        60..=3_599 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..=86_399 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// Returns a value as text, or `-` if it is unknown.
pub fn or_unknown<T>(value: Option<T>, format: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".into(), format)
}

/// Formats the counters that are not 0: `timeout 3, cut 1`.
pub fn format_counts(counts: &[(String, u64)]) -> String {
    let counts = counts.iter().filter(|(_, count)| *count > 0);
    let counts: Vec<_> = counts
        .map(|(name, count)| format!("{name} {}", format_count(*count)))
        .collect();
    match counts.is_empty() {
        true => "none".into(),
        false => counts.join(", "),
    }
}

/// Returns a value in the largest unit that it reaches, with three digits.
fn format_scaled(value: f64, units: &[&str; 7]) -> String {
    let (mut scaled, mut unit) = (value, 0);
    while scaled >= 1000.0 && unit + 1 < units.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    let digits: usize = match scaled {
        scaled if scaled < 10.0 => 2,
        scaled if scaled < 100.0 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(format_count(999_999), "999999");
        assert_eq!(format_count(1_234_567), "1.23 M");
        assert_eq!(format_count(u64::MAX), "18.4 E");
        assert_eq!(format_rate(0.26), "0.3");
        assert_eq!(format_rate(1234.4), "1234");
        assert_eq!(format_rate(2_500_000.0), "2.50 M");
        assert_eq!(format_bytes(0.0), "0 B");
        assert_eq!(format_bytes(61_204.0), "61.2 kB");
        assert_eq!(format_ratio(0.9314), "93.1 %");
        assert_eq!(format_latency(90), "90 us");
        assert_eq!(format_latency(6_100), "6.10 ms");
        assert_eq!(format_latency(67_000_000), "67.0 s");
        assert_eq!(format_age(59), "59 s");
        assert_eq!(format_age(11_520), "3 h 12 min");
        assert_eq!(format_age(176_400), "2 d 1 h");
    }

    #[test]
    fn counters_are_listed_unless_they_are_0() {
        let counts = [
            ("cut".to_owned(), 1),
            ("reset".into(), 0),
            ("timeout".into(), 2),
        ];
        assert_eq!(format_counts(&counts), "cut 1, timeout 2");
        assert_eq!(format_counts(&counts[1..2]), "none");
        assert_eq!(or_unknown(None, format_count), "-");
    }
}
