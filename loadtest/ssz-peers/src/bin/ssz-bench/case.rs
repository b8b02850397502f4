//! Comparison of cases in rounds, in turn, so that other load on the machine affects all of them.
//! The CPU time of the thread is measured, since the machine may have other tenants.

use rustix::time::{clock_gettime, ClockId};
use serde::Serialize;

/// Name of sszip's own cases, or its prefix.
pub const OURS: &str = "sszip";

/// The number and the duration of the measurements of a benchmark.
#[derive(Clone, Copy)]
pub struct MeasurementPlan {
    /// Number of runs of each case.
    pub rounds: usize,
    /// Minimum CPU time of a sample in ns, if more than one run fits.
    pub sample_ns: f64,
    /// Maximum time of all rounds of a case in ns: long ones have fewer rounds, but at least
    /// three.
    pub max_ns: f64,
    /// Whether only sszip's own cases run, for a profile.
    pub ours: bool,
}

impl MeasurementPlan {
    /// Plan of a measurement whose figures are published.
    pub const FULL: Self = Self {
        rounds: 15,
        sample_ns: 20e6,
        max_ns: 4e9,
        ours: false,
    };
    /// Plan that checks that every case runs.
    pub const QUICK: Self = Self {
        rounds: 1,
        sample_ns: 0.0,
        max_ns: 0.0,
        ours: false,
    };
}

/// One implementation of a measured operation.
pub struct MeasuredImplementation<'c> {
    /// Name of the implementation.
    pub implementation: String,
    /// Runs the operation once.
    pub run: Box<dyn FnMut() + 'c>,
}

impl<'c> MeasuredImplementation<'c> {
    /// Creates a case; the output of `run` is dropped within the measured time.
    pub fn new<T>(implementation: impl Into<String>, mut run: impl FnMut() -> T + 'c) -> Self {
        Self {
            implementation: implementation.into(),
            run: Box::new(move || {
                std::hint::black_box(run());
            }),
        }
    }
}

/// The measurements of one operation on one value, by all implementations.
#[derive(Serialize)]
pub struct OperationMeasurements {
    /// Name of the value: `SignedBeaconBlock`.
    pub value: String,
    /// Name of the operation: `JSON to SSZ`.
    pub operation: &'static str,
    /// Number of validators of a state; 0 for other values.
    pub validators: usize,
    /// Bytes of the input.
    pub bytes_in: usize,
    /// Measurements by implementation.
    pub ways: Vec<ImplementationMeasurement>,
}

/// The measured times of one implementation.
#[derive(Serialize)]
pub struct ImplementationMeasurement {
    /// Name of the implementation.
    pub who: String,
    /// Time of one run in ns, by round.
    pub ns: Vec<f64>,
}

/// Returns the CPU time of this thread in ns.
pub fn thread_cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn time_case(case: &mut MeasuredImplementation, runs: usize) -> f64 {
    let begin = thread_cpu_ns();
    for _ in 0..runs {
        (case.run)();
    }
    (thread_cpu_ns() - begin) / runs as f64
}

/// Measures all cases in turn; each round begins with another case.
pub fn measure_all_cases(
    mut cases: Vec<MeasuredImplementation>,
    plan: MeasurementPlan,
) -> Vec<ImplementationMeasurement> {
    cases.retain(|case| !plan.ours || case.implementation.starts_with(OURS));
    let first: Vec<f64> = cases.iter_mut().map(|case| time_case(case, 1)).collect();
    let runs: Vec<usize> = first
        .iter()
        .map(|ns| (plan.sample_ns / ns.max(1.0)).clamp(1.0, 1e5) as usize)
        .collect();
    let longest = first.iter().copied().fold(plan.sample_ns, f64::max);
    let rounds = match (plan.max_ns / longest.max(1.0)) as usize {
        _ if plan.rounds < 3 => plan.rounds,
        fit => fit.clamp(3, plan.rounds),
    };
    let mut ways: Vec<ImplementationMeasurement> = cases
        .iter()
        .map(|case| ImplementationMeasurement {
            who: case.implementation.clone(),
            ns: Vec::new(),
        })
        .collect();
    for round in 0..rounds {
        for n in 0..cases.len() {
            let which = (round + n) % cases.len();
            let ns = time_case(&mut cases[which], runs[which]);
            ways[which].ns.push(ns);
        }
    }
    ways
}
