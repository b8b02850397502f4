//! Entries that were made at a glance, and read before they are given out.
//!
//! Most answers that are stored are never asked for again. A long one is not
//! read strictly when it comes (see [`outline`](crate::jsonrpc::outline)) but
//! when it is asked for the first time: then it is decoded and read once, and
//! what turns out to be no answer is never sent to anybody.

use std::sync::atomic::Ordering;

#[cfg(feature = "store")]
use super::wire;
use super::{Entry, IdPlace, Payload};
use crate::cache::reason::Reason;
use crate::gzip::inflate::{gunzip, InflateError};
use crate::jsonrpc::response::{self, Outcome, Response};
use crate::memory::Budget;

/// Memory to read shorter answers is not reserved: no more of them are read at once than
/// there are threads. Bytes.
const SHORT: usize = 4 << 20;

/// What stands for the id while an answer is read.
const ANY_ID: &[u8] = b"0";

impl Entry {
    /// The same, to be read before it is given out.
    pub fn unread(self) -> Self {
        self.unread.store(true, Ordering::Relaxed);
        self
    }

    /// Whether [`stands`](Self::stands) has to read it first. Milliseconds for
    /// each megabyte.
    pub fn is_unread(&self) -> bool {
        self.unread.load(Ordering::Relaxed)
    }

    /// Whether it may be given out: it is one answer, its id and its result
    /// are where the envelope says. What is not, or can't be read for want of
    /// memory, is to be thrown away.
    pub fn stands(&self) -> bool {
        self.check().is_ok()
    }

    /// The same, with why not.
    ///
    /// # Errors
    /// [`Reason::Memory`] where there is none to read it; others say what is wrong with it.
    pub fn check(&self) -> Result<(), Reason> {
        if self.is_unread() {
            self.read()?;
            self.unread.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks as [`check`](Self::check) does, with the memory for it reserved in `budget`, of
    /// which at most `limit` bytes may be in use.
    ///
    /// # Errors
    /// As of [`check`](Self::check); [`Reason::Memory`] where there is no room, too.
    pub fn check_within(&self, budget: &Budget, limit: usize) -> Result<(), Reason> {
        if !self.is_unread() {
            return Ok(());
        }
        let coded = match &self.payload {
            Payload::Raw(_) => 0,
            Payload::Open(open) => open.bytes.len(),
        };
        let plain = usize::try_from(self.length(ANY_ID)).map_err(|_| Reason::Memory)?;
        let _memory = match plain {
            0..SHORT => None,
            _ => {
                let needed = plain.saturating_add(coded);
                Some(budget.reserve(needed, limit).ok_or(Reason::Memory)?)
            }
        };
        self.check()
    }

    fn read(&self) -> Result<(), Reason> {
        let body = if self.is_coded() {
            let coded = self.gzip(ANY_ID).and_then(|coded| coded.try_to_vec());
            let length = usize::try_from(self.length(ANY_ID)).map_err(|_| Reason::Memory)?;
            gunzip(&coded.ok_or(Reason::Memory)?, length).map_err(|error| match error {
                InflateError::OutOfMemory => Reason::Memory,
                _ => Reason::Malformed,
            })?
        } else {
            let plain = self.identity(ANY_ID).and_then(|plain| plain.try_to_vec());
            plain.ok_or(Reason::Memory)?
        };
        let answer = response::parse(&body).map_err(|error| Reason::of_answer(&error))?;
        match self.is_where_the_envelope_says(&answer, &body) {
            Some(true) => Ok(()),
            _ => Err(Reason::Malformed),
        }
    }

    fn is_where_the_envelope_says(&self, answer: &Response, body: &[u8]) -> Option<bool> {
        let Outcome::Result(result) = &answer.outcome else {
            return None;
        };
        let envelope = self.envelope();
        let before = envelope.before.len();
        let (id, other) = match envelope.id {
            IdPlace::BeforeResult => (&answer.id, result),
            IdPlace::AfterResult => (result, &answer.id),
            IdPlace::Nowhere => return None,
        };
        Some(
            id.start == before
                && other.start == id.end + envelope.between.len()
                && other.end == body.len() - envelope.after.len()
                && answer.id.len() == ANY_ID.len(),
        )
    }
}

/// The bytes of an entry that was read: it [stands](Entry::stands).
#[cfg(feature = "store")]
pub(crate) fn read(bytes: &[u8]) -> Option<Vec<u8>> {
    // times are of no matter
    let entry = wire::decode(bytes, 0, 0, 0)?;
    if !entry.stands() {
        return None;
    }
    wire::as_read(bytes)
}
