//! Comparison of the method table with the methods of the specification and of nodes
//! (`tests/methods/lists`), and of the list of the specification with `../shared/reference`.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "../support/method_lists.rs"]
mod method_lists;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use method_lists::{method_lists, ListedMethod};
use sszip_core::jsonrpc::known_methods::{
    is_known_method, uncached_dependency, UncachedDependency,
};
use sszip_core::jsonrpc::methods::{
    all_method_table_rows, find_method_row, BlockParamPosition, MethodClass, MethodRow,
};

const WORDS: [&str; 7] = [
    "_",
    "block",
    "context",
    "filter",
    "hash",
    "number",
    "transaction",
];

#[test]
fn lists_are_sorted_and_have_known_words() {
    for list in method_lists() {
        let names = list.methods.iter().map(|method| method.name);
        assert!(names.is_sorted_by(|a, b| a < b), "{}", list.label);
        assert!(list.methods.len() > 10, "{}", list.label);
        for method in &list.methods {
            for word in &method.params {
                assert!(WORDS.contains(word), "{} {word}", method.name);
            }
            assert_ne!(method.params.last(), Some(&"_"), "{}", method.name);
        }
    }
}

#[test]
fn method_of_a_list_is_cached_or_has_a_reason_not_to_be() {
    for list in method_lists() {
        for method in &list.methods {
            let name = method.name;
            assert!(is_known_method(name), "{}: {name} has no row", list.label);
            assert_ne!(
                uncached_dependency(name),
                Some(UncachedDependency::Unexamined),
                "{}: {name}",
                list.label
            );
        }
    }
}

#[test]
fn row_of_the_method_table_has_a_source() {
    let lists = method_lists();
    let methods = lists.iter().flat_map(|list| &list.methods);
    let names: BTreeSet<&str> = methods.map(|method| method.name).collect();
    for row in all_method_table_rows() {
        assert!(names.contains(row.name), "{} is in no list", row.name);
    }
}

/// Returns why a row does not fit the parameters of a method, or `None` if it fits them.
fn position_mismatch(row: &MethodRow, method: &ListedMethod) -> Option<String> {
    let (at, words): (_, &[&str]) = match row.at {
        BlockParamPosition::None => (usize::MAX, &[]),
        // the rest of what a node accepts as a block is not cached
        BlockParamPosition::Hash(n) => (n, &["hash", "block"]),
        BlockParamPosition::Number(n) => (n, &["number", "block"]),
        BlockParamPosition::ParamMember(n, ..) => (n, &["context", "block"]),
        BlockParamPosition::Param(n) => (n, &["block", "number", "hash"]),
        BlockParamPosition::Range(n, _) => (n, &["filter"]),
        BlockParamPosition::Result => (0, &["transaction"]),
    };
    for (n, word) in method.params.iter().enumerate() {
        let is_fit = match (n == at, *word) {
            (true, word) => words.contains(&word),
            (false, "_") => true,
            // more blocks by their hashes, which do not change either
            (false, "hash") => matches!(row.at, BlockParamPosition::Hash(_)),
            (false, _) => false,
        };
        if !is_fit {
            return Some(format!(
                "parameter {n} is `{word}`, the row has {:?}",
                row.at
            ));
        }
    }
    let is_there = at == usize::MAX || at < method.params.len();
    (!is_there).then(|| format!("no parameter {at}"))
}

#[test]
fn block_of_a_row_is_where_each_node_has_it() {
    for list in method_lists() {
        for method in &list.methods {
            let row = find_method_row(method.name.as_bytes());
            let depends_on_a_block = match row.class {
                MethodClass::Never | MethodClass::Config => false,
                // these depend on the head, whatever block the call names
                MethodClass::Tip => row.at != BlockParamPosition::None,
                MethodClass::Immutable | MethodClass::ByFinality => true,
            };
            let mismatch = position_mismatch(row, method).filter(|_| depends_on_a_block);
            assert_eq!(mismatch, None, "{}: {}", list.label, method.name);
        }
    }
}

#[test]
fn wrong_position_of_a_block_is_found() {
    let method = |name, params: &[&'static str]| ListedMethod {
        name,
        params: params.to_vec(),
    };
    for (name, params) in [
        ("eth_getBalance", &["block"][..]),
        ("eth_getBalance", &["_", "_", "block"]),
        ("eth_getBalance", &[]),
        ("eth_getBlockByHash", &["number"]),
        ("eth_getBlockByNumber", &["hash"]),
        ("eth_getLogs", &["block"]),
        ("eth_getTransactionByHash", &["hash"]),
        ("eth_callMany", &["_", "number"]),
        ("eth_call", &["_", "block", "number"]),
        ("eth_chainId", &["block"]),
    ] {
        let row = find_method_row(name.as_bytes());
        assert!(
            position_mismatch(row, &method(name, params)).is_some(),
            "{name} {params:?}"
        );
    }
    let row = find_method_row(b"debug_getModifiedAccountsByHash");
    let two_hashes = method("debug_getModifiedAccountsByHash", &["hash", "hash"]);
    assert_eq!(position_mismatch(row, &two_hashes), None);
}

#[test]
fn list_of_the_specification_equals_the_reference() {
    let name = "../../shared/reference/apis/execution-apis.tsv";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if !path.exists() {
        eprintln!("skipped: no ../shared/reference");
        return;
    }
    let reference = fs::read_to_string(path).unwrap();
    let rows = reference.lines().filter(|line| !line.starts_with('#'));
    let expected: BTreeSet<&str> = rows.filter_map(|row| row.split('\t').next()).collect();
    assert!(expected.len() > 50, "{name} has no methods");
    let lists = method_lists();
    let ours = lists.iter().find(|list| list.label == "execution-apis");
    let methods = ours.unwrap().methods.iter();
    let names: BTreeSet<&str> = methods.map(|method| method.name).collect();
    assert_eq!(names, expected);
}
