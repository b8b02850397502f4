//! The arguments of `status` and `top`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::connection::{parse_duration, ConnectionArguments};
use crate::target::{Target, DEFAULT_STATUS_TARGET};

/// Time between two queries, if none is given.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// The arguments of `status`: the source, and how it is shown.
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// The URL of a status page, the socket of an owner, or the URL of Envoy's /stats:
    /// http://HOST:PORT/sszip, unix:/run/sszip/cached.sock, http://127.0.0.1:9901/stats
    #[arg(value_name = "TARGET", default_value = DEFAULT_STATUS_TARGET)]
    pub target: Target,
    /// Print one report, also in a terminal
    #[arg(long)]
    pub once: bool,
    /// Print JSON; with --interval an object a line until the command is stopped
    #[arg(long)]
    pub json: bool,
    /// Time between two queries, 500ms to 60s [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub interval: Option<Duration>,
    #[command(flatten)]
    pub connection: ConnectionArguments,
}

impl StatusArguments {
    /// Returns the time between two queries.
    pub fn interval(&self) -> Duration {
        self.interval.unwrap_or(DEFAULT_INTERVAL)
    }
}

/// The arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArguments {
    #[command(flatten)]
    pub status: StatusArguments,
    /// Show cache keys, of a sample of the requests, in place of methods
    #[arg(long)]
    pub keys: bool,
    /// Maximum number of rows of a report
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    pub count: u16,
    /// The column by which methods are sorted
    #[arg(long, value_enum, default_value_t = MethodSort::Calls, conflicts_with = "keys")]
    pub sort: MethodSort,
}

/// A column of the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MethodSort {
    /// Calls since the start of counting
    Calls,
    /// Calls per second
    Rate,
    /// Hits since the start of counting
    Hits,
    /// Calls that were not hits
    Misses,
    /// Mean latency of the node
    Latency,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    match interval.as_millis() {
        500..=60_000 => Ok(interval),
        _ => Err("expected 500ms to 60s".into()),
    }
}
