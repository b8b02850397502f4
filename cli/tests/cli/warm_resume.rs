//! The resume file of `sszip warm`, and its end by a signal.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::scripted_proxy::Scripted;
use crate::support::standard_error;
use crate::warm::{node, receipts_call, valid_node, warm, warm_summary};
use crate::warm::{ERROR, RECEIPTS, RESULT};

fn read_json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn repeated_errors_stop_a_run_which_the_resume_file_continues() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let broken = Arc::clone(&is_broken);
    let proxy = node(move |request| {
        let is_late = !["0x5", "0x6"]
            .iter()
            .any(|block| request.body.contains(block));
        let is_error = is_late && broken.load(Ordering::Relaxed);
        Scripted::new(200, "", if is_error { ERROR } else { RESULT })
    });
    let folder = tempfile::tempdir().unwrap();
    let resume = folder.path().join("resume");
    let arguments = [
        &[
            "--blocks",
            "5-20",
            "--concurrency",
            "1",
            "--max-errors",
            "3",
        ][..],
        &["--resume", resume.to_str().unwrap()],
        &RECEIPTS,
    ]
    .concat();

    let output = warm(&proxy.url, &arguments);
    assert_eq!(output.status.code(), Some(4));
    let error = standard_error(&output);
    let expected = "sszip: stopped: 3 requests in a row failed, the last (eth_getBlockReceipts): \
                    JSON-RPC error -32000: missing trie node; repeat the command to continue";
    assert!(error.contains(expected), "{error}");
    let recorded = read_json(&resume);
    assert_eq!(
        (&recorded["next"], &recorded["finished"]),
        (&2.into(), &false.into())
    );
    assert_eq!(proxy.node_bodies().len(), 5);

    is_broken.store(false, Ordering::Relaxed);
    let summary = warm_summary(&proxy.url, &arguments);
    assert_eq!(summary["requests"]["stored"], 14);
    let resumed: Vec<_> = proxy.node_bodies().split_off(5);
    assert_eq!(resumed, (7..=20).map(receipts_call).collect::<Vec<_>>());
    assert_eq!(read_json(&resume)["finished"], true);

    let output = warm(&proxy.url, &arguments);
    assert!(output.status.success());
    assert!(standard_error(&output).contains("nothing to do: "));
    // only the resume file is left
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
}

/// A gate at which the node's responses wait.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut is_open = self.is_open.lock().unwrap();
        while !*is_open {
            is_open = self.opened.wait(is_open).unwrap();
        }
    }

    fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.opened.notify_all();
    }
}

/// Sends TERM; INT may be ignored in a job in the background.
fn terminate(child: &Child) {
    let kill = format!("kill -TERM {}", child.id());
    let status = Command::new("sh").args(["-c", &kill]).status();
    assert!(status.unwrap().success());
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn interrupted_run_is_continued() {
    let gate = Arc::new(Gate::default());
    let passed = Arc::clone(&gate);
    let proxy = node(move |request| {
        if !["0x5", "0x6"]
            .iter()
            .any(|block| request.body.contains(block))
        {
            passed.pass();
        }
        Scripted::new(200, "", RESULT)
    });
    let folder = tempfile::tempdir().unwrap();
    let resume = folder.path().join("resume");
    let arguments = [
        &["--blocks", "5-15", "--concurrency", "2"][..],
        &["--resume", resume.to_str().unwrap()],
        &RECEIPTS,
    ]
    .concat();
    let child = Command::new(env!("CARGO_BIN_EXE_sszip"))
        .args([&["warm", "--url", &proxy.url], &arguments[..]].concat())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // the first two are done; the next two are in flight beyond the time that they have
    wait_until(|| proxy.node_bodies().len() == 4);
    terminate(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        output.status.code(),
        Some(143),
        "{}",
        standard_error(&output)
    );
    assert!(standard_error(&output).contains("interrupted; repeat the command to continue"));
    assert_eq!(folder.path().read_dir().unwrap().count(), 1);
    assert_eq!(read_json(&resume)["next"], 2);

    gate.open();
    warm_summary(&proxy.url, &arguments);
    let bodies = proxy.node_bodies();
    for done in [5, 6].map(receipts_call) {
        assert_eq!(bodies.iter().filter(|body| **body == done).count(), 1);
    }
    let expected: HashSet<_> = (5..=15).map(receipts_call).collect();
    assert_eq!(bodies.into_iter().collect::<HashSet<_>>(), expected);
}

#[test]
fn second_signal_ends_a_run_whose_resume_file_is_valid() {
    let proxy = node(|_| {
        Gate::default().pass();
        Scripted::new(200, "", RESULT)
    });
    let folder = tempfile::tempdir().unwrap();
    let resume = folder.path().join("resume");
    let mut child = Command::new(env!("CARGO_BIN_EXE_sszip"))
        .args([
            "warm",
            "--url",
            &proxy.url,
            "--blocks",
            "5-15",
            "--timeout",
            "1h",
        ])
        .args(["--resume", resume.to_str().unwrap()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(|| proxy.node_bodies().len() == 8);
    terminate(&child);
    // two signals that are pending together are one
    while child.try_wait().unwrap().is_none() {
        terminate(&child);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(read_json(&resume)["next"], 0);
}

#[test]
fn resume_file_of_another_run_or_half_a_file_is_not_replaced() {
    let proxy = valid_node();
    let folder = tempfile::tempdir().unwrap();
    let resume = folder.path().join("resume");
    let path = resume.to_str().unwrap();
    let first = [
        "--blocks",
        "5-6",
        "--method",
        "trace_block",
        "--resume",
        path,
    ];
    warm_summary(&proxy.url, &first);
    let written = std::fs::read_to_string(&resume).unwrap();
    let half = written[..written.len() / 2].to_owned();
    for (text, blocks, code, expected) in [
        (&written, "5-7", 2, "belongs to another run: its source is"),
        (&half, "5-6", 1, "is no complete resume file; delete it"),
    ] {
        std::fs::write(&resume, text).unwrap();
        let other = [
            "--blocks",
            blocks,
            "--method",
            "trace_block",
            "--resume",
            path,
        ];
        let output = warm(&proxy.url, &other);
        assert_eq!(output.status.code(), Some(code));
        assert!(
            standard_error(&output).contains(expected),
            "{}",
            standard_error(&output)
        );
        assert_eq!(&std::fs::read_to_string(&resume).unwrap(), text);
    }
    let output = warm(
        &proxy.url,
        &["--blocks", "5-6", "--resume", "/no/folder/resume"],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(standard_error(&output).contains("cannot write /no/folder/resume"));
}
