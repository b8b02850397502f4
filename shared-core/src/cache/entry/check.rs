//! Entries that were made at a glance, and read before they are given out.
//!
//! Most answers that are stored are never asked for again. A long one is not
//! read strictly when it comes (see [`outline`](crate::jsonrpc::outline)) but
//! when it is asked for the first time: then it is decoded and read once, and
//! what turns out to be no answer is never sent to anybody.

use std::sync::atomic::Ordering;

#[cfg(feature = "store")]
use super::wire;
use super::{Entry, IdPlace};
use crate::gzip::inflate::gunzip;
use crate::jsonrpc::response::{self, Outcome};

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
        if !self.is_unread() {
            return true;
        }
        let stands = self.read().is_some();
        if stands {
            self.unread.store(false, Ordering::Relaxed);
        }
        stands
    }

    fn read(&self) -> Option<()> {
        let body = if self.is_coded() {
            let length = usize::try_from(self.length(ANY_ID)).ok()?;
            gunzip(&self.gzip(ANY_ID)?.try_to_vec()?, length).ok()?
        } else {
            self.identity(ANY_ID)?.try_to_vec()?
        };
        let answer = response::parse(&body).ok()?;
        let Outcome::Result(result) = answer.outcome else {
            return None;
        };
        let envelope = self.envelope();
        let before = envelope.before.len();
        let (id, other) = match envelope.id {
            IdPlace::BeforeResult => (&answer.id, &result),
            IdPlace::AfterResult => (&result, &answer.id),
            IdPlace::Nowhere => return None,
        };
        let stands = id.start == before
            && other.start == id.end + envelope.between.len()
            && other.end == body.len() - envelope.after.len()
            && answer.id.len() == ANY_ID.len();
        stands.then_some(())
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
