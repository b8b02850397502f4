//! Two sandboxes reach one owner by callouts that overtake each other, are lost, or receive foreign
//! responses, while there are purges, new heads and reorganisations. No entry is sent after the
//! completion of a purge that covers it; each entry of the owner was valid when its lookup began, and
//! each entry in memory when the send lease was granted; and no client waits without an end.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "../../../shared-core/tests/support/callout_owner.rs"]
mod callout_owner;
#[path = "../../../shared-core/tests/support/memory_store.rs"]
mod memory_store;
#[path = "../../../shared-core/tests/support/tier.rs"]
mod tier;

mod history;
mod keys;
mod network;
mod node_fetch;
mod sandbox;
mod steps;
mod world;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use self::history::Coverage;
use self::steps::{step, WorldStep};
use self::tier::times;
use self::world::SimulatedWorld;

/// Takes the item with this index, modulo the number of items; `None` if there is none.
fn take_nth<T>(from: &mut Vec<T>, which: usize) -> Option<T> {
    let at = which.checked_rem(from.len())?;
    Some(from.remove(at))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(times(500, 2_000)))]
    #[test]
    fn sent_entries_are_valid_whatever_happens_to_callouts(
        steps in prop::collection::vec(step(), 0..300)
    ) {
        let mut world = SimulatedWorld::new();
        for step in steps {
            world.run_step(step);
        }
        world.finish_all();
    }
}

/// Checks that the sequences reach the code under test, without which they would find no fault.
#[test]
fn sequences_share_entries_between_sandboxes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut all = Vec::new();
    for _ in 0..200 {
        let steps = prop::collection::vec(step(), 300).new_tree(&mut runner);
        let mut world = SimulatedWorld::new();
        for step in steps.unwrap().current() {
            world.run_step(step);
        }
        world.finish_all();
        all.push(world.coverage());
    }
    let count = |of: fn(&Coverage) -> usize| all.iter().map(of).sum::<usize>();
    let counts = [
        count(|of| of.from_memory),
        count(|of| of.from_flights),
        count(|of| of.from_own_lookups),
        count(|of| of.from_other_sandboxes),
        count(|of| of.after_purges),
        count(|of| of.purges_by_operator),
        count(|of| of.purges_by_clients),
        count(|of| of.long_entries),
    ];
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
}

/// The outage is longer than the time after which it is reported.
#[test]
fn session_requests_that_arrive_late_are_repeated_until_one_is_in_time() {
    let mut world = SimulatedWorld::new();
    world.run_step(WorldStep::LookUp(0, 0));
    for _ in 0..20 {
        world.run_step(WorldStep::Pass(300));
        world.run_step(WorldStep::Deliver(0));
        world.run_step(WorldStep::Reply(0));
        assert!(!world.has_session(0));
        world.run_step(WorldStep::Pass(20));
    }
    world.finish_all();
    assert!(world.has_session(0));
}
