//! The entry of a verified hit, and its differences from the node's present response.

use std::sync::Arc;

use crate::bytes::SharedBytes;
use crate::cache::entry::CacheEntry;
use crate::jsonrpc::key::canonical_json;

/// The background check of one hit: the entry that was sent, and its comparison with the node's
/// present response.
#[derive(Debug)]
pub(in crate::exchange) struct PendingHitVerification {
    /// The entry that was sent.
    pub(in crate::exchange) sent: Arc<CacheEntry>,
    /// The entry is purged if it is wrong.
    pub(in crate::exchange) purges: bool,
    /// Result of the comparison, once it is known.
    pub(super) found: Option<HitComparison>,
}

/// The result of comparing a hit with the node's response.
#[derive(Debug)]
pub(super) enum HitComparison {
    Same,
    /// Description of the difference.
    Different(String),
    Unanswered,
}

/// Maximum length in bytes of responses that are compared as JSON; longer ones are compared
/// byte by byte.
const MAX_CANONICAL_BYTES: usize = 1 << 20;

/// Bytes of each response that the log shows, starting at the difference.
const LOGGED_BYTES: usize = 48;

impl PendingHitVerification {
    pub(in crate::exchange) fn new(sent: Arc<CacheEntry>, purges: bool) -> Self {
        Self {
            sent,
            purges,
            found: None,
        }
    }

    /// Whether no comparison has been made.
    pub(super) fn is_comparison_pending(&self) -> bool {
        self.found.is_none()
    }

    /// Records that the node has no such result now, which is a difference.
    pub(super) fn record_absent_result(&mut self) {
        self.found = Some(HitComparison::Different(
            "the node now has no result, or one of another block".to_owned(),
        ));
    }
}

/// Bytes that a comparison needs: both decoded bodies, and their canonical forms.
pub(super) fn comparison_memory(one: &CacheEntry, other: &CacheEntry) -> usize {
    let length = usize::try_from(one.response_length(b"") + other.response_length(b""))
        .unwrap_or(usize::MAX);
    length.saturating_mul(3)
}

/// Compares a response with the entry that was sent.
pub(super) fn compare_entries(sent: &CacheEntry, fetched: &CacheEntry) -> HitComparison {
    let status = |entry: &CacheEntry| entry.response_metadata().status;
    if status(sent) != status(fetched) {
        let (sent, fetched) = (status(sent), status(fetched));
        return HitComparison::Different(format!("status {sent}, now {fetched}"));
    }
    let (Some(sent), Some(fetched)) = (sent.decode_payload(), fetched.decode_payload()) else {
        return HitComparison::Unanswered;
    };
    let is_same = match sent == fetched {
        true => Some(true),
        false => are_equal_json_values(&sent, &fetched),
    };
    match is_same {
        Some(true) => return HitComparison::Same,
        Some(false) => {}
        None => return HitComparison::Unanswered,
    }
    let at = sent.iter().zip(fetched.iter()).position(|(a, b)| a != b);
    let at = at.unwrap_or(sent.len().min(fetched.len()));
    let shown = |text: &SharedBytes| {
        let end = text.len().min(at + LOGGED_BYTES);
        text[at..end].escape_ascii().to_string()
    };
    HitComparison::Different(format!(
        "{} bytes with \"{}\" at byte {at}, now {} bytes with \"{}\"",
        sent.len(),
        shown(&sent),
        fetched.len(),
        shown(&fetched)
    ))
}

/// Whether two texts are equal as JSON values, in which members have no order: nodes of
/// different clients may serve one route. `None` if memory is short.
fn are_equal_json_values(one: &[u8], other: &[u8]) -> Option<bool> {
    if one.len().max(other.len()) > MAX_CANONICAL_BYTES {
        return Some(false);
    }
    let (one, other) = (canonical_json(one)?, canonical_json(other)?);
    Some(matches!((one, other), (Ok(one), Ok(other)) if one == other))
}
