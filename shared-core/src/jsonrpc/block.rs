//! The block that a call is about.
//!
//! Only what every node reads alike is a reference. Decimal strings, bare
//! numbers, leading zeros, members in odd case: one node answers them, another
//! refuses them, a third takes them for another block, so that they are
//! [`BlockReference::Invalid`] and their answers are not stored.

use memchr::memmem;

use super::methods::{BlockAt, InResult, Method, Path, Step, ANY};
use super::response::{first_element, member};
use super::scan::Scanner;

/// A block named by its place, not by a number or hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tag {
    /// The head.
    Latest,
    /// The head that the consensus client takes for safe.
    Safe,
    /// The newest final block: another one every few minutes.
    Finalized,
    /// What the node would put into the next block.
    Pending,
    /// The first block that the node has: not always the genesis.
    Earliest,
}

/// An end of a range, itself within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// A block's number.
    Number(u64),
    /// A tag. An end that is absent is [`Tag::Latest`].
    Tag(Tag),
}

/// What a call says about the block it wants. An object of EIP-1898 is
/// resolved to what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockReference {
    /// A block's number. It may be beyond the head.
    Number(u64),
    /// A block's hash, not necessarily of a canonical block.
    Hash {
        /// The hash.
        hash: [u8; 32],
        /// The node answers with an error once the block is not canonical
        /// (EIP-1898), so that a reorg ends what was true before.
        require_canonical: bool,
    },
    /// A tag, or no parameter where the method has one: latest.
    Tag(Tag),
    /// Blocks from one to another. Two numbers are in order.
    Range {
        /// The first of them. Absent it is taken for the latest, which some
        /// nodes do and which is never final.
        from: Bound,
        /// The last of them.
        to: Bound,
    },
    /// Only the result knows: see [`in_result`].
    InResult,
    /// The method is about no block, or its answers are never stored.
    None,
    /// Not to be understood, so not to be stored.
    Invalid,
}

/// The block that a result is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResultBlock {
    /// Its number.
    pub number: u64,
    /// Its hash, if the result gives it.
    pub hash: Option<[u8; 32]>,
}

/// The block that a call of `method` is about; `params` are as
/// [`request::parse`](super::request::parse) found them.
pub fn reference(method: &Method, params: Option<&[u8]>) -> BlockReference {
    match method.at {
        BlockAt::None => BlockReference::None,
        BlockAt::Result => BlockReference::InResult,
        _ => in_params(method.at, params).unwrap_or(BlockReference::Invalid),
    }
}

/// The block that a result of `method` is from; `None` if it does not say, as
/// a pending transaction and `null` don't.
pub fn in_result(method: &Method, result: &[u8]) -> Option<ResultBlock> {
    let (object, number, hash) = match method.in_result {
        InResult::None => return None,
        InResult::Itself => {
            return Some(ResultBlock {
                number: quantity(result)?,
                hash: None,
            })
        }
        InResult::Block => (result, "number", "hash"),
        InResult::Item => (result, "blockNumber", "blockHash"),
        InResult::First => (first_element(result)?, "blockNumber", "blockHash"),
        InResult::Path(path) => return at_end_of(path, result),
    };
    Some(ResultBlock {
        number: number_of(member(object, number)?)?,
        hash: Some(hash_of(member(object, hash)?)?),
    })
}

fn at_end_of(path: &Path, result: &[u8]) -> Option<ResultBlock> {
    let object = path
        .steps
        .iter()
        .try_fold(result, |value, step| match step {
            Step::Member(name) => member(value, name),
            Step::First => first_element(value),
        })?;
    Some(ResultBlock {
        number: number_of(member(object, &path.number)?)?,
        hash: member(object, &path.hash).and_then(hash_of),
    })
}

/// Traces in Parity's form have a bare number.
fn number_of(value: &[u8]) -> Option<u64> {
    quantity(value).or_else(|| integer(value))
}

/// The block of the last part of a list of parts of blocks, as [`BlockAt::Range`]
/// methods give it. Read from the end, since such lists are long: what it says
/// of text that is no JSON means nothing.
pub fn last_in_list(list: &[u8]) -> Option<u64> {
    let at = memmem::rfind(list, NUMBER_OF_PART)?;
    number_of_member(list, at, NUMBER_OF_PART)
}

const NUMBER_OF_PART: &[u8] = b"\"blockNumber\"";

/// The highest block of which there seems to be a part in some of a text, which may be cut
/// anywhere.
pub fn highest_in_text(text: &[u8]) -> Option<u64> {
    let all = memmem::find_iter(text, NUMBER_OF_PART);
    all.filter_map(|at| number_of_member(text, at, NUMBER_OF_PART))
        .max()
}

/// The number that the member at that place has, whose name is `name`.
pub(super) fn number_of_member(list: &[u8], at: usize, name: &[u8]) -> Option<u64> {
    // in a string it would end in an escaped quote
    if !matches!(list[..at].trim_ascii_end().last(), Some(b'{' | b',')) {
        return None;
    }
    let value = list[at + name.len()..].trim_ascii_start();
    let value = value.strip_prefix(b":")?.trim_ascii_start();
    let end = value.iter().position(|byte| b",} \t\r\n".contains(byte))?;
    number_of(&value[..end])
}

/// The transaction that a call names by its hash, as its first parameter.
pub fn transaction(params: Option<&[u8]>) -> Option<[u8; 32]> {
    hash_of(element(params, 0)??)
}

/// The transaction that a result of `method` is of, if it says so.
pub fn transaction_in(method: &Method, result: &[u8]) -> Option<[u8; 32]> {
    let object = match method.in_result {
        InResult::Item => result,
        InResult::First => first_element(result)?,
        _ => return None,
    };
    // a transaction calls it its own
    hash_of(member(object, "transactionHash").or_else(|| member(object, "hash"))?)
}

/// `None` stands for [`BlockReference::Invalid`].
fn in_params(at: BlockAt, params: Option<&[u8]>) -> Option<BlockReference> {
    const ABSENT: BlockReference = BlockReference::Tag(Tag::Latest);
    match at {
        BlockAt::Hash(n) => Some(by_hash(hash_of(element(params, n)??)?)),
        BlockAt::Number(n) => match element(params, n)? {
            Some(value) => number_or_tag(value).map(BlockReference::from),
            None => Some(ABSENT),
        },
        BlockAt::Param(n) => match element(params, n)? {
            Some(value) => block(value),
            None => Some(ABSENT),
        },
        BlockAt::ParamMember(n, name, others) => match element(params, n)? {
            Some(object) => match members(object, [name], others)? {
                [Some(value)] => block(value),
                [None] => Some(ABSENT),
            },
            None => Some(ABSENT),
        },
        BlockAt::Range(n, others) => range(element(params, n)??, others),
        BlockAt::None | BlockAt::Result => None,
    }
}

/// A block's number, tag or hash, or an object of EIP-1898.
fn block(value: &[u8]) -> Option<BlockReference> {
    if value.first() != Some(&b'{') {
        return match hash_of(value) {
            Some(hash) => Some(by_hash(hash)),
            None => number_or_tag(value).map(BlockReference::from),
        };
    }
    match members(value, ["blockNumber", "blockHash", "requireCanonical"], &[])? {
        [Some(number), None, None] => number_or_tag(number).map(BlockReference::from),
        [None, Some(hash), canonical] => Some(BlockReference::Hash {
            hash: hash_of(hash)?,
            require_canonical: match canonical {
                Some(b"true") => true,
                Some(b"false") | None => false,
                Some(_) => return None,
            },
        }),
        _ => None,
    }
}

fn range(object: &[u8], others: &[&str]) -> Option<BlockReference> {
    let bound = |value: Option<&[u8]>| match value {
        Some(value) => number_or_tag(value),
        None => Some(Bound::Tag(Tag::Latest)),
    };
    match members(object, ["fromBlock", "toBlock", "blockHash"], others)? {
        [None, None, Some(hash)] => Some(by_hash(hash_of(hash)?)),
        [from, to, None] => match (bound(from)?, bound(to)?) {
            // An error at one node, nothing at another.
            (Bound::Number(from), Bound::Number(to)) if from > to => None,
            (from, to) => Some(BlockReference::Range { from, to }),
        },
        _ => None,
    }
}

fn by_hash(hash: [u8; 32]) -> BlockReference {
    BlockReference::Hash {
        hash,
        require_canonical: false,
    }
}

impl From<Bound> for BlockReference {
    fn from(bound: Bound) -> BlockReference {
        match bound {
            Bound::Number(number) => BlockReference::Number(number),
            Bound::Tag(tag) => BlockReference::Tag(tag),
        }
    }
}

fn number_or_tag(value: &[u8]) -> Option<Bound> {
    Some(Bound::Tag(match value {
        b"\"latest\"" => Tag::Latest,
        b"\"safe\"" => Tag::Safe,
        b"\"finalized\"" => Tag::Finalized,
        b"\"pending\"" => Tag::Pending,
        b"\"earliest\"" => Tag::Earliest,
        _ => return quantity(value).map(Bound::Number),
    }))
}

/// A quantity as the execution API defines it. Not beyond 63 bits: nodes keep
/// block numbers in signed words, the negative ones standing for tags.
pub(super) fn quantity(value: &[u8]) -> Option<u64> {
    let digits = value.strip_prefix(b"\"0x")?.strip_suffix(b"\"")?;
    if digits.is_empty() || digits.len() > 16 || (digits[0] == b'0' && digits.len() > 1) {
        return None;
    }
    let number = digits.iter().try_fold(0, |number, &digit| {
        Some(number << 4 | u64::from(char::from(digit).to_digit(16)?))
    })?;
    i64::try_from(number).is_ok().then_some(number)
}

pub(super) fn integer(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// A string of `0x` and 64 hexadecimal digits.
fn hash_of(value: &[u8]) -> Option<[u8; 32]> {
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

/// The n-th of the parameters: `Some(None)` if there are fewer, `None` if they
/// are not an array.
fn element(params: Option<&[u8]>, n: usize) -> Option<Option<&[u8]>> {
    let Some(params) = params else {
        return Some(None);
    };
    let mut scanner = Scanner::of_value(params);
    let mut another = scanner.first_element().ok()?;
    for _ in 0..n {
        if !another {
            return Some(None);
        }
        scanner.value().ok()?;
        another = scanner.next_element().ok()?;
    }
    if !another {
        return Some(None);
    }
    let value = scanner.value().ok()?;
    Some(Some(&params[value.span]))
}

/// The members of an object that are called `names`; `None` if it is not an
/// object, if one occurs twice, or if there are members but these and
/// `others`. Go's decoder takes `TOBLOCK` for `toBlock`, and with both the
/// last: so a name nobody knows may be the one that counts. [`ANY`] allows all
/// but those.
fn members<'a, const N: usize>(
    object: &'a [u8],
    names: [&str; N],
    others: &[&str],
) -> Option<[Option<&'a [u8]>; N]> {
    let mut values = [None; N];
    let mut scanner = Scanner::of_value(object);
    let mut next = scanner.first_member().ok()?;
    while let Some(name) = next {
        let name = &object[name.content];
        let value = scanner.value().ok()?;
        let is = |known: &&str| known.as_bytes() == name;
        match names.iter().position(is) {
            Some(n) if values[n].is_some() => return None,
            Some(n) => values[n] = Some(&object[value.span]),
            None if others.iter().any(is) => {}
            None if others == ANY && !names.iter().any(|known| is_taken_for(name, known)) => {}
            None => return None,
        }
        next = scanner.next_member().ok()?;
    }
    Some(values)
}

/// Whether a node may take a name for another one. One with escapes, or letters beyond
/// ASCII that fold into it, may be any.
fn is_taken_for(name: &[u8], known: &str) -> bool {
    let is_plain = name.is_ascii() && !name.contains(&b'\\');
    !is_plain || name.eq_ignore_ascii_case(known.as_bytes())
}
