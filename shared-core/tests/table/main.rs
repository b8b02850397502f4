//! The parity table (`tests/cases`) on the core, run by hosts in memory that do what the theory
//! of operation specifies and nothing else: one request after the other, on several event loops
//! of one process, and in a sandbox that reaches its owner by callouts.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

use sszip_core::cache::process::ProcessResources;

mod block_anchors;
mod callout_host;
#[path = "../support/callout_owner.rs"]
mod callout_owner;
mod cases;
mod coalescing;
#[path = "../support/driver_host.rs"]
mod driver_host;
mod event_loops;
mod fields;
mod host;
#[path = "../support/memory_store.rs"]
mod memory_store;
mod owner;
mod sequences;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/unzstd.rs"]
mod unzstd;

use callout_host::CalloutHost;
use event_loops::{EventLoopsHost, HostOptions};
use host::SequentialHost;
use owner::OwnerReplies;

fn assert_no_failures(failures: &[String]) {
    let many = failures.len();
    assert!(many == 0, "{many} failures:\n{}", failures.join("\n"));
}

#[test]
fn case_holds_for_each_division_of_its_body() {
    let cases = cases::load_cases();
    let is_whole = std::env::var_os("SSZIP_ROW").is_none();
    assert!(
        !is_whole || cases.len() > 100,
        "only {} cases were found",
        cases.len()
    );
    let mut failures = Vec::new();
    for case in &cases {
        for division in cases::DIVISIONS {
            if let Err(problem) = cases::run_case(
                case,
                division,
                &SequentialHost,
                &ProcessResources::default(),
            ) {
                failures.push(format!("{} ({division:?}): {problem}", case.name));
            }
        }
    }
    assert_no_failures(&failures);
}

#[test]
fn sequence_holds_for_each_division_of_its_bodies() {
    let mut failures = Vec::new();
    for sequence in &sequences::load_sequences() {
        for division in sequences::DIVISIONS {
            let process = ProcessResources::default();
            process.shared.start_hot_tier(16 << 20, 16 << 20, 1);
            if let Err(problem) =
                sequences::run_sequence(sequence, division, &SequentialHost, &process, "0")
            {
                failures.push(format!(
                    "{} (pieces of {division}): {problem}",
                    sequence.name
                ));
            }
        }
    }
    assert_no_failures(&failures);
}

#[test]
fn table_holds_on_several_event_loops() {
    for replies in [OwnerReplies::Later, OwnerReplies::Direct] {
        let host = EventLoopsHost::new(HostOptions {
            event_loops: 4,
            memory: Some(256 << 20),
            owner: Some(replies),
        });
        assert_no_failures(&run_concurrently(&host, &[]));
    }
}

/// The host has an owner, but no hot tier and no timers.
#[test]
fn table_holds_without_a_hot_tier_and_without_timers() {
    let host = EventLoopsHost::new(HostOptions {
        event_loops: 1,
        memory: None,
        owner: Some(OwnerReplies::Later),
    });
    assert_no_failures(&run_concurrently(&host, &IN_MEMORY));
}

/// The host reaches its owner by callouts.
#[test]
fn table_holds_when_the_owner_is_reached_by_callouts() {
    assert_no_failures(&run_with_callouts(Some(64 << 20), &[]));
}

/// All entries come from the owner.
#[test]
fn table_holds_with_callouts_and_without_a_hot_tier() {
    assert_no_failures(&run_with_callouts(None, &IN_MEMORY));
}

/// Runs the whole table on hosts that reach their owners by callouts, and returns the rows that
/// fail, and the rows of `without` that hold.
fn run_with_callouts(memory: Option<u64>, without: &[&str]) -> Vec<String> {
    let mut failures = Vec::new();
    for case in &cases::load_cases() {
        for division in cases::DIVISIONS {
            let host = CalloutHost::new(memory);
            if let Err(problem) = cases::run_case(case, division, &host, &host.process) {
                failures.push(format!("{} ({division:?}): {problem}", case.name));
            }
        }
    }
    for sequence in &sequences::load_sequences() {
        let holds = !without.contains(&&*sequence.name);
        for division in sequences::DIVISIONS {
            let host = CalloutHost::new(memory);
            let run = sequences::run_sequence(sequence, division, &host, &host.process, "0");
            let name = &sequence.name;
            match (run, holds) {
                (Err(problem), true) => failures.push(format!("{name} ({division}): {problem}")),
                (Ok(()), false) => failures.push(format!("{name} ({division}) holds")),
                _ => {}
            }
        }
    }
    failures
}

/// Sequences about properties that only memory keeps: expired entries, validators of the node,
/// and the change that precedes an entry; and sequences about entries that are looked up in
/// memory only, as ranges are.
const IN_MEMORY: [&str; 11] = [
    "cache: a GET that is stale is revalidated",
    "cache: an expired answer stands in for an error that use_stale names",
    "get: a 304 may say what an answer varies on from now on",
    "get: a POST changes what it names, unless it is a call",
    "get: a range of what is stored is all of it, and one of what is not the node's",
    "get: an error of the node is answered with what has expired",
    "get: but not where the node says that it must be revalidated",
    "get: what a successful request has changed is out of date",
    "get: what is revalidated for a client that has it is stored",
    "ssz: the head of what is stored",
    "zstd: the head of a stored resource names the coding and no length that is not known",
];

/// Runs the whole table with concurrent clients, and returns the rows that fail, and the rows of
/// `without` that hold.
fn run_concurrently(host: &EventLoopsHost, without: &[&str]) -> Vec<String> {
    let (cases, sequences) = (cases::load_cases(), sequences::load_sequences());
    /// A row to run, as a function of the row's number.
    type Work<'a> = Box<dyn Fn(usize) -> Result<(), String> + Send + Sync + 'a>;
    let mut work: Vec<(String, bool, Work<'_>)> = Vec::new();
    for case in &cases {
        for division in cases::DIVISIONS {
            let run = move |_| {
                // other clients would take a part of the memory that the case is about
                let own = case.config.contains_key("memory");
                let process = if own {
                    ProcessResources::default()
                } else {
                    host.process.clone()
                };
                cases::run_case(case, division, host, &process)
            };
            work.push((format!("{} ({division:?})", case.name), true, Box::new(run)));
        }
    }
    for sequence in &sequences {
        let holds = !without.contains(&&*sequence.name);
        for division in sequences::DIVISIONS {
            let run = move |number: usize| {
                let place = number.to_string();
                // a wrong chain removes entries of other clients from memory
                let process = if sequence.name.starts_with("wrong chain:") {
                    let process = ProcessResources::default();
                    process.shared.start_hot_tier(16 << 20, 16 << 20, 1);
                    process
                } else {
                    host.process.clone()
                };
                sequences::run_sequence(sequence, division, host, &process, &place)
            };
            let name = format!("{} (pieces of {division})", sequence.name);
            work.push((name, holds, Box::new(run)));
        }
    }
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some((name, holds, run)) = work.get(number) else {
                    return;
                };
                let failure = match (run(number), holds) {
                    (Err(problem), true) => format!("{name}: {problem}"),
                    (Ok(()), false) => format!("{name} holds"),
                    _ => continue,
                };
                failures.lock().unwrap().push(failure);
            });
        }
    });
    failures.into_inner().unwrap()
}
