//! The newest final block, and the check of the finality mark.

use super::poll::{Halt, Poll};
use super::terms::{Ask, Block, Mark};
use super::window::Window;
use crate::config::follow::Finality;

/// Number of polls in which the node may lack the block of the mark while its head is above: a
/// lagging node may have responded.
const ABSENT: u32 = 3;

/// Maximum number of empty slots below the number that is searched.
const EMPTY: u64 = 8;

/// The result of a check of the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checked {
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
pub(super) fn check(
    mark: Option<Mark>,
    window: &Window,
    poll: &Poll,
    latest: &Block,
    absent: u32,
) -> Result<(Checked, Option<String>), Halt> {
    let Some(mark) = mark else {
        return Ok((Checked::None, None));
    };
    let judge = |hash| match hash == mark.hash {
        true => Checked::Holds,
        false => Checked::Broken,
    };
    if let Some(known) = window.at(mark.number) {
        return Ok((judge(known.hash), None));
    }
    if mark.number > latest.number {
        return Ok((Checked::Unknown, None));
    }
    Ok(match poll.try_block(Ask::ByNumber(mark.number))? {
        Ok(Some(block)) => (judge(block.hash), None),
        Ok(None) if absent < ABSENT => (Checked::Absent, None),
        Ok(None) => (Checked::Broken, None),
        Err(error) => {
            let number = mark.number;
            let error = format!("block {number}, which was final, can't be checked: {error}");
            (Checked::Unknown, Some(error))
        }
    })
}

/// The newest block that the node's tag, or the depth, makes final.
pub(super) fn newest(
    finality: Finality,
    window: &Window,
    poll: &Poll,
    latest: &Block,
) -> Result<Result<Option<Mark>, String>, Halt> {
    let depth = match finality {
        Finality::Tag => {
            let block = poll.try_block(Ask::Finalized)?;
            return Ok(block.map(|block| block.as_ref().map(Block::mark)));
        }
        Finality::Depth(depth) => depth,
    };
    let Some(number) = latest.number.checked_sub(depth) else {
        return Ok(Ok(None));
    };
    if let Some(known) = window.at(number) {
        return Ok(Ok(Some(known)));
    }
    for number in (number.saturating_sub(EMPTY)..=number).rev() {
        match poll.try_block(Ask::ByNumber(number))? {
            Ok(None) => {}
            found => return Ok(found.map(|block| block.as_ref().map(Block::mark))),
        }
    }
    Ok(Ok(None))
}
