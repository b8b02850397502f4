//! Publishes: whether they are accepted, and how they are counted.

use serde_json::{json, Value};

use super::support::{call, Node, Response};

const BLOCKS: &str = "/eth/v2/beacon/blocks";
const POOL: &str = "/eth/v1/beacon/pool/voluntary_exits";
const SSZ: &str = "\x01\0\0\0\0\0\0\0\x03\x02\0\0\0\0\0\0";
const OF_JSON: &str = "Content-Type: application/json; charset=utf-8\r\n";
const OF_SSZ: &str = "Content-Type: application/octet-stream\r\n";
const FORK: &str = "Eth-Consensus-Version: electra\r\n";

fn publish(node: &Node, target: &str, headers: &str, body: &str) -> Response {
    node.client().post(target, headers, body)
}

fn counts(json: u64, ssz: u64, repeated: u64, refused: u64) -> Value {
    json!({"json": json, "ssz": ssz, "repeated": repeated, "refused": refused})
}

#[test]
fn publish_is_accepted_in_the_formats_of_the_node() {
    for (forms, json, ssz) in [("json", 200, 415), ("ssz", 415, 200), ("both", 200, 200)] {
        let node = Node::start(&["--beacon", forms]);
        let of_json = publish(&node, BLOCKS, &[FORK, OF_JSON].concat(), "{}");
        let of_ssz = publish(&node, BLOCKS, &[FORK, OF_SSZ].concat(), SSZ);
        assert_eq!((of_json.status, of_ssz.status), (json, ssz), "{forms}");
        for response in [of_json, of_ssz] {
            if response.status == 200 {
                assert_eq!(response.text(), "");
            } else {
                let error: Value = serde_json::from_str(response.text()).unwrap();
                assert_eq!(error["code"], 415);
            }
        }
        let taken = |status: u16| u64::from(status == 200);
        let refused = 2 - taken(json) - taken(ssz);
        let expected = counts(taken(json), taken(ssz), 0, refused);
        assert_eq!(node.stats()["publishes"], json!({ BLOCKS: expected }));
    }
}

#[test]
fn invalid_publish_is_refused_and_counted() {
    let node = Node::start(&[]);
    let cases = [
        (BLOCKS, OF_SSZ.to_owned(), SSZ, 400),
        (BLOCKS, [FORK, OF_SSZ].concat(), "", 400),
        (BLOCKS, [FORK, OF_JSON].concat(), "{", 400),
        (BLOCKS, FORK.to_owned(), "{}", 415),
        (
            BLOCKS,
            format!("{FORK}Content-Type: text/plain\r\n"),
            "{}",
            415,
        ),
        (
            BLOCKS,
            format!("{FORK}{OF_JSON}Content-Encoding: gzip\r\n"),
            "{}",
            415,
        ),
        (POOL, OF_JSON.to_owned(), "{}", 200),
    ];
    for (path, headers, body, status) in cases {
        let response = publish(&node, path, &headers, body);
        assert_eq!(response.status, status, "{headers} {body}");
    }
    let expected = json!({BLOCKS: counts(0, 0, 0, 6), POOL: counts(1, 0, 0, 0)});
    assert_eq!(node.stats()["publishes"], expected);
    // A JSON-RPC call to such a path is still a call.
    assert_eq!(
        node.post("/eth/", &call("1", "eth_chainId", "[]")).status,
        200
    );
    assert_eq!(node.stats()["methods"]["eth_chainId"], 1);
}

#[test]
fn accepted_publish_is_counted_even_if_its_response_is_lost() {
    let node = Node::start(&[]);
    let headers = [FORK, OF_SSZ].concat();
    for fault in ["lost=on", "lost=on&reset=on"] {
        let mut client = node.client();
        client.send_request("POST", &format!("{BLOCKS}?{fault}"), &headers, SSZ);
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(publish(&node, BLOCKS, &headers, SSZ).status, 200);
    assert_eq!(publish(&node, BLOCKS, &headers, "other").status, 200);
    assert_eq!(node.stats()["publishes"][BLOCKS], counts(0, 4, 2, 0));
}

#[test]
fn publish_refused_by_an_option_is_not_accepted() {
    let node = Node::start(&[]);
    let headers = [FORK, OF_SSZ].concat();
    for fault in ["refuse=415", "refuse=503", "error=502"] {
        let response = publish(&node, &format!("{BLOCKS}?{fault}"), &headers, SSZ);
        assert_eq!(response.status.to_string(), fault[fault.len() - 3..]);
    }
    let taken = publish(&node, &format!("{BLOCKS}?status=202"), &headers, SSZ);
    assert_eq!(taken.status, 202);
    assert_eq!(node.stats()["publishes"][BLOCKS], counts(0, 1, 0, 3));
}

#[test]
fn last_accepted_publish_is_returned_unchanged() {
    let node = Node::start(&[]);
    let published = format!("/published{BLOCKS}");
    assert_eq!(node.get(&published).status, 404);
    publish(&node, BLOCKS, &[FORK, OF_JSON].concat(), "{\"a\": 1}");
    publish(&node, BLOCKS, &[FORK, OF_SSZ].concat(), SSZ);
    publish(&node, BLOCKS, OF_SSZ, "refused");
    let last = node.get(&published);
    assert_eq!(last.text(), SSZ);
    let of = |name: &str| last.header(name).unwrap_or_default();
    assert_eq!(of("content-type"), "application/octet-stream");
    assert_eq!(of("eth-consensus-version"), "electra");
    // A GET of it is not counted.
    assert_eq!(node.stats()["requests"], 3);
}

#[test]
fn large_publish_is_accepted() {
    let node = Node::start(&[]);
    let body = "x".repeat(6 << 20);
    let response = publish(&node, BLOCKS, &[FORK, OF_SSZ].concat(), &body);
    assert_eq!(response.status, 200);
    assert!(node.get(&format!("/published{BLOCKS}")).text() == body);
}
