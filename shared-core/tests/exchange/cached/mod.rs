//! The cache as a host drives it, compared with a model: requests, responses, aborts and pauses
//! in any order, of several callers at several chains.
//!
//! The node writes into each response all that it depends on and when it was made, and the model
//! stores the node's responses in a map whose key is exactly that. The response of a client must
//! be in the map under the client's own key.

use proptest::prelude::*;

mod check;
mod node;
mod steps;
mod world;

use steps::{step, Answer, CallSequence, Caller, Outcome, Step};
use world::CacheModel;

use crate::tier::times;

fn run(policy: &'static str, steps: &[Step]) {
    let mut world = CacheModel::new(policy);
    for step in steps {
        world.apply(step);
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: times(150, 400), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn clients_receive_only_responses_that_the_node_made_for_them(
        policy in prop::sample::select(vec!["bypass", "ignore", "key"]),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        run(policy, &steps);
    }
}

/// The headers that responses depend on were recorded while followers waited under a key without
/// them: the next leader's response is its own.
#[test]
fn followers_are_separated_when_the_vary_table_changes_while_they_wait() {
    let request = |call, origin| Step::Request {
        caller: Caller {
            chain: 1,
            user: None,
            origin: Some(origin),
        },
        calls: CallSequence::Single(call),
        form: 0,
        accepts: "",
        waits: true,
        bypass: false,
    };
    let whole = Answer {
        declared: true,
        reversed: false,
        piece: 1 << 20,
        outcome: Outcome::Complete,
    };
    run(
        "bypass",
        &[
            request(1, 0),
            request(1, 1),
            request(1, 0),
            request(0, 0),
            Step::Answer(1, whole),
            Step::Leave(0),
            Step::Answer(0, whole),
            Step::Sent(0),
            Step::Sent(0),
        ],
    );
}
