//! A running node, and a client that exposes the bytes on the wire.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;

/// Timeout of a read, so that a hang becomes a failed read.
const READ_LIMIT: Duration = Duration::from_secs(20);

/// A process of the replay node on a free port, which is killed when this is dropped.
pub struct Node {
    child: Child,
    /// Folder of the default recordings, unless the test supplied others.
    recordings: Option<TemporaryFolder>,
    stdout: BufReader<std::process::ChildStdout>,
    pub port: u16,
}

impl Node {
    /// Starts a node with [`few_recordings`].
    pub fn start(args: &[&str]) -> Self {
        let recordings = few_recordings();
        let mut node = Self::on(&[args, &[recordings.path()]].concat());
        node.recordings = Some(recordings);
        node
    }

    /// Starts a node with the folders among `args`, or with the generated sample.
    pub fn on(args: &[&str]) -> Self {
        let mut node = Self::spawn(&[&["--listen", "127.0.0.1:0"], args].concat());
        let line = node.line();
        let port = line
            .trim_end()
            .strip_prefix("listening on http://127.0.0.1:");
        node.port = port
            .and_then(|port| port.parse().ok())
            .unwrap_or_else(|| unexpected(&line));
        node
    }

    /// Starts a node with exactly these arguments; its port is unknown.
    pub fn spawn(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_replay-node"))
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the node starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self {
            child,
            recordings: None,
            stdout,
            port: 0,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line that the node prints.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("stdout is read");
        line
    }

    pub fn client(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("the node accepts");
        stream
            .set_read_timeout(Some(READ_LIMIT))
            .expect("the limit is valid");
        Client::new(stream)
    }

    /// Posts `body` to `target` on a separate connection.
    pub fn post(&self, target: &str, body: &str) -> Response {
        self.client().post(target, "", body)
    }

    pub fn get(&self, target: &str) -> Response {
        self.client().request("GET", target, "", "")
    }

    pub fn stats(&self) -> Value {
        let response = self.get("/stats");
        serde_json::from_slice(&response.body).expect("the stats are JSON")
    }

    /// Waits until a counter of the stats has the expected value.
    pub fn await_stat(&self, pointer: &str, expected: u64) {
        for _ in 0..4_800 {
            if self.stats().pointer(pointer) == Some(&Value::from(expected)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(25));
        }
        unexpected(&format!("{pointer} is not {expected}: {}", self.stats()))
    }

    /// Sends a signal by name and waits for the process to exit.
    pub fn signal(&mut self, name: &str) -> ExitStatus {
        let kill = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status();
        assert!(sent.expect("sh runs").success());
        self.child.wait().expect("the node ends")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The way in which a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseEnd {
    /// Complete by its framing.
    Complete,
    /// The connection was closed earlier.
    Closed,
    /// The connection was reset earlier.
    Reset,
}

/// A response as the client received it.
#[derive(Debug)]
pub struct Response {
    pub version: String,
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub chunks: Vec<usize>,
    pub end: ResponseEnd,
}

impl Response {
    /// Returns the values of a header, joined by commas.
    pub fn header(&self, name: &str) -> Option<String> {
        let named = self.headers.iter().filter(|(n, _)| n == name);
        let values: Vec<&str> = named.map(|(_, value)| value.as_str()).collect();
        (!values.is_empty()).then(|| values.join(", "))
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    pub fn gunzipped(&self) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(self.body.as_slice()).read_to_end(&mut plain)?;
        Ok(plain)
    }
}

/// An HTTP client with one connection to the node.
pub struct Client<S: Read + Write> {
    stream: BufReader<S>,
}

impl Client<UnixStream> {
    pub fn unix(path: &Path) -> Self {
        Self::new(UnixStream::connect(path).expect("the node accepts"))
    }
}

impl Client<TcpStream> {
    /// Whether the node sends nothing for a moment and the connection stays open.
    pub fn is_silent(&mut self) -> bool {
        let socket = self.stream.get_ref();
        let short = Some(Duration::from_millis(150));
        socket.set_read_timeout(short).expect("the limit is valid");
        let read = self.stream.read(&mut [0]);
        let error = read.expect_err("neither bytes nor a close");
        matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
    }
}

impl<S: Read + Write> Client<S> {
    fn new(stream: S) -> Self {
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub fn send(&mut self, bytes: &str) {
        let stream = self.stream.get_mut();
        stream.write_all(bytes.as_bytes()).expect("the node reads");
    }

    /// Sends a request; `headers` are complete lines.
    pub fn send_request(&mut self, method: &str, target: &str, headers: &str, body: &str) {
        let len = body.len();
        self.send(&format!(
            "{method} {target} HTTP/1.1\r\nHost: node\r\nContent-Length: {len}\r\n{headers}\r\n{body}"
        ));
    }

    pub fn request(&mut self, method: &str, target: &str, headers: &str, body: &str) -> Response {
        self.send_request(method, target, headers, body);
        let mut response = self.head();
        if method != "HEAD" {
            self.body(&mut response);
        }
        response
    }

    pub fn post(&mut self, target: &str, headers: &str, body: &str) -> Response {
        self.request("POST", target, headers, body)
    }

    /// Returns all bytes up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset ends the connection as well.
        let _ = self.stream.read_to_end(&mut rest);
        rest
    }

    /// Returns the next `len` bytes; fails without them.
    pub fn exactly(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).expect("bytes come");
        bytes
    }

    pub fn head(&mut self) -> Response {
        let status_line = self.head_line();
        let mut words = status_line.split(' ');
        let version = words.next().unwrap_or_default().to_owned();
        assert!(version.starts_with("HTTP/1."), "{status_line:?}");
        let status = words.next().and_then(|status| status.parse().ok());
        let mut headers = Vec::new();
        loop {
            let line = self.head_line();
            let Some((name, value)) = line.split_once(": ") else {
                assert_eq!(line, "");
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        Response {
            version,
            status: status.unwrap_or_else(|| unexpected(&status_line)),
            headers,
            body: Vec::new(),
            chunks: Vec::new(),
            end: ResponseEnd::Complete,
        }
    }

    fn head_line(&mut self) -> String {
        let mut line = Vec::new();
        self.stream
            .read_until(b'\n', &mut line)
            .expect("a head comes");
        let line = String::from_utf8(line).expect("a head is ASCII");
        let ended = line.strip_suffix("\r\n");
        ended.unwrap_or_else(|| unexpected(&line)).to_owned()
    }

    pub fn body(&mut self, response: &mut Response) {
        if response.header("transfer-encoding").as_deref() == Some("chunked") {
            assert_eq!(response.header("content-length"), None);
            while let Some(size) = self.chunk_size(response).filter(|size| *size > 0) {
                response.chunks.push(size);
                if !self.read_into(response, Some(size)) || !self.line_end(response) {
                    return;
                }
            }
            if response.end == ResponseEnd::Complete {
                self.line_end(response);
            }
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().expect("the length is a number");
            self.read_into(response, Some(length));
        } else {
            self.read_into(response, None);
        }
    }

    fn chunk_size(&mut self, response: &mut Response) -> Option<usize> {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(_) if line.ends_with("\r\n") => {
                Some(usize::from_str_radix(line.trim_end(), 16).expect("a chunk has a size"))
            }
            Ok(_) => {
                response.end = ResponseEnd::Closed;
                None
            }
            Err(error) => {
                response.end = end_of(&error);
                None
            }
        }
    }

    fn line_end(&mut self, response: &mut Response) -> bool {
        let mut bytes = [0; 2];
        match self.stream.read_exact(&mut bytes) {
            Ok(()) => assert_eq!(&bytes, b"\r\n"),
            Err(error) => response.end = end_of(&error),
        }
        response.end == ResponseEnd::Complete
    }

    /// Reads `len` bytes of a body, or all up to the end; returns false if they ended early.
    fn read_into(&mut self, response: &mut Response, len: Option<usize>) -> bool {
        let limit = len.map_or(u64::MAX, |len| len as u64);
        let before = response.body.len();
        let read = self
            .stream
            .by_ref()
            .take(limit)
            .read_to_end(&mut response.body);
        match read {
            Ok(_) if len.is_some_and(|len| response.body.len() < before + len) => {
                response.end = ResponseEnd::Closed;
            }
            Ok(_) => (),
            Err(error) => response.end = end_of(&error),
        }
        response.end == ResponseEnd::Complete
    }
}

fn end_of(error: &io::Error) -> ResponseEnd {
    match error.kind() {
        ErrorKind::UnexpectedEof => ResponseEnd::Closed,
        ErrorKind::ConnectionReset => ResponseEnd::Reset,
        _ => unexpected(&error.to_string()),
    }
}

/// Fails the test from a helper that returns a value.
#[track_caller]
#[allow(clippy::panic)]
fn unexpected(text: &str) -> ! {
    panic!("unexpected: {text}")
}

/// A temporary folder of one test, removed when this is dropped.
pub struct TemporaryFolder(pub PathBuf);

impl TemporaryFolder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("replay-node-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        let parent = path.parent().expect("the name is relative");
        fs::create_dir_all(parent).expect("a folder can be made");
        fs::write(path, text).expect("a file can be written");
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("the path is UTF-8")
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Creates a few recordings of different sizes. Most tests need no more, and a debug build takes
/// seconds to generate the sample.
pub fn few_recordings() -> TemporaryFolder {
    let folder = TemporaryFolder::new();
    let hashes = (0..400_u64).map(|index| {
        let hash = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("\"0x{hash:064x}\"")
    });
    let hashes: Vec<String> = hashes.collect();
    let block = format!(
        r#"{{"number":"0x14fffff","transactions":[{}]}}"#,
        hashes.join(",")
    );
    let answers = [
        ("eth_chainId", "[]", "\"0x1\""),
        ("net_version", "[]", "\"1\""),
        ("eth_syncing", "[]", "false"),
        ("eth_blockNumber", "[]", "\"0x1500000\""),
        ("eth_getBlockByNumber", r#"["0x14fffff",true]"#, &block),
    ];
    for (method, params, result) in answers {
        let request = call("1", method, params);
        let response = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
        let pair = format!(r#"[{{"request":{request},"response":{response}}}]"#);
        folder.write(&format!("{method}/test_01.json"), &pair);
    }
    folder.write(
        "eth/v1/node/version.json",
        r#"{"data":{"version":"x/v1.0"}}"#,
    );
    folder.write("eth/v1/beacon/states/head/validators.json", &block);
    folder
}

pub fn call(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// Returns a call whose response has about 28 KB.
pub fn block_call() -> String {
    call("1", "eth_getBlockByNumber", r#"["0x14fffff",true]"#)
}
