//! Two sandboxes ask one owner by calls that cross, are lost, or are answered by
//! something else, while there are purges, new heads and reorganisations: whatever
//! they are given was right when they asked, and nobody waits for ever.

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
    fn what_is_given_was_right_when_it_was_asked_for(
        steps in prop::collection::vec(step(), 0..200)
    ) {
        let mut world = World::new();
        for step in steps {
            world.act(step);
        }
        world.end();
    }
}

/// What the sequences are to come across: they would find nothing otherwise.
#[test]
fn most_is_shared() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut shared, mut of_owner) = (0, 0);
    for _ in 0..200 {
        let steps = prop::collection::vec(step(), 200).new_tree(&mut runner);
        let mut world = World::new();
        for step in steps.unwrap().current() {
            world.act(step);
        }
        world.end();
        shared += world.shared;
        of_owner += world.of_others;
    }
    assert!(shared > 500 && of_owner > 150, "{shared} {of_owner}");
}
