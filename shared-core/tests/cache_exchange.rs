//! The cache as a host drives it, against a model: any requests, answers,
//! aborts and pauses, in any order, of several callers at several chains.
//!
//! The node puts into each answer all that it depends on and when it was made,
//! and the model keeps what the node has said in a map from exactly that. What
//! a client gets must be in there under the client's own name.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::value::RawValue;
use serde_json::{json, Value};
use sszip_core::cache::process::wake::{EventLoop, Queue};
use sszip_core::cache::process::Process;
use sszip_core::config::{Config, Directives};
use sszip_core::exchange::drive::{BodyLength, Need};
use sszip_core::exchange::transitions::State;
use sszip_core::exchange::{
    Asked, EndAction, Exchange, Fill, HeadAction, LookUp, PieceAction, RequestHead, ResponseHead,
};
use sszip_core::gzip::stream::Flush;

mod support;
use support::gunzip;

/// Methods, their params as two callers write the same, and for how many
/// milliseconds an answer is good; 0: never for another.
const CALLS: [(&str, [&str; 2], u64); 7] = [
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

const IDS: [&str; 6] = [
    "1",
    "null",
    "1.5",
    r#""a""#,
    r#""\u0061\n""#,
    "9007199254740993",
];

/// What the node's answers depend on besides the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Caller {
    /// 0: same for all; 1: says that it varies on Origin; 2: does not say it.
    chain: usize,
    user: Option<u8>,
    origin: Option<u8>,
}

#[derive(Clone, Debug)]
enum Question {
    Single(usize),
    Batch(Vec<usize>),
}

#[derive(Clone, Debug)]
enum Step {
    Ask {
        caller: Caller,
        question: Question,
        /// How it is written, and which id it begins with.
        form: usize,
        gzip: bool,
        waits: bool,
        bypass: bool,
    },
    /// The node answers one of those that ask it.
    Answer(usize, Answer),
    /// All of an answer has gone to its client.
    Sent(usize),
    /// A client leaves.
    Leave(usize),
    /// One has waited long enough.
    Impatient(usize),
    Pause(u64),
}

#[derive(Clone, Copy, Debug)]
struct Answer {
    declared: bool,
    reversed: bool,
    /// Pieces are of so many bytes.
    piece: usize,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Whole,
    Error,
    NotKept,
    Status(u16),
    Cut,
}

fn step() -> impl Strategy<Value = Step> {
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
    let question = prop_oneof![
        3 => (0..CALLS.len()).prop_map(Question::Single),
        1 => prop::collection::vec(0..CALLS.len(), 1..5).prop_map(Question::Batch),
    ];
    let ask = (
        caller,
        question,
        0usize..12,
        any::<bool>(),
        prop::bool::weighted(0.8),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(caller, question, form, gzip, waits, bypass)| Step::Ask {
            caller,
            question,
            form,
            gzip,
            waits,
            bypass,
        });
    let outcome = prop_oneof![
        10 => Just(Outcome::Whole),
        1 => Just(Outcome::Error),
        1 => Just(Outcome::NotKept),
        1 => prop::sample::select(vec![500u16, 429, 204]).prop_map(Outcome::Status),
        1 => Just(Outcome::Cut),
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
        6 => ask,
        5 => (any::<usize>(), answer).prop_map(|(n, answer)| Step::Answer(n, answer)),
        5 => any::<usize>().prop_map(Step::Sent),
        1 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::Impatient),
        2 => prop::sample::select(vec![1u64, 400, 999, 1500, 5000]).prop_map(Step::Pause),
    ]
}

struct Open {
    number: usize,
    caller: Caller,
    calls: Vec<usize>,
    ids: Vec<String>,
    body: Vec<u8>,
    /// What the node gets.
    forwarded: Vec<u8>,
    is_batch: bool,
    gzip: bool,
    bypass: bool,
    asked_at: u64,
    dispatched_at: u64,
    exchange: Exchange,
    waits: bool,
}

/// What the node said, and when it was asked that.
type Said = BTreeMap<(usize, Caller), Vec<(u64, String)>>;

struct World {
    config: Arc<Config>,
    process: Process,
    woken: Arc<Queue>,
    policy: &'static str,
    now: u64,
    count: usize,
    open: Vec<Open>,
    unsent: Vec<(Exchange, Box<Fill>)>,
    said: Said,
    /// The newest that was sent of what was stored, to browsers and others.
    seen: BTreeMap<(usize, Caller, bool), u64>,
}

impl World {
    fn new(policy: &'static str) -> Self {
        let mut directives = Directives::default();
        for (name, value) in [
            ("enable", "on"),
            ("cache", "on"),
            ("min_length", "200"),
            ("hold", "1k"),
            ("cache_credentials", policy),
            ("batch_max", "4"),
        ] {
            directives.set(name, &[value.as_bytes()]).unwrap();
        }
        let process = Process::default();
        let woken = Arc::new(Queue::default());
        process.shared.event_loop(woken.clone());
        process.shared.start(4 << 20, 4 << 20, 1);
        Self {
            config: Arc::new(directives.resolve(process.clone())),
            process,
            woken,
            policy,
            now: 10_000,
            count: 0,
            open: Vec::new(),
            unsent: Vec::new(),
            said: Said::new(),
            seen: BTreeMap::new(),
        }
    }

    /// What the node tells apart.
    fn told_apart(&self, caller: Caller) -> Caller {
        Caller {
            user: caller.user.filter(|_| self.policy != "ignore"),
            origin: caller.origin.filter(|_| caller.chain > 0),
            ..caller
        }
    }

    fn ask(
        &mut self,
        caller: Caller,
        question: &Question,
        form: usize,
        gzip: bool,
        waits: bool,
        bypass: bool,
    ) {
        let (calls, is_batch) = match question {
            Question::Single(call) => (vec![*call], false),
            Question::Batch(calls) => (calls.clone(), true),
        };
        let ids: Vec<String> = (0..calls.len())
            .map(|n| IDS[(form / 2 + n) % IDS.len()].into())
            .collect();
        let texts: Vec<String> = calls
            .iter()
            .zip(&ids)
            .map(|(call, id)| {
                let (method, params, _) = CALLS[*call];
                let params = params[form % 2];
                if form.is_multiple_of(2) {
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
                } else {
                    format!(r#" {{ "params": {params},"method":"{method}", "id" : {id},"jsonrpc":"2.0" }}"#)
                }
            })
            .collect();
        let body = if is_batch {
            format!("[{}]", texts.join(" ,"))
        } else {
            texts[0].clone()
        };
        let mut fields: Vec<(&[u8], Vec<u8>)> = vec![
            (b"Content-Type", b"application/json".to_vec()),
            (b"Host", b"here".to_vec()),
        ];
        if gzip {
            fields.push((b"accept-encoding", b"gzip".to_vec()));
        }
        if let Some(user) = caller.user {
            fields.push((b"authorization", vec![b'u', user]));
        }
        if let Some(origin) = caller.origin {
            fields.push((b"ORIGIN", vec![b'o', b'0' + origin]));
        }
        let mut exchange = Exchange::new(Arc::clone(&self.config));
        exchange
            .request_head(RequestHead {
                method: b"POST",
                target: b"/",
                fields: fields.iter().map(|(name, value)| (*name, &value[..])),
            })
            .unwrap();
        let looks = exchange.need(BodyLength::Unknown) != Need::Nothing;
        assert_eq!(looks, caller.user.is_none() || self.policy != "bypass");
        self.count += 1;
        let mut open = Open {
            number: self.count,
            caller,
            calls,
            ids,
            forwarded: body.clone().into_bytes(),
            body: body.into_bytes(),
            is_batch,
            gzip,
            bypass,
            asked_at: self.now,
            dispatched_at: self.now,
            exchange,
            waits: false,
        };
        if looks {
            let waiter = waits.then_some(self.count);
            self.look_up(open, waiter);
        } else {
            open.dispatched_at = self.now;
            self.open.push(open);
        }
    }

    fn look_up(&mut self, mut open: Open, waiter: Option<usize>) {
        let namespace = format!("chain {}", open.caller.chain);
        let place = open.caller.chain.to_string();
        let found = open
            .exchange
            .look_up(Asked {
                namespace: (open.caller.chain != 2).then_some(namespace.as_bytes()),
                place: place.as_bytes(),
                host: b"here",
                port: 8545,
                body: &open.body,
                now: self.now,
                coding_allowed: true,
                whole: false,
                filters: false,
                host_writes_vary: false,
                forwards_codings: false,
                waiter: waiter.map(|id| EventLoop::default().waiter(id)),
                bypass: open.bypass,
            })
            .unwrap();
        open.dispatched_at = self.now;
        match found {
            LookUp::Respond | LookUp::RespondOffLoop => {
                if found == LookUp::RespondOffLoop {
                    open.exchange.code().unwrap();
                }
                let body: Vec<u8> = open.exchange.body().flatten().copied().collect();
                assert!(!open.bypass);
                self.check_hit(&open, body);
            }
            LookUp::Wait => {
                assert!(waiter.is_some() && !open.waits);
                open.waits = true;
                self.open.push(open);
            }
            LookUp::Forward => {
                open.waits = false;
                self.open.push(open);
            }
            LookUp::ForwardRewritten => {
                open.waits = false;
                open.forwarded = open.exchange.request_body().to_vec();
                self.open.push(open);
            }
        }
    }

    fn check_hit(&mut self, open: &Open, body: Vec<u8>) {
        let edit = |name: &str| {
            open.exchange
                .head_edits()
                .iter()
                .find(|edit| edit.name.eq_ignore_ascii_case(name))
                .and_then(|edit| edit.value.as_deref().map(<[u8]>::to_vec))
        };
        assert_eq!(
            edit("Content-Length"),
            Some(body.len().to_string().into_bytes())
        );
        assert_eq!(edit("Content-Type"), Some(b"application/json".to_vec()));
        let coded = edit("Content-Encoding").is_some();
        assert!(open.gzip || !coded);
        let allowed = match open.caller {
            Caller {
                chain: 1 | 2,
                origin: Some(origin),
                ..
            } => Some(vec![b'o', b'0' + origin]),
            _ => None,
        };
        assert_eq!(
            edit("Access-Control-Allow-Origin"),
            allowed,
            "{:?}",
            open.caller
        );
        let body = if coded { gunzip(&body).unwrap() } else { body };
        self.check_body(open, &body, true);
    }

    /// Whether the client got its own answers, under its ids, in its order.
    fn check_body(&mut self, open: &Open, body: &[u8], stored: bool) {
        let text = std::str::from_utf8(body).unwrap();
        let answers: Vec<&str> = if open.is_batch {
            let answers: Vec<&RawValue> = serde_json::from_str(text).unwrap();
            answers.into_iter().map(RawValue::get).collect()
        } else {
            // one that came in a batch had no end of line of its own
            vec![text.trim_end()]
        };
        assert_eq!(answers.len(), open.calls.len(), "{text}");
        let whole = self.told_apart(open.caller);
        for ((answer, call), id) in answers.iter().zip(&open.calls).zip(&open.ids) {
            let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"#);
            let result = answer
                .strip_prefix(&head)
                .and_then(|rest| rest.strip_suffix('}'))
                .and_then(|rest| match rest.strip_prefix(r#""result":"#) {
                    // who waits shares an error, too
                    None if open.waits => rest.strip_prefix(r#""error":"#),
                    result => result,
                })
                .unwrap_or_else(|| panic!("{answer} under {id}"));
            let key = (*call, whole);
            let (asked_at, _) = *self
                .said
                .get(&key)
                .and_then(|said| said.iter().find(|(_, text)| text == result))
                .as_ref()
                .unwrap_or_else(|| panic!("the node did not say {result:.200} to {key:?}"));
            if stored && open.asked_at == self.now && !open.waits {
                let good = CALLS[*call].2;
                assert!(
                    asked_at + good > self.now,
                    "asked at {asked_at}, sent at {}: {result:.200}",
                    self.now
                );
                let seen = self
                    .seen
                    .entry((key.0, key.1, open.caller.origin.is_some()))
                    .or_default();
                assert!(*seen <= *asked_at, "back from {seen} to {asked_at}");
                *seen = *asked_at;
            }
        }
    }

    /// The node's answer, up to where the client has all of it but the end.
    fn answer(&mut self, n: usize, how: Answer) {
        let asking: Vec<usize> = (0..self.open.len())
            .filter(|n| !self.open[*n].waits)
            .collect();
        if asking.is_empty() {
            return;
        }
        let mut open = self.open.remove(asking[n % asking.len()]);
        let (body, fields) = self.node(&open, how);
        let (status, kept) = match how.outcome {
            Outcome::Status(status) => (status, false),
            outcome => (200, outcome != Outcome::NotKept),
        };
        let mut fields: Vec<(&[u8], &[u8])> =
            fields.iter().map(|(n, v)| (n.as_bytes(), &v[..])).collect();
        if !kept {
            fields.push((b"Set-Cookie", b"a=b"));
        }
        let action = open
            .exchange
            .response_head(ResponseHead {
                status,
                content_length: how.declared.then_some(body.len() as u64),
                fields: fields.into_iter(),
                delimited: true,
                unbuffered: false,
                subrequest: false,
                coding_allowed: true,
                host_writes_vary: false,
                now: 0,
            })
            .unwrap();
        let pieces = match how.outcome {
            Outcome::Cut => &body[..body.len() / 2],
            _ => &body[..],
        };
        let Some(received) = through(
            &mut open.exchange,
            action,
            pieces,
            how.piece,
            how.outcome == Outcome::Cut,
        ) else {
            return;
        };
        let coded =
            open.exchange.head_edits().iter().any(|edit| {
                edit.name == "Content-Encoding" && edit.value.as_deref() == Some(b"gzip")
            });
        assert!(open.gzip || !coded);
        let received = if coded {
            gunzip(&received).unwrap()
        } else {
            received
        };
        if how.outcome == Outcome::Whole && open.forwarded != b"[]" {
            self.check_body_of_node(&open, &received);
        } else if status == 200 && !open.is_batch {
            assert_eq!(received, body);
        }
        if let Some(fill) = open.exchange.take_fill() {
            assert!(kept);
            self.unsent.push((open.exchange, fill));
        }
    }

    fn check_body_of_node(&mut self, open: &Open, received: &[u8]) {
        if open.is_batch && open.exchange.request_body().is_empty() {
            // the node's own order is the node's affair
            let mut answers: Vec<&RawValue> = serde_json::from_slice(received).unwrap();
            answers.sort_by_key(|answer| {
                let id = open
                    .ids
                    .iter()
                    .position(|id| answer.get().contains(&format!(r#""id":{id},"#)));
                id.unwrap()
            });
            let text = serde_json::to_vec(&answers).unwrap();
            self.check_body(open, &text, false);
        } else {
            self.check_body(open, received, false);
        }
    }

    /// What the node says to what it was asked.
    fn node(&mut self, open: &Open, how: Answer) -> (Vec<u8>, Vec<(&'static str, Vec<u8>)>) {
        let caller = self.told_apart(open.caller);
        let forwarded: &RawValue = serde_json::from_slice(&open.forwarded).unwrap();
        let calls: Vec<&RawValue> = if open.is_batch {
            serde_json::from_str(forwarded.get()).unwrap()
        } else {
            vec![forwarded]
        };
        self.count += 1;
        let mut answers = Vec::new();
        for asked in calls {
            let members: BTreeMap<&str, &RawValue> = serde_json::from_str(asked.get()).unwrap();
            let id = members["id"].get();
            // the same call may be in a batch twice: any of the two will do
            let at = open.ids.iter().position(|own| own == id).unwrap();
            let call = open.calls[at];
            let asked: Value =
                serde_json::from_str(&members["params"].get().to_ascii_lowercase()).unwrap();
            let own: Value = serde_json::from_str(&CALLS[call].1[0].to_ascii_lowercase()).unwrap();
            assert_eq!(
                (members["method"].get().trim_matches('"'), asked),
                (CALLS[call].0, own)
            );
            let filler = "x".repeat([0, 50, 3000][self.count % 3]);
            let result = json!([
                CALLS[call].0,
                call,
                caller.chain,
                caller.user,
                caller.origin,
                self.count,
                filler
            ])
            .to_string();
            let mut say = |text: &str| {
                let said = self.said.entry((call, caller)).or_default();
                said.push((open.dispatched_at, text.to_owned()));
            };
            answers.push(if how.outcome == Outcome::Error {
                let error = format!(r#"{{"code":1,"message":{result}}}"#);
                say(&error);
                format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
            } else {
                if how.outcome == Outcome::Whole {
                    say(&result);
                }
                format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
            });
        }
        if how.reversed {
            answers.reverse();
        }
        let body = if open.is_batch {
            format!("[{}]\n", answers.join(","))
        } else {
            answers[0].clone() + "\n"
        };
        let mut fields = vec![("Content-Type", b"application/json".to_vec())];
        if let (1 | 2, Some(origin)) = (caller.chain, caller.origin) {
            fields.push(("Access-Control-Allow-Origin", vec![b'o', b'0' + origin]));
        }
        if caller.chain == 1 {
            fields.push(("Vary", b"Origin".to_vec()));
        }
        (body.into_bytes(), fields)
    }

    fn wake(&mut self) {
        while let Some(waiter) = self.woken.next() {
            let at = self.open.iter().position(|open| open.number == waiter);
            let open = self.open.remove(at.expect("who is woken is there"));
            assert!(open.waits);
            self.look_up(open, None);
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Ask {
                caller,
                question,
                form,
                gzip,
                waits,
                bypass,
            } => {
                self.ask(*caller, question, *form, *gzip, *waits, *bypass);
            }
            Step::Answer(n, how) => self.answer(*n, *how),
            Step::Sent(n) => {
                if !self.unsent.is_empty() {
                    let (_exchange, mut fill) = self.unsent.remove(n % self.unsent.len());
                    fill.build();
                    fill.publish(self.now);
                }
            }
            Step::Leave(n) => {
                if !self.open.is_empty() {
                    drop(self.open.remove(n % self.open.len()));
                }
            }
            Step::Impatient(n) => {
                let waiting: Vec<usize> = (0..self.open.len())
                    .filter(|n| self.open[*n].waits)
                    .collect();
                if !waiting.is_empty() {
                    let open = self.open.remove(waiting[n % waiting.len()]);
                    self.look_up(open, None);
                }
            }
            Step::Pause(milliseconds) => self.now += milliseconds,
        }
        self.wake();
    }

    /// Everybody is answered, and nothing is left.
    fn finish(mut self) {
        for _ in 0..10_000 {
            if self.open.is_empty() && self.unsent.is_empty() {
                break;
            }
            let whole = Answer {
                declared: true,
                reversed: false,
                piece: 1 << 20,
                outcome: Outcome::Whole,
            };
            self.take(&Step::Answer(0, whole));
            self.take(&Step::Sent(0));
        }
        assert!(self.open.is_empty(), "{} wait for ever", self.open.len());
        assert!(self.process.shared.flights.is_empty());
        assert_eq!(self.process.budget.used(), 0);
    }
}

/// What the client gets of an answer in pieces; `None`: it is cut or broken
/// off.
fn through(
    exchange: &mut Exchange,
    action: HeadAction,
    body: &[u8],
    size: usize,
    cut: bool,
) -> Option<Vec<u8>> {
    let mut action = action;
    let mut received = Vec::new();
    for piece in body.chunks(size) {
        if action == HeadAction::Hold {
            match exchange.piece(piece).unwrap() {
                PieceAction::Taken => continue,
                PieceAction::Stream => action = HeadAction::Stream,
                PieceAction::GiveUp => {
                    received.extend(exchange.body().flatten());
                    action = HeadAction::Pass;
                }
            }
        }
        match action {
            HeadAction::Tee => exchange.observe(piece).unwrap(),
            HeadAction::Stream => stream(exchange, piece, Flush::None, &mut received),
            HeadAction::Pass | HeadAction::Hold => {}
        }
        if action != HeadAction::Stream {
            received.extend_from_slice(piece);
        }
    }
    if cut {
        if exchange.state() != State::Passing {
            exchange.cut_short().unwrap();
        }
        assert!(exchange.take_fill().is_none() || action == HeadAction::Tee);
        return None;
    }
    match action {
        HeadAction::Hold => match exchange.end().unwrap() {
            EndAction::Code { .. } => {
                exchange.code().unwrap();
                received.extend(exchange.body().flatten());
            }
            EndAction::Stream => stream(exchange, b"", Flush::Finish, &mut received),
            EndAction::Send => received.extend(exchange.body().flatten()),
            EndAction::Fail => return None,
        },
        HeadAction::Stream => stream(exchange, b"", Flush::Finish, &mut received),
        HeadAction::Pass | HeadAction::Tee => {}
    }
    Some(received)
}

fn stream(exchange: &mut Exchange, mut piece: &[u8], flush: Flush, received: &mut Vec<u8>) {
    loop {
        let mut output = [0; 4096];
        let progress = exchange.stream(piece, flush, &mut output).unwrap();
        received.extend_from_slice(&output[..progress.written]);
        piece = &piece[progress.consumed..];
        if progress.complete {
            return;
        }
    }
}

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
