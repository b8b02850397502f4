//! The entry of a verified hit, and its differences from the node's present response.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::cache::entry::CacheEntry;
use crate::jsonrpc::key::canonical;

/// The entry that was sent for a hit, and its comparison with the node's present response.
#[derive(Debug)]
pub(in crate::exchange) struct HitVerification {
    /// The entry that was sent.
    pub(in crate::exchange) sent: Arc<CacheEntry>,
    /// The entry is purged if it is wrong.
    pub(in crate::exchange) purges: bool,
    /// Result of the comparison, once it is known.
    pub(super) found: Option<ComparisonResult>,
}

/// The result of comparing a hit with the node's response.
#[derive(Debug)]
pub(super) enum ComparisonResult {
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

impl HitVerification {
    pub(in crate::exchange) fn new(sent: Arc<CacheEntry>, purges: bool) -> Self {
        Self {
            sent,
            purges,
            found: None,
        }
    }

    /// Whether no comparison has been made.
    pub(super) fn is_pending(&self) -> bool {
        self.found.is_none()
    }

    /// Records that the node has no such result now.
    pub(super) fn set_unanswered(&mut self) {
        self.found = Some(ComparisonResult::Different(
            "the node now has no result, or one of another block".to_owned(),
        ));
    }
}

/// Bytes that a comparison needs: both decoded bodies, and their canonical forms.
pub(super) fn comparison_memory(one: &CacheEntry, other: &CacheEntry) -> usize {
    let length = usize::try_from(one.length(b"") + other.length(b"")).unwrap_or(usize::MAX);
    length.saturating_mul(3)
}

/// Compares a response with the entry that was sent.
pub(super) fn difference(sent: &CacheEntry, fetched: &CacheEntry) -> ComparisonResult {
    let status = |entry: &CacheEntry| entry.meta().status;
    if status(sent) != status(fetched) {
        let (sent, fetched) = (status(sent), status(fetched));
        return ComparisonResult::Different(format!("status {sent}, now {fetched}"));
    }
    let (Some(sent), Some(fetched)) = (sent.decode_payload(), fetched.decode_payload()) else {
        return ComparisonResult::Unanswered;
    };
    let is_same = match sent == fetched {
        true => Some(true),
        false => is_one_value(&sent, &fetched),
    };
    match is_same {
        Some(true) => return ComparisonResult::Same,
        Some(false) => {}
        None => return ComparisonResult::Unanswered,
    }
    let at = sent.iter().zip(fetched.iter()).position(|(a, b)| a != b);
    let at = at.unwrap_or(sent.len().min(fetched.len()));
    let shown = |text: &Bytes| {
        let end = text.len().min(at + LOGGED_BYTES);
        text[at..end].escape_ascii().to_string()
    };
    ComparisonResult::Different(format!(
        "{} bytes with \"{}\" at byte {at}, now {} bytes with \"{}\"",
        sent.len(),
        shown(&sent),
        fetched.len(),
        shown(&fetched)
    ))
}

/// Whether two texts are equal as JSON values, in which members have no order: nodes of
/// different clients may serve one route. `None` if memory is short.
fn is_one_value(one: &[u8], other: &[u8]) -> Option<bool> {
    if one.len().max(other.len()) > MAX_CANONICAL_BYTES {
        return Some(false);
    }
    let (one, other) = (canonical(one)?, canonical(other)?);
    Some(matches!((one, other), (Ok(one), Ok(other)) if one == other))
}
