//! Conversion of values, and the list of types.

use crate::support::{
    append_arguments, checkpoint, failed_output, forked_value_json, successful_output, CHECKPOINT,
    OPTIMISTIC,
};

#[test]
fn value_is_converted_both_ways_checked_and_hashed() {
    assert_eq!(
        successful_output(&append_arguments("json2ssz", &[]), CHECKPOINT.as_bytes()),
        checkpoint()
    );
    let line = format!("{CHECKPOINT}\n");
    assert_eq!(
        successful_output(&append_arguments("ssz2json", &[]), &checkpoint()),
        line.as_bytes()
    );
    assert_eq!(
        successful_output(&append_arguments("check-ssz", &[]), &checkpoint()),
        b""
    );
    // sha256 of the epoch's chunk and the root
    let root = successful_output(&append_arguments("root", &[]), &checkpoint());
    let expected = "0xff9439c6476cc86b1a323d5c3dafa1cbc5a7fa96b34907688b6ed56a7cf428ec\n";
    assert_eq!(root, expected.as_bytes());
    assert_eq!(
        successful_output(
            &append_arguments("root", &["--select", "root"]),
            &checkpoint()
        ),
        format!("0x{}\n", "11".repeat(32)).as_bytes()
    );
    assert_eq!(
        successful_output(
            &append_arguments("ssz2json", &["--select", "epoch"]),
            &checkpoint()
        ),
        b"\"7\"\n"
    );
}

#[test]
fn fork_is_taken_from_the_version_of_a_response() {
    let answer = format!("{{\"version\":\"capella\",\"finalized\":true,\"data\":{CHECKPOINT}}}");
    let free = ["json2ssz", "--type", "Checkpoint"];
    assert_eq!(successful_output(&free, answer.as_bytes()), checkpoint());
    let enveloped = [
        "ssz2json",
        "--type",
        "Checkpoint",
        "--fork",
        "capella",
        "--envelope",
    ];
    let expected = format!("{{\"version\":\"capella\",\"data\":{CHECKPOINT}}}\n");
    assert_eq!(
        successful_output(&enveloped, &checkpoint()),
        expected.as_bytes()
    );
    let (code, why) = failed_output(&append_arguments("json2ssz", &[]), answer.as_bytes());
    assert_eq!(
        (code, &*why),
        (
            1,
            "sszip: the response's version is \"capella\", not deneb\n"
        )
    );
    let (code, why) = failed_output(&free, CHECKPOINT.as_bytes());
    assert_eq!(code, 1);
    assert!(why.contains("data and result are missing"), "{why}");
    let unknown = answer.replace("capella", "atlantis");
    let (code, why) = failed_output(&free, unknown.as_bytes());
    assert_eq!(code, 1);
    assert!(
        why.contains("\"atlantis\" is not one of phase0, altair"),
        "{why}"
    );
}

/// Lodestar sends the version after the value.
#[test]
fn version_after_the_value_is_accepted() {
    let all = |more: &[&'static str]| [&["json2ssz"][..], &OPTIMISTIC, more].concat();
    let update = forked_value_json();
    let expected = successful_output(&all(&["--fork", "altair"]), update.as_bytes());
    let answer =
        format!("{{\"data\":{update},\"execution_optimistic\":false,\"version\":\"altair\"}}");
    assert_eq!(successful_output(&all(&[]), answer.as_bytes()), expected);
    assert_eq!(
        successful_output(&all(&["--fork", "altair"]), answer.as_bytes()),
        expected
    );
    // longer than one read
    let long = answer.replacen("{", &format!("{{{}", " ".repeat(200_000)), 2);
    assert_eq!(successful_output(&all(&[]), long.as_bytes()), expected);
    for (json, why) in [
        (
            format!("{{\"data\":{update}}}"),
            "the response has no version; add --fork",
        ),
        (
            answer.replace("altair", "atlantis"),
            "the version \"atlantis\" is not one of",
        ),
        (
            answer.replace("altair", "phase0"),
            "phase0 has no type LightClientOptimisticUpdate",
        ),
        (
            answer.replace("\"altair\"}", "\"altair\""),
            "the input ends within a value",
        ),
    ] {
        let (code, message) = failed_output(&all(&[]), json.as_bytes());
        assert!(code == 1 && message.contains(why), "{message}");
    }
    let other = answer.replace("altair", "bellatrix");
    let (_, message) = failed_output(&all(&["--fork", "altair"]), other.as_bytes());
    assert_eq!(
        message,
        "sszip: the response's version is \"bellatrix\", not altair\n"
    );
}

#[test]
fn limits_and_presets_change_the_type() {
    let json = br#"{"state":[],"codes":[],"headers":["0xc0","0xc0"],"keys":["0x02"]}"#;
    let ssz = successful_output(&["json2ssz", "--type", "ExecutionWitness"], json);
    let small = [
        "--type",
        "ExecutionWitness",
        "--limit",
        "MAX_WITNESS_HEADERS=1",
    ];
    let (code, why) = failed_output(&[&["json2ssz"], &small[..]].concat(), json);
    assert_eq!(
        (code, &*why),
        (1, "sszip: headers, byte 41: more than 1 elements\n")
    );
    let (code, why) = failed_output(&[&["check-ssz"], &small[..]].concat(), &ssz);
    assert_eq!(
        (code, &*why),
        (1, "sszip: headers, byte 12: 2 elements are more than 1\n")
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
        String::from_utf8(successful_output(&arguments, b"")).unwrap()
    };
    assert!(
        one("mainnet").starts_with("SyncCommittee: 24624 bytes\n"),
        "{}",
        one("mainnet")
    );
    assert!(one("minimal").starts_with("SyncCommittee: 1584 bytes\n"));
    let written = [
        "check-ssz",
        "--type",
        "List[Checkpoint, 2]",
        "--fork",
        "phase0",
    ];
    successful_output(&written, &[checkpoint(), checkpoint()].concat());
}

#[test]
fn types_of_a_fork_are_listed() {
    let list = String::from_utf8(successful_output(&["types"], b"")).unwrap();
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
    let early = String::from_utf8(successful_output(&["types", "--fork", "phase0"], b"")).unwrap();
    assert!(!early.contains("SyncCommittee") && early.contains("BeaconState"));
}

#[test]
fn witness_has_a_fourth_list_with_the_option_for_geth() {
    let status = |rlp: &str| {
        format!(
            "{{\"status\":\"VALID\",\"latestValidHash\":null,\"validationError\":null,\
             \"witness\":\"{rlp}\"}}\n"
        )
    };
    let (three, four) = (status("0xc5c0c0c28003"), status("0xc6c0c0c28003c0"));
    let to_ssz = ["json2ssz", "--type", "NewPayloadWithWitness"];
    let ssz = successful_output(&to_ssz, three.as_bytes());
    assert_eq!(successful_output(&to_ssz, four.as_bytes()), ssz);
    let to_json = ["ssz2json", "--type", "NewPayloadWithWitness"];
    assert_eq!(successful_output(&to_json, &ssz), three.as_bytes());
    let with_keys = [&to_json[..], &["--rlp-keys"]].concat();
    assert_eq!(successful_output(&with_keys, &ssz), four.as_bytes());
}
