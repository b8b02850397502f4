//! Every recorded exchange of the corpus, if it is available.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::Value;

use super::support::{Node, TemporaryFolder};

/// A recorded request and its response.
#[derive(Deserialize)]
struct Exchange<'a> {
    #[serde(borrow)]
    request: &'a RawValue,
    response: Value,
}

fn json_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder is read") {
        let path = entry.expect("the folder is read").path();
        if path.is_dir() {
            json_files(&path, files);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
}

/// Returns the folder of recordings, or reports that the test is skipped.
fn corpus(test: &str) -> Option<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    if !corpus.is_dir() {
        eprintln!("skipped {test}: ../shared/corpus is absent");
        return None;
    }
    Some(corpus)
}

#[test]
fn recorded_values_are_converted_to_the_other_format() {
    let Some(corpus) = corpus("recorded_values_are_converted_to_the_other_format") else {
        return;
    };
    let beacon = corpus.join("beacon");
    let folder = TemporaryFolder::new();
    folder.write("state.headers", "Eth-Consensus-Version: phase0\n");
    let (state, block) = (
        "/eth/v2/debug/beacon/states/genesis",
        "/eth/v2/beacon/blocks/7109344",
    );
    let pages = [
        format!(
            "{state}={}/sepolia_genesis_state_phase0.ssz",
            beacon.display()
        ),
        format!("{state}={}/state.headers", folder.path()),
        format!("{block}={}/block_capella_7109344.json", beacon.display()),
    ];
    let options = pages.iter().flat_map(|page| ["--page", page]);
    let args: Vec<&str> = ["--beacon", "both"].into_iter().chain(options).collect();
    let node = Node::on(&args);
    let genesis: Value = serde_json::from_slice(&node.get(state).body).unwrap();
    assert_eq!(genesis["version"], "phase0");
    // The known root of Sepolia.
    assert_eq!(
        genesis["data"]["genesis_validators_root"],
        "0xd8ea171f3c94aea21ebc42a1ed61052acf3f9209c00e4efbaaddac09ed9b8078"
    );
    let accept = "Accept: application/octet-stream\r\n";
    let ssz = node.client().request("GET", block, accept, "");
    assert_eq!(
        ssz.header("eth-consensus-version").as_deref(),
        Some("capella")
    );
    // The offset of the message, and its slot after the signature.
    assert_eq!(ssz.body[..4], 100_u32.to_le_bytes());
    assert_eq!(ssz.body[100..108], 7_109_344_u64.to_le_bytes());
}

#[test]
fn recorded_exchanges_receive_their_recorded_response() {
    let Some(corpus) = corpus("recorded_exchanges_receive_their_recorded_response") else {
        return;
    };
    // The witnesses are excluded: they contain three formats of the response to one call.
    let (execution, beacon) = (corpus.join("execution"), corpus.join("beacon"));
    let node = Node::on(&[execution.to_str().unwrap(), beacon.to_str().unwrap()]);
    let mut client = node.client();
    let mut pages = Vec::new();
    json_files(&beacon, &mut pages);
    for file in &pages {
        let name = file.file_stem().unwrap().to_str().unwrap();
        let page = client.request("GET", &format!("/{name}"), "", "");
        let expected: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        let served: Value = serde_json::from_slice(&page.body).unwrap();
        assert!(served == expected, "{name}");
    }
    let mut files = Vec::new();
    json_files(&execution, &mut files);
    let mut exchanges = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let recorded: Vec<Exchange> = serde_json::from_str(&text).unwrap();
        for exchange in recorded {
            let response = client.post("/", "", exchange.request.get());
            let served: Value = serde_json::from_slice(&response.body).unwrap();
            assert!(served == exchange.response, "{}", file.display());
            exchanges += 1;
        }
    }
    assert!(exchanges > 500, "{exchanges} exchanges");
    assert!(pages.len() >= 5, "{} pages", pages.len());
}
