//! Input and output files.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{
    append_arguments, checkpoint, failed_output, successful_output, CHECKPOINT, TYPE,
};

#[test]
fn files_are_read_and_written_and_kept_on_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("in.json"), CHECKPOINT).unwrap();
    successful_output(
        &append_arguments("json2ssz", &[&path("in.json"), &path("out.ssz")]),
        b"",
    );
    assert_eq!(std::fs::read(path("out.ssz")).unwrap(), checkpoint());
    successful_output(
        &append_arguments("ssz2json", &[&path("out.ssz"), &path("out.json")]),
        b"",
    );
    assert_eq!(
        std::fs::read_to_string(path("out.json")).unwrap(),
        format!("{CHECKPOINT}\n")
    );
    // a failure leaves no new file behind, and an existing one unchanged
    std::fs::write(path("bad.json"), "{}").unwrap();
    for command in ["json2ssz", "ssz2json"] {
        failed_output(
            &append_arguments(command, &[&path("bad.json"), &path("new")]),
            b"",
        );
        assert!(!Path::new(&path("new")).exists());
        failed_output(
            &append_arguments(command, &[&path("bad.json"), &path("out.ssz")]),
            b"",
        );
        assert_eq!(std::fs::read(path("out.ssz")).unwrap(), checkpoint());
    }
}

/// Runs the command in a shell, which can limit its resources.
fn shell(script: &str, folder: &Path) -> Output {
    Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_sszip")])
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The disk is full, or the process is killed while it writes.
#[test]
fn output_file_is_written_completely_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let ssz = checkpoint().repeat(100_000);
    std::fs::write(folder.path().join("in.ssz"), ssz).unwrap();
    std::fs::write(folder.path().join("out.json"), "what was there").unwrap();
    let many = "ssz2json --type 'List[Checkpoint, 1000000]' --fork phase0 in.ssz";
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    for out in ["out.json", "new.json"] {
        let script = format!("trap '' XFSZ; ulimit -f 8; \"$1\" {many} {out}");
        let output = shell(&script, folder.path());
        let why = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{why}");
        assert!(
            why.starts_with(&format!("sszip: cannot write {out}: ")),
            "{why}"
        );
        let there = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
        assert_eq!(there, "what was there");
        assert_eq!(names(), ["in.ssz", "out.json"]);
    }
    let killed = shell(
        &format!("ulimit -f 8; exec \"$1\" {many} out.json"),
        folder.path(),
    );
    assert!(!killed.status.success());
    let there = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    assert_eq!(there, "what was there");
}

#[cfg(unix)]
#[test]
fn replaced_file_keeps_its_link_and_its_mode() {
    use std::os::unix::fs::{symlink, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("real"), "old").unwrap();
    std::fs::set_permissions(path("real"), PermissionsExt::from_mode(0o640)).unwrap();
    symlink("real", path("link")).unwrap();
    let link = path("link").to_str().unwrap().to_owned();
    successful_output(
        &append_arguments("json2ssz", &["-", &link]),
        CHECKPOINT.as_bytes(),
    );
    assert!(path("link").is_symlink());
    assert_eq!(std::fs::read(path("real")).unwrap(), checkpoint());
    let mode = std::fs::metadata(path("real"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    // in place, too; and a device or a directory is not replaced
    successful_output(&append_arguments("ssz2json", &[&link, &link]), b"");
    let json = std::fs::read_to_string(path("real")).unwrap();
    assert_eq!(json, format!("{CHECKPOINT}\n"));
    successful_output(
        &append_arguments("ssz2json", &["-", "/dev/null"]),
        &checkpoint(),
    );
    let (code, why) = failed_output(
        &append_arguments("ssz2json", &["-", folder.path().to_str().unwrap()]),
        &checkpoint(),
    );
    assert_eq!(code, 1, "{why}");
}

#[test]
fn dash_is_standard_input_and_output() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "printf '%s' '{CHECKPOINT}' | \"$1\" json2ssz {} - - | \"$1\" check-ssz {} -",
        TYPE.join(" "),
        TYPE.join(" ")
    );
    let output = shell(&script, folder.path());
    assert!(output.status.success(), "{output:?}");
    let ssz = successful_output(
        &append_arguments("json2ssz", &["-", "-"]),
        CHECKPOINT.as_bytes(),
    );
    assert_eq!(ssz, checkpoint());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn closed_or_full_standard_output_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = shell("\"$1\" types >&-", folder.path());
    let why = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), &*why),
        (Some(1), "sszip: cannot write the output: it is closed\n")
    );
    let full = shell("\"$1\" types >/dev/full", folder.path());
    assert_eq!(full.status.code(), Some(1));
    // a command that writes nothing, or a file, needs no standard output
    std::fs::write(folder.path().join("in.ssz"), checkpoint()).unwrap();
    let script = format!(
        "\"$1\" check-ssz {kind} in.ssz >&- && \"$1\" ssz2json {kind} in.ssz out.json >&- && \"$1\" types >/dev/null",
        kind = TYPE.join(" ")
    );
    let output = shell(&script, folder.path());
    assert!(output.status.success(), "{output:?}");
    let json = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    assert_eq!(json, format!("{CHECKPOINT}\n"));
}

/// A reader that stops early, as in `sszip ssz2json ... | head -c 1`, is no error.
#[test]
fn closed_pipe_ends_the_command_without_an_error() {
    let mut ssz = Vec::new();
    for _ in 0..100_000 {
        ssz.extend(checkpoint());
    }
    let mut child = Command::new(env!("CARGO_BIN_EXE_sszip"))
        .args([
            "ssz2json",
            "--type",
            "List[Checkpoint, 1000000]",
            "--fork",
            "phase0",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    child.stdin.take().unwrap().write_all(&ssz).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
}
