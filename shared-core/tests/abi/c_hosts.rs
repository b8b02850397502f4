//! The C ABI as an external host uses it: a C program built with the header and the static
//! library, run under AddressSanitizer, with leak detection.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::support::gunzip;

/// Libraries that a static library with the store needs.
const STORE_LIBRARIES: &[&str] = if cfg!(feature = "store") {
    &["-lrocksdb", "-lstdc++"]
} else {
    &[]
};

/// Compiles the C files of this folder once.
fn host() -> &'static Path {
    static HOST: OnceLock<PathBuf> = OnceLock::new();
    HOST.get_or_init(|| {
        let sources = [
            "host.c",
            "support.c",
            "plan.c",
            "misuse.c",
            "cache.c",
            "script.c",
            "run.c",
        ];
        compile("ffi-host", &sources.map(|name| format!("tests/abi/{name}")))
    })
}

/// Compiles C files, which are named relative to the crate, with the header and the static library.
pub(crate) fn compile(name: &str, sources: &[impl AsRef<Path>]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // another run of the tests may execute the program meanwhile
    let written = program.with_extension(std::process::id().to_string());
    let output = Command::new("gcc")
        .args(["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-g"])
        .args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"])
        .arg("-I")
        .arg(root.join("include"))
        .args(sources.iter().map(|source| root.join(source)))
        .arg(static_library())
        .args(["-lpthread", "-ldl", "-lm"])
        .args(STORE_LIBRARIES)
        .arg("-o")
        .arg(&written)
        .output()
        .expect("gcc runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::fs::rename(&written, &program).unwrap();
    program
}

/// Finds the static library in the folder of this test: the newest, since old builds stay.
fn static_library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folders = test.ancestors().skip(1).take(2);
    folders
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            (name.starts_with("libsszip_nginx") && name.ends_with(".a")).then_some(path)
        })
        .max_by_key(|path| path.metadata().and_then(|file| file.modified()).ok())
        .expect("`make tested` makes the static library")
}

struct HostResponse {
    mode: String,
    head: String,
    body: Vec<u8>,
}

fn run(body: usize, piece: usize, accept_encoding: &str, fault: &str) -> HostResponse {
    run_framed(body, piece, accept_encoding, "length", fault)
}

fn run_framed(
    body: usize,
    piece: usize,
    accept_encoding: &str,
    framing: &str,
    fault: &str,
) -> HostResponse {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(host())
        .args([&body.to_string(), &piece.to_string()])
        .args([accept_encoding, framing])
        .env("SSZIP_FAULT", fault)
        .output()
        .unwrap();
    assert!(
        status.success(),
        "{status}: {}",
        String::from_utf8_lossy(&stderr)
    );
    let end = stdout.windows(2).position(|two| two == b"\n\n").unwrap();
    let head = String::from_utf8(stdout[..end].to_vec()).unwrap();
    let (mode, head) = head.split_once('\n').unwrap_or((&head, ""));
    HostResponse {
        mode: mode.into(),
        head: head.into(),
        body: stdout[end + 2..].to_vec(),
    }
}

#[test]
fn body_of_known_length_is_compressed_through_the_abi() {
    for (length, piece) in [(2000, 1), (2000, 700), (300_000, 4096)] {
        let answer = run(length, piece, "gzip", "");
        assert_eq!(answer.mode, "oneshot");
        assert!(answer.head.contains("Content-Encoding: gzip"));
        let content_length = format!("Content-Length: {}", answer.body.len());
        assert!(answer.head.contains(&content_length), "{}", answer.head);
        assert!(gunzip(&answer.body).unwrap() == vec![b'a'; length]);
    }
}

#[test]
fn body_of_unknown_length_is_compressed_through_the_abi() {
    for (length, piece, mode) in [
        (60_000, 700, "oneshot"),
        (99, 7, "too-small"),
        (70_000, 700, "stream"),
        (300_000, 65_536, "stream"),
    ] {
        let answer = run_framed(length, piece, "gzip", "chunked", "");
        assert_eq!(answer.mode, mode);
        let content_length = format!("Content-Length: {}\n", answer.body.len());
        let head = answer.head + "\n";
        assert_eq!(head.contains(&content_length), mode != "stream", "{head}");
        let body = match mode {
            "too-small" => answer.body,
            _ => gunzip(&answer.body).unwrap(),
        };
        assert!(body == vec![b'a'; length]);
    }
}

/// Returns the lines of a head without the one of the cache, which is on and was bypassed.
fn lines_without_cache_status(head: &str) -> Vec<&str> {
    let lines = head.lines();
    lines
        .filter(|line| !line.starts_with("Cache-Status: sszip; fwd=bypass"))
        .collect()
}

#[test]
fn body_without_an_accepted_coding_passes_unchanged() {
    let answer = run(2000, 700, "br", "");
    assert_eq!(answer.mode, "accept-encoding");
    assert_eq!(
        lines_without_cache_status(&answer.head),
        ["Vary: Accept-Encoding"]
    );
    assert!(answer.body == vec![b'a'; 2000]);
}

/// A panic or a failed allocation in the library costs the compression, not the response.
#[cfg(feature = "faults")]
#[test]
fn response_is_sent_unchanged_after_each_fault() {
    let varies = || vec!["Vary: Accept-Encoding"];
    for (fault, mode, head) in [
        ("panic-head", "failed", vec![]),
        ("panic-body", "failed", varies()),
        ("panic-compress", "failed", varies()),
        ("fail-compress", "failed", varies()),
        ("fail-alloc", "memory", varies()),
    ] {
        for piece in [1, 700, 5000] {
            let answer = run(2000, piece, "gzip", fault);
            assert_eq!(
                (&*answer.mode, lines_without_cache_status(&answer.head)),
                (mode, head.clone()),
                "{fault}"
            );
            assert!(answer.body == vec![b'a'; 2000], "{fault} in {piece}s");
        }
    }
}

#[test]
fn minimal_host_writes_the_compressed_body() {
    let host = compile("minimal-host", &["examples/minimal_host.c"]);
    let output = Command::new(host).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.len() < 1000, "{}", output.stdout.len());
    assert_eq!(gunzip(&output.stdout).unwrap(), [0; 10_000]);
}
