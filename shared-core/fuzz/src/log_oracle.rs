//! Oracle of filters for logs, lists of logs and lists of receipts: slow, on a tree of serde_json.

use sha3::{Digest, Keccak256};
use sszip_core::jsonrpc::block_reference::BlockTag;
use sszip_core::jsonrpc::log_filter::{Address, LogFilter, LogFilterEnd, Topic, MAX_TOPICS};

use crate::oracle::{Node, Parts};

/// Length of a bloom in bytes.
const BLOOM_BYTES: usize = 256;

/// Maximum number of addresses, or of topics at one position, in a filter that is read.
const MAX_ALTERNATIVES: usize = 1_000;

/// Length in bytes from which a text is not expanded: the tree of a deep and long text takes long.
const MAX_EXPANDED: usize = 32 << 10;

/// Writes each short value in full: a fuzzer seldom finds 40 equal digits. A sign and a byte `x`
/// are a string of hexadecimal digits: `@x` an address, and `#x` a topic or a hash, of bytes `x`;
/// `%x` the bloom of this address and this topic.
pub fn expand_short_values(text: &[u8]) -> Vec<u8> {
    let mut expanded = Vec::new();
    let mut rest = text;
    while let [sign, after @ ..] = rest {
        let value = match (sign, after) {
            _ if expanded.len() > MAX_EXPANDED => None,
            (b'@', [byte, ..]) => Some(vec![*byte; 20]),
            (b'#', [byte, ..]) => Some(vec![*byte; 32]),
            (b'%', [byte, ..]) => Some(bloom_of_values(&[&[*byte; 20], &[*byte; 32]]).to_vec()),
            _ => None,
        };
        match value {
            Some(value) => {
                let digits: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
                expanded.extend_from_slice(format!("\"0x{}\"", digits.concat()).as_bytes());
                rest = &after[1..];
            }
            None => {
                expanded.push(*sign);
                rest = after;
            }
        }
    }
    expanded
}

/// Returns the bloom of these addresses and topics (Yellow Paper, 4.3.1).
pub fn bloom_of_values(values: &[&[u8]]) -> [u8; BLOOM_BYTES] {
    let mut bloom = [0; BLOOM_BYTES];
    for value in values {
        let hash = Keccak256::digest(value);
        for pair in 0..3 {
            let bit = (usize::from(hash[2 * pair]) << 8 | usize::from(hash[2 * pair + 1])) & 0x7FF;
            bloom[BLOOM_BYTES - 1 - bit / 8] |= 1 << (bit % 8);
        }
    }
    bloom
}

/// Returns the elements of an array.
pub fn array_elements<'n, 'a>(node: &'n Node<'a>) -> Option<&'n [Node<'a>]> {
    match &node.parts {
        Parts::Array(elements) => Some(elements),
        _ => None,
    }
}

/// Returns the members of an object; their names are unchanged, with quotes.
pub fn object_members<'n, 'a>(node: &'n Node<'a>) -> Option<&'n [(&'a str, Node<'a>)]> {
    match &node.parts {
        Parts::Object(members) => Some(members),
        _ => None,
    }
}

/// Returns the values of all members with this name, which has no escapes.
pub fn member_values<'n, 'a>(members: &'n [(&'a str, Node<'a>)], name: &str) -> Vec<&'n Node<'a>> {
    let quoted = format!("\"{name}\"");
    let members = members.iter().filter(|(known, _)| *known == quoted);
    members.map(|(_, value)| value).collect()
}

/// Returns the value of the only member with this name.
pub fn only_member<'n, 'a>(members: &'n [(&'a str, Node<'a>)], name: &str) -> Option<&'n Node<'a>> {
    match member_values(members, name)[..] {
        [value] => Some(value),
        _ => None,
    }
}

/// Returns the digits of a string that begins with `0x`.
fn hex_digits<'a>(node: &Node<'a>) -> Option<&'a str> {
    let digits = node.raw.strip_prefix("\"0x")?.strip_suffix('"')?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then_some(digits)
}

/// Returns a quantity of at most 63 bits, without leading zeros.
pub fn quantity(node: &Node<'_>) -> Option<u64> {
    let digits = hex_digits(node)?;
    if digits.starts_with('0') && digits != "0" {
        return None;
    }
    let number = u64::from_str_radix(digits, 16).ok()?;
    (number <= i64::MAX as u64).then_some(number)
}

/// Returns the `N` bytes of a string of hexadecimal digits.
pub fn hex_data<const N: usize>(node: &Node<'_>) -> Option<[u8; N]> {
    let digits = hex_digits(node)?;
    let pairs = (0..digits.len())
        .step_by(2)
        .map(|at| digits.get(at..at + 2));
    let bytes: Option<Vec<u8>> = pairs
        .map(|pair| u8::from_str_radix(pair?, 16).ok())
        .collect();
    bytes?.try_into().ok()
}

/// Reads the filter in the params of a call as [`LogFilter::read`] does.
pub fn read_filter(params: &[u8]) -> Option<LogFilter<'_>> {
    let tree = Node::parse(params)?;
    let [object] = array_elements(&tree)? else {
        return None;
    };
    let members = object_members(object)?;
    const NAMES: [&str; 5] = ["fromBlock", "toBlock", "blockHash", "address", "topics"];
    let is_known = |name: &str| NAMES.iter().any(|known| *name == format!("\"{known}\""));
    if !members.iter().all(|(name, _)| is_known(name)) {
        return None;
    }
    let is_unique = |name: &&str| member_values(members, name).len() <= 1;
    if !NAMES.iter().all(is_unique) {
        return None;
    }
    let (from, to) = (
        only_member(members, "fromBlock"),
        only_member(members, "toBlock"),
    );
    let hash = only_member(members, "blockHash");
    if hash.is_some() && (from.is_some() || to.is_some()) {
        return None;
    }
    let position = |node: &Node<'_>| node.raw.as_ptr() as usize - params.as_ptr() as usize;
    let start = position(object);
    let span = |node: &Node<'_>| position(node) - start..position(node) - start + node.raw.len();
    let end = |node: Option<&Node<'_>>| node.map_or(Some(LogFilterEnd::Absent), read_end);
    Some(LogFilter {
        text: &params[start..start + object.raw.len()],
        from_block: end(from)?,
        to_block: end(to)?,
        from_block_span: from.map(span),
        to_block_span: to.map(span),
        block_hash: match hash {
            Some(hash) => Some(hex_data(hash)?),
            None => None,
        },
        addresses: match only_member(members, "address") {
            Some(value) => alternatives::<20>(value)?,
            None => Vec::new(),
        },
        topics: match only_member(members, "topics") {
            Some(value) => topic_positions(value)?,
            None => Vec::new(),
        },
    })
}

fn read_end(node: &Node<'_>) -> Option<LogFilterEnd> {
    let tag = match node.raw {
        "\"latest\"" => BlockTag::Latest,
        "\"safe\"" => BlockTag::Safe,
        "\"finalized\"" => BlockTag::Finalized,
        "\"pending\"" => BlockTag::Pending,
        "\"earliest\"" => BlockTag::Earliest,
        _ => return quantity(node).map(LogFilterEnd::Number),
    };
    Some(LogFilterEnd::Tag(tag))
}

/// Returns one value or the values of a list in ascending order; no values for `null`.
fn alternatives<const N: usize>(node: &Node<'_>) -> Option<Vec<[u8; N]>> {
    let mut values: Vec<[u8; N]> = match (&node.parts, node.raw) {
        (Parts::Leaf, "null") => Vec::new(),
        (Parts::Leaf, _) => vec![hex_data(node)?],
        (Parts::Array(elements), _) => {
            if elements.is_empty() || elements.len() > MAX_ALTERNATIVES {
                return None;
            }
            let values: Option<Vec<_>> = elements.iter().map(hex_data).collect();
            values?
        }
        (Parts::Object(_), _) => return None,
    };
    values.sort();
    Some(values)
}

fn topic_positions(node: &Node<'_>) -> Option<Vec<Vec<Topic>>> {
    if node.raw == "null" {
        return Some(Vec::new());
    }
    let elements = array_elements(node)?;
    if elements.len() > MAX_TOPICS {
        return None;
    }
    elements.iter().map(alternatives::<32>).collect()
}

/// Whether a filter matches a log with this address and these topics; `None` if nodes disagree.
pub fn matches_log(filter: &LogFilter<'_>, address: &Address, topics: &[Topic]) -> Option<bool> {
    let is_address = filter.addresses.is_empty() || filter.addresses.contains(address);
    let positions = || (0..).zip(&filter.topics);
    let excludes = |(at, any): (usize, &Vec<Topic>)| {
        !any.is_empty() && topics.get(at).is_none_or(|topic| !any.contains(topic))
    };
    if !is_address || positions().any(excludes) {
        return Some(false);
    }
    // any topic at a position without one
    let is_disputed = positions().any(|(at, any)| any.is_empty() && at >= topics.len());
    (!is_disputed).then_some(true)
}

/// Whether a receipt with this bloom may have a log that the filter matches.
pub fn may_match_bloom(filter: &LogFilter<'_>, bloom: &[u8; BLOOM_BYTES]) -> bool {
    let contains = |value: &[u8]| {
        let wanted = bloom_of_values(&[value]);
        wanted
            .iter()
            .zip(bloom)
            .all(|(bits, of)| bits & of == *bits)
    };
    let by_address = filter.addresses.is_empty() || filter.addresses.iter().any(|it| contains(it));
    let by_topics = |any: &Vec<Topic>| any.is_empty() || any.iter().any(|it| contains(it));
    by_address && filter.topics.iter().all(by_topics)
}
