//! Measurement of the fleet's latency, for `sszip fleet ping`.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{json, Value};
use tokio::time::sleep;

use super::client::{FleetClient, FleetError};
use super::random_number;
use super::tier::FleetTier;

/// Number of repetitions of each command.
const ROUNDS: usize = 20;

/// Pause before each repetition: a server that has nothing to do sleeps, and has to wake for a lookup.
/// Without a pause it would not sleep, and seem several times as fast.
const ROUND_PAUSE: Duration = Duration::from_millis(1);

/// Lifetime of the value that is stored and read.
const VALUE_TTL: Duration = Duration::from_secs(60);

/// Time after which no further repetition starts.
const MAX_DURATION: Duration = Duration::from_secs(10);

impl FleetTier {
    /// Measures the time to open connections, `PING`, and `GET` of a value of `length` bytes. The
    /// connections are separate from the connections of lookups, and end with the measurement. Each
    /// command may take `connect_timeout`, which is longer than `timeout`: the latency of a slow
    /// fleet is measured too.
    ///
    /// # Errors
    /// [`FleetError`] of the first command that fails.
    pub(crate) async fn measure_latency(&self, length: usize) -> Result<Value, FleetError> {
        let limit = Duration::from_millis(self.settings.connect_timeout_ms);
        // failures are reported to the client of the measurement, not logged
        let client = FleetClient::new(&self.settings, Arc::new(|_, _| {}))
            .map_err(FleetError::Connection)?;
        let started = Instant::now();
        client.connect(limit).await?;
        let connect = started.elapsed();
        let name = format!("{}:ping:{:016x}", self.settings.prefix, random_number());
        client
            .set(name.as_bytes(), &vec![0_u8; length], VALUE_TTL)
            .await?;
        let ping = || async { client.command(redis::cmd("PING"), limit).await.map(drop) };
        let pings = measure_rounds(started, ping).await?;
        let get = || async {
            let value = client.get(name.as_bytes(), limit).await?;
            match value.is_some_and(|value| value.len() == length) {
                true => Ok(()),
                false => Err(FleetError::Connection(
                    "the server has not stored a value of this length; check maxmemory".into(),
                )),
            }
        };
        let gets = measure_rounds(started, get).await?;
        Ok(json!({
            "connect_ms": milliseconds(connect),
            "ping_ms": pings,
            "get_ms": gets,
        }))
    }
}

/// Repeats a command, each time after a pause, and returns the JSON with the median and the maximum of
/// its durations.
async fn measure_rounds<F>(
    started: Instant,
    mut command: impl FnMut() -> F,
) -> Result<Value, FleetError>
where
    F: Future<Output = Result<(), FleetError>>,
{
    let mut durations = Vec::with_capacity(ROUNDS);
    while durations.len() < ROUNDS && (durations.is_empty() || started.elapsed() < MAX_DURATION) {
        sleep(ROUND_PAUSE).await;
        let sent = Instant::now();
        command().await?;
        durations.push(sent.elapsed());
    }
    Ok(summarize_durations(durations))
}

fn summarize_durations(mut durations: Vec<Duration>) -> Value {
    durations.sort_unstable();
    let at = |index: usize| durations.get(index).copied().map(milliseconds);
    let last = durations.len().saturating_sub(1);
    json!({ "p50": at(last / 2), "max": at(last) })
}

/// Returns a duration in milliseconds, with three decimal places.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn repetitions_follow_a_pause() {
        let clock = tokio::time::Instant::now();
        let times = RefCell::new(Vec::new());
        let command = || async {
            times.borrow_mut().push(clock.elapsed());
            Ok(())
        };
        measure_rounds(Instant::now(), command).await.unwrap();
        let times = times.into_inner();
        assert_eq!(times.len(), ROUNDS);
        let mut previous = Duration::ZERO;
        for time in times {
            // of the paused clock
            assert!(time >= previous + ROUND_PAUSE);
            previous = time;
        }
    }

    #[test]
    fn summary_has_the_median_and_the_maximum() {
        let of = |micros: &[u64]| {
            summarize_durations(micros.iter().copied().map(Duration::from_micros).collect())
        };
        assert_eq!(of(&[900, 100, 250]), json!({"p50": 0.25, "max": 0.9}));
        assert_eq!(of(&[4_000, 1_000]), json!({"p50": 1.0, "max": 4.0}));
        assert_eq!(of(&[]), json!({"p50": null, "max": null}));
    }
}
