//! Split log ranges, and logs that are selected from receipts, on a simulated chain.
//!
//! Nodes with different views of the chain are behind one route of several processes, each with
//! several event loops, which share an owner. Requests, responses, background requests, jobs, new
//! heads, reorganisations, purges and aborts occur in a random order that a seed determines. Each
//! response is the concatenation of the logs of final blocks and of one node's logs of the rest, byte
//! for byte, or the response of one node to the whole call, or the logs in the receipts that one node
//! has sent.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod blockchain;
#[path = "../support/callout_owner.rs"]
mod callout_owner;
mod check;
mod client_calls;
#[path = "../support/driver_host.rs"]
mod driver_host;
mod exchanges;
#[path = "../support/memory_store.rs"]
mod memory_store;
mod node_record;
mod nodes;
mod owner_network;
mod proxy_process;
mod random;
mod receipts;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/unzstd.rs"]
mod unzstd;
mod world;

use check::ResponseCounts;
use world::{LogWorld, REQUESTS};

/// Number of requests of `make test-all`, and of the other tiers.
const ALL_REQUESTS: u64 = 100_000;
const FEW_REQUESTS: u64 = 10_000;

/// Whether all requests are sent (tests/tiers.py).
fn is_thorough() -> bool {
    std::env::var("SSZIP_TIER").map_or(true, |tier| tier == "all")
}

/// Returns the seeds of the worlds: the first ones, or in `make test-all` those after `SSZIP_SEED`.
fn seeds() -> std::ops::Range<u64> {
    let first = std::env::var("SSZIP_SEED").ok();
    let first: u64 = first.and_then(|seed| seed.parse().ok()).unwrap_or(0);
    match is_thorough() {
        true => first..first + ALL_REQUESTS / REQUESTS,
        false => 0..FEW_REQUESTS / REQUESTS,
    }
}

/// Runs the worlds of these seeds, and returns the numbers of all responses.
fn run_worlds(seeds: impl Iterator<Item = u64>) -> ResponseCounts {
    let mut counts = ResponseCounts::default();
    for seed in seeds {
        // the output of a failed test shows it
        println!("seed {seed}");
        let world = match seed % 8 {
            7 => LogWorld::for_block_calls(seed),
            _ => LogWorld::new(seed),
        };
        counts += world.run();
    }
    counts
}

#[test]
fn responses_equal_the_chain_when_the_views_of_the_nodes_differ() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts = ResponseCounts::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || run_worlds(seeds().skip(first).step_by(threads))))
            .collect();
        for worker in workers {
            counts += worker.join().unwrap();
        }
    });
    println!("{counts:?}");
    // each kind of response occurs, or the test would show little
    let ResponseCounts {
        forwarded,
        whole,
        assembled,
        assembled_without_rest,
        assembled_in_batches,
        selected,
        piece_requests,
        ..
    } = counts;
    for count in [
        forwarded,
        whole,
        assembled,
        assembled_without_rest,
        assembled_in_batches,
        selected,
        piece_requests,
    ] {
        assert!(count > 0, "{counts:?}");
    }
    // a request that is never woken would wait for its timeout
    assert!(counts.timeouts * 100 < forwarded + whole, "{counts:?}");
}

/// The responses of a single honest node all arrive.
#[test]
fn final_pieces_are_fetched_once_when_nothing_fails() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut world = LogWorld::honest(seed);
        let count = world.final_piece_count();
        assert_eq!(world.request_final_pieces(0..count), count);
        assert_eq!(world.request_final_pieces(1..count - 1), 0);
    }
}

/// Requests that no node has received are no failure of the node, after which calls are not split.
#[test]
fn ranges_are_split_after_the_host_has_dropped_requests() {
    let mut world = LogWorld::honest(0);
    let count = world.final_piece_count();
    // the client's own call
    assert_eq!(world.request_without_background(count * world.piece - 1), 1);
    assert_eq!(world.request_final_pieces(1..count), count - 1);
}
