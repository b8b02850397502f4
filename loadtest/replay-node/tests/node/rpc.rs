//! JSON-RPC and GET over HTTP.

use super::support::{call, Node, ResponseEnd, TemporaryFolder};

#[test]
fn id_is_returned_in_the_notation_of_the_request() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let ids = [
        "1",
        "0",
        "-7",
        "1.50",
        "1E3",
        "9007199254740993",
        "123456789012345678901234567890",
        "null",
        "true",
        "\"\"",
        "\"a\\\"b\\\\c\\u0041\\/\"",
        "\"é 漢\"",
    ];
    for id in ids {
        let response = client.post("/", "", &call(id, "eth_chainId", "[]"));
        assert_eq!(response.status, 200);
        assert_eq!(
            response.header("content-type").as_deref(),
            Some("application/json")
        );
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"0x1"}}"#);
        assert_eq!(response.text(), expected);
    }
}

#[test]
fn large_response_differs_only_in_its_id() {
    let node = Node::on(&[]);
    let mut client = node.client();
    let mut post = |id| client.post("/", "", &call(id, "trace_block", r#"["0x14ffffe"]"#));
    let (one, other) = (post("1"), post("\"x\""));
    assert!(one.body.len() > 1_000_000);
    let expected = one.text().replacen("\"id\":1,", "\"id\":\"x\",", 1);
    assert!(other.text() == expected);
}

#[test]
fn rpc_error_has_status_200() {
    let node = Node::start(&[]);
    let cases = [
        ("{", -32700),
        ("[", -32700),
        ("\u{1}", -32700),
        ("[]", -32600),
        ("{}", -32600),
        ("\"x\"", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"eth_nothing"}"#, -32601),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[1]}"#,
            -32601,
        ),
    ];
    let mut client = node.client();
    for (body, code) in cases {
        let response = client.post("/", "", body);
        assert_eq!(response.status, 200, "{body}");
        let json: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(json["error"]["code"], code, "{body}");
        assert_eq!(json["jsonrpc"], "2.0");
    }
}

#[test]
fn batch_response_omits_notifications() {
    let node = Node::start(&[]);
    let mut client = node.client();
    let note = r#"{"jsonrpc":"2.0","method":"eth_chainId"}"#;
    let (one, two) = (
        call("1", "eth_chainId", "[]"),
        call("\"b\"", "net_version", "[]"),
    );
    let response = client.post("/", "", &format!("[{one},{note},{two}]"));
    let expected =
        r#"[{"jsonrpc":"2.0","id":1,"result":"0x1"},{"jsonrpc":"2.0","id":"b","result":"1"}]"#;
    assert_eq!(response.text(), expected);
    for body in [note.to_owned(), format!("[{note},{note}]")] {
        let response = client.post("/", "", &body);
        assert_eq!((response.status, response.text()), (200, ""));
    }

    // More members than the slices of one write.
    let many = vec![two; 500].join(",");
    let response = client.post("/", "", &format!("[{many}]"));
    let expected = vec![r#"{"jsonrpc":"2.0","id":"b","result":"1"}"#; 500].join(",");
    assert_eq!(response.text(), format!("[{expected}]"));
}

#[test]
fn lenient_node_responds_to_params_that_were_not_recorded() {
    let folder = TemporaryFolder::new();
    let pairs = r#"[{"request":{"method":"m","params":[1]},"response":{"id":1,"result":"first"}},
        {"request":{"method":"m","params":[2]},"response":{"id":1,"result":"second"}}]"#;
    folder.write("m/test_01.json", pairs);
    let (strict, lenient) = (
        Node::on(&[folder.path()]),
        Node::on(&["--lenient", folder.path()]),
    );
    let cases = [("[2]", "second", true), ("[3]", "first", false)];
    for (params, result, recorded) in cases {
        let expected = format!(r#"{{"id":1,"result":"{result}"}}"#);
        let body = call("1", "m", params);
        assert_eq!(lenient.post("/", &body).text(), expected);
        assert_eq!(strict.post("/", &body).text() == expected, recorded);
    }
    let unknown = lenient.post("/", &call("1", "n", "[]"));
    assert!(unknown.text().contains("-32601"));
}

#[test]
fn get_serves_pages_health_and_404() {
    let node = Node::start(&[]);
    let version = node.get("/eth/v1/node/version?other=1");
    assert_eq!(version.status, 200);
    assert!(version.text().starts_with("{\"data\":{\"version\":"));
    assert_eq!(node.get("/health").status, 200);
    assert_eq!(node.get("/").status, 200);
    assert_eq!(node.get("/eth/v1/nothing").status, 404);
    let put = node
        .client()
        .request("PUT", "/", "", &call("1", "eth_chainId", "[]"));
    assert_eq!(put.status, 405);
}

#[test]
fn head_has_the_length_of_get_and_no_body() {
    let node = Node::start(&[]);
    let path = "/eth/v1/beacon/states/head/validators";
    let mut client = node.client();
    let get = client.request("GET", path, "", "");
    assert!(get.body.len() > 20_000);
    // The next response on the connection proves that no body was sent.
    let head = client.request("HEAD", path, "", "");
    assert_eq!(head.header("content-length"), get.header("content-length"));
    let next = client.request("GET", path, "", "");
    assert!(next.body == get.body);
}

#[test]
fn invalid_option_is_refused_with_400() {
    let node = Node::start(&[]);
    let body = call("1", "eth_chainId", "[]");
    let unknown = node.post("/?framming=chunked", &body);
    assert_eq!(unknown.status, 400);
    assert!(unknown.text().contains("framming"));
    assert_eq!(node.post("/?piece=0", &body).status, 400);
    let page = node.get("/eth/v1/node/version?piece=0");
    assert_eq!(page.status, 400);
    let mut client = node.client();
    let header = client.post("/", "X-Replay: nothing=1\r\n", &body);
    assert_eq!(header.status, 400);
    let header = client.post("/", "X-Replay: status=418&framing=chunked\r\n", &body);
    assert_eq!(
        (header.status, header.chunks.len(), header.end),
        (418, 1, ResponseEnd::Complete)
    );
}
