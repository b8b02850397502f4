//! The blocks that a call names, and the class of the least final one.

use super::super::class::Class;
use crate::jsonrpc::block_reference::{self, BlockReference, BlockTag, RangeEnd};
use crate::jsonrpc::methods::{MethodRow, ResultBlockPath};

/// The blocks on which the response to a call depends, by the block references that the call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockDependency {
    /// The head.
    Head,
    /// The safe or finalized block, alone or as an end of a range. It moves without a new head,
    /// too.
    MovingTag,
    /// Another position of the chain that moves, or none.
    None,
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

impl BlockDependency {
    pub(super) fn for_call(method: &MethodRow, params: Option<&[u8]>) -> Self {
        match block_reference::call_block_reference(method, params) {
            BlockReference::InResult => {
                Self::Transaction(block_reference::call_transaction_hash(params))
            }
            BlockReference::None if method.in_result == ResultBlockPath::Itself => Self::Head,
            reference => reference_dependency(reference).map_or(Self::None, |(_, named)| named),
        }
    }
}

/// Returns the class that the finality of a block reference permits while the state of the chain is
/// unknown, or `None` if the response is not stored.
pub(super) fn class_by_finality(reference: BlockReference) -> Option<Class> {
    match reference {
        BlockReference::InResult => Some(Class::Unfinalized),
        _ => reference_dependency(reference).map(|(class, _)| class),
    }
}

/// Returns the class and the dependency of a block reference. A range is as final as the less final
/// of its ends.
fn reference_dependency(reference: BlockReference) -> Option<(Class, BlockDependency)> {
    Some(match reference {
        BlockReference::Hash {
            hash,
            require_canonical,
        } => match require_canonical {
            false => (Class::Immutable, BlockDependency::Block(hash)),
            true => (Class::Unfinalized, BlockDependency::Block(hash)),
        },
        BlockReference::Number(number) => (Class::Unfinalized, BlockDependency::Number(number)),
        BlockReference::Tag(BlockTag::Latest) => (Class::Tip, BlockDependency::Head),
        BlockReference::Tag(tag) => range_dependency([RangeEnd::Tag(tag); 2])?,
        BlockReference::Range { from, to } => range_dependency([from, to])?,
        // a method by finality that depends on no block
        BlockReference::InResult | BlockReference::None | BlockReference::Invalid => return None,
    })
}

fn range_dependency(ends: [RangeEnd; 2]) -> Option<(Class, BlockDependency)> {
    let has = |tag| ends.contains(&RangeEnd::Tag(tag));
    let numbers = ends.iter().filter_map(|end| match end {
        RangeEnd::Number(number) => Some(*number),
        RangeEnd::Tag(_) => None,
    });
    let last = numbers.max();
    // the least final first
    Some(match last {
        _ if has(BlockTag::Pending) => return None,
        _ if has(BlockTag::Safe) || has(BlockTag::Finalized) => {
            (Class::Tip, BlockDependency::MovingTag)
        }
        _ if has(BlockTag::Latest) && has(BlockTag::Earliest) => {
            (Class::Tip, BlockDependency::Earliest(last))
        }
        _ if has(BlockTag::Latest) => (Class::Tip, BlockDependency::None),
        _ if has(BlockTag::Earliest) => (Class::Unfinalized, BlockDependency::Earliest(last)),
        last => (Class::Unfinalized, BlockDependency::UpTo(last?)),
    })
}
