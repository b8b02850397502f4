//! Two sandboxes query one owner by callouts that overtake each other, are lost, or receive
//! foreign responses, while there are purges, new heads and reorganisations. Each entry that they
//! receive was valid when the lookup began, and no client waits without an end.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod daemon;
mod world;

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use self::world::{Step, World};

fn step() -> impl Strategy<Value = Step> {
    let vm = 0..2usize;
    let which = any::<usize>();
    prop_oneof![
        20 => (vm.clone(), 0..4u8).prop_map(|(vm, key)| Step::Want(vm, key)),
        1 => vm.clone().prop_map(Step::WantAll),
        2 => (vm.clone(), which).prop_map(|(vm, which)| Step::Leave(vm, which)),
        30 => which.prop_map(Step::Deliver),
        30 => which.prop_map(Step::Reply),
        1 => which.prop_map(Step::Lose),
        1 => which.prop_map(Step::Silence),
        1 => which.prop_map(Step::Garbage),
        15 => (vm, which, 0..16u8).prop_map(|(vm, which, how)| Step::NodeAnswers(vm, which, how)),
        2 => (0..5u8).prop_map(Step::Purge),
        2 => Just(Step::Head),
        2 => (0..4u64).prop_map(Step::Reorg),
        4 => prop_oneof![4 => 1..10u64, 1 => 100..2_000u64].prop_map(Step::Pass),
        1 => any::<bool>().prop_map(Step::Restart),
    ]
}

proptest! {
    #[test]
    fn received_entries_were_valid_when_the_lookup_began(
        steps in prop::collection::vec(step(), 0..200)
    ) {
        let mut world = World::new();
        for step in steps {
            world.act(step);
        }
        world.end();
    }
}

/// Checks that the sequences reach the code under test: without sharing they would find no fault.
#[test]
fn sequences_share_entries_between_sandboxes() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut shared, mut from_others) = (0, 0);
    for _ in 0..200 {
        let steps = prop::collection::vec(step(), 200).new_tree(&mut runner);
        let mut world = World::new();
        for step in steps.unwrap().current() {
            world.act(step);
        }
        world.end();
        shared += world.shared;
        from_others += world.from_others;
    }
    assert!(shared > 500 && from_others > 150, "{shared} {from_others}");
}
