//! Exit codes and error messages.

use crate::support::{
    append_arguments, checkpoint, failed_output, forked_value_json, successful_output, CHECKPOINT,
    OPTIMISTIC,
};

#[test]
fn exit_code_is_1_for_bad_data_and_2_for_bad_usage() {
    let short = &checkpoint()[..39];
    let data: [(Vec<&str>, &[u8], &str); 6] = [
        (
            append_arguments("check-ssz", &[]),
            short,
            "sszip: byte 0: 39 bytes, not 40\n",
        ),
        (
            append_arguments("ssz2json", &[]),
            short,
            "sszip: byte 0: 39 bytes, not 40\n",
        ),
        (
            append_arguments("root", &[]),
            short,
            "sszip: byte 0: 39 bytes, not 40\n",
        ),
        (
            append_arguments("json2ssz", &[]),
            b"{\"epoch\":7}",
            "sszip: epoch, byte 9: a number, not a string\n",
        ),
        (
            append_arguments("json2ssz", &[]),
            b"",
            "sszip: byte 0: the input ends within a value; the input is empty\n",
        ),
        (
            append_arguments("ssz2json", &["--select", "nothing"]),
            short,
            "sszip: byte 0: 39 bytes, not 40 or more\n",
        ),
    ];
    for (arguments, input, why) in data {
        assert_eq!(
            failed_output(&arguments, input),
            (1, why.into()),
            "{arguments:?}"
        );
    }
    let (code, why) = failed_output(&append_arguments("check-ssz", &["/does/not/exist"]), b"");
    assert_eq!(code, 1);
    assert!(why.contains("/does/not/exist: No such file"), "{why}");
    for arguments in [
        &["check-ssz"][..],
        &["check-ssz", "--type", "BeaconBlock"],
        &["check-ssz", "--type", "Nonsense", "--fork", "deneb"],
        &["check-ssz", "--type", "Checkpoint", "--fork", "atlantis"],
        &[
            "check-ssz",
            "--type",
            "Checkpoint",
            "--fork",
            "deneb",
            "--preset",
            "moon",
        ],
        &[
            "check-ssz",
            "--type",
            "ExecutionWitness",
            "--limit",
            "NOTHING=1",
        ],
        &[
            "check-ssz",
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
        let (code, why) = failed_output(arguments, b"");
        assert_eq!(code, 2, "{arguments:?}");
        assert!(!why.is_empty() && !why.contains("panicked"), "{why}");
    }
}

#[test]
fn error_describes_the_input_that_was_found() {
    let error_message = |arguments: &[&str], input: &[u8]| {
        let (code, message) = failed_output(arguments, input);
        assert_eq!(code, 1, "{message}");
        message.trim_end().to_owned()
    };
    // errors that nodes send in place of a response
    for free in [
        &["json2ssz", "--type", "SignedBeaconBlock"][..],
        &append_arguments("json2ssz", &[]),
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
            let expected = format!("sszip: the node's response is an error: {why}");
            assert_eq!(error_message(free, json.as_bytes()), expected);
        }
    }
    // inputs that are neither JSON nor SSZ
    for (input, why) in [
        (
            &b"\x1f\x8b\x08\0"[..],
            "; the input is gzip; decompress it with gunzip",
        ),
        (
            b"\xef\xbb\xbf{}",
            "; the input is text with a byte order mark; remove it",
        ),
        (
            b"<html><body>502</body></html>",
            "; the input is HTML or XML",
        ),
        (b"", "; the input is empty"),
    ] {
        for command in ["json2ssz", "ssz2json", "check-ssz", "root"] {
            let message = error_message(&append_arguments(command, &[]), input);
            assert!(message.ends_with(why), "{message}");
        }
    }
    let json = error_message(&append_arguments("check-ssz", &[]), CHECKPOINT.as_bytes());
    assert!(
        json.ends_with("; the input is JSON; use json2ssz"),
        "{json}"
    );
    let ssz = error_message(&append_arguments("json2ssz", &[]), &checkpoint());
    assert!(
        ssz.ends_with("; the input is not text; use ssz2json for SSZ"),
        "{ssz}"
    );
    // another fork, or another preset
    let update = forked_value_json();
    let of = |command: &'static str, fork: &'static str| {
        [&[command][..], &OPTIMISTIC, &["--fork", fork]].concat()
    };
    let others = "; the input is valid in altair, bellatrix";
    let ssz = successful_output(&of("json2ssz", "altair"), update.as_bytes());
    for fork in ["capella", "electra"] {
        let json = error_message(&of("json2ssz", fork), update.as_bytes());
        assert!(json.ends_with(others), "{json}");
        let check = error_message(&of("check-ssz", fork), &ssz);
        assert!(check.ends_with(others), "{check}");
    }
    let answer = format!("{{\"data\":{update},\"version\":\"bellatrix\"}}");
    let late = error_message(&of("json2ssz", "deneb"), answer.as_bytes());
    assert_eq!(
        late,
        "sszip: the response's version is \"bellatrix\", not deneb"
    );
    // older forks read the fields that newer ones have added, too, and omit them
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
        let json = error_message(&payload, request(more).as_bytes());
        assert!(
            json.ends_with(&format!(" is missing; the input is valid in {fork}")),
            "{json}"
        );
    }
    let mainnet = ["check-ssz", "--type", OPTIMISTIC[1], "--fork", "altair"];
    let preset = error_message(&mainnet, &ssz);
    assert!(
        preset.ends_with("; the input is valid in preset minimal"),
        "{preset}"
    );
    // the path is wrong, and not the fork
    let path = [&of("root", "bellatrix")[..], &["--select", "slot"]].concat();
    let path = error_message(&path, &ssz);
    assert!(
        path.ends_with("LightClientOptimisticUpdate has no field \"slot\""),
        "{path}"
    );
    // a value whose first name is no field of its type
    let more = CHECKPOINT.replace('{', "{\"more\":1,");
    let hint = error_message(&append_arguments("json2ssz", &[]), more.as_bytes());
    assert!(
        hint.ends_with("; if the input is the value itself, add --form value"),
        "{hint}"
    );
    let value = successful_output(
        &append_arguments("json2ssz", &["--form", "value"]),
        more.as_bytes(),
    );
    assert_eq!(value, checkpoint());
}

#[test]
fn misspelt_type_is_answered_with_a_suggestion() {
    for (arguments, why) in [
        (
            &["check-ssz", "--fork", "electra", "--type", "BeconState"][..],
            "electra, mainnet: unknown type BeconState; did you mean BeaconState?",
        ),
        (
            &[
                "check-ssz",
                "--fork",
                "gloas",
                "--type",
                "SignedBlindedBeaconBlock",
            ],
            "gloas, mainnet: unknown type SignedBlindedBeaconBlock; bellatrix to fulu have it",
        ),
        (
            &[
                "check-ssz",
                "--fork",
                "phase0",
                "--type",
                "List[Withdrawl, 16]",
            ],
            "phase0, mainnet: unknown type Withdrawl",
        ),
        (
            &[
                "check-ssz",
                "--fork",
                "capella",
                "--type",
                "Lst[Withdrawal, 16]",
            ],
            "capella, mainnet: unknown type Lst; did you mean List?",
        ),
        (
            &["json2ssz", "--type", "signedbeaconblock"],
            "no fork has the type signedbeaconblock; did you mean SignedBeaconBlock?",
        ),
        (
            &["root", "--type", "ExecutionWitnes"],
            "no fork has the type ExecutionWitnes; did you mean ExecutionWitness?",
        ),
        (
            &["types", "Blob", "--fork", "phase0"],
            "phase0 has no type Blob; deneb to heze have it",
        ),
        (
            &["json2ssz", "--type", "Nonsense"],
            "no fork has the type Nonsense",
        ),
    ] {
        let expected = format!("sszip: {why}\n");
        assert_eq!(
            failed_output(arguments, b""),
            (2, expected),
            "{arguments:?}"
        );
    }
}
