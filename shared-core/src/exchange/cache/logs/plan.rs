//! The pieces of a wide range of blocks, and the params of the call for each of them.

use crate::bytes::{try_extend, try_push};
use crate::jsonrpc::block_reference::BlockTag;
use crate::jsonrpc::log_filter::{LogFilter, LogFilterEnd};

/// Maximum number of pieces of one request.
pub(super) const MAX_PIECES: usize = 256;

/// Maximum number of bytes of the filters of all pieces of one request, which are hashed into keys.
const MAX_FILTER_BYTES: usize = 1 << 20;

/// The pieces, and the bytes of their filters, that further calls of one request may have.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct LogSplitBudget {
    pieces: usize,
    filter_bytes: usize,
}

impl Default for LogSplitBudget {
    fn default() -> Self {
        Self {
            pieces: MAX_PIECES,
            filter_bytes: MAX_FILTER_BYTES,
        }
    }
}

impl LogSplitBudget {
    /// Takes the pieces of a call whose filter has this length. Returns `false` if they are too
    /// many; nothing is taken then.
    pub(super) fn take_pieces(&mut self, pieces: usize, filter_length: usize) -> bool {
        let filter_bytes = pieces.saturating_mul(filter_length);
        if pieces > self.pieces || filter_bytes > self.filter_bytes {
            return false;
        }
        self.pieces -= pieces;
        self.filter_bytes -= filter_bytes;
        true
    }
}

/// The range of a call for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LogRange {
    pub(super) first: u64,
    /// Last block; `None`: the head.
    pub(super) last: Option<u64>,
}

impl LogRange {
    /// Returns the range of a filter that begins at a number and ends at a number or the head.
    pub(super) fn from_filter(filter: &LogFilter<'_>) -> Option<Self> {
        let LogFilterEnd::Number(first) = filter.from_block else {
            return None;
        };
        let last = match filter.to_block {
            LogFilterEnd::Number(last) => Some(last),
            LogFilterEnd::Absent | LogFilterEnd::Tag(BlockTag::Latest) => None,
            LogFilterEnd::Tag(_) => return None,
        };
        last.is_none_or(|last| first <= last)
            .then_some(Self { first, last })
    }
}

/// The blocks of one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceSpan {
    pub(super) first: u64,
    /// Last block of a piece whose blocks are final; `None`: the piece is the rest of the range, to
    /// the end that the client has named.
    pub(super) last: Option<u64>,
}

/// Divides a range into pieces: they end before the multiples of `blocks`, as long as their blocks
/// are final, and the rest is one piece. `None` if there are no two pieces, no final piece, or more
/// than [`MAX_PIECES`].
pub(super) fn plan_pieces(range: LogRange, blocks: u64, last_final: u64) -> Option<Vec<PieceSpan>> {
    let mut spans = Vec::new();
    let mut first = range.first;
    loop {
        let aligned = (first / blocks).checked_add(1)?.checked_mul(blocks)? - 1;
        let last = range.last.map_or(aligned, |last| last.min(aligned));
        let is_final = last <= last_final;
        if spans.len() == MAX_PIECES {
            return None;
        }
        let span = PieceSpan {
            first,
            last: is_final.then_some(last),
        };
        try_push(&mut spans, span)?;
        if !is_final || range.last == Some(last) {
            break;
        }
        first = last + 1;
    }
    let has_final = spans.first().is_some_and(|span| span.last.is_some());
    (has_final && spans.len() >= 2).then_some(spans)
}

/// Returns the params of the call for one piece: the client's filter, in which only the values of
/// the ends are replaced. `None` if the filter does not name its first block, or memory is refused.
pub(super) fn piece_params(filter: &LogFilter<'_>, span: PieceSpan) -> Option<Vec<u8>> {
    let from = filter.from_block_span.clone()?;
    let first = format!("\"0x{:x}\"", span.first);
    let last = span.last.map(|last| format!("\"0x{last:x}\""));
    let mut edits = match (filter.to_block_span.clone(), last) {
        (Some(to), Some(last)) => vec![(from, first), (to, last)],
        (None, Some(last)) => vec![(from, format!("{first},\"toBlock\":{last}"))],
        (_, None) => vec![(from, first)],
    };
    edits.sort_by_key(|(place, _)| place.start);
    let mut params = Vec::new();
    let added: usize = edits.iter().map(|(_, value)| value.len()).sum();
    params
        .try_reserve_exact(filter.text.len() + added + 2)
        .ok()?;
    params.push(b'[');
    let mut copied = 0;
    for (place, value) in edits {
        try_extend(&mut params, filter.text.get(copied..place.start)?)?;
        try_extend(&mut params, value.as_bytes())?;
        copied = place.end;
    }
    try_extend(&mut params, filter.text.get(copied..)?)?;
    params.push(b']');
    Some(params)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        piece_params, plan_pieces, LogRange, LogSplitBudget, PieceSpan, MAX_FILTER_BYTES,
        MAX_PIECES,
    };
    use crate::jsonrpc::key::call_cache_key;
    use crate::jsonrpc::log_filter::LogFilter;

    fn plan(first: u64, last: Option<u64>, last_final: u64) -> Option<Vec<(u64, Option<u64>)>> {
        let spans = plan_pieces(LogRange { first, last }, 100, last_final)?;
        Some(spans.iter().map(|span| (span.first, span.last)).collect())
    }

    #[test]
    fn pieces_are_aligned_and_the_rest_is_one_piece() {
        assert_eq!(
            plan(250, Some(420), 1000).unwrap(),
            [(250, Some(299)), (300, Some(399)), (400, Some(420))]
        );
        assert_eq!(
            plan(200, Some(399), 399).unwrap(),
            [(200, Some(299)), (300, Some(399))]
        );
        // the last block of the second piece is not final
        assert_eq!(
            plan(200, Some(900), 398).unwrap(),
            [(200, Some(299)), (300, None)]
        );
        assert_eq!(
            plan(0, None, 250).unwrap(),
            [(0, Some(99)), (100, Some(199)), (200, None)]
        );
    }

    #[test]
    fn short_and_unfinalized_ranges_are_not_divided() {
        for (first, last, last_final) in [
            (200, Some(299), 1000),
            (250, Some(250), 1000),
            (200, None, 298),
            (200, Some(900), 200),
        ] {
            assert_eq!(plan(first, last, last_final), None, "{first} {last:?}");
        }
    }

    #[test]
    fn number_of_pieces_is_limited() {
        let most = MAX_PIECES as u64 * 100;
        assert_eq!(plan(0, Some(most - 1), most).unwrap().len(), MAX_PIECES);
        assert_eq!(plan(0, Some(most), most), None);
        // the rest is a piece, too
        assert_eq!(plan(0, None, most), None);
        assert_eq!(plan(0, None, most - 2).unwrap().len(), MAX_PIECES);
        assert_eq!(plan(0, None, u64::MAX), None);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_range_without_gaps(
            first in 0..5_000u64,
            length in prop::option::of(1..5_000u64),
            blocks in 1..700u64,
            last_final in 0..12_000u64,
        ) {
            let range = LogRange { first, last: length.map(|length| first + length - 1) };
            let Some(spans) = plan_pieces(range, blocks, last_final) else {
                return Ok(());
            };
            let mut next = first;
            let (end, aligned) = spans.split_last().unwrap();
            for span in aligned {
                prop_assert_eq!(span.first, next);
                let last = span.last.unwrap();
                prop_assert!(last <= last_final && (last + 1) % blocks == 0);
                next = last + 1;
            }
            prop_assert_eq!(end.first, next);
            if let Some(last) = end.last {
                prop_assert!(last <= last_final && Some(last) == range.last);
            }
        }
    }

    #[test]
    fn calls_of_one_request_share_the_limits_of_their_pieces() {
        let mut budget = LogSplitBudget::default();
        assert!(budget.take_pieces(200, 100));
        assert!(!budget.take_pieces(MAX_PIECES - 199, 1));
        assert!(!budget.take_pieces(2, (MAX_FILTER_BYTES - 20_000) / 2 + 1));
        assert!(budget.take_pieces(2, (MAX_FILTER_BYTES - 20_000) / 2));
        assert!(budget.take_pieces(MAX_PIECES - 202, 0));
        assert!(!budget.take_pieces(1, 0));
    }

    fn params(filter: &str, first: u64, last: Option<u64>) -> String {
        let filter = format!("[{filter}]");
        let filter = LogFilter::read(filter.as_bytes()).unwrap();
        let params = piece_params(&filter, PieceSpan { first, last }).unwrap();
        String::from_utf8(params).unwrap()
    }

    #[test]
    fn params_of_a_piece_differ_from_the_client_s_in_the_ends_only() {
        for (filter, last, expected) in [
            (
                r#"{"fromBlock":"0x1","toBlock":"0xfff","address":"ADDR"}"#,
                Some(31),
                r#"[{"fromBlock":"0x10","toBlock":"0x1f","address":"ADDR"}]"#,
            ),
            (
                r#"{ "toBlock" : "latest", "topics":[], "fromBlock" : "0x1" }"#,
                Some(31),
                r#"[{ "toBlock" : "0x1f", "topics":[], "fromBlock" : "0x10" }]"#,
            ),
            (
                r#"{"fromBlock":"0x1","topics":[]}"#,
                Some(31),
                r#"[{"fromBlock":"0x10","toBlock":"0x1f","topics":[]}]"#,
            ),
            (r#"{"fromBlock":"0x1"}"#, None, r#"[{"fromBlock":"0x10"}]"#),
            (
                r#"{"toBlock":"latest","fromBlock":"0x1"}"#,
                None,
                r#"[{"toBlock":"latest","fromBlock":"0x10"}]"#,
            ),
            (
                r#"{"toBlock":"0xFFF","fromBlock":"0x1"}"#,
                None,
                r#"[{"toBlock":"0xFFF","fromBlock":"0x10"}]"#,
            ),
        ] {
            let address = "0x00000000000000000000000000000000000000aa";
            let [filter, expected] = [filter, expected].map(|it| it.replace("ADDR", address));
            assert_eq!(params(&filter, 16, last), expected);
        }
    }

    #[test]
    fn piece_has_the_key_of_a_client_s_call_for_its_range() {
        let key = |params: &str| {
            call_cache_key(b"scope", b"eth_getLogs", Some(params.as_bytes())).unwrap()
        };
        let piece = params(r#"{"topics":[null],"fromBlock":"0x1"}"#, 16, Some(31));
        let client = r#"[ {"fromBlock":"0x10", "toBlock":"0x1f", "topics":[null]} ]"#;
        assert_eq!(key(&piece), key(client));
    }

    #[test]
    fn range_begins_at_a_number_and_ends_at_a_number_or_the_head() {
        let range = |members: &str| {
            let params = format!("[{{{members}}}]");
            LogRange::from_filter(&LogFilter::read(params.as_bytes()).unwrap())
        };
        let open = LogRange {
            first: 1,
            last: None,
        };
        assert_eq!(range(r#""fromBlock":"0x1""#), Some(open));
        assert_eq!(range(r#""fromBlock":"0x1","toBlock":"latest""#), Some(open));
        assert_eq!(
            range(r#""fromBlock":"0x1","toBlock":"0x5""#),
            Some(LogRange {
                last: Some(5),
                ..open
            })
        );
        for members in [
            "",
            r#""toBlock":"0x5""#,
            r#""fromBlock":"latest","toBlock":"0x5""#,
            r#""fromBlock":"0x6","toBlock":"0x5""#,
            r#""fromBlock":"0x1","toBlock":"finalized""#,
            r#""fromBlock":"0x1","toBlock":"pending""#,
        ] {
            assert_eq!(range(members), None, "{members}");
        }
    }
}
