//! Benchmark that measures the walkers of `sszip_core::ssz` and the typed peers, and writes every
//! sample as JSON: `loadtest/bench/run --suite ssz` runs it and generates tables from the
//! samples.

mod case;
mod corpus;
mod state;
mod typed;
mod witness;

use std::error::Error;
use std::path::PathBuf;

use serde::Serialize;

use self::case::{MeasurementPlan, OperationMeasurements};

const USAGE: &str = "usage: ssz-bench [--quick] [--ours] [--only block|state|witness]... \
    [--corpus FOLDER] [--work FOLDER] OUT.json";

/// The options on the command line: which groups to measure and how long, the folder of the corpus,
/// the working folder, and the file of the results.
struct BenchmarkOptions {
    quick: bool,
    ours: bool,
    only: Vec<String>,
    corpus: PathBuf,
    work: PathBuf,
    out: PathBuf,
}

/// The results that the benchmark writes as JSON.
#[derive(Serialize)]
struct BenchmarkResults {
    groups: Vec<OperationMeasurements>,
    witnesses: Vec<witness::WitnessResults>,
    /// Values that are from the corpus.
    recorded: Vec<&'static str>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).peekable();
    if args.peek().is_some_and(|first| first == witness::CHILD) {
        return witness::measure_one_witness_conversion(args.nth(1), args.next());
    }
    let Some(options) = parse_options(args) else {
        return Err(USAGE.into());
    };
    let of_this_length = match options.quick {
        true => MeasurementPlan::QUICK,
        false => MeasurementPlan::FULL,
    };
    let plan = MeasurementPlan {
        ours: options.ours,
        ..of_this_length
    };
    let wants = |section| options.only.is_empty() || options.only.iter().any(|one| one == section);
    let mut results = BenchmarkResults {
        groups: Vec::new(),
        witnesses: Vec::new(),
        recorded: Vec::new(),
    };
    if wants("block") {
        let (block, is_recorded) = corpus::load_beacon_block(&options.corpus)?;
        if is_recorded {
            results.recorded.push("block");
        }
        results
            .groups
            .extend(typed::measure_block_codecs(&block, plan)?);
    }
    if wants("state") {
        let counts: &[usize] = match options.quick {
            true => &[500],
            // the last two exceed every CPU cache, and show whether the time is linear
            false => &[2_000, 100_000, 500_000, 1_000_000],
        };
        for count in counts {
            results
                .groups
                .extend(typed::measure_beacon_state(*count, plan)?);
        }
    }
    if wants("witness") {
        let (parts, is_recorded) = corpus::load_witness_parts(&options.corpus)?;
        if is_recorded {
            results.recorded.push("witness");
        }
        let sizes: &[usize] = match options.quick {
            true => &[2],
            false => &[100, 300, 500],
        };
        for megabytes in sizes {
            let of_this_size =
                witness::measure_witness_conversion(&parts, *megabytes, plan, &options.work)?;
            results.witnesses.push(of_this_size);
        }
    }
    std::fs::write(&options.out, serde_json::to_vec_pretty(&results)?)?;
    Ok(())
}

fn parse_options(mut args: impl Iterator<Item = String>) -> Option<BenchmarkOptions> {
    let mut options = BenchmarkOptions {
        quick: false,
        ours: false,
        only: Vec::new(),
        corpus: PathBuf::from(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../shared/corpus"
        )),
        work: std::env::temp_dir(),
        out: PathBuf::new(),
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => options.quick = true,
            "--ours" => options.ours = true,
            "--only" => options.only.push(args.next()?),
            "--corpus" => options.corpus = args.next()?.into(),
            "--work" => options.work = args.next()?.into(),
            _ if arg.starts_with('-') => return None,
            _ => options.out = arg.into(),
        }
    }
    (!options.out.as_os_str().is_empty()).then_some(options)
}
