//! Blocks with a list that contradicts its root.
//!
//! Roots are meaningful where the header is one of Ethereum's. Chains with similar headers put
//! other hashes there: Sei and Harmony the roots of lists with more elements, Conflux and Acala
//! the roots of their own blocks, Filecoin and Hedera zeros or constants. Their `mixHash` is
//! zero, and their `difficulty` is zero or as high as under proof of work; a chain of
//! authorities (Clique, Parlia, Bor, Avalanche), whose `mixHash` is zero, too, has a difficulty
//! of a few.

use memchr::memmem;

/// The root of an empty trie, and the hashes that replace it: Keccak-256 of no bytes (Kaia) and
/// of an empty list, and SHA-256 of no bytes.
const EMPTY_ROOTS: [&[u8]; 4] = [
    b"56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421",
    b"c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470",
    NO_UNCLES,
    b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
];
const NO_UNCLES: &[u8] = b"1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347";
const ZERO_HASH: &[u8] = &[b'0'; 64];

/// Fee recipient of all blocks of the OP Stack, and the type of their first transaction. Since
/// Isthmus their `withdrawalsRoot` is the storage root of a contract, and they have no list.
const OP_FEE_VAULT: &[u8] = b"\"0x4200000000000000000000000000000000000011\"";
const OP_DEPOSIT: &[u8] = b"\"0x7e\"";

/// Highest difficulty of a block that an authority sealed: about twice the number of authorities.
const MAX_AUTHORITY_DIFFICULTY: u64 = 0xffff;

/// Bytes at both ends of a block in which members are searched: transactions, which may be a
/// megabyte, are not read. Transactions have no members with the searched names.
const SEARCH_WINDOW: usize = 8 << 10;

/// Whether a list of the block is empty and its root is not, or vice versa.
pub(super) fn block_has_implausible_roots(block: &[u8]) -> bool {
    let Some(seal) = BlockSealKind::from_block_seal(block) else {
        return false;
    };
    // a genesis block is determined by its state alone
    if value_starts_with(text_from_member_value(block, "number"), b"\"0x0\"") {
        return false;
    }
    let odd = |list: &str, root: &str, empty: &[u8]| {
        let is_empty = text_from_member_value(block, list).and_then(is_leading_list_empty);
        let root = text_from_member_value(block, root).and_then(leading_hash_digits);
        match (is_empty, root) {
            (Some(true), Some(root)) => !is_empty_root(root),
            // Bor lists a transaction that is in no root
            (Some(false), Some(root)) if seal != BlockSealKind::Authority => {
                root.eq_ignore_ascii_case(empty)
            }
            _ => false,
        }
    };
    odd("transactions", "transactionsRoot", EMPTY_ROOTS[0])
        || odd("uncles", "sha3Uncles", NO_UNCLES)
        || !is_op_stack_block(block) && odd("withdrawals", "withdrawalsRoot", EMPTY_ROOTS[0])
}

/// The kind of proof in a block's header: an authority's signature, or any other. It decides which
/// roots have a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockSealKind {
    /// Work or stake, or an unknown proof.
    Other,
    /// Signature of an authority.
    Authority,
}

impl BlockSealKind {
    /// Returns the kind of a block's seal; `None` if it is none of Ethereum's.
    fn from_block_seal(block: &[u8]) -> Option<Self> {
        match text_from_member_value(block, "mixHash").and_then(leading_hash_digits) {
            Some(mix) if mix == ZERO_HASH => {
                let difficulty =
                    text_from_member_value(block, "difficulty").and_then(parse_leading_quantity)?;
                (1..=MAX_AUTHORITY_DIFFICULTY)
                    .contains(&difficulty)
                    .then_some(Self::Authority)
            }
            _ => Some(Self::Other),
        }
    }
}

/// Whether the miner or the type of the first transaction shows that the block is of a chain of the
/// OP Stack.
fn is_op_stack_block(block: &[u8]) -> bool {
    let miner = || text_from_member_value(block, "miner");
    let first = || {
        text_from_member_value(block, "transactions")
            .map(|list| &list[..list.len().min(SEARCH_WINDOW)])
    };
    value_starts_with(miner(), OP_FEE_VAULT)
        || first()
            .is_some_and(|list| value_starts_with(text_from_member_value(list, "type"), OP_DEPOSIT))
}

/// Whether the root, in hex with its prefix, is zero or the root of an empty trie or list.
fn is_empty_root(root: &[u8]) -> bool {
    let is = |empty: &&[u8]| root.eq_ignore_ascii_case(empty);
    root == ZERO_HASH || EMPTY_ROOTS.iter().any(is)
}

/// Returns the text of a block from the value of the member `name` on, if it is near an end of the
/// block.
pub(super) fn text_from_member_value<'a>(block: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let tail = block.len().saturating_sub(SEARCH_WINDOW);
    let head = block.len().min(SEARCH_WINDOW);
    member_value_position(&block[..head], name)
        .or_else(|| member_value_position(&block[tail..], name).map(|at| tail + at))
        .map(|at| &block[at..])
}

/// Returns the position of the value of the first member of that name. In a string the quote at
/// the end of a name has a backslash before it.
fn member_value_position(text: &[u8], name: &str) -> Option<usize> {
    memmem::find_iter(text, name).find_map(|at| {
        let before = at.checked_sub(1).and_then(|at| text.get(at));
        let rest = text.get(at + name.len()..)?.strip_prefix(b"\"")?;
        let rest = rest.trim_ascii_start().strip_prefix(b":")?;
        let value = rest.trim_ascii_start();
        (before == Some(&b'"')).then(|| text.len() - value.len())
    })
}

/// Whether a value is present and starts with `start`, in any case of its letters.
fn value_starts_with(value: Option<&[u8]>, start: &[u8]) -> bool {
    value.is_some_and(|value| {
        let value = value.get(..start.len());
        value.is_some_and(|value| value.eq_ignore_ascii_case(start))
    })
}

/// Whether the list that begins here is empty; `None` if it is no list.
fn is_leading_list_empty(value: &[u8]) -> Option<bool> {
    let rest = value.strip_prefix(b"[")?.trim_ascii_start();
    Some(*rest.first()? == b']')
}

/// Returns the digits of the hash that begins here.
fn leading_hash_digits(value: &[u8]) -> Option<&[u8]> {
    let rest = value.strip_prefix(b"\"0x")?;
    let digits = rest.get(..64)?;
    (rest.get(64) == Some(&b'"')).then_some(digits)
}

/// Parses the quantity in quotes at the beginning of `value`; other text may follow.
fn parse_leading_quantity(value: &[u8]) -> Option<u64> {
    let rest = value.strip_prefix(b"\"0x")?;
    let end = rest.iter().position(|byte| *byte == b'"')?;
    let digits = std::str::from_utf8(&rest[..end]).ok()?;
    u64::from_str_radix(digits, 16).ok()
}
