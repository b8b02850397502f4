//! Strict check of entries that were stored unchecked, before they are sent.
//!
//! Most stored responses are never requested again. So a long response is not parsed strictly when
//! it arrives (see [`locate_result`](crate::jsonrpc::response_ends::locate_result)) but when it is
//! requested for the first time: it is decoded and parsed once then, and is never sent if it is no
//! valid response.

use std::sync::atomic::Ordering;

#[cfg(feature = "store")]
use super::wire;
use super::{CacheEntry, EntryPayload, ResponseIdPosition};
use crate::cache::reason::Reason;
use crate::gzip::inflate::{gunzip_reserved, InflateError};
use crate::jsonrpc::response::{self, CallOutcomeSpan, JsonRpcResponse};
use crate::memory::MemoryBudget;

/// Length in bytes below which no memory is reserved for the check: at most one entry per thread is
/// checked at a time.
const MIN_RESERVED: usize = 4 << 20;

/// The id under which an entry is parsed.
const ANY_ID: &[u8] = b"0";

impl CacheEntry {
    /// Marks the entry as stored after a look at its ends only: it is parsed before it is sent.
    pub fn mark_for_strict_check(self) -> Self {
        self.unread.store(true, Ordering::Relaxed);
        self
    }

    /// Whether [`passes_strict_check`](Self::passes_strict_check) has to parse the entry first,
    /// which takes milliseconds per megabyte.
    pub fn needs_strict_check(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Whether the entry may be sent: it is one response, with id and result where the envelope has
    /// them. An entry that fails the check, or can't be checked for lack of memory, has to be
    /// removed.
    pub fn passes_strict_check(&self) -> bool {
        self.check_strictly_once().is_ok()
    }

    /// Parses the entry strictly if it was stored unchecked and was not parsed before.
    ///
    /// # Errors
    /// Returns [`Reason::Memory`] if memory is refused, or the reason why the entry is no valid
    /// response.
    pub fn check_strictly_once(&self) -> Result<(), Reason> {
        if self.needs_strict_check() {
            self.check_response_bytes()?;
            self.unread.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks the entry like [`check_strictly_once`](Self::check_strictly_once), with its memory
    /// reserved in `budget`, which may have at most `limit` bytes in use.
    ///
    /// # Errors
    /// Returns the errors of [`check_strictly_once`](Self::check_strictly_once), and
    /// [`Reason::Memory`] if the budget is used up.
    pub fn check_strictly_within_budget(
        &self,
        budget: &MemoryBudget,
        limit: usize,
    ) -> Result<(), Reason> {
        if !self.needs_strict_check() {
            return Ok(());
        }
        let coded = match &self.stored_payload {
            EntryPayload::Raw(_) => 0,
            EntryPayload::Open(open) => open.bytes.len(),
        };
        let plain = usize::try_from(self.response_length(ANY_ID)).map_err(|_| Reason::Memory)?;
        let _memory = match plain {
            0..MIN_RESERVED => None,
            _ => {
                let needed = plain.saturating_add(coded);
                Some(budget.reserve_bytes(needed, limit).ok_or(Reason::Memory)?)
            }
        };
        self.check_strictly_once()
    }

    /// Assembles the response, decompresses it, and reads it strictly. The error is the reason why
    /// the entry must not be sent.
    fn check_response_bytes(&self) -> Result<(), Reason> {
        let body = if self.is_compressed() {
            let coded = self
                .response_for_gzip_client(ANY_ID)
                .and_then(|coded| coded.try_to_vec());
            let length =
                usize::try_from(self.response_length(ANY_ID)).map_err(|_| Reason::Memory)?;
            gunzip_reserved(&coded.ok_or(Reason::Memory)?, length).map_err(|error| match error {
                InflateError::OutOfMemory => Reason::Memory,
                _ => Reason::Malformed,
            })?
        } else {
            let plain = self
                .response_for_identity_client(ANY_ID)
                .and_then(|plain| plain.try_to_vec());
            plain.ok_or(Reason::Memory)?
        };
        let answer = response::parse_jsonrpc_response(&body)
            .map_err(|error| Reason::reason_of_parse_error(&error))?;
        match self.matches_envelope(&answer, &body) {
            Some(true) => Ok(()),
            _ => Err(Reason::Malformed),
        }
    }

    /// Whether the id and the result are in `body` where the entry's envelope has them. Returns
    /// `None` for an error response, or an envelope without an id.
    fn matches_envelope(&self, answer: &JsonRpcResponse, body: &[u8]) -> Option<bool> {
        let CallOutcomeSpan::Result(result) = &answer.outcome else {
            return None;
        };
        let envelope = self.response_envelope();
        let before = envelope.before.len();
        let (id, other) = match envelope.id {
            ResponseIdPosition::BeforeResult => (&answer.id, result),
            ResponseIdPosition::AfterResult => (result, &answer.id),
            ResponseIdPosition::None => return None,
        };
        Some(
            id.start == before
                && other.start == id.end + envelope.between.len()
                && other.end == body.len() - envelope.after.len()
                && answer.id.len() == ANY_ID.len(),
        )
    }
}

/// Returns the bytes of an entry with the flag of a checked one, if it
/// [passes](CacheEntry::passes_strict_check) the check.
#[cfg(feature = "store")]
pub(crate) fn strictly_check_entry_bytes(bytes: &[u8]) -> Option<Vec<u8>> {
    // the times have no effect
    let entry = wire::decode_cache_entry(bytes, 0, 0, 0)?;
    if !entry.passes_strict_check() {
        return None;
    }
    wire::clear_unchecked_flag(bytes)
}
