//! The entry of a verified hit, and its differences from the node's present response.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::cache::entry::Entry;
use crate::jsonrpc::key::canonical;

/// A hit that is verified.
#[derive(Debug)]
pub(in crate::exchange) struct Compared {
    /// The entry that was sent.
    pub(in crate::exchange) sent: Arc<Entry>,
    /// The entry is purged if it is wrong.
    pub(in crate::exchange) purges: bool,
    /// Result of the comparison, once it is known.
    pub(super) found: Option<Found>,
}

/// The result of comparing a hit with the node's response.
#[derive(Debug)]
pub(super) enum Found {
    Same,
    /// Description of the difference.
    Other(String),
    Nothing,
}

/// Maximum length in bytes of responses that are compared as JSON; longer ones are compared
/// byte by byte.
const READ: usize = 1 << 20;

/// Bytes of each response that the log shows, starting at the difference.
const SHOWN: usize = 48;

impl Compared {
    pub(in crate::exchange) fn new(sent: Arc<Entry>, purges: bool) -> Self {
        Self {
            sent,
            purges,
            found: None,
        }
    }

    /// Whether no comparison has been made.
    pub(super) fn is_open(&self) -> bool {
        self.found.is_none()
    }

    /// Records that the node has no such result now.
    pub(super) fn find_nothing(&mut self) {
        self.found = Some(Found::Other(
            "now it has nothing, or of another block".to_owned(),
        ));
    }
}

/// Bytes that a comparison needs: both decoded bodies, and their canonical forms.
pub(super) fn room_for(one: &Entry, other: &Entry) -> usize {
    let length = usize::try_from(one.length(b"") + other.length(b"")).unwrap_or(usize::MAX);
    length.saturating_mul(3)
}

/// Compares a response with the entry that was sent.
pub(super) fn difference(sent: &Entry, came: &Entry) -> Found {
    let status = |entry: &Entry| entry.meta().status;
    if status(sent) != status(came) {
        let (sent, came) = (status(sent), status(came));
        return Found::Other(format!("status {sent}, now {came}"));
    }
    let (Some(sent), Some(came)) = (sent.decoded(), came.decoded()) else {
        return Found::Nothing;
    };
    let is_same = match sent == came {
        true => Some(true),
        false => is_one_value(&sent, &came),
    };
    match is_same {
        Some(true) => return Found::Same,
        Some(false) => {}
        None => return Found::Nothing,
    }
    let at = sent.iter().zip(came.iter()).position(|(a, b)| a != b);
    let at = at.unwrap_or(sent.len().min(came.len()));
    let shown = |text: &Bytes| {
        let end = text.len().min(at + SHOWN);
        text[at..end].escape_ascii().to_string()
    };
    Found::Other(format!(
        "of {} bytes from {at} on \"{}\", now of {} \"{}\"",
        sent.len(),
        shown(&sent),
        came.len(),
        shown(&came)
    ))
}

/// Whether two texts are equal as JSON values, in which members have no order: nodes of
/// different clients may serve one route. `None` if memory is short.
fn is_one_value(one: &[u8], other: &[u8]) -> Option<bool> {
    if one.len().max(other.len()) > READ {
        return Some(false);
    }
    let (one, other) = (canonical(one)?, canonical(other)?);
    Some(matches!((one, other), (Ok(one), Ok(other)) if one == other))
}
