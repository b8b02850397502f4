//! The blocks that a call names, and the class of the least final one.

use super::super::class::Class;
use crate::jsonrpc::block::{self, BlockReference, Bound, Tag};
use crate::jsonrpc::methods::{InResult, Method};

/// The blocks on which a call depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// The head.
    Head,
    /// The safe or finalized block, alone or as an end of a range. It moves without a new head,
    /// too.
    Moving,
    /// Another position of the chain that moves, or none.
    Nothing,
    /// The first block that the node has, which may change; and, for a range, the number of the
    /// other end.
    Earliest(Option<u64>),
    /// A block by its number.
    Number(u64),
    /// A block by its hash.
    Block([u8; 32]),
    /// Blocks up to this number.
    UpTo(u64),
    /// A transaction by its hash, if the hash can be read. The response names its block, or shows
    /// that it has none yet.
    Transaction(Option<[u8; 32]>),
}

impl Named {
    pub(super) fn by(method: &Method, params: Option<&[u8]>) -> Self {
        match block::reference(method, params) {
            BlockReference::InResult => Self::Transaction(block::transaction(params)),
            BlockReference::None if method.in_result == InResult::Itself => Self::Head,
            reference => ends(reference).map_or(Self::Nothing, |(_, named)| named),
        }
    }
}

/// Returns the class of a response by finality while the state of the chain is unknown, or `None`
/// if it is not stored.
pub(super) fn class_of(reference: BlockReference) -> Option<Class> {
    match reference {
        BlockReference::InResult => Some(Class::Unfinalized),
        _ => ends(reference).map(|(class, _)| class),
    }
}

/// Returns the class and the dependency of a block reference. A range is as final as the less final
/// of its ends.
fn ends(reference: BlockReference) -> Option<(Class, Named)> {
    Some(match reference {
        BlockReference::Hash {
            hash,
            require_canonical,
        } => match require_canonical {
            false => (Class::Immutable, Named::Block(hash)),
            true => (Class::Unfinalized, Named::Block(hash)),
        },
        BlockReference::Number(number) => (Class::Unfinalized, Named::Number(number)),
        BlockReference::Tag(Tag::Latest) => (Class::Tip, Named::Head),
        BlockReference::Tag(tag) => of_ends([Bound::Tag(tag); 2])?,
        BlockReference::Range { from, to } => of_ends([from, to])?,
        // a method by finality that depends on no block
        BlockReference::InResult | BlockReference::None | BlockReference::Invalid => return None,
    })
}

fn of_ends(ends: [Bound; 2]) -> Option<(Class, Named)> {
    let has = |tag| ends.contains(&Bound::Tag(tag));
    let numbers = ends.iter().filter_map(|end| match end {
        Bound::Number(number) => Some(*number),
        Bound::Tag(_) => None,
    });
    let last = numbers.max();
    // the least final first
    Some(match last {
        _ if has(Tag::Pending) => return None,
        _ if has(Tag::Safe) || has(Tag::Finalized) => (Class::Tip, Named::Moving),
        _ if has(Tag::Latest) && has(Tag::Earliest) => (Class::Tip, Named::Earliest(last)),
        _ if has(Tag::Latest) => (Class::Tip, Named::Nothing),
        _ if has(Tag::Earliest) => (Class::Unfinalized, Named::Earliest(last)),
        last => (Class::Unfinalized, Named::UpTo(last?)),
    })
}
