//! Lists of the methods of the specification and of nodes: `tests/methods/lists`.
//!
//! The first line of a list is `# LABEL: VERSION`. A line is the name of a method and its
//! parameters up to the last one that names a block:
//!
//! | word          | parameter                                                 |
//! |---------------|-----------------------------------------------------------|
//! | `block`       | a block's number, tag or hash, or an object of EIP-1898   |
//! | `number`      | a block's number or tag                                   |
//! | `hash`        | a block's hash                                            |
//! | `transaction` | a transaction's hash                                      |
//! | `filter`      | an object with the ends of a range, or a block's hash     |
//! | `context`     | an object with a block                                    |
//! | `_`           | any other                                                 |
//!
//! A `?` follows the word of an optional parameter.

#![allow(dead_code)] // each test binary reads other fields

/// The lists, in the order in which the documentation names them as sources.
const LISTS: [&str; 9] = [
    include_str!("../methods/lists/execution-apis.txt"),
    include_str!("../methods/lists/geth.txt"),
    include_str!("../methods/lists/reth.txt"),
    include_str!("../methods/lists/nethermind.txt"),
    include_str!("../methods/lists/erigon.txt"),
    include_str!("../methods/lists/besu.txt"),
    include_str!("../methods/lists/op-stack.txt"),
    include_str!("../methods/lists/nitro.txt"),
    include_str!("../methods/lists/other.txt"),
];

/// The methods of one source.
pub struct MethodList {
    /// Name of the source.
    pub label: &'static str,
    /// Version and date of the source.
    pub version: &'static str,
    /// The methods, sorted by name.
    pub methods: Vec<ListedMethod>,
}

/// A method of a list.
pub struct ListedMethod {
    /// Name of the method.
    pub name: &'static str,
    /// Words of its parameters, without `?`.
    pub params: Vec<&'static str>,
}

/// Parses all lists.
pub fn method_lists() -> Vec<MethodList> {
    LISTS.into_iter().map(parse_method_list).collect()
}

fn parse_method_list(text: &'static str) -> MethodList {
    let mut lines = text.lines();
    let head = lines.next().and_then(|line| line.strip_prefix("# "));
    let (label, version) = head.and_then(|head| head.split_once(": ")).unwrap();
    MethodList {
        label,
        version,
        methods: lines.map(parse_listed_method).collect(),
    }
}

fn parse_listed_method(line: &'static str) -> ListedMethod {
    let mut words = line.split(' ');
    let name = words.next().unwrap();
    let params = words.map(|word| word.strip_suffix('?').unwrap_or(word));
    ListedMethod {
        name,
        params: params.collect(),
    }
}
