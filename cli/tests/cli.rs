//! The command line as a user has it: what goes in, what comes out, and how it
//! ends.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs it with an input.
fn sszip(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_sszip"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // it may end before it has read everything
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

fn right(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let output = sszip(arguments, input);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && errors.is_empty(),
        "{arguments:?}: {errors}"
    );
    output.stdout
}

/// Its exit code, and what it said.
fn wrong(arguments: &[&str], input: &[u8]) -> (i32, String) {
    let output = sszip(arguments, input);
    assert!(output.stdout.is_empty(), "{arguments:?}");
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

const CHECKPOINT: &str =
    r#"{"epoch":"7","root":"0x1111111111111111111111111111111111111111111111111111111111111111"}"#;

fn checkpoint() -> Vec<u8> {
    let mut ssz = vec![7, 0, 0, 0, 0, 0, 0, 0];
    ssz.extend([0x11; 32]);
    ssz
}

const TYPE: [&str; 4] = ["--type", "Checkpoint", "--fork", "deneb"];

fn with<'a>(command: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[command], &TYPE[..], more].concat()
}

#[test]
fn a_value_goes_both_ways() {
    assert_eq!(
        right(&with("json2ssz", &[]), CHECKPOINT.as_bytes()),
        checkpoint()
    );
    let line = format!("{CHECKPOINT}\n");
    assert_eq!(
        right(&with("ssz2json", &[]), &checkpoint()),
        line.as_bytes()
    );
    assert_eq!(right(&with("check", &[]), &checkpoint()), b"");
    // sha256 of the epoch's chunk and the root
    let root = right(&with("root", &[]), &checkpoint());
    let expected = "0xff9439c6476cc86b1a323d5c3dafa1cbc5a7fa96b34907688b6ed56a7cf428ec\n";
    assert_eq!(root, expected.as_bytes());
    assert_eq!(
        right(&with("root", &["--select", "root"]), &checkpoint()),
        format!("0x{}\n", "11".repeat(32)).as_bytes()
    );
    assert_eq!(
        right(&with("ssz2json", &["--select", "epoch"]), &checkpoint()),
        b"\"7\"\n"
    );
}

#[test]
fn an_answer_names_its_fork() {
    let answer = format!("{{\"version\":\"capella\",\"finalized\":true,\"data\":{CHECKPOINT}}}");
    let free = ["json2ssz", "--type", "Checkpoint"];
    assert_eq!(right(&free, answer.as_bytes()), checkpoint());
    let enveloped = [
        "ssz2json",
        "--type",
        "Checkpoint",
        "--fork",
        "capella",
        "--envelope",
    ];
    let expected = format!("{{\"version\":\"capella\",\"data\":{CHECKPOINT}}}\n");
    assert_eq!(right(&enveloped, &checkpoint()), expected.as_bytes());
    let (code, why) = wrong(&with("json2ssz", &[]), answer.as_bytes());
    assert_eq!(
        (code, &*why),
        (1, "sszip: the answer's version is \"capella\", not deneb\n")
    );
    let (code, why) = wrong(&free, CHECKPOINT.as_bytes());
    assert_eq!(code, 1);
    assert!(why.contains("neither data nor result"), "{why}");
    let unknown = answer.replace("capella", "atlantis");
    let (code, why) = wrong(&free, unknown.as_bytes());
    assert_eq!(code, 1);
    assert!(
        why.contains("\"atlantis\" is none of phase0, altair"),
        "{why}"
    );
}

#[test]
fn bad_data_is_1_and_bad_usage_is_2() {
    let short = &checkpoint()[..39];
    let data: [(Vec<&str>, &[u8], &str); 6] = [
        (
            with("check", &[]),
            short,
            "sszip: byte 0: 39 bytes, not 40\n",
        ),
        (
            with("ssz2json", &[]),
            short,
            "sszip: byte 0: 39 bytes, not 40\n",
        ),
        (
            with("root", &[]),
            short,
            "sszip: byte 0: 39 bytes, not 40\n",
        ),
        (
            with("json2ssz", &[]),
            b"{\"epoch\":7}",
            "sszip: epoch, byte 9: a number, not a string\n",
        ),
        (
            with("json2ssz", &[]),
            b"",
            "sszip: byte 0: the input ends here, inside a value; it is empty\n",
        ),
        (
            with("ssz2json", &["--select", "nothing"]),
            short,
            "sszip: byte 0: 39 bytes, not 40 or more\n",
        ),
    ];
    for (arguments, input, why) in data {
        assert_eq!(wrong(&arguments, input), (1, why.into()), "{arguments:?}");
    }
    let (code, why) = wrong(&with("check", &["/does/not/exist"]), b"");
    assert_eq!(code, 1);
    assert!(why.contains("/does/not/exist: No such file"), "{why}");
    for arguments in [
        &["check"][..],
        &["check", "--type", "BeaconBlock"],
        &["check", "--type", "Nonsense", "--fork", "deneb"],
        &["check", "--type", "Checkpoint", "--fork", "atlantis"],
        &[
            "check",
            "--type",
            "Checkpoint",
            "--fork",
            "deneb",
            "--preset",
            "moon",
        ],
        &[
            "check",
            "--type",
            "ExecutionWitness",
            "--limit",
            "NOTHING=1",
        ],
        &[
            "check",
            "--type",
            "ExecutionWitness",
            "--limit",
            "MAX_WITNESS_HEADERS",
        ],
        &["json2ssz", "--type", "Nonsense"],
        &["json2ssz", "--type", "Checkpoint", "--form", "value"],
        &["ssz2json", "--type", "ExecutionWitness", "--envelope"],
        &["types", "Nonsense"],
        &["fly"],
    ] {
        let (code, why) = wrong(arguments, b"");
        assert_eq!(code, 2, "{arguments:?}");
        assert!(!why.is_empty() && !why.contains("panicked"), "{why}");
    }
}

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("in.json"), CHECKPOINT).unwrap();
    right(
        &with("json2ssz", &[&path("in.json"), &path("out.ssz")]),
        b"",
    );
    assert_eq!(std::fs::read(path("out.ssz")).unwrap(), checkpoint());
    right(
        &with("ssz2json", &[&path("out.ssz"), &path("out.json")]),
        b"",
    );
    assert_eq!(
        std::fs::read_to_string(path("out.json")).unwrap(),
        format!("{CHECKPOINT}\n")
    );
    // what fails leaves nothing behind, and what was there as it was
    std::fs::write(path("bad.json"), "{}").unwrap();
    for command in ["json2ssz", "ssz2json"] {
        wrong(&with(command, &[&path("bad.json"), &path("new")]), b"");
        assert!(!Path::new(&path("new")).exists());
        wrong(&with(command, &[&path("bad.json"), &path("out.ssz")]), b"");
        assert_eq!(std::fs::read(path("out.ssz")).unwrap(), checkpoint());
    }
}

/// Runs it by a shell, which can take away what it stands on.
fn shell(script: &str, folder: &Path) -> Output {
    Command::new("sh")
        .args(["-c", script, "sh", env!("CARGO_BIN_EXE_sszip")])
        .current_dir(folder)
        .output()
        .unwrap()
}

/// A disk that is full, or a process that is killed while it writes.
#[test]
fn a_file_is_written_whole_or_not_at_all() {
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
        assert!(why.starts_with(&format!("sszip: {out}: ")), "{why}");
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
fn what_a_file_was_it_stays() {
    use std::os::unix::fs::{symlink, PermissionsExt};
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("real"), "old").unwrap();
    std::fs::set_permissions(path("real"), PermissionsExt::from_mode(0o640)).unwrap();
    symlink("real", path("link")).unwrap();
    let link = path("link").to_str().unwrap().to_owned();
    right(&with("json2ssz", &["-", &link]), CHECKPOINT.as_bytes());
    assert!(path("link").is_symlink());
    assert_eq!(std::fs::read(path("real")).unwrap(), checkpoint());
    let mode = std::fs::metadata(path("real"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    // in place, too; and what is no file is not replaced
    right(&with("ssz2json", &[&link, &link]), b"");
    let json = std::fs::read_to_string(path("real")).unwrap();
    assert_eq!(json, format!("{CHECKPOINT}\n"));
    right(&with("ssz2json", &["-", "/dev/null"]), &checkpoint());
    let (code, why) = wrong(
        &with("ssz2json", &["-", folder.path().to_str().unwrap()]),
        &checkpoint(),
    );
    assert_eq!(code, 1, "{why}");
}

#[test]
fn a_dash_is_what_comes_in_or_goes_out() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "printf '%s' '{CHECKPOINT}' | \"$1\" json2ssz {} - - | \"$1\" check {} -",
        TYPE.join(" "),
        TYPE.join(" ")
    );
    let output = shell(&script, folder.path());
    assert!(output.status.success(), "{output:?}");
    let ssz = right(&with("json2ssz", &["-", "-"]), CHECKPOINT.as_bytes());
    assert_eq!(ssz, checkpoint());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[cfg(target_os = "linux")]
#[test]
fn without_an_output_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let output = shell("\"$1\" types >&-", folder.path());
    let why = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), &*why),
        (Some(1), "sszip: the output: it is closed\n")
    );
    let full = shell("\"$1\" types >/dev/full", folder.path());
    assert_eq!(full.status.code(), Some(1));
    // what writes nothing, or a file, needs none
    std::fs::write(folder.path().join("in.ssz"), checkpoint()).unwrap();
    let script = format!(
        "\"$1\" check {kind} in.ssz >&- && \"$1\" ssz2json {kind} in.ssz out.json >&- && \"$1\" types >/dev/null",
        kind = TYPE.join(" ")
    );
    let output = shell(&script, folder.path());
    assert!(output.status.success(), "{output:?}");
    let json = std::fs::read_to_string(folder.path().join("out.json")).unwrap();
    assert_eq!(json, format!("{CHECKPOINT}\n"));
}

#[test]
fn limits_and_presets() {
    let json = br#"{"state":[],"codes":[],"headers":["0xc0","0xc0"],"keys":["0x02"]}"#;
    let ssz = right(&["json2ssz", "--type", "ExecutionWitness"], json);
    let small = [
        "--type",
        "ExecutionWitness",
        "--limit",
        "MAX_WITNESS_HEADERS=1",
    ];
    let (code, why) = wrong(&[&["json2ssz"], &small[..]].concat(), json);
    assert_eq!(
        (code, &*why),
        (1, "sszip: headers, byte 41: more than 1 elements\n")
    );
    let (code, why) = wrong(&[&["check"], &small[..]].concat(), &ssz);
    assert_eq!(
        (code, &*why),
        (1, "sszip: headers, byte 12: 2 are more than 1\n")
    );
    let one = |preset| {
        let arguments = [
            "types",
            "SyncCommittee",
            "--preset",
            preset,
            "--fork",
            "altair",
        ];
        String::from_utf8(right(&arguments, b"")).unwrap()
    };
    assert!(
        one("mainnet").starts_with("SyncCommittee: 24624 bytes\n"),
        "{}",
        one("mainnet")
    );
    assert!(one("minimal").starts_with("SyncCommittee: 1584 bytes\n"));
    let written = ["check", "--type", "List[Checkpoint, 2]", "--fork", "phase0"];
    right(&written, &[checkpoint(), checkpoint()].concat());
}

#[test]
fn the_list_of_types() {
    let list = String::from_utf8(right(&["types"], b"")).unwrap();
    for name in [
        "BeaconState",
        "SignedBeaconBlock",
        "ExecutionWitness",
        "DataColumnSidecar",
    ] {
        assert!(
            list.lines()
                .any(|line| line.starts_with(&format!("{name} "))),
            "{name}"
        );
    }
    let early = String::from_utf8(right(&["types", "--fork", "phase0"], b"")).unwrap();
    assert!(!early.contains("SyncCommittee") && early.contains("BeaconState"));
}

/// `sszip ssz2json ... | head -c 1` is no error.
#[test]
fn a_reader_that_has_had_enough() {
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

#[test]
fn a_witness_for_geth_has_a_fourth_list() {
    let status = |rlp: &str| {
        format!(
            "{{\"status\":\"VALID\",\"latestValidHash\":null,\"validationError\":null,\
             \"witness\":\"{rlp}\"}}\n"
        )
    };
    let (three, four) = (status("0xc5c0c0c28003"), status("0xc6c0c0c28003c0"));
    let to_ssz = ["json2ssz", "--type", "NewPayloadWithWitness"];
    let ssz = right(&to_ssz, three.as_bytes());
    assert_eq!(right(&to_ssz, four.as_bytes()), ssz);
    let to_json = ["ssz2json", "--type", "NewPayloadWithWitness"];
    assert_eq!(right(&to_json, &ssz), three.as_bytes());
    let with_keys = [&to_json[..], &["--rlp-keys"]].concat();
    assert_eq!(right(&with_keys, &ssz), four.as_bytes());
}

const UPDATE: &str = r#"{"attested_header":{"beacon":{"slot":"1","proposer_index":"2","parent_root":"ROOT","state_root":"ROOT","body_root":"ROOT"}},"sync_aggregate":{"sync_committee_bits":"0x00000000","sync_committee_signature":"SIGNATURE"},"signature_slot":"3"}"#;

/// A value that is another in altair and capella, in the preset minimal.
fn update() -> String {
    UPDATE
        .replace("ROOT", &format!("0x{}", "22".repeat(32)))
        .replace("SIGNATURE", &format!("0x{}", "33".repeat(96)))
}

const OPTIMISTIC: [&str; 4] = [
    "--type",
    "LightClientOptimisticUpdate",
    "--preset",
    "minimal",
];

/// Lodestar's answers have their version at the end.
#[test]
fn a_version_may_come_after_the_value() {
    let all = |more: &[&'static str]| [&["json2ssz"][..], &OPTIMISTIC, more].concat();
    let update = update();
    let expected = right(&all(&["--fork", "altair"]), update.as_bytes());
    let answer =
        format!("{{\"data\":{update},\"execution_optimistic\":false,\"version\":\"altair\"}}");
    assert_eq!(right(&all(&[]), answer.as_bytes()), expected);
    assert_eq!(
        right(&all(&["--fork", "altair"]), answer.as_bytes()),
        expected
    );
    // longer than what is read at a time
    let long = answer.replacen("{", &format!("{{{}", " ".repeat(200_000)), 2);
    assert_eq!(right(&all(&[]), long.as_bytes()), expected);
    for (json, why) in [
        (
            format!("{{\"data\":{update}}}"),
            "the answer has no version: --fork is missing",
        ),
        (
            answer.replace("altair", "atlantis"),
            "the version \"atlantis\" is none of",
        ),
        (
            answer.replace("altair", "phase0"),
            "phase0 has no LightClientOptimisticUpdate",
        ),
        (
            answer.replace("\"altair\"}", "\"altair\""),
            "the input ends here",
        ),
    ] {
        let (code, said) = wrong(&all(&[]), json.as_bytes());
        assert!(code == 1 && said.contains(why), "{said}");
    }
    let other = answer.replace("altair", "bellatrix");
    let (_, said) = wrong(&all(&["--fork", "altair"]), other.as_bytes());
    assert_eq!(
        said,
        "sszip: the answer's version is \"bellatrix\", not altair\n"
    );
}

#[test]
fn what_it_is_instead_is_told() {
    let said = |arguments: &[&str], input: &[u8]| {
        let (code, said) = wrong(arguments, input);
        assert_eq!(code, 1, "{said}");
        said.trim_end().to_owned()
    };
    // what nodes say instead of an answer
    for free in [
        &["json2ssz", "--type", "SignedBeaconBlock"][..],
        &with("json2ssz", &[]),
    ] {
        for (json, why) in [
            (
                r#"{"code":404,"message":"Block not found"}"#,
                "404: Block not found",
            ),
            (
                r#"{"statusCode":404,"error":"Not Found","message":"no\u001b such"}"#,
                "404: no  such",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"the method x does not exist"}}"#,
                "-32601: the method x does not exist",
            ),
        ] {
            let expected = format!("sszip: the node's answer is an error: {why}");
            assert_eq!(said(free, json.as_bytes()), expected);
        }
    }
    // what is neither
    for (input, why) in [
        (&b"\x1f\x8b\x08\0"[..], "; it is gzip: gunzip it first"),
        (
            b"\xef\xbb\xbf{}",
            "; it is a byte order mark that it begins with, which JSON has not",
        ),
        (b"<html><body>502</body></html>", "; it is HTML or XML"),
        (b"", "; it is empty"),
    ] {
        for command in ["json2ssz", "ssz2json", "check", "root"] {
            let said = said(&with(command, &[]), input);
            assert!(said.ends_with(why), "{said}");
        }
    }
    let json = said(&with("check", &[]), CHECKPOINT.as_bytes());
    assert!(
        json.ends_with("; it is JSON: json2ssz reads that"),
        "{json}"
    );
    let ssz = said(&with("json2ssz", &[]), &checkpoint());
    assert!(
        ssz.ends_with("; it is no text: ssz2json reads SSZ"),
        "{ssz}"
    );
    // another fork, or another preset
    let update = update();
    let of = |command: &'static str, fork: &'static str| {
        [&[command][..], &OPTIMISTIC, &["--fork", fork]].concat()
    };
    let others = "; it is one of altair, bellatrix";
    let ssz = right(&of("json2ssz", "altair"), update.as_bytes());
    for fork in ["capella", "electra"] {
        let json = said(&of("json2ssz", fork), update.as_bytes());
        assert!(json.ends_with(others), "{json}");
        let check = said(&of("check", fork), &ssz);
        assert!(check.ends_with(others), "{check}");
    }
    let answer = format!("{{\"data\":{update},\"version\":\"bellatrix\"}}");
    let late = said(&of("json2ssz", "deneb"), answer.as_bytes());
    assert_eq!(
        late,
        "sszip: the answer's version is \"bellatrix\", not deneb"
    );
    // older forks read what newer ones have added, too, and leave it out
    let request = |more: &str| {
        let zeros = "0".repeat(96);
        format!(
            "{{\"parent_hash\":\"0x{h}\",\"fee_recipient\":\"0x{a}\",\"state_root\":\"0x{h}\",\
             \"receipts_root\":\"0x{h}\",\"logs_bloom\":\"0x{}\",\"prev_randao\":\"0x{h}\",\
             \"block_number\":\"1\",\"gas_limit\":\"1\",\"gas_used\":\"1\",\"timestamp\":\"1\",\
             \"extra_data\":\"0x\",\"base_fee_per_gas\":\"1\",\"block_hash\":\"0x{h}\",\
             \"transactions\":[]{more}}}",
            "0".repeat(512),
            h = &zeros[..64],
            a = &zeros[..40],
        )
    };
    for (more, fork) in [("", "bellatrix"), (",\"withdrawals\":[]", "capella")] {
        let payload = [
            "json2ssz",
            "--type",
            "ExecutionPayload",
            "--fork",
            "electra",
        ];
        let json = said(&payload, request(more).as_bytes());
        assert!(
            json.ends_with(&format!(" is missing; it is one of {fork}")),
            "{json}"
        );
    }
    let mainnet = ["check", "--type", OPTIMISTIC[1], "--fork", "altair"];
    let preset = said(&mainnet, &ssz);
    assert!(
        preset.ends_with("; it is one of preset minimal"),
        "{preset}"
    );
    // the path is wrong, and not the fork
    let path = [&of("root", "bellatrix")[..], &["--select", "slot"]].concat();
    let path = said(&path, &ssz);
    assert!(
        path.ends_with("LightClientOptimisticUpdate has no field \"slot\""),
        "{path}"
    );
    // a value that begins as no value does
    let more = CHECKPOINT.replace('{', "{\"more\":1,");
    let hint = said(&with("json2ssz", &[]), more.as_bytes());
    assert!(
        hint.ends_with("; if it is the value itself, --form value says so"),
        "{hint}"
    );
    let value = right(&with("json2ssz", &["--form", "value"]), more.as_bytes());
    assert_eq!(value, checkpoint());
}

#[test]
fn a_misspelt_type_is_guessed() {
    for (arguments, why) in [
        (
            &["check", "--fork", "electra", "--type", "BeconState"][..],
            "electra, mainnet: BeconState is no type here; did you mean BeaconState?",
        ),
        (
            &[
                "check",
                "--fork",
                "gloas",
                "--type",
                "SignedBlindedBeaconBlock",
            ],
            "gloas, mainnet: SignedBlindedBeaconBlock is no type here; bellatrix to fulu have it",
        ),
        (
            &["check", "--fork", "phase0", "--type", "List[Withdrawl, 16]"],
            "phase0, mainnet: Withdrawl is no type here",
        ),
        (
            &[
                "check",
                "--fork",
                "capella",
                "--type",
                "Lst[Withdrawal, 16]",
            ],
            "capella, mainnet: Lst is no type here; did you mean List?",
        ),
        (
            &["json2ssz", "--type", "signedbeaconblock"],
            "no fork has signedbeaconblock; did you mean SignedBeaconBlock?",
        ),
        (
            &["root", "--type", "ExecutionWitnes"],
            "no fork has ExecutionWitnes; did you mean ExecutionWitness?",
        ),
        (
            &["types", "Blob", "--fork", "phase0"],
            "phase0 has no type Blob; deneb to heze have it",
        ),
        (&["json2ssz", "--type", "Nonsense"], "no fork has Nonsense"),
    ] {
        let expected = format!("sszip: {why}\n");
        assert_eq!(wrong(arguments, b""), (2, expected), "{arguments:?}");
    }
}

const UPDATES: [&str; 4] = ["--type", "LightClientUpdates", "--preset", "minimal"];

/// `light_client/updates`, of two forks, and how each of them is framed.
#[test]
fn light_client_updates() {
    let hex = |byte: &str, len: usize| format!("\"0x{}\"", byte.repeat(len));
    let root = hex("22", 32);
    let array = |value: &str, len: usize| format!("[{}]", vec![value; len].join(","));
    let header = format!(
        "{{\"beacon\":{{\"slot\":\"1\",\"proposer_index\":\"2\",\"parent_root\":{root},\
         \"state_root\":{root},\"body_root\":{root}}}}}"
    );
    let committee = format!(
        "{{\"pubkeys\":{},\"aggregate_pubkey\":{}}}",
        array(&hex("44", 48), 32),
        hex("44", 48)
    );
    let update = format!(
        "{{\"attested_header\":{header},\"next_sync_committee\":{committee},\
         \"next_sync_committee_branch\":{},\"finalized_header\":{header},\
         \"finality_branch\":{},\"sync_aggregate\":{{\"sync_committee_bits\":{},\
         \"sync_committee_signature\":{}}},\"signature_slot\":\"3\"}}",
        array(&root, 5),
        array(&root, 6),
        hex("00", 4),
        hex("33", 96)
    );
    let one = [
        "json2ssz",
        "--type",
        "LightClientUpdate",
        "--preset",
        "minimal",
        "--fork",
        "altair",
    ];
    let ssz = right(&one, update.as_bytes());
    let framed = |digest: &[u8; 4]| {
        let len = (ssz.len() as u64 + 4).to_le_bytes();
        [&len[..], digest, &ssz].concat()
    };
    let octets = [framed(&[1, 2, 3, 4]), framed(&[0xff, 6, 7, 8])].concat();
    let digests = [
        "--fork-digest",
        "altair=0x01020304",
        "--fork-digest",
        "bellatrix=0xff060708",
    ];
    let with = |command: &'static str, more: &[&'static str]| {
        [&[command][..], &UPDATES, &digests, more].concat()
    };
    let json = format!(
        "[{{\"version\":\"altair\",\"data\":{update}}},{{\"version\":\"bellatrix\",\"data\":{update}}}]\n"
    );
    assert!(right(&with("json2ssz", &[]), json.as_bytes()) == octets);
    let late = format!(
        "[{{\"data\":{update},\"version\":\"altair\"}}, {{\"data\":{update},\"version\":\"bellatrix\"}}]"
    );
    assert!(right(&with("json2ssz", &[]), late.as_bytes()) == octets);
    assert_eq!(right(&with("ssz2json", &[]), &octets), json.as_bytes());
    assert_eq!(right(&with("check", &[]), &octets), b"");
    assert_eq!(right(&with("json2ssz", &[]), b"[]"), b"");
    assert_eq!(right(&with("ssz2json", &[]), b""), b"[]\n");
    // one of them
    let second = right(&with("ssz2json", &["--select", "[1]"]), &octets);
    assert_eq!(second, format!("{update}\n").as_bytes());
    let slot = right(
        &with("ssz2json", &["--select", "[0].signature_slot"]),
        &octets,
    );
    assert_eq!(slot, b"\"3\"\n");
    let mut root_of = one;
    root_of[0] = "root";
    let root = right(&with("root", &["--select", "[1]"]), &octets);
    assert_eq!(root, right(&root_of, &ssz));

    let bad = |command: &'static str, more: &[&'static str], input: &[u8], why: &str| {
        let (code, said) = wrong(&with(command, more), input);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(why), "{said}");
    };
    let mut other = octets.clone();
    other[11] = 9;
    bad(
        "check",
        &[],
        &other,
        "[0], byte 0: the fork digest 0x01020309 is not known",
    );
    bad("check", &[], &octets[..octets.len() - 1], "[1], byte ");
    bad(
        "check",
        &[],
        &octets[..5],
        "[0], byte 0: 5 bytes, where a length should be",
    );
    bad(
        "check",
        &[],
        &[3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3],
        "3 bytes have no fork digest",
    );
    bad(
        "check",
        &[],
        &[0xff; 20],
        "18446744073709551615 bytes, of which 12 are there",
    );
    bad("ssz2json", &[], json.as_bytes(), "[0], byte 0: ");
    bad(
        "ssz2json",
        &["--select", "[2]"],
        &octets,
        "no element 2 of 2",
    );
    bad(
        "ssz2json",
        &["--select", "data"],
        &octets,
        "should begin with an index",
    );
    bad(
        "json2ssz",
        &[],
        b"{\"code\":400,\"message\":\"no\"}",
        "is an error: 400: no",
    );
    bad(
        "json2ssz",
        &[],
        b"[{\"version\":\"altair\",\"data\":{}}]",
        "[0], from byte 1 on: data, ",
    );
    let other = json.replace("altair", "capella");
    bad(
        "json2ssz",
        &[],
        other.as_bytes(),
        "[0], from byte 1 on: data.attested_header",
    );
    for (arguments, why) in [
        (
            &["check", "--type", "LightClientUpdates"][..],
            "--network or --fork-digest is missing",
        ),
        (
            &[
                "check",
                "--type",
                "Checkpoint",
                "--fork",
                "deneb",
                "--network",
                "mainnet",
            ],
            "are for",
        ),
        (&with("check", &["--fork", "altair"]), "--fork has no place"),
        (
            &with("check", &["--network", "mainnet"]),
            "mainnet's preset",
        ),
        (&with("root", &[]), "no root"),
        (
            &with("check", &["--fork-digest", "altair=1"]),
            "no digest of four bytes",
        ),
    ] {
        let (code, said) = wrong(arguments, b"");
        assert!(code == 2 && said.contains(why), "{said}");
    }
}

/// Mainnet's updates as they were recorded.
#[test]
fn recorded_updates() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/beacon");
    let Ok(json) = std::fs::read(folder.join("updates.json")) else {
        eprintln!("skipped: no ../shared/corpus");
        return;
    };
    let of = ["--type", "LightClientUpdates", "--network", "mainnet"];
    let octets = right(&[&["json2ssz"], &of[..]].concat(), &json);
    assert_eq!(octets[8..12], [0xbb, 0xa4, 0xda, 0x96]);
    let back = right(&[&["ssz2json"], &of[..]].concat(), &octets);
    let value = |json: &[u8]| serde_json::from_slice::<serde_json::Value>(json).unwrap();
    assert_eq!(value(&back), value(&json));
    // of another network
    let text = String::from_utf8(back).unwrap();
    let early = text.replace("\"slot\":\"7", "\"slot\":\"5");
    let (_, said) = wrong(&[&["json2ssz"], &of[..]].concat(), early.as_bytes());
    assert!(
        said.contains("its version is capella, and mainnet's at slot 5061719 bellatrix"),
        "{said}"
    );
}
