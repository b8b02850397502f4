//! The blocks that a call names, and the class of the least final one.

use super::super::class::LifetimeClass;
use crate::jsonrpc::block_reference::{self, BlockRangeBound, BlockReference, BlockTag};
use crate::jsonrpc::methods::{MethodRow, ResultBlockPosition};

/// The blocks on which the response to a call depends, by the block references that the call names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallBlockDependency {
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

impl CallBlockDependency {
    /// Returns the block, the transaction or the head on which the result of a call depends;
    /// [`Self::None`] if the call names none.
    pub(super) fn dependency_for_call(method: &MethodRow, params: Option<&[u8]>) -> Self {
        match block_reference::call_block_reference(method, params) {
            BlockReference::InResult => {
                Self::Transaction(block_reference::call_transaction_hash(params))
            }
            BlockReference::None if method.in_result == ResultBlockPosition::Itself => Self::Head,
            reference => reference_dependency(reference).map_or(Self::None, |(_, named)| named),
        }
    }
}

/// Returns the class that the finality of a block reference permits while the state of the chain is
/// unknown, or `None` if the response is not stored.
pub(super) fn class_by_finality(reference: BlockReference) -> Option<LifetimeClass> {
    match reference {
        BlockReference::InResult => Some(LifetimeClass::Unfinalized),
        _ => reference_dependency(reference).map(|(class, _)| class),
    }
}

/// Returns the class and the dependency of a block reference. A range is as final as the less final
/// of its ends.
fn reference_dependency(reference: BlockReference) -> Option<(LifetimeClass, CallBlockDependency)> {
    Some(match reference {
        BlockReference::Hash {
            hash,
            require_canonical,
        } => match require_canonical {
            false => (LifetimeClass::Immutable, CallBlockDependency::Block(hash)),
            true => (LifetimeClass::Unfinalized, CallBlockDependency::Block(hash)),
        },
        BlockReference::Number(number) => (
            LifetimeClass::Unfinalized,
            CallBlockDependency::Number(number),
        ),
        BlockReference::Tag(BlockTag::Latest) => (LifetimeClass::Tip, CallBlockDependency::Head),
        BlockReference::Tag(tag) => range_dependency([BlockRangeBound::Tag(tag); 2])?,
        BlockReference::Range { from, to } => range_dependency([from, to])?,
        // a method by finality that depends on no block
        BlockReference::InResult | BlockReference::None | BlockReference::Invalid => return None,
    })
}

/// Returns the class and the dependency of a range of blocks, or `None` if one end is `pending`,
/// with which no response is stored.
fn range_dependency(ends: [BlockRangeBound; 2]) -> Option<(LifetimeClass, CallBlockDependency)> {
    let has = |tag| ends.contains(&BlockRangeBound::Tag(tag));
    let numbers = ends.iter().filter_map(|end| match end {
        BlockRangeBound::Number(number) => Some(*number),
        BlockRangeBound::Tag(_) => None,
    });
    let last = numbers.max();
    // the least final first
    Some(match last {
        _ if has(BlockTag::Pending) => return None,
        _ if has(BlockTag::Safe) || has(BlockTag::Finalized) => {
            (LifetimeClass::Tip, CallBlockDependency::MovingTag)
        }
        _ if has(BlockTag::Latest) && has(BlockTag::Earliest) => {
            (LifetimeClass::Tip, CallBlockDependency::Earliest(last))
        }
        _ if has(BlockTag::Latest) => (LifetimeClass::Tip, CallBlockDependency::None),
        _ if has(BlockTag::Earliest) => (
            LifetimeClass::Unfinalized,
            CallBlockDependency::Earliest(last),
        ),
        last => (LifetimeClass::Unfinalized, CallBlockDependency::UpTo(last?)),
    })
}
