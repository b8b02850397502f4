//! Rounds of what is compared, one after the other: what else the machine does
//! meets all of them. CPU time of the thread is taken, since the machine may
//! have other tenants.

use rustix::time::{clock_gettime, ClockId};
use serde::Serialize;

/// What our own cases are called, or what their names begin with.
pub const OURS: &str = "sszip";

/// How often.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Each case once.
    pub rounds: usize,
    /// So much CPU time or more a sample, if more than one run fits. ns.
    pub sample: f64,
    /// All rounds of a case may take so much: there are fewer of long ones,
    /// but three. ns.
    pub most: f64,
    /// None of the peers: for a profile.
    pub ours: bool,
}

impl Plan {
    /// A figure that counts.
    pub const FULL: Self = Self {
        rounds: 15,
        sample: 20e6,
        most: 4e9,
        ours: false,
    };
    /// To see that everything runs.
    pub const QUICK: Self = Self {
        rounds: 1,
        sample: 0.0,
        most: 0.0,
        ours: false,
    };
}

/// One way to do something.
pub struct Case<'c> {
    /// Whose.
    pub who: String,
    /// Does it once.
    pub run: Box<dyn FnMut() + 'c>,
}

impl<'c> Case<'c> {
    /// `run`: what it gives is dropped within the time that is taken.
    pub fn new<T>(who: impl Into<String>, mut run: impl FnMut() -> T + 'c) -> Self {
        Self {
            who: who.into(),
            run: Box::new(move || {
                std::hint::black_box(run());
            }),
        }
    }
}

/// The same thing, done in several ways.
#[derive(Serialize)]
pub struct Group {
    /// The value: `SignedBeaconBlock`.
    pub value: String,
    /// `JSON to SSZ`.
    pub operation: &'static str,
    /// Of a state. 0: none.
    pub validators: usize,
    /// What it reads. Bytes.
    pub bytes_in: usize,
    /// Each way.
    pub ways: Vec<Way>,
}

/// What one way took.
#[derive(Serialize)]
pub struct Way {
    /// Whose.
    pub who: String,
    /// By round, of one run.
    pub ns: Vec<f64>,
}

/// CPU time of this thread, ns.
pub fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn time(case: &mut Case, runs: usize) -> f64 {
    let begin = cpu();
    for _ in 0..runs {
        (case.run)();
    }
    (cpu() - begin) / runs as f64
}

/// Runs all of them in turn, each round beginning with another one.
pub fn compare(mut cases: Vec<Case>, plan: Plan) -> Vec<Way> {
    cases.retain(|case| !plan.ours || case.who.starts_with(OURS));
    let first: Vec<f64> = cases.iter_mut().map(|case| time(case, 1)).collect();
    let runs: Vec<usize> = first
        .iter()
        .map(|ns| (plan.sample / ns.max(1.0)).clamp(1.0, 1e5) as usize)
        .collect();
    let longest = first.iter().copied().fold(plan.sample, f64::max);
    let rounds = match (plan.most / longest.max(1.0)) as usize {
        _ if plan.rounds < 3 => plan.rounds,
        fit => fit.clamp(3, plan.rounds),
    };
    let mut ways: Vec<Way> = cases
        .iter()
        .map(|case| Way {
            who: case.who.clone(),
            ns: Vec::new(),
        })
        .collect();
    for round in 0..rounds {
        for n in 0..cases.len() {
            let which = (round + n) % cases.len();
            let ns = time(&mut cases[which], runs[which]);
            ways[which].ns.push(ns);
        }
    }
    ways
}
