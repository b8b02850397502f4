//! Pairing of the node's responses with the calls of a batch.
//!
//! A response is paired by its id; where the id names no call (`null`, none, the id of a call
//! that was not forwarded, or of several calls) by its position, if there are as many responses
//! as calls, or the last ones are missing from a truncated response. Responses are sent with
//! the ids that they have: the pairing decides their order and their maximum lengths.

use crate::exchange::cache::batch::split::{BatchElementSource, OutOfMemory};
use crate::hash_keys::HashMap;
use crate::jsonrpc::batch_elements::ParsedBatchResponses;

/// The assignment of the node's responses, as indices into its response array, to the calls of a
/// batch.
#[derive(Debug, Default)]
pub(in crate::exchange::cache) struct BatchPairing {
    /// The response to each call of the batch, if it was forwarded and the node has responded.
    pub(in crate::exchange::cache) of_call: Vec<Option<usize>>,
    /// Responses that no call is paired with, in the node's order.
    pub(in crate::exchange::cache) others: Vec<usize>,
}

/// The state of one of the node's responses during the pairing: free, paired with a call, or
/// dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResponsePairingState {
    Free,
    /// The response is paired with a call.
    Paired,
    /// The response has the id of a call whose response is stored.
    Dropped,
}

/// Pairs the calls of a batch with the node's responses, whose text is `text`.
pub(in crate::exchange::cache) fn pair_responses(
    calls: &[BatchElementSource],
    elements: &ParsedBatchResponses,
    text: &[u8],
) -> Result<BatchPairing, OutOfMemory> {
    let answers = &elements.all[..];
    let mut pairing = BatchPairing::default();
    pairing
        .of_call
        .try_reserve_exact(calls.len())
        .map_err(|_| OutOfMemory)?;
    pairing.of_call.resize(calls.len(), None);
    let mut uses = try_filled_vec(answers.len(), ResponsePairingState::Free)?;
    // the first response with each id, and for each response the next one with its id
    let mut first = HashMap::default();
    first.try_reserve(answers.len()).map_err(|_| OutOfMemory)?;
    let mut next: Vec<Option<usize>> = try_filled_vec(answers.len(), None)?;
    for (at, answer) in answers.iter().enumerate().rev() {
        if let Some(id) = &answer.id {
            next[at] = first.insert(&text[id.clone()], Some(at)).flatten();
        }
    }
    let mut take = |id: &[u8]| {
        let first = first.get_mut(id)?;
        let at = (*first)?;
        *first = next[at];
        Some(at)
    };
    for (call, of_call) in calls.iter().zip(&mut pairing.of_call) {
        if let BatchElementSource::Forwarded(id, _) = call {
            *of_call = take(id);
            if let Some(at) = *of_call {
                uses[at] = ResponsePairingState::Paired;
            }
        }
    }
    for call in calls {
        if let BatchElementSource::Stored(_, id, _) = call {
            if let Some(at) = take(id) {
                uses[at] = ResponsePairingState::Dropped;
            }
        }
    }
    pairing.pair_by_position(calls, &mut uses, elements.is_whole);
    pairing
        .others
        .try_reserve(answers.len())
        .map_err(|_| OutOfMemory)?;
    let is_free = |at: &usize| uses[*at] == ResponsePairingState::Free;
    pairing.others.extend((0..answers.len()).filter(is_free));
    Ok(pairing)
}

impl BatchPairing {
    /// Pairs the remaining responses with the forwarded calls by position, if their numbers allow
    /// that.
    fn pair_by_position(
        &mut self,
        calls: &[BatchElementSource],
        uses: &mut [ResponsePairingState],
        is_whole: bool,
    ) {
        let is_forwarded =
            |call: &BatchElementSource| matches!(call, BatchElementSource::Forwarded(..));
        let forwarded = calls.iter().filter(|call| is_forwarded(call)).count();
        let is_remaining = |one: &&mut ResponsePairingState| **one != ResponsePairingState::Dropped;
        let answered = uses
            .iter()
            .filter(|one| **one != ResponsePairingState::Dropped)
            .count();
        if answered > forwarded || answered < forwarded && is_whole {
            return;
        }
        let of_forwarded = calls.iter().zip(&mut self.of_call);
        let of_forwarded = of_forwarded.filter(|(call, _)| is_forwarded(call));
        let remaining = uses
            .iter_mut()
            .enumerate()
            .filter(|(_, one)| is_remaining(one));
        for ((_, of_call), (at, one)) in of_forwarded.zip(remaining) {
            if of_call.is_none() && *one == ResponsePairingState::Free {
                *of_call = Some(at);
                *one = ResponsePairingState::Paired;
            }
        }
    }
}

/// Returns a vector with `length` clones of a value, whose memory may be refused.
fn try_filled_vec<T: Clone>(length: usize, with: T) -> Result<Vec<T>, OutOfMemory> {
    let mut all = Vec::new();
    all.try_reserve_exact(length).map_err(|_| OutOfMemory)?;
    all.resize(length, with);
    Ok(all)
}
