//! Memory that is refused while the response to a call for logs is assembled from the pieces of its
//! range, or from the receipts of its block: the client receives the node's logs, by one request of
//! its own if they can't be assembled, and no reservation, flight or waiting request is left.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "../support/batch_owner.rs"]
mod batch_owner;
mod host;
mod node;

use std::sync::{Mutex, PoisonError};

use sszip_core::allocator::{self, ReserveAllocator, MAX_RESERVE_ALLOCATION};
use sszip_core::cache::reason::Reason;
use sszip_core::memory;

use host::{Host, Refusals};
use node::{logs_of_block, logs_of_range, Node, FIRST_LONG_BLOCK};

#[global_allocator]
static ALLOCATOR: ReserveAllocator = ReserveAllocator;

/// Lock of the tests: a shortage concerns the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

const SPLIT: &str = "logs_split 10 concurrent=2";

/// First block of the first piece. All blocks of the three pieces are final.
const FIRST: u64 = FIRST_LONG_BLOCK + 60;

/// The call for three pieces.
fn wide_call() -> String {
    logs_of_range(FIRST, FIRST + 29)
}

/// The call for the first two of the pieces.
fn shorter_call() -> String {
    logs_of_range(FIRST, FIRST + 19)
}

/// Location of a call's pieces when the call is sent.
#[derive(Clone, Copy, Debug)]
enum StoredPieces {
    /// No piece is stored.
    None,
    /// The hot tier has two of them.
    Hot,
    /// The owner has two of them.
    AtOwner,
}

/// Creates a process that splits calls, with stored pieces.
fn splitting_host(node: &Node, stored: StoredPieces) -> Host<'_> {
    let host = Host::new(node, &[SPLIT]);
    if !matches!(stored, StoredPieces::None) {
        let response = host.send(&shorter_call(), &mut Refusals::none());
        assert_eq!((response.is_forwarded, response.piece_requests), (false, 2));
    }
    if let StoredPieces::AtOwner = stored {
        host.config.process.shared.hot_tier().unwrap().clear();
    }
    host
}

/// Sends a call while allocations of `min_length` bytes and more are refused, beginning at each
/// allocation in turn. Each time a new host receives the call.
fn refuse_each_allocation<'n>(
    min_length: usize,
    node: &Node,
    call: &str,
    new_host: impl Fn() -> Host<'n>,
) {
    let expected = node.respond(call.as_bytes());
    let mut forwarded = 0;
    for passed in 0.. {
        let host = new_host();
        let mut refusals = Refusals::new(min_length, passed);
        let response = host.send(call, &mut refusals);
        let counts = refusals.counts;
        // the node's response to a rewritten batch is not sent without memory for it
        let may_fail = call.starts_with('[');
        assert!(
            response.body == expected || response.is_failed && may_fail,
            "refused after {passed}"
        );
        assert_eq!(
            memory::is_memory_short(),
            counts.small > 0,
            "refused after {passed}"
        );
        assert!(allocator::has_memory_for_new_work(|| {}));
        assert!(
            matches!(response.reason, Reason::None | Reason::Memory),
            "refused after {passed}: {:?}",
            response.reason
        );
        host.assert_idle(0);
        // memory is available again, and its lack was no failure of the node
        let later = host.send(call, &mut Refusals::none());
        assert!(later.body == expected, "after a refusal after {passed}");
        assert!(!later.is_forwarded, "after a refusal after {passed}");
        host.assert_idle(0);
        forwarded += usize::from(response.is_forwarded);
        if counts.all == 0 {
            assert!(!response.is_forwarded);
            break;
        }
    }
    assert!(forwarded > 0, "no refusal has prevented the assembly");
}

#[test]
fn split_responses_are_right_when_long_allocations_are_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // assembled on the event loop, and by a job
    for log_length in [8_000, 16_000] {
        let node = Node { log_length };
        for stored in [StoredPieces::None, StoredPieces::Hot, StoredPieces::AtOwner] {
            println!("{stored:?}, logs of {log_length} bytes");
            refuse_each_allocation(MAX_RESERVE_ALLOCATION + 1, &node, &wide_call(), || {
                splitting_host(&node, stored)
            });
        }
    }
}

#[test]
fn split_responses_are_right_when_all_allocations_are_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let node = Node { log_length: 100 };
    for stored in [StoredPieces::None, StoredPieces::Hot, StoredPieces::AtOwner] {
        println!("{stored:?}");
        refuse_each_allocation(1, &node, &wide_call(), || splitting_host(&node, stored));
    }
}

#[test]
fn split_responses_of_batches_are_right_when_allocations_are_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let batch = format!("[{}]", wide_call());
    for (log_length, min_length) in [
        (100, 1),
        (8_000, MAX_RESERVE_ALLOCATION + 1),
        // assembled by a job
        (16_000, MAX_RESERVE_ALLOCATION + 1),
    ] {
        println!("logs of {log_length} bytes");
        let node = Node { log_length };
        refuse_each_allocation(min_length, &node, &batch, || {
            splitting_host(&node, StoredPieces::Hot)
        });
    }
}

#[test]
fn derived_logs_are_right_when_allocations_are_refused() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (log_length, min_length) in [
        (100, 1),
        (100_000, MAX_RESERVE_ALLOCATION + 1),
        // derived by a job
        (300_000, MAX_RESERVE_ALLOCATION + 1),
    ] {
        println!("logs of {log_length} bytes");
        let node = Node { log_length };
        refuse_each_allocation(min_length, &node, &logs_of_block(FIRST), || {
            Host::for_derivation(&node, FIRST, &[])
        });
    }
}

/// The join needs memory for the list, for its compressed form, and for one decoded piece.
#[test]
fn join_beyond_the_memory_limit_is_one_request_to_the_node() {
    const LIMIT: usize = 16 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for log_length in [2_000, 20_000] {
        let node = Node { log_length };
        let expected = node.respond(shorter_call().as_bytes());
        let length = expected.len();
        for (available, is_forwarded) in [(0, true), (2 * length, true), (6 * length, false)] {
            let host = Host::new(&node, &[SPLIT, "memory 16m"]);
            let wide = host.send(&wide_call(), &mut Refusals::none());
            assert_eq!((wide.is_forwarded, wide.piece_requests), (false, 3));
            let budget = &host.config.process.budget;
            let taken = budget.reserve_bytes(LIMIT - available, LIMIT).unwrap();
            let response = host.send(&shorter_call(), &mut Refusals::none());
            assert!(response.body == expected);
            assert_eq!(
                (response.is_forwarded, response.piece_requests),
                (is_forwarded, 0),
                "{available} bytes are available for {length}"
            );
            host.assert_idle(LIMIT - available);
            drop(taken);
            let later = host.send(&shorter_call(), &mut Refusals::none());
            assert!(later.body == expected && !later.is_forwarded);
            host.assert_idle(0);
        }
    }
}

#[test]
fn derivation_beyond_the_memory_limit_is_one_request_to_the_node() {
    const LIMIT: usize = 16 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for log_length in [2_000, 300_000] {
        let node = Node { log_length };
        let call = logs_of_block(FIRST);
        let expected = node.respond(call.as_bytes());
        let length = expected.len();
        for (available, is_forwarded) in [(0, true), (2 * length, true), (12 * length, false)] {
            let host = Host::for_derivation(&node, FIRST, &["memory 16m"]);
            let budget = &host.config.process.budget;
            let taken = budget.reserve_bytes(LIMIT - available, LIMIT).unwrap();
            let response = host.send(&call, &mut Refusals::none());
            assert!(response.body == expected);
            assert_eq!(
                response.is_forwarded, is_forwarded,
                "{available} bytes are available for {length}"
            );
            host.assert_idle(LIMIT - available);
            drop(taken);
            let later = host.send(&call, &mut Refusals::none());
            assert!(later.body == expected && !later.is_forwarded);
            host.assert_idle(0);
        }
    }
}

/// A lack of memory is no failure of the node, after which calls are not split.
#[test]
fn calls_are_split_after_a_piece_had_no_memory() {
    const LIMIT: usize = 1 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let node = Node { log_length: 2_000 };
    let host = Host::new(&node, &[SPLIT, "memory 1m"]);
    let budget = &host.config.process.budget;
    let taken = budget.reserve_bytes(LIMIT, LIMIT).unwrap();
    let refused = host.send(&wide_call(), &mut Refusals::none());
    assert_eq!(refused.body, node.respond(wide_call().as_bytes()));
    assert!(refused.is_forwarded);
    host.assert_idle(LIMIT);
    drop(taken);
    let later = host.send(&wide_call(), &mut Refusals::none());
    assert_eq!(later.body, refused.body);
    assert_eq!((later.is_forwarded, later.piece_requests), (false, 3));
}

/// The client's request keeps its fill, which stores the node's response.
#[test]
fn split_is_abandoned_when_memory_is_short_before_its_job() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let node = Node { log_length: 16_000 };
    let host = splitting_host(&node, StoredPieces::Hot);
    assert_eq!(host.take_split_counts(), [1, 0]);
    let response = host.send(&wide_call(), &mut Refusals::for_short_jobs());
    assert!(response.body == node.respond(wide_call().as_bytes()));
    assert_eq!((response.is_forwarded, response.piece_requests), (true, 1));
    assert_eq!(response.reason, Reason::Memory);
    assert_eq!(host.take_split_counts(), [0, 1]);
    host.assert_idle(0);
    let later = host.send(&wide_call(), &mut Refusals::none());
    assert!(later.body == response.body && !later.is_forwarded);
    assert_eq!(host.take_split_counts(), [0, 0]);
}

#[test]
fn assembled_entry_is_not_stored_when_memory_becomes_short_during_the_join() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let node = Node { log_length: 1_000 };
    let expected = node.respond(shorter_call().as_bytes());
    assert!(expected.len() < MAX_RESERVE_ALLOCATION);
    let host = splitting_host(&node, StoredPieces::None);
    host.send(&wide_call(), &mut Refusals::none());
    let stored = host.entry_count();
    host.take_split_counts();
    // the list is the first allocation of its length
    let response = host.send(&shorter_call(), &mut Refusals::new(expected.len(), 0));
    assert!(memory::is_memory_short());
    assert!(response.body == expected && response.is_forwarded);
    assert_eq!(response.reason, Reason::Memory);
    assert_eq!(host.entry_count(), stored);
    assert_eq!(host.take_split_counts(), [0, 1]);
    assert!(allocator::has_memory_for_new_work(|| {}));
    let later = host.send(&shorter_call(), &mut Refusals::none());
    assert!(later.body == expected && !later.is_forwarded);
    host.assert_idle(0);
}
