//! Times that the cache keeps and no directive sets.
//!
//! They are constants. With the feature `faults` the environment variable `SSZIP_TIMES`
//! replaces some of them (`SSZIP_TIMES="confirmation_delay=300ms link_silence=30s"`), so
//! that a test neither waits for a long time nor fails on a busy machine because of a short
//! one. A process whose `SSZIP_TIMES` has a mistake ends at once. WebAssembly has no
//! environment: its times are the constants.

/// Declares one function for each time, with its value in milliseconds.
macro_rules! times {
    ($($(#[$about:meta])* $name:ident = $value:literal;)*) => {
        $(
            $(#[$about])*
            #[cfg(not(feature = "faults"))]
            #[inline(always)]
            pub const fn $name() -> u64 {
                $value
            }

            $(#[$about])*
            #[cfg(feature = "faults")]
            pub fn $name() -> u64 {
                replaced::time(stringify!($name)).unwrap_or($value)
            }
        )*

        #[cfg(feature = "faults")]
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

times! {
    /// How much later a node has to repeat an answer for it to be stored as final: longer
    /// than nodes that follow one chain are apart.
    confirmation_delay = 10_000;

    /// A connection to the owner on which nothing comes for so long is closed: the owner
    /// sends an event four times a second, and answers each request.
    link_silence = 1_500;

    /// The default of `cache_lookup_timeout`.
    lookup_timeout = 20;

    /// An outage of the owner that is shorter is not reported: an owner that starts, or is
    /// replaced, is not worth a line in a log.
    owner_outage_grace = 3_000;

    /// For how long a process may send what it has in memory without an event of the owner.
    memory_lease = 1_000;

    /// For how long a new owner waits for the [`memory_lease`]s of the one before it.
    predecessor_lease = 1_000;

    /// How often the owner renews a process's [`memory_lease`].
    memory_lease_renewal = 250;
}

#[cfg(feature = "faults")]
mod replaced {
    use std::io::Write;
    use std::sync::OnceLock;

    use super::NAMES;

    /// The time that `SSZIP_TIMES` sets for `name`.
    pub(super) fn time(name: &str) -> Option<u64> {
        static TIMES: OnceLock<Vec<(String, u64)>> = OnceLock::new();
        let times = TIMES.get_or_init(|| {
            let text = std::env::var("SSZIP_TIMES").unwrap_or_default();
            parse(&text).unwrap_or_else(|error| {
                let _ = writeln!(std::io::stderr(), "SSZIP_TIMES=\"{text}\": {error}");
                // no panic: a host would survive it
                std::process::abort()
            })
        });
        times
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, time)| *time)
    }

    /// Reads `NAME=TIME ...`; a time has the unit `ms` or `s`.
    fn parse(text: &str) -> Result<Vec<(String, u64)>, String> {
        text.split_whitespace()
            .map(|word| {
                let (name, value) = word.split_once('=').unwrap_or((word, ""));
                if !NAMES.contains(&name) {
                    return Err(format!("unknown time \"{name}\"; the times are {NAMES:?}"));
                }
                let (number, unit) = match value.strip_suffix("ms") {
                    Some(number) => (number, 1),
                    None => (value.strip_suffix('s').unwrap_or(""), 1_000),
                };
                let time = number.parse::<u32>();
                let time =
                    time.map_err(|_| format!("\"{word}\" is not NAME=TIME, as in \"{name}=30s\""))?;
                Ok((name.to_owned(), u64::from(time) * unit))
            })
            .collect()
    }

    #[cfg(test)]
    mod tests {
        use super::parse;

        #[test]
        fn times_are_read_with_their_units_and_mistakes_are_errors() {
            let times = parse("confirmation_delay=300ms  link_silence=30s").unwrap();
            let expected = [("confirmation_delay", 300), ("link_silence", 30_000)];
            assert_eq!(times, expected.map(|(name, time)| (name.to_owned(), time)));
            assert_eq!(parse(""), Ok(Vec::new()));
            for wrong in [
                "later=1s",
                "link_silence",
                "link_silence=",
                "link_silence=3",
                "link_silence=ms",
                "link_silence=-1s",
            ] {
                assert!(parse(wrong).is_err(), "{wrong}");
            }
        }
    }
}
