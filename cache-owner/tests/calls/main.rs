//! Two sandboxes query one owner by callouts that overtake each other, are lost, or receive
//! foreign responses, while there are purges, new heads and reorganisations. Each entry that they
//! receive was valid when the lookup began, and no client waits without an end.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod daemon;
mod world;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use self::world::{SimulatedWorld, WorldStep};

fn step() -> impl Strategy<Value = WorldStep> {
    let vm = 0..2usize;
    let which = any::<usize>();
    prop_oneof![
        20 => (vm.clone(), 0..4u8).prop_map(|(vm, key)| WorldStep::Want(vm, key)),
        1 => vm.clone().prop_map(WorldStep::WantAll),
        2 => (vm.clone(), which).prop_map(|(vm, which)| WorldStep::Leave(vm, which)),
        30 => which.prop_map(WorldStep::Deliver),
        30 => which.prop_map(WorldStep::Reply),
        1 => which.prop_map(WorldStep::Lose),
        1 => which.prop_map(WorldStep::Silence),
        1 => which.prop_map(WorldStep::Garbage),
        15 => (vm, which, 0..16u8).prop_map(|(vm, which, how)| WorldStep::NodeAnswers(vm, which, how)),
        2 => (0..5u8).prop_map(WorldStep::Purge),
        2 => Just(WorldStep::Head),
        2 => (0..4u64).prop_map(WorldStep::Reorg),
        4 => prop_oneof![4 => 1..10u64, 1 => 100..2_000u64].prop_map(WorldStep::Pass),
        1 => any::<bool>().prop_map(WorldStep::Restart),
    ]
}

proptest! {
    #[test]
    fn received_entries_were_valid_when_the_lookup_began(
        steps in prop::collection::vec(step(), 0..200)
    ) {
        let mut world = SimulatedWorld::new();
        for step in steps {
            world.run_step(step);
        }
        world.finish_all();
    }
}

/// Checks that the sequences reach the code under test: without sharing they would find no fault.
#[test]
fn sequences_share_entries_between_sandboxes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut shared, mut from_others) = (0, 0);
    for _ in 0..200 {
        let steps = prop::collection::vec(step(), 200).new_tree(&mut runner);
        let mut world = SimulatedWorld::new();
        for step in steps.unwrap().current() {
            world.run_step(step);
        }
        world.finish_all();
        shared += world.shared;
        from_others += world.from_others;
    }
    assert!(shared > 500 && from_others > 150, "{shared} {from_others}");
}
