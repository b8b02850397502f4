//! Block references of calls and results.
//!
//! A block reference is only what every node reads alike. Decimal strings, bare numbers,
//! leading zeros, members in another case: one node responds, another reports an error, a
//! third reads another block. They are [`BlockReference::Invalid`], and the responses are not
//! stored.

use memchr::memmem;

use super::methods::{
    BlockNumberPath, BlockParamPosition, MethodRow, ResultBlockPosition, ResultPathStep, ANY_MEMBER,
};
use super::response::{find_object_member, first_array_element};
use super::scan::StrictJsonReader;

/// A block that a call names by its role, not by a number or hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockTag {
    /// The head.
    Latest,
    /// The head that the consensus client considers safe.
    Safe,
    /// The newest finalized block: another one every few minutes.
    Finalized,
    /// The block that the node would build next.
    Pending,
    /// The first block that the node has, which is not always the genesis.
    Earliest,
}

/// The first or the last block of an inclusive range, as a log filter names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockRangeBound {
    /// A block's number.
    Number(u64),
    /// A tag; an absent end is [`BlockTag::Latest`].
    Tag(BlockTag),
}

/// The block or the range on which a call depends, as the call names it. An object of EIP-1898 is
/// resolved to its member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockReference {
    /// A block's number. It may be beyond the head.
    Number(u64),
    /// A block's hash, not necessarily of a canonical block.
    Hash {
        /// The hash.
        hash: [u8; 32],
        /// The node responds with an error once the block is not canonical (EIP-1898), so that
        /// a reorg invalidates the response.
        require_canonical: bool,
    },
    /// A tag; an absent parameter of a method that has one is `latest`.
    Tag(BlockTag),
    /// A range of blocks. Two numbers are in ascending order.
    Range {
        /// The first block. An absent end is read as `latest`, as some nodes read it, and is
        /// never finalized.
        from: BlockRangeBound,
        /// The last block.
        to: BlockRangeBound,
    },
    /// The result names the block: see [`result_block`].
    InResult,
    /// The method depends on no block, or its responses are never stored.
    None,
    /// The reference is not valid, so that the response is not stored.
    Invalid,
}

/// The block to which a result belongs, as the result names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResultBlock {
    /// Number of the block.
    pub number: u64,
    /// Hash of the block, if the result contains it.
    pub hash: Option<[u8; 32]>,
}

/// Returns the block on which a call of `method` depends; `params` are the params that
/// [`parse_jsonrpc_request`](super::request::parse_jsonrpc_request) returns.
pub fn call_block_reference(method: &MethodRow, params: Option<&[u8]>) -> BlockReference {
    match method.at {
        BlockParamPosition::None => BlockReference::None,
        BlockParamPosition::Result => BlockReference::InResult,
        _ => params_block_reference(method.at, params).unwrap_or(BlockReference::Invalid),
    }
}

/// Returns the block to which a result of `method` belongs; `None` if the result names none, as
/// for a pending transaction or `null`.
pub fn result_block(method: &MethodRow, result: &[u8]) -> Option<ResultBlock> {
    let (object, number, hash) = match method.in_result {
        ResultBlockPosition::None => return None,
        ResultBlockPosition::Itself => {
            return Some(ResultBlock {
                number: parse_quantity(result)?,
                hash: None,
            })
        }
        ResultBlockPosition::Block => (result, "number", "hash"),
        ResultBlockPosition::Item => (result, "blockNumber", "blockHash"),
        ResultBlockPosition::First => (first_array_element(result)?, "blockNumber", "blockHash"),
        ResultBlockPosition::Path(path) => return result_block_at_path(path, result),
    };
    Some(ResultBlock {
        number: parse_block_number(find_object_member(object, number)?)?,
        hash: Some(parse_hash(find_object_member(object, hash)?)?),
    })
}

/// Reads the block of a result at the path that an operator's method row names.
fn result_block_at_path(path: &BlockNumberPath, result: &[u8]) -> Option<ResultBlock> {
    let object = path
        .steps
        .iter()
        .try_fold(result, |value, step| match step {
            ResultPathStep::Member(name) => find_object_member(value, name),
            ResultPathStep::First => first_array_element(value),
        })?;
    Some(ResultBlock {
        number: parse_block_number(find_object_member(object, &path.number)?)?,
        hash: find_object_member(object, &path.hash).and_then(parse_hash),
    })
}

/// Reads a block number; traces in Parity's form have it as a bare number.
pub(super) fn parse_block_number(value: &[u8]) -> Option<u64> {
    parse_quantity(value).or_else(|| parse_integer(value))
}

/// Returns the block of the last part in a list of parts of blocks, the result of methods with
/// [`BlockParamPosition::Range`]. The list is read from its end, because it may be long; the number is
/// meaningless if the text is no JSON.
pub fn last_block_in_list(list: &[u8]) -> Option<u64> {
    let at = memmem::rfind(list, NUMBER_OF_PART)?;
    block_number_of_member(list, at, NUMBER_OF_PART)
}

const NUMBER_OF_PART: &[u8] = b"\"blockNumber\"";

/// Returns the highest block number that a piece of a result names. The text may be cut anywhere.
pub fn highest_block_in_text(text: &[u8]) -> Option<u64> {
    let all = memmem::find_iter(text, NUMBER_OF_PART);
    all.filter_map(|at| block_number_of_member(text, at, NUMBER_OF_PART))
        .max()
}

/// Returns the number in the member called `name` at position `at`.
pub(super) fn block_number_of_member(list: &[u8], at: usize, name: &[u8]) -> Option<u64> {
    // in a string the name would end in an escaped quote
    if !matches!(list[..at].trim_ascii_end().last(), Some(b'{' | b',')) {
        return None;
    }
    let value = list[at + name.len()..].trim_ascii_start();
    let value = value.strip_prefix(b":")?.trim_ascii_start();
    let end = value.iter().position(|byte| b",} \t\r\n".contains(byte))?;
    parse_block_number(&value[..end])
}

/// Returns the transaction hash that is the first parameter of a call.
pub fn call_transaction_hash(params: Option<&[u8]>) -> Option<[u8; 32]> {
    parse_hash(nth_param(params, 0)??)
}

/// Returns the transaction to which a result of `method` belongs, if the result names it.
pub fn result_transaction_hash(method: &MethodRow, result: &[u8]) -> Option<[u8; 32]> {
    let object = match method.in_result {
        ResultBlockPosition::Item => result,
        ResultBlockPosition::First => first_array_element(result)?,
        _ => return None,
    };
    // a transaction names its own hash `hash`
    parse_hash(
        find_object_member(object, "transactionHash")
            .or_else(|| find_object_member(object, "hash"))?,
    )
}

/// Reads the block that the params name; `None` stands for [`BlockReference::Invalid`].
fn params_block_reference(at: BlockParamPosition, params: Option<&[u8]>) -> Option<BlockReference> {
    const ABSENT: BlockReference = BlockReference::Tag(BlockTag::Latest);
    match at {
        BlockParamPosition::Hash(n) => {
            Some(block_hash_reference(parse_hash(nth_param(params, n)??)?))
        }
        BlockParamPosition::Number(n) => match nth_param(params, n)? {
            Some(value) => parse_number_or_tag(value).map(BlockReference::from),
            None => Some(ABSENT),
        },
        BlockParamPosition::Param(n) => match nth_param(params, n)? {
            Some(value) => parse_block_reference(value),
            None => Some(ABSENT),
        },
        BlockParamPosition::ParamMember(n, name, others) => match nth_param(params, n)? {
            Some(object) => match exact_object_members(object, [name], others)? {
                [Some(value)] => parse_block_reference(value),
                [None] => Some(ABSENT),
            },
            None => Some(ABSENT),
        },
        BlockParamPosition::Range(n, others) => {
            parse_log_filter_range(nth_param(params, n)??, others)
        }
        BlockParamPosition::None | BlockParamPosition::Result => None,
    }
}

/// Parses a block's number, tag or hash, or an object of EIP-1898; `None` if it is invalid.
fn parse_block_reference(value: &[u8]) -> Option<BlockReference> {
    if value.first() != Some(&b'{') {
        return match parse_hash(value) {
            Some(hash) => Some(block_hash_reference(hash)),
            None => parse_number_or_tag(value).map(BlockReference::from),
        };
    }
    match exact_object_members(value, ["blockNumber", "blockHash", "requireCanonical"], &[])? {
        [Some(number), None, None] => parse_number_or_tag(number).map(BlockReference::from),
        [None, Some(hash), canonical] => Some(BlockReference::Hash {
            hash: parse_hash(hash)?,
            require_canonical: match canonical {
                Some(b"true") => true,
                Some(b"false") | None => false,
                Some(_) => return None,
            },
        }),
        _ => None,
    }
}

/// Parses the range or the hash of a log filter, which may have the members `others`, too.
fn parse_log_filter_range(object: &[u8], others: &[&str]) -> Option<BlockReference> {
    let bound = |value: Option<&[u8]>| match value {
        Some(value) => parse_number_or_tag(value),
        None => Some(BlockRangeBound::Tag(BlockTag::Latest)),
    };
    match exact_object_members(object, ["fromBlock", "toBlock", "blockHash"], others)? {
        [None, None, Some(hash)] => Some(block_hash_reference(parse_hash(hash)?)),
        [from, to, None] => match (bound(from)?, bound(to)?) {
            // An error at one node, an empty list at another.
            (BlockRangeBound::Number(from), BlockRangeBound::Number(to)) if from > to => None,
            (from, to) => Some(BlockReference::Range { from, to }),
        },
        _ => None,
    }
}

/// Returns the reference to a block by its hash, which need not be canonical.
fn block_hash_reference(hash: [u8; 32]) -> BlockReference {
    BlockReference::Hash {
        hash,
        require_canonical: false,
    }
}

impl From<BlockRangeBound> for BlockReference {
    fn from(bound: BlockRangeBound) -> BlockReference {
        match bound {
            BlockRangeBound::Number(number) => BlockReference::Number(number),
            BlockRangeBound::Tag(tag) => BlockReference::Tag(tag),
        }
    }
}

/// Parses a block's number or tag; `None` for anything else.
pub(super) fn parse_number_or_tag(value: &[u8]) -> Option<BlockRangeBound> {
    Some(BlockRangeBound::Tag(match value {
        b"\"latest\"" => BlockTag::Latest,
        b"\"safe\"" => BlockTag::Safe,
        b"\"finalized\"" => BlockTag::Finalized,
        b"\"pending\"" => BlockTag::Pending,
        b"\"earliest\"" => BlockTag::Earliest,
        _ => return parse_quantity(value).map(BlockRangeBound::Number),
    }))
}

/// Reads a quantity as the execution API defines it, of 63 bits at most: nodes keep block
/// numbers in signed words, whose negative values stand for tags.
pub(super) fn parse_quantity(value: &[u8]) -> Option<u64> {
    let digits = value.strip_prefix(b"\"0x")?.strip_suffix(b"\"")?;
    if digits.is_empty() || digits.len() > 16 || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    let number = digits.iter().try_fold(0, |number, &digit| {
        Some(number << 4 | u64::from(char::from(digit).to_digit(16)?))
    })?;
    i64::try_from(number).is_ok().then_some(number)
}

/// Parses a decimal number, or returns `None` if the value is none or exceeds 64 bits.
pub(super) fn parse_integer(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Reads a string of `0x` and 64 hexadecimal digits.
pub(super) fn parse_hash(value: &[u8]) -> Option<[u8; 32]> {
    let digits = value.strip_prefix(b"\"0x")?.strip_suffix(b"\"")?;
    if digits.len() != 64 {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |n: usize| char::from(pair[n]).to_digit(16);
        *byte = u8::try_from(digit(0)? << 4 | digit(1)?).ok()?;
    }
    Some(hash)
}

/// Returns parameter `n` of a call: `Some(None)` if there are fewer, `None` if the params are not
/// an array.
fn nth_param(params: Option<&[u8]>, n: usize) -> Option<Option<&[u8]>> {
    let Some(params) = params else {
        return Some(None);
    };
    let mut scanner = StrictJsonReader::for_trusted_utf8(params);
    let mut another = scanner.enter_array().ok()?;
    for _ in 0..n {
        if !another {
            return Some(None);
        }
        scanner.skip_value().ok()?;
        another = scanner.next_element().ok()?;
    }
    if !another {
        return Some(None);
    }
    let value = scanner.skip_value().ok()?;
    Some(Some(&params[value.span]))
}

/// Returns the members of an object that are called `names`; `None` if the value is not an object,
/// if a member occurs twice, or if there are members besides these and `others`. Go's decoder reads
/// `TOBLOCK` as `toBlock`, and the last of the two wins: an unknown name may be the one that is
/// read. [`ANY_MEMBER`] allows all names except such variants.
fn exact_object_members<'a, const N: usize>(
    object: &'a [u8],
    names: [&str; N],
    others: &[&str],
) -> Option<[Option<&'a [u8]>; N]> {
    let mut values = [None; N];
    let mut scanner = StrictJsonReader::for_trusted_utf8(object);
    let mut next = scanner.read_first_member_name().ok()?;
    while let Some(name) = next {
        let name = &object[name.content];
        let value = scanner.skip_value().ok()?;
        let is = |known: &&str| known.as_bytes() == name;
        match names.iter().position(is) {
            Some(n) if values[n].is_some() => return None,
            Some(n) => values[n] = Some(&object[value.span]),
            None if others.iter().any(is) => {}
            None if others == ANY_MEMBER
                && !names.iter().any(|known| may_alias_member_name(name, known)) => {}
            None => return None,
        }
        next = scanner.next_member().ok()?;
    }
    Some(values)
}

/// Whether a node may read a name as another one. A name with escapes, or with letters beyond
/// ASCII that fold into it, may be read as any.
fn may_alias_member_name(name: &[u8], known: &str) -> bool {
    let is_plain = name.is_ascii() && !name.contains(&b'\\');
    !is_plain || name.eq_ignore_ascii_case(known.as_bytes())
}
