//! Tests that compare the routes of this module with the operations of the Beacon API
//! (`tests/beacon/operations.tsv`): a route that moves or is new in the specification fails here.

use std::fs;
use std::path::Path;

use super::{ssz_routes, submission, SszSubmission, CONSENSUS_VERSION_HEADER, SSZ_MEDIA_TYPE};
use crate::beacon;

const TABLE: &str = include_str!("../../../tests/beacon/operations.tsv");

/// A row of the table of Beacon API operations: its method and path, and whether its bodies may be
/// SSZ.
struct BeaconApiOperation {
    method: &'static str,
    /// Path with a `*` in place of each parameter.
    path: String,
    takes_ssz: bool,
    gives_ssz: bool,
}

impl BeaconApiOperation {
    /// Returns the method and the path.
    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }

    /// Returns a target whose path matches the operation, with its parameters replaced.
    fn example_target(&self) -> String {
        format!("{}?a=b", self.path.replace('*', "1"))
    }
}

/// Returns a path of the specification with a `*` in place of each parameter.
fn replace_parameters(path: &str) -> String {
    let segments = path.split('/').map(|segment| match segment {
        parameter if parameter.starts_with('{') => "*",
        segment => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

fn parse_operations() -> Vec<BeaconApiOperation> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let operation = |line: &'static str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [method, path, takes, gives, _] = columns[..] else {
            panic!("{line:?} has not five columns");
        };
        let has_ssz = |formats: &str| formats.split('+').any(|format| format == "ssz");
        BeaconApiOperation {
            method,
            path: replace_parameters(path),
            takes_ssz: has_ssz(takes),
            gives_ssz: has_ssz(gives),
        }
    };
    lines.map(operation).collect()
}

#[test]
fn operations_with_ssz_responses_have_a_type() {
    let mut wrong = Vec::new();
    for operation in parse_operations() {
        let target = operation.example_target();
        let gives = ssz_routes::ssz_response_type(operation.method.as_bytes(), target.as_bytes());
        if gives.is_some() != operation.gives_ssz {
            wrong.push(operation.name());
        }
        assert!(beacon::is_beacon_route(target.as_bytes()), "{target}");
    }
    assert!(wrong.is_empty(), "not as in ssz_routes.rs: {wrong:#?}");
}

#[test]
fn operations_with_ssz_requests_have_a_type() {
    let fields: [(&[u8], &[u8]); 3] = [
        (b"Content-Type", b"application/octet-stream"),
        (b"Eth-Consensus-Version", b"gloas"),
        (b"Eth-Blob-Data-Included", b"false"),
    ];
    let mut wrong = Vec::new();
    for operation in parse_operations() {
        let target = operation.example_target();
        let method = operation.method.as_bytes();
        let submitted = SszSubmission::from_head(method, target.as_bytes(), fields.into_iter());
        if submitted.is_some() != operation.takes_ssz {
            wrong.push(operation.name());
        }
    }
    assert!(wrong.is_empty(), "not as in submission.rs: {wrong:#?}");
}

#[test]
fn routes_with_a_type_are_operations_of_the_specification() {
    let operations = parse_operations();
    let is_one = |method: &str, route: &str, takes: bool| {
        let path = format!("/eth/{route}");
        operations.iter().any(|operation| {
            let has_ssz = match takes {
                true => operation.takes_ssz,
                false => operation.gives_ssz,
            };
            operation.method == method && operation.path == path && has_ssz
        })
    };
    let mut unknown = Vec::new();
    for (method, route, _) in ssz_routes::ssz_response_routes() {
        if !is_one(method, route, false) {
            unknown.push(format!("{method} {route}"));
        }
    }
    for route in submission::submission_routes() {
        if !is_one("POST", route, true) {
            unknown.push(format!("POST {route} with SSZ"));
        }
    }
    assert!(
        unknown.is_empty(),
        "not in tests/beacon/operations.tsv: {unknown:#?}"
    );
}

/// The recorded specification also lists the query parameters and response headers of an operation.
#[test]
fn routes_equal_the_recorded_specification() {
    let name = "shared/reference/apis/beacon-apis.tsv";
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name);
    let Ok(recorded) = fs::read_to_string(path) else {
        eprintln!("skipped: ../{name} is absent");
        return;
    };
    let operations = parse_operations();
    let lines = recorded.lines().filter(|line| !line.starts_with('#'));
    let mut compared = 0;
    for line in lines {
        let columns: Vec<&str> = line.split('\t').collect();
        let [method, path, _, query, request, response, headers, _] = columns[..] else {
            panic!("{line:?} has not eight columns");
        };
        let has_ssz = |types: &str| types.split(' ').any(|of| of.as_bytes() == SSZ_MEDIA_TYPE);
        let path = replace_parameters(path);
        let ours = operations
            .iter()
            .find(|operation| operation.method == method && operation.path == path)
            .unwrap_or_else(|| panic!("tests/beacon/operations.tsv has no {method} {path}"));
        assert_eq!(ours.takes_ssz, has_ssz(request), "{method} {path}");
        assert_eq!(ours.gives_ssz, has_ssz(response), "{method} {path}");
        let target = format!("{}?{}=1", path.replace('*', "1"), query.replace(' ', "=1&"));
        let gives = ssz_routes::ssz_response_type(method.as_bytes(), target.as_bytes());
        assert_eq!(gives.is_some(), ours.gives_ssz, "{method} {target}");
        compared += 1;
        let Some(gives) = gives else {
            continue;
        };
        let has_header = |name: &str| headers.split(' ').any(|header| header == name);
        let needs_no_fork =
            gives.first_fork_if_unchanged().is_some() || gives.names_forks_by_digest();
        assert!(
            needs_no_fork || has_header(CONSENSUS_VERSION_HEADER),
            "the type of {method} {target} depends on a fork that no header names"
        );
        if let Some(name) = gives.block_kind_header_name() {
            assert!(has_header(name), "{method} {target} has no {name}");
        }
    }
    assert!(compared > 80, "{compared} operations");
}
