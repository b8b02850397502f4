//! Three machines share entries through one simulated server, while their nodes lag, are on other
//! branches or have another finality, and while there are purges, losses and restarts. Each
//! response is about a block of the chain that the responding machine's node has at that time, and
//! no acknowledged purge covers it.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "../../../shared-core/tests/support/memory_store.rs"]
mod memory_store;

mod blocks;
mod calls;
mod machine;
mod purges;
mod server;
mod world;

use std::thread;

use self::world::{Coverage, FinalityOfBranches, FleetWorld};

/// Number of sequences, and of the responses that the owners send in each.
const SEQUENCES: u64 = 1_000;
const RESPONSES: u64 = 200;

/// Runs the sequences of these seeds on all processors.
fn run_sequences(seeds: std::ops::Range<u64>, finality: FinalityOfBranches) -> Coverage {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let run = |first: u64| {
        let mut coverage = Coverage::default();
        for seed in seeds.clone().skip(first as usize).step_by(threads) {
            let mut world = FleetWorld::new(seed, finality);
            while world.coverage.responses < RESPONSES {
                world.run_step();
            }
            coverage.add(&world.coverage);
        }
        coverage
    };
    let mut all = Coverage::default();
    thread::scope(|scope| {
        let running: Vec<_> = (0..threads as u64)
            .map(|first| scope.spawn(move || run(first)))
            .collect();
        for one in running {
            all.add(&one.join().unwrap());
        }
    });
    all
}

/// The cases that the sequences must reach often enough: values that are used, by the class of the
/// writer, the anchor and the class of the reader, and the reasons for which others are not.
const CASES: [&str; 17] = [
    "final, no anchor",
    "final, anchor by result",
    "final for the writer only, anchor by result",
    "unfinalized, anchor by result",
    "anchor by request",
    "own memory",
    "replaced after the check",
    "unknown_chain",
    "other_chain",
    "not_final",
    "other_branch",
    "unknown_block",
    "purged",
    "rejected",
    "not stored: short lifetime",
    "confirmed purges",
    "restarts",
];

#[test]
fn responses_are_right_on_the_chain_of_the_machine_that_sends_them() {
    let all = run_sequences(0..SEQUENCES, FinalityOfBranches::Right);
    println!("{all:#?}");
    assert!(all.responses >= SEQUENCES * RESPONSES);
    assert_eq!(all.count_of("exempt"), 0);
    assert_eq!(all.count_of("reverted finality"), 0);
    // the sequences must leave enough that can go wrong
    for case in CASES {
        let count = all.count_of(case);
        assert!(count >= 100, "{case}: {count}");
    }
}

/// The node of one machine takes blocks of its branch as final, which the others never have. Values
/// that its machine has written are refused by readers that know the block, until the machine
/// purges them itself.
#[test]
fn wrong_finality_of_a_node_is_detected_by_the_anchors_of_values() {
    let all = run_sequences(0..SEQUENCES / 5, FinalityOfBranches::Wrong);
    println!("{all:#?}");
    for case in [
        "other_branch",
        "reverted finality",
        "final, anchor by result",
    ] {
        let count = all.count_of(case);
        assert!(count >= 100, "{case}: {count}");
    }
}
