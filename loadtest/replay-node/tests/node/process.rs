//! Arguments, listening addresses, signals.

use std::collections::BTreeMap;
use std::process::Command;

use super::support::{call, few_recordings, Client, Node, TemporaryFolder};

fn run(args: &[&str]) -> (bool, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_replay-node"))
        .args(args)
        .output()
        .expect("the node runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (
        output.status.success(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn signal_stops_the_node_after_the_current_response() {
    for signal in ["TERM", "INT"] {
        let mut node = Node::start(&[]);
        let mut idle = node.client();
        idle.post("/", "", &call("1", "eth_chainId", "[]"));
        let mut slow = node.client();
        slow.send_request(
            "POST",
            "/?piece=39&latency_ms=300",
            "",
            &call("1", "eth_chainId", "[]"),
        );
        let mut stalled = node.client();
        stalled.send_request("POST", "/?stall=1", "", &call("1", "eth_chainId", "[]"));
        stalled.head();
        node.await_stat("/in_flight", 2);
        let status = node.signal(signal);
        assert_eq!(status.code(), Some(0), "{signal}");
        // The response that could end was completed.
        let mut response = slow.head();
        slow.body(&mut response);
        assert!(response.text().contains("0x1"));
        assert_eq!(idle.rest(), b"");
    }
}

#[test]
fn node_listens_on_tcp_and_unix_sockets_and_removes_its_socket_file() {
    let folder = TemporaryFolder::new();
    let path = folder.0.join("node.sock");
    let listen = format!("unix:{}", path.display());
    // The socket file of a killed node is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let recordings = few_recordings();
    let args = [
        recordings.path(),
        "--listen",
        "127.0.0.1:0",
        "--listen",
        &listen,
        "--listen",
        "127.0.0.1:0",
        "--threads",
        "2",
    ];
    let mut node = Node::spawn(&args);
    let first = node.line();
    assert!(
        first.starts_with("listening on http://127.0.0.1:"),
        "{first}"
    );
    assert_eq!(node.line(), format!("listening on {listen}\n"));
    assert_ne!(node.line(), first);
    for _ in 0..8 {
        let response = Client::unix(&path).post("/", "", &call("1", "eth_chainId", "[]"));
        assert_eq!(response.status, 200);
    }
    assert!(node.signal("TERM").success());
    assert!(!path.exists());
}

#[test]
fn socket_in_use_is_not_replaced() {
    let folder = TemporaryFolder::new();
    let path = folder.0.join("node.sock");
    let _owner = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let listen = format!("unix:{}", path.display());
    let (success, _, stderr) = run(&["--listen", &listen, few_recordings().path()]);
    assert!(!success);
    assert!(stderr.contains("in use"), "{stderr}");
    assert!(path.exists());
}

#[test]
fn invalid_argument_is_named_in_the_error() {
    let cases: [(&[&str], &str); 18] = [
        (&["--chain", "/nonexistent"], "cannot be used with"),
        (&["--chain-length", "5"], "--chain"),
        (&["--chain", "--chain-length", "100001"], "100000"),
        (
            &["--chain", "--chain-slot-ms", "5", "--chain-reorgs", "2"],
            "0 to 1",
        ),
        (&["--listen", "localhost"], "IP:PORT"),
        (&["--listen", "unix:"], "a path after unix:"),
        (&["--threads", "0"], "1..=256"),
        (&["--piece", "0"], "at least 1"),
        (&["--with", "framing=http3"], "chunked"),
        (&["--for", "eth_call"], "eth_call"),
        (&["--for", "eth_call:x=1"], "\"x\""),
        (&["/nonexistent"], "/nonexistent"),
        (&["--beacon", "xml"], "xml"),
        (&["--chain", "--beacon", "json"], "cannot be used with"),
        (&["--preset", "sepolia"], "mainnet"),
        (&["--page", "/eth"], "PATH=FILE"),
        (&["--page", "/eth=/nonexistent.ssz"], "/nonexistent.ssz"),
        (&["--witness", "1.5M"], "at most 8G"),
    ];
    for (args, expected) in cases {
        let (success, stdout, stderr) = run(args);
        assert!(!success, "{args:?}");
        assert_eq!(stdout, "");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
    let empty = TemporaryFolder::new();
    let (success, _, stderr) = run(&[empty.path()]);
    assert!(!success && stderr.contains("nothing to serve"), "{stderr}");
}

#[test]
fn list_option_prints_the_served_methods_and_sizes() {
    let (success, list, _) = run(&["--list"]);
    assert!(success);
    let node = Node::on(&[]);
    let mut client = node.client();
    let mut largest = BTreeMap::new();
    for line in list.lines() {
        let [method, params, size] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        largest.insert(method, (params, size));
    }
    assert!(largest.len() > 25, "{list}");
    for (method, (params, size)) in largest {
        let response = match method {
            "GET" => client.request("GET", params, "", ""),
            _ => client.post("/", "", &call("1", method, params)),
        };
        assert_eq!(response.body.len().to_string(), size, "{method} {params}");
    }
}
