//! Witnesses that are generated while they are sent.

use std::fs;

use serde_json::{json, Value};

use super::support::{call, Client, Node, Response, ResponseEnd, TemporaryFolder};

const WITNESS: &str = "debug_executionWitness";

fn result_of(response: &Response) -> Value {
    assert_eq!(response.end, ResponseEnd::Complete);
    let json: Value = serde_json::from_slice(&response.body).expect("JSON comes");
    assert_eq!(json["id"], 1);
    json["result"].clone()
}

fn send(node: &Node, target: &str, method: &str) -> Response {
    node.post(target, &call("1", method, "[\"latest\"]"))
}

#[test]
fn witness_is_equal_in_every_framing_and_coding() {
    let node = Node::start(&["--witness", "900k"]);
    let whole = send(&node, "/", WITNESS);
    let witness = result_of(&whole);
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
        let response = send(&node, target, WITNESS);
        assert!(response.body == whole.body, "{target}");
    }
    let coded = send(&node, "/?gzip=always", WITNESS);
    assert!(coded.gunzipped().unwrap() == whole.body);
    let chunked = send(&node, "/?framing=chunked&piece=1000", WITNESS).chunks;
    assert!(chunked[..chunked.len() - 1]
        .iter()
        .all(|size| *size == 1000));
}

#[test]
fn witness_option_sets_the_size_of_one_witness() {
    let node = Node::start(&["--witness", "1"]);
    let least = send(&node, "/", WITNESS).body.len();
    let larger = send(&node, "/?witness=5M", WITNESS).body.len();
    assert!(least < 60_000 && (5_000_000..5_060_000).contains(&larger));
    assert_eq!(send(&node, "/?witness=9G", WITNESS).status, 400);
}

#[test]
fn new_payload_with_witness_returns_the_witness_in_rlp() {
    let node = Node::start(&["--witness", "100k"]);
    let with = result_of(&send(&node, "/", "engine_newPayloadWithWitnessV4"));
    let without = result_of(&send(&node, "/", "engine_newPayloadV4"));
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
fn witness_is_cut_reset_truncated_and_corrupted_by_options() {
    let node = Node::start(&["--witness", "600k"]);
    let whole = send(&node, "/", WITNESS).body;
    let cut = send(&node, "/?cut=300000", WITNESS);
    assert_eq!(cut.header("content-length"), Some(whole.len().to_string()));
    assert!(cut.body == whole[..300_000] && cut.end == ResponseEnd::Closed);
    let reset = send(
        &node,
        "/?framing=chunked&piece=65536&cut=400000&reset=1",
        WITNESS,
    );
    assert!(whole.starts_with(&reset.body));
    let short = send(&node, "/?truncate=1000", WITNESS);
    assert!(short.body == whole[..1000] && short.end == ResponseEnd::Complete);
    let corrupt = send(&node, "/?corrupt=5000", WITNESS).body;
    assert_eq!((corrupt[5000], corrupt.len()), (0xff, whole.len()));
}

const ROUTE: &str = "/engine/v1/payloads/witness";
const PAYLOAD: &str = "Content-Type: application/octet-stream\r\nEth-Execution-Version: osaka\r\n";

fn submit(node: &Node, target: &str, fields: &str) -> Response {
    node.client()
        .post(target, &[PAYLOAD, fields].concat(), "payload")
}

/// Returns the lists of a witness in SSZ, which follow the status.
fn lists(ssz: &[u8]) -> [Vec<Vec<u8>>; 3] {
    let number = |ssz: &[u8], at: usize| {
        u32::from_le_bytes(ssz[at..at + 4].try_into().expect("four bytes")) as usize
    };
    let witness = &ssz[number(ssz, 4) + 4..];
    let begins = [0, 4, 8].map(|at| number(witness, at));
    let ends = [begins[1], begins[2], witness.len()];
    [0, 1, 2].map(|at| {
        let list = &witness[begins[at]..ends[at]];
        let count = number(list, 0) / 4;
        let mut offsets: Vec<usize> = (0..count).map(|n| number(list, 4 * n)).collect();
        offsets.push(list.len());
        let items = offsets
            .windows(2)
            .map(|pair| list[pair[0]..pair[1]].to_vec());
        items.collect()
    })
}

#[test]
fn rest_route_returns_the_witness_in_ssz_and_json() {
    let node = Node::start(&["--witness", "300k"]);
    let object = result_of(&send(&node, "/", WITNESS));
    let ssz = submit(&node, ROUTE, "");
    assert_eq!((ssz.status, ssz.end), (200, ResponseEnd::Complete));
    let of_type = |response: &Response| response.header("content-type").unwrap();
    assert_eq!(of_type(&ssz), "application/octet-stream");
    let length = ssz.body.len().to_string();
    assert_eq!(ssz.header("content-length"), Some(length));
    // the status with its hash, and no error
    assert_eq!(&ssz.body[..8], [8, 0, 0, 0, 49, 0, 0, 0]);
    for (name, list) in ["state", "codes", "headers"].iter().zip(lists(&ssz.body)) {
        let items = list
            .iter()
            .map(|item| format!("0x{}", hex::encode(item)).into());
        assert_eq!(object[name], Value::Array(items.collect()), "{name}");
    }
    for (fields, target) in [
        ("Accept: application/json\r\n", ROUTE),
        ("", "/key/engine/v1/payloads/witness?as=json"),
    ] {
        let json = submit(&node, target, fields);
        assert_eq!(of_type(&json), "application/json");
        let json: Value = serde_json::from_slice(&json.body).unwrap();
        assert_eq!(json["payloadStatus"]["status"], "VALID");
        assert_eq!(json["witness"]["state"], object["state"]);
    }
    for target in [
        "?framing=chunked",
        "?framing=chunked&piece=999",
        "?framing=close",
        "?piece=9999&pause_ms=0",
    ] {
        assert!(
            submit(&node, &[ROUTE, target].concat(), "").body == ssz.body,
            "{target}"
        );
    }
    let coded = submit(
        &node,
        &[ROUTE, "?gzip=on"].concat(),
        "Accept-Encoding: gzip\r\n",
    );
    assert!(coded.gunzipped().unwrap() == ssz.body);
    let counts = &node.stats()["publishes"];
    assert_eq!(
        counts[ROUTE],
        json!({"json": 0, "ssz": 7, "repeated": 6, "refused": 0})
    );
    assert_eq!(counts["/key/engine/v1/payloads/witness"]["ssz"], 1);
    assert_eq!(node.get(&["/published", ROUTE].concat()).text(), "payload");
}

#[test]
fn rest_route_applies_the_delivery_options() {
    let node = Node::start(&[
        "--witness",
        "600k",
        "--for",
        "payloads/witness:header=X-Of:route",
    ]);
    let at = |options: &str| submit(&node, &[ROUTE, "?", options].concat(), "");
    let whole = at("").body;
    assert_eq!(at("").header("x-of").as_deref(), Some("route"));
    let cut = at("cut=200000");
    assert_eq!(cut.header("content-length"), Some(whole.len().to_string()));
    assert!(cut.body == whole[..200_000] && cut.end == ResponseEnd::Closed);
    assert!(whole.starts_with(&at("framing=chunked&piece=65536&cut=200000&reset=1").body));
    assert!(at("truncate=1000").body == whole[..1000]);
    assert_eq!(at("corrupt=12").body[12], 0xff);
    assert_eq!(at("length_off=5").end, ResponseEnd::Closed);
    assert_eq!(at("error=503").header("content-type").unwrap(), "text/html");
    for (status, name) in [
        (400, "invalid-request"),
        (404, "method-not-found"),
        (422, "invalid-body"),
        (503, "internal"),
    ] {
        is_problem(&at(&format!("refuse={status}")), status, name);
    }
    let lost = submit_raw(&node, "?lost=on");
    assert!(lost.is_empty());
}

fn submit_raw(node: &Node, options: &str) -> Vec<u8> {
    let mut client = node.client();
    client.send_request("POST", &[ROUTE, options].concat(), PAYLOAD, "payload");
    client.rest()
}

fn is_problem(response: &Response, status: u16, name: &str) {
    assert_eq!(response.status, status);
    assert_eq!(
        response.header("content-type").expect("it has a type"),
        "application/problem+json"
    );
    let problem: Value = serde_json::from_slice(&response.body).expect("JSON comes");
    assert_eq!(
        problem,
        json!({"type": format!("/engine-api/errors/{name}")})
    );
}

#[test]
fn invalid_payload_submission_is_refused() {
    let node = Node::start(&["--witness", "1k"]);
    let ssz = "Content-Type: application/octet-stream\r\n";
    let json = "Content-Type: application/json\r\n";
    let fork = "Eth-Execution-Version: paris\r\n";
    for (fields, body, status, name) in [
        (fork.to_owned(), "x", 415, "unsupported-media-type"),
        (
            [fork, "Content-Type: text/plain\r\n"].concat(),
            "x",
            415,
            "unsupported-media-type",
        ),
        (
            [fork, ssz, "Content-Encoding: gzip\r\n"].concat(),
            "x",
            415,
            "unsupported-media-type",
        ),
        (ssz.to_owned(), "x", 400, "unsupported-fork"),
        ([fork, ssz].concat(), "", 400, "ssz-decode-error"),
        ([fork, json].concat(), "{", 400, "parse-error"),
        (
            [fork, ssz, "Accept: text/html\r\n"].concat(),
            "x",
            406,
            "not-acceptable",
        ),
    ] {
        is_problem(&node.client().post(ROUTE, &fields, body), status, name);
    }
    assert_eq!(
        node.client()
            .post(ROUTE, &[fork, json].concat(), "{}")
            .status,
        200
    );
    is_problem(
        &submit(&Node::start(&[]), ROUTE, ""),
        404,
        "method-not-found",
    );
}

#[test]
fn recorded_witness_precedes_generated_ones_in_calls_and_batches() {
    let folder = TemporaryFolder::new();
    let request = call("1", WITNESS, "[\"0x1\"]");
    folder.write(
        "w.json",
        format!(r#"[{{"request":{request},"response":{{"id":1,"result":"recorded"}}}}]"#),
    );
    let node = Node::on(&["--witness", "1k", folder.path()]);
    assert_eq!(result_of(&node.post("/", &request)), "recorded");
    let made = result_of(&send(&node, "/", WITNESS));
    let one = call("1", WITNESS, "[\"latest\"]");
    let batch = node.post("/", &format!("[{one},{one}]"));
    let batch: Value = serde_json::from_slice(&batch.body).unwrap();
    for member in batch.as_array().unwrap() {
        assert!(member["result"] == made);
    }
    assert_eq!(node.stats()["methods"][WITNESS], 4);
}

#[test]
fn witness_method_is_unknown_without_the_option() {
    let node = Node::start(&[]);
    let error: Value = serde_json::from_slice(&send(&node, "/", WITNESS).body).unwrap();
    assert_eq!(error["error"]["code"], -32601);
}

/// Returns the peak resident memory of a process, in bytes.
fn peak(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let mut words = status
        .split_whitespace()
        .skip_while(|word| *word != "VmHWM:");
    let kib = words.nth(1).and_then(|kib| kib.parse::<usize>().ok());
    kib.expect("it has a peak") << 10
}

#[test]
fn large_witness_is_not_buffered() {
    let folder = TemporaryFolder::new();
    let path = folder.0.join("node.sock");
    let listen = format!("unix:{}", path.display());
    let node = Node::start(&["--witness", "60M", "--listen", &listen]);
    send(&node, "/?witness=1k", WITNESS);
    let before = peak(node.pid());
    let over_tcp = send(&node, "/", WITNESS);
    let over_unix =
        Client::unix(&path).post("/?framing=chunked", "", &call("1", WITNESS, "[\"latest\"]"));
    assert!(over_tcp.body.len() >= 60_000_000);
    assert!(over_tcp.body == over_unix.body);
    drop((over_tcp, over_unix));
    let fields = PAYLOAD.to_owned();
    let over_rest = Client::unix(&path).post(ROUTE, &fields, "payload");
    assert!(over_rest.body.len() >= 25_000_000);
    assert!(over_rest.body == submit(&node, &[ROUTE, "?framing=chunked"].concat(), "").body);
    let more = peak(node.pid()) - before;
    assert!(more < 20_000_000, "{more} bytes");
}
