//! `sszip doctor` with scripted servers.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use serde_json::{json, Value};

use crate::support::run_sszip;

const SOFTWARE: &str = concat!("sszip/", env!("CARGO_PKG_VERSION"));

/// Starts a server that answers all requests with this JSON. Returns its URL.
fn start_server(json: &Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let body = json.to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let (mut request, mut room) = (Vec::new(), [0; 4096]);
            while !is_complete(&request) {
                match client.read(&mut room).unwrap() {
                    0 => break,
                    length => request.extend(&room[..length]),
                }
            }
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
                 Connection: close\r\n\r\n",
                body.len()
            );
            client.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    format!("http://{address}/sszip")
}

fn is_complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.split("content-length: ").nth(1);
    let length = length.map_or(0, |it| it.lines().next().unwrap().parse().unwrap());
    body.len() >= length
}

fn seconds_since_1970() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed().unwrap();
    now.as_secs()
}

fn healthy_status() -> Value {
    json!({
        "software": SOFTWARE, "host": "nginx/1.22.1", "encoder": "igzip",
        "now": seconds_since_1970(), "requests": 1000, "reasons": {"credentials": 10},
        "owner": {
            "software": SOFTWARE, "generation": 7,
            "store": {"entries": 3, "bytes": 5_000_000, "off": null}, "stores": {"done": 99, "failed": 0},
            "chains": [{"name": "mainnet", "state": "following", "head": 9, "head_age": 4.0,
                        "block_time": 12.0, "final": 3, "error": null}],
            "fleet": {"up": true, "endpoint": "redis://r", "stream": {"age_seconds": 1.0}},
        },
    })
}

/// Runs `sszip doctor`. Returns the exit code and the rows, except the row about this machine's
/// processes.
fn run_doctor(arguments: &[&str]) -> (i32, Vec<Value>) {
    let all = [&["doctor", "--json", "--nginx", "/bin/true"][..], arguments].concat();
    let output = run_sszip(&all, b"");
    let rows = serde_json::from_slice(&output.stdout);
    let mut rows: Vec<Value> =
        rows.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    rows.retain(|row| row["name"] != "upgrade");
    (output.status.code().unwrap(), rows)
}

fn find_row<'r>(rows: &'r [Value], name: &str) -> &'r Value {
    let mut of_name = rows.iter().filter(|row| row["name"] == name);
    of_name
        .next()
        .unwrap_or_else(|| panic!("no {name} in {rows:?}"))
}

#[test]
fn healthy_deployment_has_no_problems() {
    let proxy = start_server(&healthy_status());
    let now = format!("{:#x}", seconds_since_1970());
    let head = json!({"jsonrpc": "2.0", "id": 1, "result": {"number": "0x9", "timestamp": now}});
    let node = start_server(&head);
    let (code, rows) = run_doctor(&["--url", &proxy, "--node", &node]);
    assert_eq!(code, 0, "{rows:?}");
    for row in &rows {
        assert_eq!(row["status"], "ok", "{row}");
    }
    for name in [
        "versions", "encoder", "nginx", "owner", "store", "chain", "fleet", "node", "clock",
        "reasons",
    ] {
        find_row(&rows, name);
    }
    let output = run_sszip(&["doctor", "--nginx", "/bin/true", "--url", &proxy], b"");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("ok    chain     mainnet: head 9, 4 s old\n"),
        "{text}"
    );
}

#[test]
fn problems_have_their_row() {
    for (pointer, value, name, status) in [
        ("/software", json!("sszip/9.9.9"), "versions", "fail"),
        ("/encoder", json!("libdeflate"), "encoder", "warn"),
        (
            "/owner",
            json!({"error": "the owner does not respond"}),
            "owner",
            "fail",
        ),
        ("/owner", json!(null), "owner", "warn"),
        ("/owner/store/off", json!("disk full"), "store", "fail"),
        ("/owner/stores/failed", json!(2), "store", "warn"),
        ("/owner/stores/failed", json!(1), "store", "ok"),
        (
            "/owner/chains/0/state",
            json!("wrong-chain"),
            "chain",
            "fail",
        ),
        ("/owner/chains/0/head_age", json!(49.0), "chain", "warn"),
        ("/owner/fleet/up", json!(false), "fleet", "fail"),
        (
            "/owner/fleet/stream/age_seconds",
            json!(61.0),
            "fleet",
            "warn",
        ),
        ("/now", json!(seconds_since_1970() - 30), "clock", "warn"),
        ("/now", json!(seconds_since_1970() - 90), "clock", "fail"),
        ("/reasons/credentials", json!(201), "reasons", "warn"),
    ] {
        let mut state = healthy_status();
        *state.pointer_mut(pointer).unwrap() = value;
        if pointer == "/encoder" && cfg!(not(target_arch = "x86_64")) {
            continue;
        }
        let (code, rows) = run_doctor(&["--url", &start_server(&state)]);
        assert_eq!(
            find_row(&rows, name)["status"],
            status,
            "{pointer}: {rows:?}"
        );
        assert_eq!(code, if status == "fail" { 3 } else { 0 }, "{pointer}");
    }
}

#[test]
fn unreachable_servers_and_other_pages_are_failures_among_other_rows() {
    let (code, rows) = run_doctor(&[
        "--url",
        "http://127.0.0.1:1/sszip",
        "--socket",
        "/no/owner.sock",
        "--node",
        &start_server(&json!({"error": {"message": "hidden\u{1b}[2J"}})),
    ]);
    assert_eq!(code, 3);
    for (name, status) in [
        ("proxy", "fail"),
        ("owner", "fail"),
        ("socket", "fail"),
        ("folder", "fail"),
        ("node", "warn"),
        ("nginx", "ok"),
    ] {
        assert_eq!(find_row(&rows, name)["status"], status, "{name}");
    }
    let text = find_row(&rows, "node")["text"].as_str().unwrap();
    assert!(text.ends_with("hidden\\u{1b}[2J"), "{text}");
    let (_, rows) = run_doctor(&["--url", &start_server(&json!({"requests": "many"}))]);
    let text = find_row(&rows, "proxy")["text"].as_str().unwrap();
    assert!(text.contains("is not the status page"), "{text}");
}

#[test]
fn nginx_that_is_absent_is_skipped_and_one_that_fails_is_a_failure() {
    let proxy = start_server(&healthy_status());
    for (program, code, row) in [
        (
            "/bin/false",
            3,
            "FAIL  nginx     -t fails; see docs/troubleshooting.md",
        ),
        (
            "/no/nginx",
            0,
            "skip  nginx     /no/nginx is not installed; --nginx names the program",
        ),
    ] {
        let output = run_sszip(&["doctor", "--nginx", program, "--url", &proxy], b"");
        assert_eq!(output.status.code(), Some(code));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(row), "{text}");
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn invalid_arguments_are_rejected() {
    for (arguments, expected) in [
        (&["doctor", "--url", "ws://proxy"], "WebSockets"),
        (&["doctor", "--node", "localhost"], "expected http://"),
    ] {
        let output = run_sszip(arguments, b"");
        assert_eq!(output.status.code(), Some(2));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains(expected), "{error}");
    }
}
