//! The newest final block, and the check of the finality mark.

use super::poll::{IncompleteNodePoll, NodePoll};
use super::types::{FinalityMark, NodeBlock, NodeQuery};
use super::window::BlockWindow;
use crate::config::head_source::FinalizedBlockRule;

/// Number of polls in which the node may lack the block of the mark while its head is above: a
/// lagging node may have responded.
const MAX_ABSENT_POLLS: u32 = 3;

/// Maximum number of empty slots below the number that is searched.
const MAX_EMPTY_SLOTS: u64 = 8;

/// The result of comparing the finality mark with the node's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinalityMarkCheck {
    /// There is no mark.
    None,
    /// The mark is of this chain.
    Holds,
    /// The result is not known.
    Unknown,
    /// The node does not have the block, at least not now.
    Absent,
    /// Another block has the number of the mark.
    Broken,
}

/// Checks whether the node's chain, whose newest blocks are `window`, has the mark.
pub(super) fn check_mark_on_node_chain(
    mark: Option<FinalityMark>,
    window: &BlockWindow,
    poll: &NodePoll,
    latest: &NodeBlock,
    absent: u32,
) -> Result<(FinalityMarkCheck, Option<String>), IncompleteNodePoll> {
    let Some(mark) = mark else {
        return Ok((FinalityMarkCheck::None, None));
    };
    let judge = |hash| match hash == mark.hash {
        true => FinalityMarkCheck::Holds,
        false => FinalityMarkCheck::Broken,
    };
    if let Some(known) = window.block_at(mark.number) {
        return Ok((judge(known.hash), None));
    }
    if mark.number > latest.number {
        return Ok((FinalityMarkCheck::Unknown, None));
    }
    Ok(
        match poll.polled_block_or_error(NodeQuery::ByNumber(mark.number))? {
            Ok(Some(block)) => (judge(block.hash), None),
            Ok(None) if absent < MAX_ABSENT_POLLS => (FinalityMarkCheck::Absent, None),
            Ok(None) => (FinalityMarkCheck::Broken, None),
            Err(error) => {
                let number = mark.number;
                let error = format!("cannot check finalized block {number}: {error}");
                (FinalityMarkCheck::Unknown, Some(error))
            }
        },
    )
}

/// Returns the newest block that the node's tag, or the depth, makes final.
pub(super) fn newest_final_block(
    finality: FinalizedBlockRule,
    window: &BlockWindow,
    poll: &NodePoll,
    latest: &NodeBlock,
) -> Result<Result<Option<FinalityMark>, String>, IncompleteNodePoll> {
    let depth = match finality {
        FinalizedBlockRule::Tag => {
            let block = poll.polled_block_or_error(NodeQuery::Finalized)?;
            return Ok(block.map(|block| block.as_ref().map(NodeBlock::as_finality_mark)));
        }
        FinalizedBlockRule::Depth(depth) => depth,
    };
    let Some(number) = latest.number.checked_sub(depth) else {
        return Ok(Ok(None));
    };
    if let Some(known) = window.block_at(number) {
        return Ok(Ok(Some(known)));
    }
    for number in (number.saturating_sub(MAX_EMPTY_SLOTS)..=number).rev() {
        match poll.polled_block_or_error(NodeQuery::ByNumber(number))? {
            Ok(None) => {}
            found => return Ok(found.map(|block| block.as_ref().map(NodeBlock::as_finality_mark))),
        }
    }
    Ok(Ok(None))
}
