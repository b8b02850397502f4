//! `light_client/updates`: several framed updates in one response.

use std::path::Path;

use crate::support::{failed_output, successful_output};

const UPDATES: [&str; 4] = ["--type", "LightClientUpdates", "--preset", "minimal"];

/// Updates of two forks, and their framing.
#[test]
fn light_client_updates_are_converted_both_ways_and_bad_ones_rejected() {
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
    let ssz = successful_output(&one, update.as_bytes());
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
    assert!(successful_output(&with("json2ssz", &[]), json.as_bytes()) == octets);
    let late = format!(
        "[{{\"data\":{update},\"version\":\"altair\"}}, {{\"data\":{update},\"version\":\"bellatrix\"}}]"
    );
    assert!(successful_output(&with("json2ssz", &[]), late.as_bytes()) == octets);
    assert_eq!(
        successful_output(&with("ssz2json", &[]), &octets),
        json.as_bytes()
    );
    assert_eq!(successful_output(&with("check-ssz", &[]), &octets), b"");
    assert_eq!(successful_output(&with("json2ssz", &[]), b"[]"), b"");
    assert_eq!(successful_output(&with("ssz2json", &[]), b""), b"[]\n");
    // one update
    let second = successful_output(&with("ssz2json", &["--select", "[1]"]), &octets);
    assert_eq!(second, format!("{update}\n").as_bytes());
    let slot = successful_output(
        &with("ssz2json", &["--select", "[0].signature_slot"]),
        &octets,
    );
    assert_eq!(slot, b"\"3\"\n");
    let mut root_of = one;
    root_of[0] = "root";
    let root = successful_output(&with("root", &["--select", "[1]"]), &octets);
    assert_eq!(root, successful_output(&root_of, &ssz));

    let bad = |command: &'static str, more: &[&'static str], input: &[u8], why: &str| {
        let (code, message) = failed_output(&with(command, more), input);
        assert_eq!(code, 1, "{message}");
        assert!(message.contains(why), "{message}");
    };
    let mut other = octets.clone();
    other[11] = 9;
    bad(
        "check-ssz",
        &[],
        &other,
        "[0], byte 0: the fork digest 0x01020309 is unknown",
    );
    bad("check-ssz", &[], &octets[..octets.len() - 1], "[1], byte ");
    bad(
        "check-ssz",
        &[],
        &octets[..5],
        "[0], byte 0: 5 bytes in place of a length of 8",
    );
    bad(
        "check-ssz",
        &[],
        &[3, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3],
        "3 bytes have no fork digest",
    );
    bad(
        "check-ssz",
        &[],
        &[0xff; 20],
        "18446744073709551615 bytes are announced, and 12 remain",
    );
    bad("ssz2json", &[], json.as_bytes(), "[0], byte 0: ");
    bad(
        "ssz2json",
        &["--select", "[2]"],
        &octets,
        "index 2 is out of range: 2 elements",
    );
    bad(
        "ssz2json",
        &["--select", "data"],
        &octets,
        "must begin with an index",
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
        "[0], at byte 1: data, ",
    );
    let other = json.replace("altair", "capella");
    bad(
        "json2ssz",
        &[],
        other.as_bytes(),
        "[0], at byte 1: data.attested_header",
    );
    for (arguments, why) in [
        (
            &["check-ssz", "--type", "LightClientUpdates"][..],
            "--network or --fork-digest is missing",
        ),
        (
            &[
                "check-ssz",
                "--type",
                "Checkpoint",
                "--fork",
                "deneb",
                "--network",
                "mainnet",
            ],
            "are allowed with",
        ),
        (
            &with("check-ssz", &["--fork", "altair"]),
            "--fork is not allowed here",
        ),
        (
            &with("check-ssz", &["--network", "mainnet"]),
            "needs --preset mainnet",
        ),
        (&with("root", &[]), "no root"),
        (
            &with("check-ssz", &["--fork-digest", "altair=1"]),
            "not a digest of four bytes",
        ),
    ] {
        let (code, message) = failed_output(arguments, b"");
        assert!(code == 2 && message.contains(why), "{message}");
    }
}

/// Mainnet's updates as they were recorded.
#[test]
fn recorded_updates_of_mainnet_are_converted_both_ways() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus/beacon");
    let Ok(json) = std::fs::read(folder.join("updates.json")) else {
        eprintln!("skipped: no ../shared/corpus");
        return;
    };
    let of = ["--type", "LightClientUpdates", "--network", "mainnet"];
    let octets = successful_output(&[&["json2ssz"], &of[..]].concat(), &json);
    assert_eq!(octets[8..12], [0xbb, 0xa4, 0xda, 0x96]);
    let back = successful_output(&[&["ssz2json"], &of[..]].concat(), &octets);
    let value = |json: &[u8]| serde_json::from_slice::<serde_json::Value>(json).unwrap();
    assert_eq!(value(&back), value(&json));
    // an update of another network
    let text = String::from_utf8(back).unwrap();
    let early = text.replace("\"slot\":\"7", "\"slot\":\"5");
    let (_, message) = failed_output(&[&["json2ssz"], &of[..]].concat(), early.as_bytes());
    assert!(
        message.contains("its version is capella, but mainnet has bellatrix at slot 5061719"),
        "{message}"
    );
}
