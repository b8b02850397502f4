//! The cache as a host drives it, against a model: any requests, answers,
//! aborts and pauses, in any order, of several callers at several chains.
//!
//! The node puts into each answer all that it depends on and when it was made,
//! and the model keeps what the node has said in a map from exactly that. What
//! a client gets must be in there under the client's own name.

use proptest::prelude::*;

mod check;
mod node;
mod steps;
mod world;

use steps::{step, Answer, Caller, Outcome, Question, Step};
use world::World;

fn run(policy: &'static str, steps: &[Step]) {
    let mut world = World::new(policy);
    for step in steps {
        world.take(step);
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn nobody_gets_what_the_node_did_not_say_to_him(
        policy in prop::sample::select(vec!["bypass", "ignore", "key"]),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        run(policy, &steps);
    }
}

/// What answers depend on was learnt while some waited under a key that did
/// not say it: the next leader's answer is its own.
#[test]
fn what_is_learnt_meanwhile_parts_those_who_wait() {
    let ask = |call, origin| Step::Ask {
        caller: Caller {
            chain: 1,
            user: None,
            origin: Some(origin),
        },
        question: Question::Single(call),
        form: 0,
        gzip: false,
        waits: true,
        bypass: false,
    };
    let whole = Answer {
        declared: true,
        reversed: false,
        piece: 1 << 20,
        outcome: Outcome::Whole,
    };
    run(
        "bypass",
        &[
            ask(1, 0),
            ask(1, 1),
            ask(1, 0),
            ask(0, 0),
            Step::Answer(1, whole),
            Step::Leave(0),
            Step::Answer(0, whole),
            Step::Sent(0),
            Step::Sent(0),
        ],
    );
}
