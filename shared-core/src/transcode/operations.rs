//! Tests that compare the routes of this module with the operations of the Beacon API
//! (`tests/beacon/operations.tsv`): a route that moves or is new in the specification fails here.

use super::{ssz_routes, submission, SszSubmission};
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
    /// Returns a target whose path matches the operation, with its parameters replaced.
    fn example_target(&self) -> String {
        format!("{}?a=b", self.path.replace('*', "1"))
    }
}

fn parse_operations() -> Vec<BeaconApiOperation> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let operation = |line: &'static str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let [method, path, takes, gives, _] = columns[..] else {
            panic!("{line:?} has not five columns");
        };
        let segments = path.split('/').map(|segment| match segment {
            parameter if parameter.starts_with('{') => "*",
            segment => segment,
        });
        let has_ssz = |formats: &str| formats.split('+').any(|format| format == "ssz");
        BeaconApiOperation {
            method,
            path: segments.collect::<Vec<_>>().join("/"),
            takes_ssz: has_ssz(takes),
            gives_ssz: has_ssz(gives),
        }
    };
    lines.map(operation).collect()
}

#[test]
fn operations_with_ssz_responses_have_a_type() {
    for operation in parse_operations() {
        let target = operation.example_target();
        let gives = ssz_routes::ssz_response_type(operation.method.as_bytes(), target.as_bytes());
        let (method, expected) = (operation.method, operation.gives_ssz);
        assert_eq!(gives.is_some(), expected, "{method} {target}");
        assert!(beacon::is_beacon_route(target.as_bytes()), "{target}");
    }
}

#[test]
fn operations_with_ssz_requests_have_a_type() {
    let fields: [(&[u8], &[u8]); 3] = [
        (b"Content-Type", b"application/octet-stream"),
        (b"Eth-Consensus-Version", b"gloas"),
        (b"Eth-Blob-Data-Included", b"false"),
    ];
    for operation in parse_operations() {
        let target = operation.example_target();
        let method = operation.method.as_bytes();
        let submitted = SszSubmission::from_head(method, target.as_bytes(), fields.into_iter());
        assert_eq!(submitted.is_some(), operation.takes_ssz, "{target}");
    }
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
    for (route, _) in ssz_routes::GET_ROUTES {
        assert!(is_one("GET", route, false), "GET {route}");
    }
    for (route, _) in ssz_routes::POST_ROUTES {
        assert!(is_one("POST", route, false), "POST {route}");
    }
    for route in submission::submission_routes() {
        assert!(is_one("POST", route, true), "POST {route} with SSZ");
    }
}
