//! Times that no directive sets: of the cache, its owner, probes and the status page.
//!
//! They are constants. With the feature `times` the environment variable `SSZIP_TIMES` replaces
//! some of them (`SSZIP_TIMES="confirmation_delay=300ms link_silence=30s"`), so that a test
//! neither waits for a long time nor fails on a busy machine because of a short one. A process
//! whose `SSZIP_TIMES` has a mistake terminates at once. WebAssembly has no environment: there the
//! variable has the value that it had when the crate was compiled.

/// Declares one function for each time, with its value in milliseconds.
macro_rules! times {
    ($($(#[$about:meta])* $name:ident = $value:literal;)*) => {
        $(
            $(#[$about])*
            #[cfg(not(feature = "times"))]
            #[inline(always)]
            pub const fn $name() -> u64 {
                $value
            }

            $(#[$about])*
            #[cfg(feature = "times")]
            pub fn $name() -> u64 {
                replaced::overridden_time_ms(stringify!($name)).unwrap_or($value)
            }
        )*

        #[cfg(feature = "times")]
        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

times! {
    /// Pause after which a node must repeat a response for it to be stored as final: longer than
    /// the lag between nodes of one chain.
    confirmation_delay = 10_000;

    /// Time for which a node's head must be lower than before until it is accepted: not one of
    /// several nodes lags, but the chain was cut.
    lower_head_delay = 2_000;

    /// Time without data after which a connection to the owner is closed: the owner sends an
    /// event four times a second, and responds to each request.
    link_silence = 1_500;

    /// Timeout of a callout of a sandbox to the owner; of a poll, it is added to the time that the
    /// owner may wait.
    callout_timeout = 1_000;

    /// Default of `cache_lookup_timeout`.
    lookup_timeout = 20;

    /// Timeout of a query of the owner's status.
    status_timeout = 1_000;

    /// Time that the host waits for the response to a probe of a node.
    probe_timeout = 1_000;

    /// Minimum timeout of an owner's request to a node that it follows, which otherwise is the poll
    /// interval.
    min_node_timeout = 2_000;

    /// Duration of an owner's outage up to which it is not reported: the start or the
    /// replacement of an owner is not worth a log line.
    owner_outage_grace = 3_000;

    /// Time for which a process may send entries from its memory without an event of the owner.
    memory_lease = 1_000;

    /// Time for which a new owner waits for the [`memory_lease`]s of its predecessor, and for which a
    /// process that finds no owner may send entries from its memory.
    predecessor_lease = 1_000;

    /// Interval at which the owner renews a process's [`memory_lease`]. An idle sandbox has it renewed
    /// half as often; each of its callouts to the owner renews it, too.
    memory_lease_renewal = 250;

    /// Timeout of a purge. A purge waits for processes that the owner can't reach, so that it may
    /// take longer than other requests.
    purge_timeout = 10_000;

    /// Time for which a purge waits for an owner that is not connected: a worker that was just
    /// started has no session yet, and an owner that ended is restarted.
    purge_patience = 2_000;

    /// Interval of the samples in the history of a metrics board.
    history_interval = 15_000;
}

#[cfg(feature = "times")]
mod replaced {
    use std::io::Write;
    use std::sync::OnceLock;

    use super::NAMES;

    /// Returns the time that `SSZIP_TIMES` sets for `name`.
    pub(super) fn overridden_time_ms(name: &str) -> Option<u64> {
        static TIMES: OnceLock<Vec<(String, u64)>> = OnceLock::new();
        let times = TIMES.get_or_init(|| {
            let text = match cfg!(target_arch = "wasm32") {
                true => option_env!("SSZIP_TIMES").map(str::to_owned),
                false => std::env::var("SSZIP_TIMES").ok(),
            };
            let text = text.unwrap_or_default();
            parse_time_constant_overrides(&text).unwrap_or_else(|error| {
                let _ = writeln!(std::io::stderr(), "SSZIP_TIMES=\"{text}\": {error}");
                // no panic, because a host would survive it
                std::process::abort()
            })
        });
        times
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, time)| *time)
    }

    /// Parses `SSZIP_TIMES`, which is `NAME=TIME ...`; a time has the unit `ms` or `s`.
    fn parse_time_constant_overrides(text: &str) -> Result<Vec<(String, u64)>, String> {
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
        use super::parse_time_constant_overrides;

        #[test]
        fn times_are_parsed_with_units_and_mistakes_are_errors() {
            let times = parse_time_constant_overrides("confirmation_delay=300ms  link_silence=30s")
                .unwrap();
            let expected = [("confirmation_delay", 300), ("link_silence", 30_000)];
            assert_eq!(times, expected.map(|(name, time)| (name.to_owned(), time)));
            assert_eq!(parse_time_constant_overrides(""), Ok(Vec::new()));
            for wrong in [
                "later=1s",
                "link_silence",
                "link_silence=",
                "link_silence=3",
                "link_silence=ms",
                "link_silence=-1s",
            ] {
                assert!(parse_time_constant_overrides(wrong).is_err(), "{wrong}");
            }
        }
    }
}
