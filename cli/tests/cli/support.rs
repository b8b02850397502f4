//! Runs the command, holds its inputs, and scripts the servers that it queries.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};

/// Runs the command line with this standard input.
pub fn run_sszip(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sszip"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // the command may end before it has read everything
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

pub fn successful_output(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = run_sszip(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{arguments:?}: {errors}"
    );
    output.stdout
}

/// Returns the exit code and the standard error of a command that must fail.
pub fn failed_output(arguments: &[&str], input: &[u8]) -> (i32, String) {
    let output = run_sszip(arguments, input);
    assert!(output.stdout.is_empty(), "{arguments:?}");
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

pub const CHECKPOINT: &str =
    r#"{"epoch":"7","root":"0x1111111111111111111111111111111111111111111111111111111111111111"}"#;

pub fn checkpoint() -> Vec<u8> {
    let mut ssz = vec![7, 0, 0, 0, 0, 0, 0, 0];
    ssz.extend([0x11; 32]);
    ssz
}

pub const TYPE: [&str; 4] = ["--type", "Checkpoint", "--fork", "deneb"];

pub fn append_arguments<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[command], &TYPE[..], more].concat()
}

const UPDATE: &str = r#"{"attested_header":{"beacon":{"slot":"1","proposer_index":"2","parent_root":"ROOT","state_root":"ROOT","body_root":"ROOT"}},"sync_aggregate":{"sync_committee_bits":"0x00000000","sync_committee_signature":"SIGNATURE"},"signature_slot":"3"}"#;

/// Returns a value whose type differs between altair and capella, in the preset minimal.
pub fn forked_value_json() -> String {
    UPDATE
        .replace("ROOT", &format!("0x{}", "22".repeat(32)))
        .replace("SIGNATURE", &format!("0x{}", "33".repeat(96)))
}

pub const OPTIMISTIC: [&str; 4] = [
    "--type",
    "LightClientOptimisticUpdate",
    "--preset",
    "minimal",
];

/// A response of a scripted server: its status, as `200 OK`, and its body.
pub type ScriptedResponse = (&'static str, String);

/// Starts a server on a TCP port that sends the responses to as many requests on one connection.
/// Returns its URL without a path, and the requests.
pub fn start_server(responses: Vec<ScriptedResponse>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        serve(client, &responses)
    });
    (url, server)
}

/// Starts a server on a Unix socket in a new folder, which lasts as long as the returned one.
pub fn start_owner(
    responses: Vec<ScriptedResponse>,
) -> (tempfile::TempDir, String, JoinHandle<Vec<String>>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("owner.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        serve(client, &responses)
    });
    (folder, socket.to_str().unwrap().to_owned(), server)
}

fn serve(mut client: impl Read + Write, responses: &[ScriptedResponse]) -> Vec<String> {
    let mut requests = Vec::new();
    for (status, body) in responses {
        let (mut request, mut room) = (String::new(), [0; 4096]);
        while !is_complete(&request) {
            let length = client.read(&mut room).unwrap();
            assert!(length > 0, "the request ends early: {request}");
            request += std::str::from_utf8(&room[..length]).unwrap();
        }
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
        client.write_all((head + body).as_bytes()).unwrap();
        requests.push(request);
    }
    requests
}

/// Whether a request has its whole body.
fn is_complete(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else {
        return false;
    };
    let head = head.to_lowercase();
    let length = head.split("content-length: ").nth(1).unwrap_or("0");
    body.len() >= length.lines().next().unwrap().parse().unwrap()
}

pub fn standard_output(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub fn standard_error(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}
