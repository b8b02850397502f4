//! Runs the command, and holds its inputs.

use std::io::Write;
use std::process::{Command, Output, Stdio};

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
