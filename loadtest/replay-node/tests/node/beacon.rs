//! Pages of the Beacon API as JSON and SSZ, and their faults.

use serde_json::{json, Value};
use sszip_core::ssz::{check_ssz, Fork, Preset, Schema};

use super::support::{Node, Response, ResponseEnd, TemporaryFolder};

const PATH: &str = "/eth/v1/beacon/states/9/pending_consolidations";
const JSON: &str =
    r#"{"version":"electra","finalized":true,"data":[{"source_index":"1","target_index":"515"}]}"#;
const SSZ: &[u8] = b"\x01\0\0\0\0\0\0\0\x03\x02\0\0\0\0\0\0";
const TAKES_SSZ: &str = "application/octet-stream";
const TAKES_JSON: &str = "application/json";
const TAKES_BOTH: &str = "application/octet-stream;q=1.0,application/json;q=0.9";

/// Creates a folder with the page in these formats.
fn recorded(json: bool, ssz: bool) -> TemporaryFolder {
    let folder = TemporaryFolder::new();
    let name = &PATH[1..];
    if json {
        folder.write(&format!("{name}.json"), JSON.replace(",\"", " , \""));
    }
    if ssz {
        folder.write(&format!("{name}.ssz"), SSZ);
    }
    if !json {
        folder.write(
            &format!("{name}.headers"),
            "Eth-Consensus-Version: electra\n",
        );
    }
    folder
}

fn get(node: &Node, target: &str, accept: &str) -> Response {
    let headers = match accept {
        "" => String::new(),
        accept => format!("Accept: {accept}\r\n"),
    };
    node.client().request("GET", target, &headers, "")
}

/// Returns the media type of a response, its fork, and its body.
fn shown(response: &Response) -> (String, Option<String>, &[u8]) {
    let media_type = response.header("content-type").unwrap_or_default();
    let fork = response.header("eth-consensus-version");
    (media_type, fork, &response.body)
}

#[test]
fn page_is_sent_in_the_format_that_accept_prefers() {
    let folder = recorded(true, true);
    let node = Node::on(&[folder.path()]);
    for (accept, is_ssz) in [
        ("", false),
        ("*/*", false),
        (TAKES_JSON, false),
        (TAKES_SSZ, true),
        (TAKES_BOTH, true),
        ("application/octet-stream;q=0.1,application/json", false),
    ] {
        let response = get(&node, PATH, accept);
        let body = if is_ssz { SSZ } else { JSON.as_bytes() };
        let media_type = if is_ssz { TAKES_SSZ } else { TAKES_JSON };
        let expected = (media_type.to_owned(), Some("electra".to_owned()), body);
        assert_eq!(shown(&response), expected, "{accept}");
    }
    let refused = get(&node, PATH, "text/html");
    assert_eq!(refused.status, 406);
    let error: Value = serde_json::from_str(refused.text()).unwrap();
    assert_eq!(error["code"], 406);
    assert_eq!(node.stats()["pages"], 7);
}

#[test]
fn missing_format_is_converted_with_the_beacon_option() {
    for (json, ssz) in [(true, false), (false, true)] {
        let folder = recorded(json, ssz);
        // Without the option, only the recorded format is served.
        let node = Node::on(&[folder.path()]);
        let other = get(&node, PATH, if json { TAKES_SSZ } else { TAKES_JSON });
        assert_eq!(other.status, 406);
        for (forms, of_json, of_ssz) in [("json", 200, 406), ("ssz", 406, 200), ("both", 200, 200)]
        {
            let node = Node::on(&["--beacon", forms, folder.path()]);
            let (json, ssz) = (get(&node, PATH, TAKES_JSON), get(&node, PATH, TAKES_SSZ));
            assert_eq!((json.status, ssz.status), (of_json, of_ssz), "{forms}");
            if of_ssz == 200 {
                assert_eq!(ssz.body, SSZ);
            }
            if of_json == 200 {
                let value: Value = serde_json::from_str(json.text()).unwrap();
                assert_eq!(value["version"], "electra");
                assert_eq!(value["data"][0]["target_index"], "515");
            }
        }
    }
}

#[test]
fn page_without_an_ssz_type_is_served_as_json() {
    let folder = TemporaryFolder::new();
    folder.write("eth/v1/node/version.json", r#"{"data":{"version":"x"}}"#);
    let node = Node::on(&["--beacon", "ssz", folder.path()]);
    let page = node.get("/eth/v1/node/version");
    assert_eq!(
        (page.status, page.text()),
        (200, r#"{"data":{"version":"x"}}"#)
    );
    assert_eq!(page.header("eth-consensus-version"), None);
}

#[test]
fn page_that_cannot_be_converted_is_named_in_a_warning() {
    let folder = TemporaryFolder::new();
    let name = &PATH[1..];
    folder.write(&format!("{name}.ssz"), SSZ);
    folder.write(
        "eth/v1/beacon/states/1/pending_consolidations.json",
        r#"{"version":"electra","data":[{}]}"#,
    );
    folder.write(
        "eth/v1/beacon/states/2/pending_consolidations.json",
        r#"{"version":"phase0","data":[]}"#,
    );
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_replay-node"))
        .args(["--list", "--beacon", "both", folder.path()])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    for (path, why) in [
        ("states/9", "names its fork"),
        ("states/1", "source_index"),
        ("states/2", "fork phase0 has no value"),
    ] {
        let line = stderr.lines().find(|line| line.contains(path));
        assert!(
            line.is_some_and(|line| line.contains(why)),
            "{path}: {stderr}"
        );
    }
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 3);
}

#[test]
fn fork_options_change_the_header_and_the_version_member() {
    let folder = recorded(true, true);
    let node = Node::on(&[folder.path()]);
    let late = r#"{"finalized":true,"data":[{"source_index":"1","target_index":"515"}],"version":"electra"}"#;
    let never = late.replace(r#","version":"electra""#, "");
    let other = JSON.replace("electra", "fulu");
    for (query, fork, body) in [
        ("fork=off", None, JSON),
        ("fork=fulu", Some("fulu"), JSON),
        ("version=off", Some("electra"), &never),
        ("version=last&fork=off", None, late),
        ("version=fulu", Some("electra"), &other),
    ] {
        let response = get(&node, &format!("{PATH}?{query}"), TAKES_JSON);
        let expected = (
            TAKES_JSON.to_owned(),
            fork.map(str::to_owned),
            body.as_bytes(),
        );
        assert_eq!(shown(&response), expected, "{query}");
    }
    let ssz = get(&node, &format!("{PATH}?version=off&fork=off"), TAKES_SSZ);
    assert_eq!(shown(&ssz), (TAKES_SSZ.to_owned(), None, SSZ));
}

#[test]
fn format_and_corruption_options_change_the_response() {
    let folder = recorded(true, true);
    let node = Node::on(&[folder.path()]);
    let at = |query: &str, accept: &str| get(&node, &format!("{PATH}?{query}"), accept);
    assert_eq!(at("as=ssz", TAKES_JSON).body, SSZ);
    assert_eq!(at("as=json", TAKES_SSZ).text(), JSON);
    // One format with the media type of the other.
    let mixed = at("as=json&type=application/octet-stream", TAKES_SSZ);
    assert_eq!(shown(&mixed).0, TAKES_SSZ);
    assert_eq!(mixed.text(), JSON);

    let corrupt = at("corrupt=9", TAKES_SSZ);
    assert_eq!(corrupt.body, [&SSZ[..9], b"\xff", &SSZ[10..]].concat());
    assert_eq!(at("corrupt=99", TAKES_SSZ).body, SSZ);
    assert_eq!(at("truncate=15", TAKES_SSZ).body, SSZ[..15]);
    let cut = at("cut=3", TAKES_SSZ);
    assert_eq!(
        (cut.body.as_slice(), cut.end),
        (&SSZ[..3], ResponseEnd::Closed)
    );
    assert_eq!(at("cut=3&reset=1", TAKES_SSZ).end, ResponseEnd::Reset);

    let coded = at("gzip=always&framing=chunked&piece=5&corrupt=0", TAKES_SSZ);
    assert_eq!(coded.gunzipped().unwrap(), [b"\xff", &SSZ[1..]].concat());
    assert_eq!(coded.chunks[0], 5);

    for status in [406, 415, 503] {
        let refused = at(&format!("refuse={status}"), TAKES_BOTH);
        let expected = json!({"code": status, "message": "refused"});
        assert_eq!(refused.status, status);
        assert_eq!(refused.header("eth-consensus-version"), None);
        assert_eq!(
            serde_json::from_str::<Value>(refused.text()).unwrap(),
            expected
        );
    }
}

#[test]
fn recorded_headers_are_sent_with_the_page() {
    let folder = TemporaryFolder::new();
    folder.write(
        "eth/v3/validator/blocks/1.json",
        r#"{"version":"x","data":{}}"#,
    );
    folder.write(
        "eth/v3/validator/blocks/1.headers",
        "Eth-Consensus-Version: deneb\n\nEth-Execution-Payload-Blinded: false\nno field\n",
    );
    let node = Node::on(&[folder.path()]);
    let page = node.get("/eth/v3/validator/blocks/1?graffiti=0x00");
    assert_eq!(
        page.header("eth-consensus-version").as_deref(),
        Some("deneb")
    );
    assert_eq!(
        page.header("eth-execution-payload-blinded").as_deref(),
        Some("false")
    );
}

#[test]
fn page_is_served_to_a_post_query() {
    let folder = TemporaryFolder::new();
    let path = "/eth/v1/beacon/states/head/validator_identities";
    let json = r#"{"data":[{"index":"1","pubkey":"PUBKEY","activation_epoch":"2"}]}"#
        .replace("PUBKEY", &format!("0x{}", "07".repeat(48)));
    folder.write(&format!("{}.json", &path[1..]), &json);
    let node = Node::on(&["--beacon", "both", folder.path()]);
    let mut client = node.client();
    let takes_ssz = format!("Accept: {TAKES_SSZ}\r\n");
    let ssz = client.post(path, &takes_ssz, "[\"1\"]");
    let expected = [
        &[1, 0, 0, 0, 0, 0, 0, 0][..],
        &[7; 48],
        &[2, 0, 0, 0, 0, 0, 0, 0],
    ];
    assert_eq!(ssz.body, expected.concat());
    assert_eq!(client.post(path, "", "[\"1\"]").text(), json);
    let stats = node.stats();
    assert_eq!(
        (&stats["pages"], &stats["publishes"]),
        (&json!(2), &json!({}))
    );
}

#[test]
fn page_option_serves_files_at_their_paths() {
    let folder = TemporaryFolder::new();
    folder.write("a.json", JSON);
    folder.write("b.ssz", SSZ);
    let pages = [("1", "a.json"), ("2", "a.json"), ("2", "b.ssz")].map(|(id, file)| {
        format!(
            "/eth/v1/beacon/states/{id}/pending_consolidations={}/{file}",
            folder.path()
        )
    });
    let node = Node::on(&[
        "--page", &pages[0], "--page", &pages[1], "--page", &pages[2],
    ]);
    let at = |id: &str| PATH.replace('9', id);
    assert_eq!(get(&node, &at("2"), TAKES_JSON).text(), JSON);
    assert_eq!(node.get(&at("1")).text(), JSON);
    assert_eq!(get(&node, &at("1"), TAKES_SSZ).status, 406);
    assert_eq!(get(&node, &at("2"), TAKES_SSZ).body, SSZ);
}

#[test]
fn sample_pages_are_valid_values_of_the_newest_fork() {
    let node = Node::on(&[]);
    let schema = Schema::for_fork(Fork::Fulu, Preset::Mainnet);
    for (path, name) in [
        ("/eth/v2/beacon/blocks/head", "SignedBeaconBlock"),
        ("/eth/v2/debug/beacon/states/head", "BeaconState"),
        (
            "/eth/v1/beacon/light_client/finality_update",
            "LightClientFinalityUpdate",
        ),
        (
            "/eth/v1/beacon/states/head/pending_deposits",
            "PendingDeposits",
        ),
    ] {
        let ssz = get(&node, path, TAKES_BOTH);
        assert_eq!(shown(&ssz).1.as_deref(), Some("fulu"), "{path}");
        check_ssz(schema, schema.find_type(name).unwrap(), &ssz.body).unwrap();
        let json: Value = serde_json::from_slice(&node.get(path).body).unwrap();
        assert_eq!(json["version"], "fulu");
        assert!(!json["data"].is_null());
    }
}
