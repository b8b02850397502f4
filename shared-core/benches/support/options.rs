//! The options of a benchmark, and the clock that it reads.

use std::error::Error;
use std::path::PathBuf;

use rustix::time::{clock_gettime, ClockId};

/// The options of a benchmark of one thread: `[--json FILE] [--rounds N] [--ms N] [DIR]`.
pub struct Options {
    pub json: Option<PathBuf>,
    pub rounds: usize,
    /// CPU time of one measurement in nanoseconds.
    pub slice_ns: u64,
    pub folder: Option<PathBuf>,
}

impl Options {
    /// Parses the program's arguments; `rounds` is the default.
    pub fn parse_arguments(rounds: usize) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            json: None,
            rounds,
            slice_ns: 1_000_000,
            folder: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                // arguments of Cargo, in `cargo bench` and `cargo test`
                "--bench" | "--test" => {}
                "--json" => options.json = Some(value()?.into()),
                "--rounds" => options.rounds = value()?.parse::<usize>()?.max(1),
                "--ms" => options.slice_ns = value()?.parse::<u64>()? * 1_000_000,
                _ if argument.starts_with('-') => return Err(format!("unknown {argument}").into()),
                _ => options.folder = Some(argument.into()),
            }
        }
        Ok(options)
    }
}

/// CPU time of this thread in nanoseconds.
pub fn thread_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
