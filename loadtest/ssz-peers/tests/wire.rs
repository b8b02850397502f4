//! The client of the wire suite: values as it writes them, and answers that are
//! what they must be, or not.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{json, Value};
use ssz_peers::peers::libssz::{BeaconState, SignedBeaconBlock};
use ssz_peers::peers::Value as _;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ssz-wire-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn wire(&self, spec: &Value) -> Output {
        let file = self.0.join("spec.json");
        fs::write(&file, spec.to_string()).unwrap();
        let mut bench = Command::new(env!("CARGO_BIN_EXE_ssz-bench"));
        bench.arg("wire").arg(file).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn said(done: &Output) -> Value {
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{errors}");
    serde_json::from_slice(&done.stdout).unwrap()
}

/// The value of a written answer.
fn data(json: &Path) -> Value {
    let answer: Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(answer["version"], "deneb");
    answer["data"].clone()
}

#[test]
fn values_in_both_formats() {
    let folder = Folder::new("values");
    let to = folder.0.join("block");
    let corpus = folder.0.join("none");
    let made = folder.wire(&json!({"do": "values", "corpus": corpus, "to": to, "block": 150_000}));
    assert_eq!(said(&made)["recorded"], false);
    let length = fs::metadata(to.with_extension("json")).unwrap().len();
    assert!((130_000..151_000).contains(&length), "{length}");
    let block: SignedBeaconBlock =
        serde_json::from_value(data(&to.with_extension("json"))).unwrap();
    assert!(block.encode() == fs::read(to.with_extension("ssz")).unwrap());

    let to = folder.0.join("contents");
    said(&folder.wire(&json!({
        "do": "values", "corpus": corpus, "to": to, "block": 150_000, "blobs": 2,
    })));
    let contents: Value =
        serde_json::from_slice(&fs::read(to.with_extension("json")).unwrap()).unwrap();
    assert_eq!(contents["blobs"].as_array().unwrap().len(), 2);
    let ssz = fs::read(to.with_extension("ssz")).unwrap();
    let (schema, _) = ssz_peers::table_of("SignedBeaconBlock");
    let ty = schema.find("SignedBlockContents").unwrap();
    let made = sszip_core::ssz::to_ssz(schema, ty, contents.to_string().as_bytes());
    assert!(made.unwrap() == ssz);

    let to = folder.0.join("state");
    said(&folder.wire(&json!({"do": "values", "corpus": corpus, "to": to, "validators": 7})));
    let state = data(&to.with_extension("json"));
    assert_eq!(state["validators"].as_array().unwrap().len(), 7);
    let state: BeaconState = serde_json::from_value(state).unwrap();
    assert!(state.encode() == fs::read(to.with_extension("ssz")).unwrap());
}

/// Answers two requests of one connection, the second one with a witness.
fn serve(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        for body in ["{}", body] {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                peer.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
            write!(peer, "{head}: {}\r\n\r\n{body}", body.len()).unwrap();
        }
    });
    to
}

#[test]
fn answers_are_compared_and_decoded() {
    const WITNESS: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"state":["0x01ff"],"codes":[],"keys":["0x02"],"headers":["0x03"]}}"#;
    let folder = Folder::new("answers");
    let file = |name: &str| folder.0.join(name);
    fs::write(file("other"), "{}").unwrap();
    fs::write(file("same"), WITNESS).unwrap();
    let spec = |same_as: &[&str], writes: bool| {
        let names: Vec<PathBuf> = same_as.iter().map(|name| file(name)).collect();
        json!({
            "do": "fetch", "to": serve(WITNESS), "requests": [{"path": "/"}, {"path": "/"}],
            "same_as": names, "of": "ExecutionWitness", "ssz": file("ssz"), "writes_ssz": writes,
            "decode": ["serde_json", "sonic-rs", "libssz"],
        })
    };
    let first = said(&folder.wire(&spec(&["other", "same"], true)));
    assert_eq!((&first["status"], &first["is"]), (&json!(200), &json!(1)));
    assert_eq!(first["content"], WITNESS.len());
    // it is JSON: there is nothing for libssz
    assert_eq!(first["decode_ns"].as_array().unwrap().len(), 2);
    let offsets = [12, 0, 0, 0, 18, 0, 0, 0, 18, 0, 0, 0];
    let ssz = [&offsets[..], &[4, 0, 0, 0, 1, 0xff], &[4, 0, 0, 0, 3]].concat();
    assert_eq!(fs::read(file("ssz")).unwrap(), ssz);
    said(&folder.wire(&spec(&["same"], false)));

    let wrong = folder.wire(&spec(&["other"], false));
    assert!(!wrong.status.success());
    fs::write(file("ssz"), "else").unwrap();
    let wrong = folder.wire(&spec(&["same"], false));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("decodes to something else"));
}
