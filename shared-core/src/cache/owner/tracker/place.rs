//! The attachment of the node's head to the window.

use super::poll::Halt;
use super::poll::Poll;
use super::terms::{Ask, Block, Mark};
use super::window::Window;

/// Maximum number of blocks walked back from the node's head. A more distant ancestor is searched
/// by number.
const WALK: u64 = 64;

/// Number of polls with inconsistent results after which the node's head is considered detached
/// from the window.
pub(super) const CONFUSED: u32 = 3;

/// The attachment of a head.
#[derive(Debug)]
pub(super) enum Place {
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
    On(Mark, Vec<Block>),
    /// The head descends from no block of the window.
    Nowhere(Vec<Block>),
}

/// Finds the attachment of the head. `confused` is the number of polls with inconsistent results
/// before this one.
pub(super) fn find(
    window: &Window,
    poll: &Poll,
    latest: &Block,
    confused: u32,
) -> Result<Place, Halt> {
    let (Some(bottom), Some(top)) = (window.bottom(), window.top()) else {
        return Ok(Place::First);
    };
    if latest.hash == top.hash {
        return Ok(Place::Same);
    }
    if latest.number < bottom.number {
        return Ok(Place::Unknown);
    }
    let known = window.at(latest.number);
    if known.is_some_and(|known| known.hash == latest.hash) {
        return Ok(Place::Below);
    }
    let mut blocks = vec![*latest];
    let mut lowest = *latest;
    let is_far = latest.number.saturating_sub(top.number) > WALK;
    loop {
        if let Some(ancestor) = window.with_hash(&lowest.parent) {
            return Ok(Place::On(ancestor, blocks));
        }
        if lowest.number <= bottom.number {
            // its ancestors are older than the window
            return Ok(Place::Nowhere(blocks));
        }
        if is_far || blocks.len() as u64 > WALK {
            break;
        }
        match poll.block(Ask::ByHash(lowest.parent))? {
            Some(block) if block.hash == lowest.parent && block.number < lowest.number => {
                blocks.push(block);
                lowest = block;
            }
            _ => break,
        }
    }
    if confused >= CONFUSED {
        return Ok(Place::Nowhere(blocks));
    }
    let ancestor = highest(window, poll, latest.number)?;
    Ok(match ancestor {
        Some(ancestor) => {
            blocks.retain(|block| block.number > ancestor.number);
            Place::On(ancestor, blocks)
        }
        None => Place::Nowhere(blocks),
    })
}

/// The highest block of the window, up to this number, that the node's chain still has. All below
/// it are in the chain too, as its ancestors.
fn highest(window: &Window, poll: &Poll, number: u64) -> Result<Option<Mark>, Halt> {
    let (mut low, mut high) = (0, window.count_up_to(number));
    // most often the first attempt succeeds
    let mut middle = high;
    while low < high {
        let Some(mark) = window.get(middle - 1) else {
            break;
        };
        let block = poll.block(Ask::ByNumber(mark.number))?;
        if block.is_some_and(|block| block.hash == mark.hash) {
            low = middle;
        } else {
            high = middle - 1;
        }
        middle = (low + high).div_ceil(2);
    }
    Ok(low.checked_sub(1).and_then(|index| window.get(index)))
}
