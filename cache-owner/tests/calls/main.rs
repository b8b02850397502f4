//! Two sandboxes reach one owner by callouts that overtake each other, are lost, or receive foreign
//! responses, while there are purges, new heads and reorganisations. No entry is sent after the
//! completion of a purge that covers it; each entry of the owner was valid when its lookup began, and
//! each entry in memory when the send lease was granted; and no client waits without an end.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "../../../shared-core/tests/support/callout_owner.rs"]
mod callout_owner;
#[path = "../../../shared-core/tests/support/memory_store.rs"]
mod memory_store;
mod world;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use self::world::{Coverage, SimulatedWorld, WorldStep};

fn step() -> impl Strategy<Value = WorldStep> {
    let vm = 0..2usize;
    let which = any::<usize>();
    prop_oneof![
        20 => (vm.clone(), 0..4u8).prop_map(|(vm, key)| WorldStep::Want(vm, key)),
        2 => vm.clone().prop_map(WorldStep::WantAll),
        8 => (vm.clone(), 0..4u8).prop_map(|(vm, key)| WorldStep::Evict(vm, key)),
        2 => (vm.clone(), which).prop_map(|(vm, which)| WorldStep::Leave(vm, which)),
        45 => which.prop_map(WorldStep::Deliver),
        45 => which.prop_map(WorldStep::Reply),
        1 => which.prop_map(WorldStep::Lose),
        1 => which.prop_map(WorldStep::Silence),
        1 => which.prop_map(WorldStep::Garbage),
        15 => (vm.clone(), which, 0..16u8).prop_map(|(vm, which, how)| WorldStep::NodeAnswers(vm, which, how)),
        3 => (0..5u8).prop_map(WorldStep::Purge),
        1 => vm.prop_map(WorldStep::PurgeByClient),
        2 => Just(WorldStep::Head),
        2 => (0..4u64).prop_map(WorldStep::Reorg),
        4 => prop_oneof![4 => 1..10u64, 1 => 100..2_000u64].prop_map(WorldStep::Pass),
        1 => any::<bool>().prop_map(WorldStep::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
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
        all.push(world.coverage);
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
