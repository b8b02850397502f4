//! The attachment of the node's head to the window.

use super::poll::IncompleteNodePoll;
use super::poll::NodePoll;
use super::types::{FinalityMark, NodeBlock, NodeQuery};
use super::window::BlockWindow;

/// Maximum number of blocks walked back from the node's head. A more distant ancestor is searched
/// by number.
const MAX_PARENT_WALK: u64 = 64;

/// Number of polls with inconsistent results after which the node's head is considered detached
/// from the window.
pub(super) const MAX_INCONSISTENT_POLLS: u32 = 3;

/// The position of the node's head in relation to the blocks of the window: equal, below, above or
/// on another branch.
#[derive(Debug)]
pub(super) enum NodeHeadPosition {
    /// The head is the first known block.
    First,
    /// The head is the window's head.
    Same,
    /// The head is in the window, below its head.
    Below,
    /// The head is below the window.
    Unknown,
    /// The head descends from a block of the window, through these blocks: the newest first, the
    /// head included. Further blocks between them may be unknown.
    Extends(FinalityMark, Vec<NodeBlock>),
    /// The head descends from no block of the window.
    Detached(Vec<NodeBlock>),
}

/// Determines where the node's head descends from the window, by its parents and by number.
/// `confused` is the number of polls with inconsistent results before this one.
pub(super) fn locate_head_in_window(
    window: &BlockWindow,
    poll: &NodePoll,
    latest: &NodeBlock,
    confused: u32,
) -> Result<NodeHeadPosition, IncompleteNodePoll> {
    let (Some(bottom), Some(top)) = (window.oldest_block(), window.newest_block()) else {
        return Ok(NodeHeadPosition::First);
    };
    if latest.hash == top.hash {
        return Ok(NodeHeadPosition::Same);
    }
    if latest.number < bottom.number {
        return Ok(NodeHeadPosition::Unknown);
    }
    let known = window.block_at(latest.number);
    if known.is_some_and(|known| known.hash == latest.hash) {
        return Ok(NodeHeadPosition::Below);
    }
    let mut blocks = vec![*latest];
    let mut lowest = *latest;
    let is_far = latest.number.saturating_sub(top.number) > MAX_PARENT_WALK;
    loop {
        if let Some(ancestor) = window.block_with_hash(&lowest.parent) {
            return Ok(NodeHeadPosition::Extends(ancestor, blocks));
        }
        if lowest.number <= bottom.number {
            // its ancestors are older than the window
            return Ok(NodeHeadPosition::Detached(blocks));
        }
        if is_far || blocks.len() as u64 > MAX_PARENT_WALK {
            break;
        }
        match poll.polled_block(NodeQuery::ByHash(lowest.parent))? {
            Some(block) if block.hash == lowest.parent && block.number < lowest.number => {
                blocks.push(block);
                lowest = block;
            }
            _ => break,
        }
    }
    if confused >= MAX_INCONSISTENT_POLLS {
        return Ok(NodeHeadPosition::Detached(blocks));
    }
    let ancestor = highest_common_block(window, poll, latest.number)?;
    Ok(match ancestor {
        Some(ancestor) => {
            blocks.retain(|block| block.number > ancestor.number);
            NodeHeadPosition::Extends(ancestor, blocks)
        }
        None => NodeHeadPosition::Detached(blocks),
    })
}

/// Returns the highest block of the window, up to this number, that the node's chain still has. The
/// blocks below it are its ancestors, and in the chain too.
fn highest_common_block(
    window: &BlockWindow,
    poll: &NodePoll,
    number: u64,
) -> Result<Option<FinalityMark>, IncompleteNodePoll> {
    let (mut low, mut high) = (0, window.block_count_up_to(number));
    // most often the first attempt succeeds
    let mut middle = high;
    while low < high {
        let Some(mark) = window.block_at_index(middle - 1) else {
            break;
        };
        let block = poll.polled_block(NodeQuery::ByNumber(mark.number))?;
        if block.is_some_and(|block| block.hash == mark.hash) {
            low = middle;
        } else {
            high = middle - 1;
        }
        middle = (low + high).div_ceil(2);
    }
    Ok(low
        .checked_sub(1)
        .and_then(|index| window.block_at_index(index)))
}
