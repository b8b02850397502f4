//! A batch of which the node gets a part.

use std::sync::Arc;

use crate::bytes::extend;
use crate::cache::entry::batch::{batch_identity, Element};
use crate::cache::entry::Entry;
use crate::exchange::head::Coding;
use crate::exchange::held::Held;
use crate::gzip::splice::Body;

/// A batch of which the node gets a part.
#[derive(Debug)]
pub(in crate::exchange) struct Mixed {
    /// In the request's order.
    pub(in crate::exchange) places: Vec<Member>,
    pub(in crate::exchange) gzip: bool,
    /// How the node's part is coded; where that is unknown it can't be read.
    pub(in crate::exchange) coding: Coding,
    /// What has come of it.
    pub(in crate::exchange) held: Held,
    /// What the client gets in place of the node's, which says that there is no body;
    /// 0: nothing.
    pub(in crate::exchange) status: u16,
    /// It was too long to be held, and must not go on without being judged.
    pub(in crate::exchange) is_lost: bool,
}

#[derive(Debug)]
pub(in crate::exchange) enum Member {
    /// The answer, and the id that it gets.
    Stored(Arc<Entry>, Vec<u8>),
    /// The same of a call that must not be made.
    Denied(Arc<Entry>, Vec<u8>),
    /// The id under which the node was asked, and how many bytes its answer may have.
    Asked(Vec<u8>, Option<u64>),
}

impl Mixed {
    pub(in crate::exchange) fn stored(&self) -> impl Iterator<Item = (&Arc<Entry>, &[u8])> {
        self.places.iter().filter_map(|place| match place {
            Member::Stored(entry, id) | Member::Denied(entry, id) => Some((entry, &id[..])),
            Member::Asked(..) => None,
        })
    }

    /// How many bytes of stored answers have to be coded or decoded to put them
    /// together.
    pub(in crate::exchange) fn work(&self) -> u64 {
        self.stored().map(|(entry, _)| work(entry, self.gzip)).sum()
    }

    /// Whether the node is asked for nothing that it would answer.
    pub(in crate::exchange) fn is_all_stored(&self) -> bool {
        let mut places = self.places.iter();
        !places.any(|place| matches!(place, Member::Asked(..)))
    }

    /// How many bytes the shortest of the node's answers may have at most, if anything is
    /// said of them.
    pub(in crate::exchange) fn most(&self) -> Option<u64> {
        let places = self.places.iter();
        places
            .filter_map(|place| match place {
                Member::Asked(_, most) => *most,
                _ => None,
            })
            .min()
    }

    /// The stored answers in front of an array that can't be read.
    pub(in crate::exchange) fn prefixed(&self) -> Result<Option<Body>, Refused> {
        let Some(opened) = self.opened()? else {
            return Ok(None);
        };
        let mut body = Body::identity();
        body.push(opened).ok_or(Refused)?;
        Ok(Some(body))
    }

    /// The beginning of an array with the stored answers in front of what is
    /// in it; `None` if it is no array.
    pub(in crate::exchange) fn opened(&self) -> Result<Option<Vec<u8>>, Refused> {
        let answer = &self.held.body[..];
        let Some(start) = answer.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            return Ok(None);
        };
        if answer[start] != b'[' {
            return Ok(None);
        }
        let stored: Vec<Element<'_>> = self
            .stored()
            .map(|(entry, id)| Element::Stored(entry, id))
            .collect();
        let stored = batch_identity(&stored).and_then(|stored| stored.try_to_vec());
        let mut opened = stored.ok_or(Refused)?;
        // the bracket that closes it
        opened.pop();
        let rest = &answer[start + 1..];
        let next = rest.iter().find(|byte| !byte.is_ascii_whitespace());
        let comma: &[u8] = match next {
            Some(byte) if *byte != b']' => b",",
            _ => b"",
        };
        extend(&mut opened, comma).ok_or(Refused)?;
        extend(&mut opened, rest).ok_or(Refused)?;
        Ok(Some(opened))
    }
}

/// Memory was refused, and there is nothing that could be sent instead.
#[derive(Clone, Copy, Debug)]
pub(in crate::exchange) struct Refused;

/// How many bytes of a stored answer have to be coded or decoded before it can
/// be sent in a batch.
pub(in crate::exchange) fn work(entry: &Entry, gzip: bool) -> u64 {
    match (gzip, entry.is_coded()) {
        (false, _) => entry.inflates(),
        (true, false) => entry.length(b""),
        (true, true) => 0,
    }
}
