//! Witnesses that are made while they are sent.

use std::fs;

use serde_json::{json, Value};

use super::support::{call, Client, End, Node, Response, Scratch};

const WITNESS: &str = "debug_executionWitness";

fn of(response: &Response) -> Value {
    assert_eq!(response.end, End::Complete);
    let json: Value = serde_json::from_slice(&response.body).expect("JSON comes");
    assert_eq!(json["id"], 1);
    json["result"].clone()
}

fn ask(node: &Node, target: &str, method: &str) -> Response {
    node.post(target, &call("1", method, "[\"latest\"]"))
}

#[test]
fn the_same_witness_however_it_is_delivered() {
    let node = Node::start(&["--witness", "900k"]);
    let whole = ask(&node, "/", WITNESS);
    let witness = of(&whole);
    for list in ["state", "codes", "keys", "headers"] {
        let items = witness[list].as_array().unwrap();
        assert!(!items.is_empty(), "{list}");
        assert!(items
            .iter()
            .all(|item| item.as_str().unwrap().starts_with("0x")));
    }
    assert!((900_000..960_000).contains(&whole.body.len()));
    let length = whole.header("content-length").unwrap();
    assert_eq!(length, whole.body.len().to_string());
    for target in [
        "/?framing=chunked",
        "/?framing=chunked&piece=1000",
        "/?piece=100000&pause_ms=1",
        "/?framing=close",
        "/?witness=900k",
    ] {
        let response = ask(&node, target, WITNESS);
        assert!(response.body == whole.body, "{target}");
    }
    let coded = ask(&node, "/?gzip=always", WITNESS);
    assert!(coded.gunzipped().unwrap() == whole.body);
    let chunked = ask(&node, "/?framing=chunked&piece=1000", WITNESS).chunks;
    assert!(chunked[..chunked.len() - 1]
        .iter()
        .all(|size| *size == 1000));
}

#[test]
fn the_size_is_asked_for() {
    let node = Node::start(&["--witness", "1"]);
    let least = ask(&node, "/", WITNESS).body.len();
    let larger = ask(&node, "/?witness=5M", WITNESS).body.len();
    assert!(least < 60_000 && (5_000_000..5_060_000).contains(&larger));
    assert_eq!(ask(&node, "/?witness=9G", WITNESS).status, 400);
}

#[test]
fn with_a_payload_in_rlp() {
    let node = Node::start(&["--witness", "100k"]);
    let with = of(&ask(&node, "/", "engine_newPayloadWithWitnessV4"));
    let without = of(&ask(&node, "/", "engine_newPayloadV4"));
    assert_eq!(
        (&with["status"], &without["status"]),
        (&json!("VALID"), &json!("VALID"))
    );
    assert_eq!(with["latestValidHash"], without["latestValidHash"]);
    assert!(
        with["witness"].as_str().unwrap().starts_with("0xf9")
            || with["witness"].as_str().unwrap().starts_with("0xfa")
    );
    assert_eq!(without.get("witness"), None);
    let stats = node.stats();
    assert_eq!(stats["methods"]["engine_newPayloadWithWitnessV4"], 1);
    assert_eq!(stats["methods"]["engine_newPayloadV4"], 1);
}

#[test]
fn faults_of_witnesses() {
    let node = Node::start(&["--witness", "600k"]);
    let whole = ask(&node, "/", WITNESS).body;
    let cut = ask(&node, "/?cut=300000", WITNESS);
    assert_eq!(cut.header("content-length"), Some(whole.len().to_string()));
    assert!(cut.body == whole[..300_000] && cut.end == End::Closed);
    let reset = ask(
        &node,
        "/?framing=chunked&piece=65536&cut=400000&reset=1",
        WITNESS,
    );
    assert!(whole.starts_with(&reset.body));
    let short = ask(&node, "/?truncate=1000", WITNESS);
    assert!(short.body == whole[..1000] && short.end == End::Complete);
    let corrupt = ask(&node, "/?corrupt=5000", WITNESS).body;
    assert_eq!((corrupt[5000], corrupt.len()), (0xff, whole.len()));
}

#[test]
fn recordings_come_first_and_batches_have_them() {
    let folder = Scratch::new();
    let request = call("1", WITNESS, "[\"0x1\"]");
    folder.write(
        "w.json",
        format!(r#"[{{"request":{request},"response":{{"id":1,"result":"recorded"}}}}]"#),
    );
    let node = Node::on(&["--witness", "1k", folder.path()]);
    assert_eq!(of(&node.post("/", &request)), "recorded");
    let made = of(&ask(&node, "/", WITNESS));
    let one = call("1", WITNESS, "[\"latest\"]");
    let batch = node.post("/", &format!("[{one},{one}]"));
    let batch: Value = serde_json::from_slice(&batch.body).unwrap();
    for member in batch.as_array().unwrap() {
        assert!(member["result"] == made);
    }
    assert_eq!(node.stats()["methods"][WITNESS], 4);
}

#[test]
fn without_the_option_there_are_none() {
    let node = Node::start(&[]);
    let error: Value = serde_json::from_slice(&ask(&node, "/", WITNESS).body).unwrap();
    assert_eq!(error["error"]["code"], -32601);
}

/// The most that was resident, in bytes.
fn peak(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let mut words = status
        .split_whitespace()
        .skip_while(|word| *word != "VmHWM:");
    let kib = words.nth(1).and_then(|kib| kib.parse::<usize>().ok());
    kib.expect("it has a peak") << 10
}

#[test]
fn a_large_one_is_never_held() {
    let folder = Scratch::new();
    let path = folder.0.join("node.sock");
    let listen = format!("unix:{}", path.display());
    let node = Node::start(&["--witness", "60M", "--listen", &listen]);
    ask(&node, "/?witness=1k", WITNESS);
    let before = peak(node.pid());
    let over_tcp = ask(&node, "/", WITNESS);
    let over_unix =
        Client::unix(&path).post("/?framing=chunked", "", &call("1", WITNESS, "[\"latest\"]"));
    assert!(over_tcp.body.len() >= 60_000_000);
    assert!(over_tcp.body == over_unix.body);
    let more = peak(node.pid()) - before;
    assert!(more < 20_000_000, "{more} bytes");
}
