//! Every recorded exchange of the corpus, when it is there.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::Value;

use super::support::Node;

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

#[test]
fn every_recorded_exchange_is_answered() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    if !corpus.is_dir() {
        eprintln!("skipped every_recorded_exchange_is_answered: ../shared/corpus is absent");
        return;
    }
    // Not the witnesses: they hold three forms of an answer to the same call.
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
