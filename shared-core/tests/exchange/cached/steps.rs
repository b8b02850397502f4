//! The steps of the model.

use proptest::prelude::*;

/// Methods, their params in the notations of two callers, and the milliseconds for which a
/// response is fresh; 0 if it is not stored.
pub const CALLS: [(&str, [&str; 2], u64); 7] = [
    ("eth_chainId", ["[]", " [ ]"], 3_600_000),
    (
        "eth_getBlockByHash",
        [
            r#"["0xabababababababababababababababababababababababababababababababab",true]"#,
            r#"[ "0xABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABABAB" , true ]"#,
        ],
        3_600_000,
    ),
    (
        "eth_getLogs",
        [
            r#"[{"fromBlock":"0x1","toBlock":"0x2","topics":[["0xa","0xb"]]}]"#,
            r#"[{"topics":[["0xa","0xb"]],"toBlock":"0x2","fromBlock":"0x1"}]"#,
        ],
        2_000,
    ),
    (
        "eth_getLogs",
        [
            r#"[{"fromBlock":"0x1","toBlock":"0x2","topics":["0xa","0xb"]}]"#,
            r#"[{"topics":["0xa","0xb"],"toBlock":"0x2","fromBlock":"0x1"}]"#,
        ],
        2_000,
    ),
    ("eth_blockNumber", ["[]", "[]"], 1_000),
    (
        "eth_call",
        [
            r#"[{"to":"0xaa"},"latest"]"#,
            r#"[{"to":"0xaa"} ,"latest"]"#,
        ],
        1_000,
    ),
    ("eth_syncing", ["[]", "[]"], 0),
];

pub const IDS: [&str; 6] = [
    "1",
    "null",
    "1.5",
    r#""a""#,
    r#""\u0061\n""#,
    "9007199254740993",
];

/// The properties of a client that select the node's response, in addition to the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// 0: one response for all; 1: responses vary on Origin, with `Vary`; 2: the same, without
    /// `Vary`.
    pub chain: usize,
    pub user: Option<u8>,
    pub origin: Option<u8>,
}

#[derive(Clone, Debug)]
pub enum CallSequence {
    Single(usize),
    Batch(Vec<usize>),
}

#[derive(Clone, Debug)]
pub enum Step {
    Request {
        caller: Caller,
        calls: CallSequence,
        /// Notation of the calls, and index of the first id.
        form: usize,
        /// Codings that the client accepts.
        accepts: &'static str,
        waits: bool,
        bypass: bool,
    },
    /// The node responds to one of its requests.
    Answer(usize, Answer),
    /// The whole response has been sent to its client.
    Sent(usize),
    /// A client aborts its request.
    Leave(usize),
    /// A follower reaches its lock timeout.
    WaitTimeout(usize),
    Pause(u64),
}

#[derive(Clone, Copy, Debug)]
pub struct Answer {
    pub declared: bool,
    pub reversed: bool,
    /// Length of the pieces in bytes.
    pub piece: usize,
    pub outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    Complete,
    Error,
    NotStored,
    Status(u16),
    Truncated,
}

pub fn step() -> impl Strategy<Value = Step> {
    let caller = (
        0usize..3,
        prop::option::weighted(0.3, 0u8..2),
        prop::option::of(0u8..2),
    )
        .prop_map(|(chain, user, origin)| Caller {
            chain,
            user,
            origin,
        });
    let calls = prop_oneof![
        3 => (0..CALLS.len()).prop_map(CallSequence::Single),
        1 => prop::collection::vec(0..CALLS.len(), 1..5).prop_map(CallSequence::Batch),
    ];
    let request = (
        caller,
        calls,
        0usize..12,
        prop::sample::select(vec!["", "gzip", "zstd", "gzip, zstd"]),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.1),
    )
        .prop_map(
            |(caller, calls, form, accepts, waits, bypass)| Step::Request {
                caller,
                calls,
                form,
                accepts,
                waits,
                bypass,
            },
        );
    let outcome = prop_oneof![
        10 => Just(Outcome::Complete),
        1 => Just(Outcome::Error),
        1 => Just(Outcome::NotStored),
        1 => prop::sample::select(vec![500u16, 429, 204]).prop_map(Outcome::Status),
        1 => Just(Outcome::Truncated),
    ];
    let answer = (any::<bool>(), any::<bool>(), 1usize..5000, outcome).prop_map(
        |(declared, reversed, piece, outcome)| Answer {
            declared,
            reversed,
            piece,
            outcome,
        },
    );
    prop_oneof![
        6 => request,
        5 => (any::<usize>(), answer).prop_map(|(n, answer)| Step::Answer(n, answer)),
        5 => any::<usize>().prop_map(Step::Sent),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::WaitTimeout),
        2 => prop::sample::select(vec![1u64, 400, 999, 1500, 5000]).prop_map(Step::Pause),
    ]
}
