//! Checks of the responses that clients receive from the cache.

use std::ops::AddAssign;

use super::blockchain::Blockchain;
use super::client_calls::LogCall;
use super::node_record::{LogCallKey, NodeRecord, RangeEnd, RecordedLogs};
use super::owner_network::KnownChain;

/// Numbers of responses by their source.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResponseCounts {
    /// Responses of a node to the client's own request.
    pub forwarded: u64,
    /// Stored or coalesced responses that a node has sent to the same call.
    pub whole: u64,
    /// Responses of pieces, the last of them one node's response about blocks that are not final.
    pub assembled: u64,
    /// Responses of pieces of final blocks.
    pub assembled_without_rest: u64,
    /// Responses to calls of batches that were assembled of pieces.
    pub assembled_in_batches: u64,
    /// Responses that were selected from receipts.
    pub selected: u64,
    /// Requests whose responses a node or a client has aborted.
    pub aborted: u64,
    /// Requests for pieces.
    pub piece_requests: u64,
    /// Lookups that were repeated because of a timeout.
    pub timeouts: u64,
}

impl AddAssign for ResponseCounts {
    fn add_assign(&mut self, other: Self) {
        self.forwarded += other.forwarded;
        self.whole += other.whole;
        self.assembled += other.assembled;
        self.assembled_without_rest += other.assembled_without_rest;
        self.assembled_in_batches += other.assembled_in_batches;
        self.selected += other.selected;
        self.aborted += other.aborted;
        self.piece_requests += other.piece_requests;
        self.timeouts += other.timeouts;
    }
}

/// The source of a response from the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseSource {
    /// A node has sent the response to the same call.
    Whole,
    /// The logs are selected from the receipts of a block.
    Receipts,
    /// The response consists of pieces.
    Assembled { has_rest: bool },
}

/// The facts with which the response to a call is compared.
pub struct ResponseCheck<'a> {
    pub chain: &'a Blockchain,
    pub record: &'a NodeRecord,
    /// The chain as the process knew it before the lookup.
    pub known: &'a KnownChain,
    /// The lowest head that the process has known since then.
    pub lowest_head: u64,
    /// Number of blocks of a piece.
    pub piece: u64,
}

impl ResponseCheck<'_> {
    /// Returns the source of a member `result` or `error`; `None` if the member is wrong.
    pub fn source_of_member(&self, call: &LogCall, member: &str) -> Option<ResponseSource> {
        let whole = self.record.responses(&call.key);
        if whole.iter().any(|response| response.member == member) {
            return Some(ResponseSource::Whole);
        }
        let logs = member.strip_prefix("\"result\":[")?.strip_suffix(']')?;
        if self.is_selected_from_receipts(call, logs) {
            return Some(ResponseSource::Receipts);
        }
        let from = call.key.from.number()?;
        let last_final = self.chain.last_final;
        let final_logs = |last| self.chain.view.logs_of_range(from, last, &call.filter);
        let to = call.key.to.number();
        if let Some(to) = to.filter(|to| *to <= last_final) {
            if final_logs(to) == logs {
                return Some(ResponseSource::Assembled { has_rest: false });
            }
        }
        let last = to.unwrap_or(u64::MAX).min(last_final);
        let starts = (1..=(last + 1) / self.piece).map(|piece| piece * self.piece);
        let (mut first_part, mut next) = (String::new(), from);
        for start in starts.filter(|start| *start > from) {
            let view = &self.chain.view;
            let piece = view.logs_of_range(next, start - 1, &call.filter);
            first_part = join(&first_part, &piece);
            next = start;
            if !logs.starts_with(&*first_part) {
                return None;
            }
            let rest = LogCallKey {
                from: RangeEnd::Number(start),
                to: call.key.to.clone(),
                rest: call.key.rest.clone(),
            };
            let is_rest = |response: &&RecordedLogs| {
                let joined = response.logs.as_ref().map(|rest| join(&first_part, rest));
                joined.is_some_and(|joined| joined == logs)
            };
            let mut responses = self.record.responses(&rest).iter().filter(is_rest);
            if responses.any(|response| self.is_usable_rest(to, response)) {
                return Some(ResponseSource::Assembled { has_rest: true });
            }
        }
        None
    }

    /// Whether the logs are those in the receipts that a node has sent. A number names one block only
    /// if it is final.
    fn is_selected_from_receipts(&self, call: &LogCall, logs: &str) -> bool {
        let Some(block) = &call.block else {
            return false;
        };
        let number = call.key.from.number();
        let is_final = number.is_none_or(|number| number <= self.chain.last_final);
        let responses = self.record.responses(&LogCallKey::for_receipts(block));
        let mut responses = responses.iter().filter(|response| response.has_first);
        is_final
            && responses.any(|response| {
                let block = response.view.block_of_parameter(block);
                block.is_some_and(|block| block.selected_logs(&call.filter) == logs)
            })
    }

    /// Whether the node of a response had all blocks of the rest that are known, and none of them
    /// was known to be replaced when the client's request was looked up.
    fn is_usable_rest(&self, to: Option<u64>, response: &RecordedLogs) -> bool {
        let is_complete = response.has_first
            && response.is_own_chain
            && (response.has_last || to.is_none_or(|to| to > self.lowest_head));
        let known = self.known;
        let last = to.unwrap_or(u64::MAX).min(response.view.head());
        let is_replaced = |reorg: &(u64, u64)| response.step < reorg.0 && reorg.1 <= last;
        let is_behind =
            to.is_none() && response.step < known.head_step && response.view.head() < known.head;
        is_complete && !is_behind && !known.reorgs.iter().any(is_replaced)
    }
}

/// Joins the elements of two lists.
fn join(first: &str, second: &str) -> String {
    match (first, second) {
        ("", one) | (one, "") => one.to_owned(),
        (first, second) => format!("{first},{second}"),
    }
}
