//! The list of all logs of a range, from the lists of its pieces.

use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::bytes::try_extend;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::{CacheEntry, EntryMetadata};
use crate::cache::reason::Reason;
use crate::cache::response_directives::StaleDirectives;
use crate::cache::CacheKey;
use crate::jsonrpc::log_list::read_log_list;
use crate::memory::MemoryBudget;

/// A piece of a range, with the response to its call.
#[derive(Clone, Debug)]
pub(in crate::exchange) struct StoredLogPiece {
    pub(super) key: CacheKey,
    /// Blocks that the piece covers.
    pub(super) blocks: RangeInclusive<u64>,
    /// Whether all of these blocks are final.
    pub(super) is_final: bool,
    pub(super) entry: Arc<CacheEntry>,
}

/// The list of the logs of all pieces, and the properties of its entry.
#[derive(Debug)]
pub(super) struct JoinedLogs {
    /// Result of the client's call.
    pub(super) result: Vec<u8>,
    /// Properties of the entry, with the time until which all pieces are fresh.
    pub(super) meta: EntryMetadata,
    /// Block of the last log.
    pub(super) last_block: Option<u64>,
}

/// The reason why pieces could not be joined, and the piece that must not be used again, if it is
/// damaged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LogJoinFailure {
    pub(super) reason: Reason,
    /// Index of the damaged piece.
    pub(super) damaged: Option<usize>,
}

impl LogJoinFailure {
    pub(super) fn from_reason(reason: Reason) -> Self {
        Self {
            reason,
            damaged: None,
        }
    }
}

/// Number of bytes of all lists before they are joined.
pub(super) fn total_piece_length(pieces: &[StoredLogPiece]) -> u64 {
    let lengths = pieces.iter().map(|piece| piece.entry.response_length(b""));
    lengths.fold(0, u64::saturating_add)
}

/// Number of bytes that a join takes: the list, its compressed form, and one piece that is decoded.
pub(super) fn join_memory(pieces: &[StoredLogPiece]) -> usize {
    let length = usize::try_from(total_piece_length(pieces)).unwrap_or(usize::MAX);
    let decoded = pieces.iter().map(|piece| piece.entry.decode_memory_bytes());
    length
        .saturating_mul(2)
        .saturating_add(decoded.max().unwrap_or(0))
}

/// Joins the lists of pieces that follow each other. The caller has reserved [`join_memory`] in
/// `budget`, which may have at most `limit` bytes in use.
///
/// # Errors
/// A [`LogJoinFailure`] if a piece is not a list of logs of its blocks in their order, if the
/// pieces have different headers, or if memory is refused.
pub(super) fn join_log_pieces(
    pieces: &[StoredLogPiece],
    budget: &MemoryBudget,
    limit: usize,
) -> Result<JoinedLogs, LogJoinFailure> {
    let refused = || LogJoinFailure::from_reason(Reason::Memory);
    let meta = joined_metadata(pieces).ok_or(LogJoinFailure::from_reason(Reason::Result))?;
    let length = usize::try_from(total_piece_length(pieces)).map_err(|_| refused())?;
    let mut result = Vec::new();
    result
        .try_reserve_exact(length.saturating_add(2))
        .map_err(|_| refused())?;
    result.push(b'[');
    let mut last_block = None;
    for (at, piece) in pieces.iter().enumerate() {
        let damaged = |reason| LogJoinFailure {
            reason,
            damaged: Some(at),
        };
        piece
            .entry
            .check_strictly_within_budget(budget, limit)
            .map_err(damaged)?;
        let list = piece.entry.decode_payload().ok_or_else(refused)?;
        let logs = read_log_list(&list, piece.blocks.clone())
            .ok_or_else(|| damaged(Reason::Implausible))?;
        if logs.text.is_empty() {
            continue;
        }
        if result.len() > 1 {
            try_extend(&mut result, b",").ok_or_else(refused)?;
        }
        try_extend(&mut result, logs.text).ok_or_else(refused)?;
        last_block = logs.last_block;
    }
    try_extend(&mut result, b"]").ok_or_else(refused)?;
    let class = match meta.class {
        // the rest of the range is empty, and the list is not
        LifetimeClass::Nothing if last_block.is_some() => LifetimeClass::Tip,
        class => class,
    };
    Ok(JoinedLogs {
        result,
        meta: EntryMetadata { class, ..meta },
        last_block,
    })
}

/// Returns the properties of the joined entry: it depends on the same blocks as its last piece, if
/// that is not final, and is fresh as long as all pieces are. `None` if the pieces have different
/// headers.
fn joined_metadata(pieces: &[StoredLogPiece]) -> Option<EntryMetadata> {
    let metadata = || pieces.iter().map(|piece| piece.entry.response_metadata());
    let (first, last) = (metadata().next()?, pieces.last()?);
    if metadata().any(|meta| meta.fields != first.fields || meta.status != 200) {
        return None;
    }
    let of_last = last.entry.response_metadata();
    let (class, height) = match last.is_final {
        true => (LifetimeClass::Immutable, Some(*last.blocks.end())),
        false => (of_last.class, of_last.height),
    };
    Some(EntryMetadata {
        status: 200,
        fields: first.fields.clone(),
        expires_at: metadata().map(|meta| meta.expires_at).min()?,
        class,
        height,
        follows: of_last.follows,
        stale: StaleDirectives {
            never: metadata().any(|meta| meta.stale.never),
            ..StaleDirectives::default()
        },
        ..EntryMetadata::default()
    })
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;
    use std::sync::Arc;

    use super::{join_log_pieces, LogJoinFailure, StoredLogPiece};
    use crate::cache::class::LifetimeClass;
    use crate::cache::entry::{
        CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
    };
    use crate::cache::reason::Reason;
    use crate::memory::MemoryBudget;

    fn meta(class: LifetimeClass, expires_at: u64) -> EntryMetadata {
        EntryMetadata {
            class,
            expires_at,
            height: Some(7),
            fields: vec![(b"Content-Type".to_vec(), b"application/json".to_vec())],
            ..EntryMetadata::default()
        }
    }

    fn piece(blocks: RangeInclusive<u64>, list: &str, meta: EntryMetadata) -> StoredLogPiece {
        let envelope = EnvelopeBytes {
            id: ResponseIdPosition::BeforeResult,
            before: Box::from(&b"{\"jsonrpc\":\"2.0\",\"id\":"[..]),
            between: Box::from(&b",\"result\":"[..]),
            after: Box::from(&b"}"[..]),
        };
        let gate = CompressionGate {
            min_length: 200,
            level: 1,
        };
        let is_final = meta.class == LifetimeClass::Immutable;
        let entry = CacheEntry::from_fetched_result(envelope, list.as_bytes(), gate, meta);
        StoredLogPiece {
            key: [0; 32],
            blocks,
            is_final,
            entry: Arc::new(entry.unwrap()),
        }
    }

    fn final_piece(blocks: RangeInclusive<u64>, list: &str) -> StoredLogPiece {
        piece(blocks, list, meta(LifetimeClass::Immutable, 100))
    }

    fn join(pieces: &[StoredLogPiece]) -> Result<(String, EntryMetadata), LogJoinFailure> {
        let joined = join_log_pieces(pieces, &MemoryBudget::new(), usize::MAX)?;
        Ok((String::from_utf8(joined.result).unwrap(), joined.meta))
    }

    /// A list of logs, one of each block.
    fn logs(blocks: RangeInclusive<u64>) -> String {
        let logs = blocks.map(|block| format!("{{\"blockNumber\":\"{block:#x}\"}}"));
        logs.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn logs_of_all_pieces_are_joined_in_their_order() {
        let (one, two) = (logs(0..=9), logs(10..=30));
        for (lists, expected) in [
            (
                [format!("[{one}]"), format!(" [ {two} ]\n")],
                format!("[{one},{two}]"),
            ),
            (["[]".into(), format!("[{two}]")], format!("[{two}]")),
            ([format!("[{one}]"), "[ ]".into()], format!("[{one}]")),
            (["[]".into(), "[]".into()], "[]".into()),
        ] {
            let pieces = [
                final_piece(0..=9, &lists[0]),
                final_piece(10..=30, &lists[1]),
            ];
            assert_eq!(join(&pieces).unwrap().0, expected);
        }
    }

    #[test]
    fn joined_entry_of_final_pieces_is_immutable_until_the_first_one_expires() {
        let pieces = [
            piece(0..=9, "[]", meta(LifetimeClass::Immutable, 100)),
            piece(10..=30, "[]", meta(LifetimeClass::Immutable, 90)),
        ];
        let (_, meta) = join(&pieces).unwrap();
        assert_eq!(meta.class, LifetimeClass::Immutable);
        assert_eq!((meta.height, meta.expires_at), (Some(30), 90));
        assert_eq!(meta.fields, pieces[0].entry.response_metadata().fields);
    }

    #[test]
    fn joined_entry_depends_on_the_blocks_of_its_rest() {
        for (class, one, joined) in [
            (LifetimeClass::Unfinalized, "[]", LifetimeClass::Unfinalized),
            (LifetimeClass::Tip, "[]", LifetimeClass::Tip),
            (LifetimeClass::Nothing, "[]", LifetimeClass::Nothing),
            (
                LifetimeClass::Nothing,
                r#"[{"blockNumber":"0x1"}]"#,
                LifetimeClass::Tip,
            ),
        ] {
            let rest = EntryMetadata {
                follows: Some(([1; 16], 5)),
                ..meta(class, 3)
            };
            let pieces = [final_piece(0..=9, one), piece(10..=u64::MAX, "[]", rest)];
            let (_, meta) = join(&pieces).unwrap();
            assert_eq!((meta.class, meta.expires_at), (joined, 3), "{one}");
            assert_eq!((meta.height, meta.follows), (Some(7), Some(([1; 16], 5))));
        }
    }

    #[test]
    fn pieces_are_not_joined_if_one_has_logs_of_other_blocks_or_is_no_list() {
        for list in [
            "null".to_owned(),
            "{}".into(),
            format!("[{}]", logs(9..=10)),
            format!("[{}]", logs(30..=31)),
            format!("[{},{}]", logs(11..=12), logs(10..=11)),
        ] {
            let pieces = [final_piece(0..=9, "[]"), final_piece(10..=30, &list)];
            let failure = LogJoinFailure {
                reason: Reason::Implausible,
                damaged: Some(1),
            };
            assert_eq!(join(&pieces).unwrap_err(), failure, "{list}");
        }
    }

    #[test]
    fn pieces_with_different_headers_are_not_joined() {
        let other = EntryMetadata {
            fields: Vec::new(),
            ..meta(LifetimeClass::Immutable, 100)
        };
        let pieces = [final_piece(0..=9, "[]"), piece(10..=30, "[]", other)];
        let failure = LogJoinFailure::from_reason(Reason::Result);
        assert_eq!(join(&pieces).unwrap_err(), failure);
        assert!(join(&[]).is_err());
    }
}
