//! Observation of the blocks that a response shows to a client while it is sent.
//!
//! Of a long response only the beginning and the end are read: all parts of it belong to one
//! block, or the last part belongs to the highest.

use std::sync::Arc;

use crate::cache::chain::{NamespaceChain, ShownBlock};
use crate::cache::process::ProcessCacheState;
use crate::cache::CacheNamespace;
use crate::jsonrpc::response::{self, CallOutcomeSpan};
use crate::jsonrpc::shown_blocks::{highest_slot_in_text, ShownBlockFinder, ShownBlockNumber};

/// Maximum length in bytes of a response that is read completely.
const MAX_FULL_READ: usize = 16 << 10;

/// Maximum length in bytes of a batch response that is read completely; the blocks of a longer
/// one can't be assigned to calls.
const MAX_FULL_BATCH_READ: usize = 64 << 10;

/// Bytes at the end of a longer response that are read.
const MAX_END_BYTES: usize = 4 << 10;

/// Maximum number of times that a response of many pieces is read.
const MAX_READS: u8 = 16;

/// Number of blocks above the highest head that a response has shown: a block that only the call
/// names counts as existing up to there. Nodes respond with an error for a missing block, but a
/// client may name any.
const MAX_BLOCKS_ABOVE_HEAD: u64 = 16;

/// The search of one response, on its way to the client, for the blocks that it shows. A block
/// above the head expires the entries about the former head.
#[derive(Debug)]
pub(in crate::exchange) struct ResponseBlockObserver {
    shared: Arc<ProcessCacheState>,
    namespace: CacheNamespace,
    chain: Arc<NamespaceChain>,
    of: ShownBlockSource,
    start: Vec<u8>,
    end: Vec<u8>,
    length: usize,
    /// Number of times that the response was read.
    read: u8,
}

/// Returns the block that a response of a batch shows, by the id of its call. Calls that share an
/// id are distinguished by their order.
fn block_finder_by_id(
    watched: &[(Vec<u8>, Option<ShownBlockFinder>)],
    at: usize,
    id: &[u8],
) -> Option<ShownBlockFinder> {
    let mut same = watched.iter().filter(|(other, _)| other == id);
    let first = same.next()?;
    let call = match same.next() {
        None => first,
        Some(_) => watched.get(at).filter(|(other, _)| other == id)?,
    };
    call.1
}

/// The kind of request whose response is searched: a call, a batch, or a route of the Beacon API.
#[derive(Debug)]
pub(in crate::exchange) enum ShownBlockSource {
    Call(ShownBlockFinder),
    /// The calls of a batch that have an id, in their order. Responses to some show no block.
    Batch(Vec<(Vec<u8>, Option<ShownBlockFinder>)>),
    /// A route of the Beacon API that shows a block or a part of it, with the slot in its path.
    Slot(Option<u64>),
}

impl ResponseBlockObserver {
    /// Creates an observer that has read nothing yet, for a response of `namespace`.
    pub(in crate::exchange) fn new(
        shared: &Arc<ProcessCacheState>,
        namespace: CacheNamespace,
        chain: Arc<NamespaceChain>,
        of: ShownBlockSource,
    ) -> Self {
        Self {
            shared: Arc::clone(shared),
            namespace,
            chain,
            of,
            start: Vec::new(),
            end: Vec::new(),
            length: 0,
            read: 0,
        }
    }

    /// Searches the next piece of the response for blocks, before the piece is sent to the client.
    pub(in crate::exchange) fn search_piece_for_blocks(&mut self, piece: &[u8]) {
        let before = self.length;
        self.length = self.length.saturating_add(piece.len());
        let short = match self.of {
            ShownBlockSource::Batch(_) => MAX_FULL_BATCH_READ,
            ShownBlockSource::Call(_) | ShownBlockSource::Slot(_) => MAX_FULL_READ,
        };
        let room = short.saturating_sub(self.start.len());
        let (first, rest) = piece.split_at(piece.len().min(room));
        if self.start.try_reserve(first.len()).is_err() {
            return;
        }
        self.start.extend_from_slice(first);
        if self.length <= short {
            let is_end = matches!(piece.trim_ascii_end().last(), Some(b'}' | b']'));
            if (is_end || matches!(self.of, ShownBlockSource::Slot(_))) && self.read < MAX_READS {
                self.read += 1;
                self.find_blocks_in_response();
            }
            return;
        }
        // the response has just exceeded the limit, and its beginning may be unread
        if before <= short {
            let start = std::mem::take(&mut self.start);
            self.find_blocks_in_fragment(&start);
            self.start = start;
        }
        if self.end.try_reserve(2 * MAX_END_BYTES).is_err() {
            return;
        }
        if rest.len() >= MAX_END_BYTES {
            self.end.clear();
            self.end
                .extend_from_slice(&rest[rest.len() - MAX_END_BYTES..]);
        } else {
            self.end.extend_from_slice(rest);
            let beyond = self.end.len().saturating_sub(MAX_END_BYTES);
            self.end.drain(..beyond);
        }
        let end = std::mem::take(&mut self.end);
        self.find_blocks_in_fragment(&end);
        self.end = end;
    }

    /// Searches the complete response for the blocks that it shows, call by call.
    fn find_blocks_in_response(&self) {
        let body = &self.start[..];
        match &self.of {
            ShownBlockSource::Call(showing) => {
                if let Ok(answer) = response::parse_jsonrpc_response(body) {
                    self.find_block_in_result(*showing, body, &answer.outcome);
                }
            }
            ShownBlockSource::Batch(watched) => {
                let Ok(answers) = response::parse_batch_responses(body) else {
                    return;
                };
                for (at, answer) in answers.iter().enumerate() {
                    let id = &body[answer.id.clone()];
                    if let Some(showing) = block_finder_by_id(watched, at, id) {
                        self.find_block_in_result(showing, body, &answer.outcome);
                    }
                }
            }
            ShownBlockSource::Slot(_) => self.find_blocks_in_fragment(body),
        }
    }

    /// Searches the result of one call, which is complete, for its highest block.
    fn find_block_in_result(
        &self,
        showing: ShownBlockFinder,
        body: &[u8],
        outcome: &CallOutcomeSpan,
    ) {
        if let CallOutcomeSpan::Result(result) = outcome {
            self.report_observed_block(showing.highest_in_result(&body[result.clone()]));
        }
    }

    /// Searches the beginning or the end of a response, which need not be complete JSON.
    fn find_blocks_in_fragment(&self, text: &[u8]) {
        match &self.of {
            ShownBlockSource::Call(showing) => {
                self.report_observed_block(showing.highest_in_text(text));
            }
            ShownBlockSource::Batch(watched) => {
                for showing in watched.iter().filter_map(|(_, showing)| *showing) {
                    // the text can't be assigned to a call: only parts of blocks are searched
                    if let Some(ShownBlockNumber::Part(height)) = showing.highest_in_text(text) {
                        self.report_observed_block(Some(ShownBlockNumber::Part(height)));
                        break;
                    }
                }
            }
            ShownBlockSource::Slot(named) => {
                let slot = named.or_else(|| highest_slot_in_text(text));
                self.report_observed_block(slot.map(ShownBlockNumber::Block));
            }
        }
    }

    /// Reports a block that the client is shown to the chain and the owner. A block that only the
    /// call names is ignored far above the head.
    fn report_observed_block(&self, shown: Option<ShownBlockNumber>) {
        let (height, is_block) = match shown {
            None => return,
            Some(ShownBlockNumber::Head(height) | ShownBlockNumber::Block(height)) => {
                (height, true)
            }
            Some(ShownBlockNumber::Part(height)) => (height, false),
            Some(ShownBlockNumber::Named(height)) => {
                if height
                    > self
                        .chain
                        .highest_seen_head()
                        .saturating_add(MAX_BLOCKS_ABOVE_HEAD)
                {
                    return;
                }
                (height, true)
            }
        };
        let sighting = ShownBlock { height, is_block };
        if self.chain.record_shown_block(sighting) {
            if let Some(owner) = self.shared.owner_client() {
                owner.report_shown_block(&self.namespace, sighting);
            }
        }
        if let Some(ShownBlockNumber::Head(height)) = shown {
            self.chain.record_reported_head_height(height);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        block_finder_by_id, ResponseBlockObserver, ShownBlockFinder, ShownBlockSource,
        MAX_END_BYTES, MAX_FULL_READ,
    };
    use crate::cache::chain::{ChainChange, ChainState, HeightUnit, NamespaceChain};
    use crate::cache::process::ProcessResources;
    use crate::jsonrpc::methods;
    use crate::jsonrpc::shown_blocks::ShownBlockNumber;

    #[test]
    fn block_at_the_start_of_a_long_response_is_seen_wherever_its_pieces_end() {
        let receipt = r#"{"blockNumber":"0x65","data":"0x"#;
        let start = format!(r#"{{"jsonrpc":"2.0","id":1,"result":[{receipt}"#);
        let body = [
            start.as_bytes(),
            &vec![b'0'; MAX_FULL_READ + 2 * MAX_END_BYTES],
            b"\"}]}",
        ]
        .concat();
        for at in [
            1,
            start.len(),
            MAX_FULL_READ - 1,
            MAX_FULL_READ,
            MAX_FULL_READ + 1,
            MAX_FULL_READ + MAX_END_BYTES,
        ] {
            let mut state = ChainState::new_without_blocks(HeightUnit::Blocks, 1);
            state.apply_chain_change(ChainChange::Head(100));
            let chain = Arc::new(NamespaceChain::new(state));
            let row = methods::find_method_row(b"eth_getBlockReceipts");
            let showing = ShownBlockFinder::for_observed_call(
                b"eth_getBlockReceipts",
                row,
                Some(b"[\"0x65\"]"),
            )
            .unwrap();
            let shared = &ProcessResources::default().shared;
            let mut watch = ResponseBlockObserver::new(
                shared,
                [0; 16],
                Arc::clone(&chain),
                ShownBlockSource::Call(showing),
            );
            let (first, rest) = body.split_at(at);
            watch.search_piece_for_blocks(first);
            watch.search_piece_for_blocks(rest);
            assert_eq!(chain.shown_block_expiry_count(), 1, "{at}");
        }
    }

    #[test]
    fn calls_with_the_same_id_are_distinguished_by_their_order() {
        let watched = |id: &str, name: &str| {
            let row = methods::find_method_row(name.as_bytes());
            let showing = ShownBlockFinder::for_observed_call(name.as_bytes(), row, Some(b"[]"));
            (id.as_bytes().to_vec(), showing)
        };
        let shown = |watched: &[(Vec<u8>, Option<ShownBlockFinder>)], at, id: &str| {
            let showing = block_finder_by_id(watched, at, id.as_bytes())?;
            showing.highest_in_result(b"\"0x65\"")
        };
        let alike = [
            watched("1", "eth_getBalance"),
            watched("1", "eth_blockNumber"),
        ];
        assert_eq!(shown(&alike, 0, "1"), None);
        assert_eq!(shown(&alike, 1, "1"), Some(ShownBlockNumber::Head(101)));
        assert_eq!(shown(&alike, 2, "1"), None);
        let distinct = [
            watched("1", "eth_getBalance"),
            watched("2", "eth_blockNumber"),
        ];
        assert_eq!(shown(&distinct, 0, "2"), Some(ShownBlockNumber::Head(101)));
        assert_eq!(shown(&distinct, 1, "1"), None);
    }
}
