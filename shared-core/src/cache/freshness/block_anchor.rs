//! Block anchors: the hashes by which another machine checks whether a response is right on its own
//! chain.

use serde::{Deserialize, Serialize};

use super::range_ends::CallBlockDependency;
use crate::cache::chain::BlockHash;
use crate::jsonrpc::block_reference::{
    call_block_reference, BlockRangeBound, BlockReference, ResultBlock,
};
use crate::jsonrpc::common_block::common_block_of_list;
use crate::jsonrpc::methods::{MethodRow, ResultBlockPosition, ResultPathStep};
use crate::jsonrpc::plausible::ResultPlausibility;

/// Maximum length in bytes of a list that is read for its anchor alone.
const MAX_LIST_BYTES: usize = 1 << 20;

/// The block hash by which the owner of another machine checks whether a response is right on its
/// own chain. A response has none if no hash shows this: the state at a block number, a range of
/// blocks, everything that depends on the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum BlockAnchor {
    /// The call names the block by this hash: the response is the same on all branches of the
    /// chain.
    ByRequest(BlockHash),
    /// The result names the block to which all of it belongs: the response is right where the
    /// chain has the block of this hash at this height.
    ByResult {
        /// Number of the block.
        height: u64,
        /// Hash of the block.
        hash: BlockHash,
    },
}

/// A call and its result, whose anchor is determined.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnchoredResult<'a> {
    pub(super) method: &'static MethodRow,
    pub(super) params: Option<&'a [u8]>,
    pub(super) result: &'a [u8],
    /// The blocks that the call names.
    pub(super) named: CallBlockDependency,
    /// The block that the result names; it does not contradict the call.
    pub(super) reported: Option<ResultBlock>,
    pub(super) plausibility: ResultPlausibility,
}

impl AnchoredResult<'_> {
    /// Returns the anchor of a result that is not empty and does not depend on the head.
    pub(super) fn block_anchor(&self) -> Option<BlockAnchor> {
        match self.named {
            // with another chain the node returns an error
            CallBlockDependency::Block(_) if self.requires_canonical_block() => {
                self.anchor_by_result()
            }
            CallBlockDependency::Block(hash) => Some(BlockAnchor::ByRequest(hash)),
            CallBlockDependency::Number(_) | CallBlockDependency::Transaction(_) => {
                self.anchor_by_result()
            }
            CallBlockDependency::UpTo(last) => self.anchor_of_single_block_range(last),
            // the first block differs from node to node
            CallBlockDependency::Earliest(_)
            | CallBlockDependency::Head
            | CallBlockDependency::MovingTag
            | CallBlockDependency::None => None,
        }
    }

    /// Whether the response depends on the canonical chain, although the call names a hash.
    fn requires_canonical_block(&self) -> bool {
        let reference = call_block_reference(self.method, self.params);
        !matches!(
            reference,
            BlockReference::Hash {
                require_canonical: false,
                ..
            }
        )
    }

    /// Returns the anchor by the block that the result names, if all of the result belongs to it.
    fn anchor_by_result(&self) -> Option<BlockAnchor> {
        let reported = self.reported?;
        let is_of_one_block = match self.method.in_result {
            ResultBlockPosition::None | ResultBlockPosition::Itself => false,
            ResultBlockPosition::Block | ResultBlockPosition::Item => true,
            // only the first element was read
            ResultBlockPosition::First => {
                self.plausibility == ResultPlausibility::Read
                    || self.common_block_of_short_list() == Some(reported)
            }
            // the other elements of an operator's list are not known
            ResultBlockPosition::Path(path) => !path.steps.contains(&ResultPathStep::First),
        };
        anchor_of_block(reported).filter(|_| is_of_one_block)
    }

    /// Returns the anchor of a list of logs or traces from a range that has only block `last`.
    fn anchor_of_single_block_range(&self, last: u64) -> Option<BlockAnchor> {
        let single = BlockRangeBound::Number(last);
        let reference = call_block_reference(self.method, self.params);
        let range = BlockReference::Range {
            from: single,
            to: single,
        };
        if reference != range || self.method.is_operators {
            return None;
        }
        let common = self.common_block_of_short_list()?;
        anchor_of_block(common).filter(|_| common.number == last)
    }

    fn common_block_of_short_list(&self) -> Option<ResultBlock> {
        match self.result.len() <= MAX_LIST_BYTES {
            true => common_block_of_list(self.result),
            false => None,
        }
    }
}

fn anchor_of_block(block: ResultBlock) -> Option<BlockAnchor> {
    Some(BlockAnchor::ByResult {
        height: block.number,
        hash: block.hash?,
    })
}
