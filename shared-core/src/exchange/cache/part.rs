//! A batch of which the node gets a part.

use std::sync::Arc;

use crate::bytes::extend;
use crate::cache::entry::batch::{batch_identity, Element};
use crate::cache::entry::Entry;
use crate::coded::{BodyCoding, Coded};
use crate::config::Config;
use crate::exchange::held::{work_of_gunzip, Held};
use crate::gzip::inflate::InflateError;

/// A batch of which the node gets a part.
#[derive(Debug, Default)]
pub(in crate::exchange) struct Mixed {
    /// In the request's order.
    pub(in crate::exchange) places: Vec<Member>,
    pub(in crate::exchange) gzip: bool,
    /// How the node's part is coded.
    pub(in crate::exchange) coding: BodyCoding,
    /// Whether the node calls it JSON.
    pub(in crate::exchange) is_json: bool,
    /// The status of the node's response.
    pub(in crate::exchange) node_status: u16,
    /// What has come of it.
    pub(in crate::exchange) held: Held,
    /// What the client gets in place of the node's, which says that there is no body;
    /// 0: nothing.
    pub(in crate::exchange) status: u16,
    /// The node's response was dropped, or will not be read.
    pub(in crate::exchange) lost: Option<Loss>,
    /// Its head was not judged.
    pub(in crate::exchange) is_unjudged: bool,
    /// The node has broken its response off: its last answers are missing.
    pub(in crate::exchange) is_cut: bool,
}

/// Why nothing of the node's response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::exchange) enum Loss {
    /// It was too long to be buffered.
    Length,
    /// It can't be decoded or read, or did not come to its end.
    Unreadable,
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

    /// Whether the node was asked for all of it: its response is the client's, if it is
    /// no longer than it may be.
    pub(in crate::exchange) fn is_all_asked(&self) -> bool {
        self.stored().next().is_none()
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

    /// Whether the node's part can go on as it comes, behind what is stored.
    pub(in crate::exchange) fn may_stream(&self) -> bool {
        let first = self
            .held
            .body
            .iter()
            .find(|byte| !byte.is_ascii_whitespace());
        let is_array = first.is_none_or(|byte| *byte == b'[');
        is_array && self.coding == BodyCoding::None && self.most().is_none() && !self.is_all_asked()
    }

    /// How many bytes of the node's part are buffered at most: where it can't be sent
    /// otherwise, as many as there is memory for.
    pub(in crate::exchange) fn buffered_at_most(&self, config: &Config) -> u64 {
        match self.may_stream() {
            true => config.max_oneshot,
            false => config.memory.max(config.max_oneshot),
        }
    }

    /// The node's response without its coding. Of one that was broken off this is its
    /// beginning, which is noted.
    pub(in crate::exchange) fn decode(&mut self, config: &Config) -> Result<Vec<u8>, Loss> {
        let coded = self.coding.coded().ok_or(Loss::Unreadable)?;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let (most, limit) = (size(self.buffered_at_most(config)), size(config.memory));
        let held = &mut self.held;
        let reservation = held.reservation.as_mut().ok_or(Loss::Unreadable)?;
        let before = held.body.len();
        let mut may_take =
            |length: usize| reservation.grow_to(before.saturating_add(length), limit);
        let body = match coded.decode(&held.body, most, &mut may_take) {
            Err(InflateError::Bad) => {
                self.is_cut = true;
                coded.decode_beginning(&held.body, most, may_take)
            }
            whole => whole,
        };
        body.map_err(|why| match why {
            InflateError::Bad => Loss::Unreadable,
            InflateError::TooLarge | InflateError::OutOfMemory => Loss::Length,
        })
    }

    /// How many bytes of the node's response have to be decoded and read.
    pub(in crate::exchange) fn work_of_decoding(&self, config: &Config) -> usize {
        let body = &self.held.body;
        match self.coding.coded() {
            Some(Coded::Gzip) => work_of_gunzip(body, config),
            // most answers are a fifth of what they say
            Some(Coded::Zstd) => body.len().saturating_mul(5),
            None => body.len(),
        }
    }

    /// Nothing of the node's response is of use; its memory is given back.
    pub(in crate::exchange) fn lose(&mut self, loss: Loss) {
        let held = &mut self.held;
        *held = Held {
            borrowed: std::mem::take(&mut held.borrowed),
            recoded_edits: std::mem::take(&mut held.recoded_edits),
            ..Held::default()
        };
        self.lost = Some(loss);
    }

    /// The beginning of an array with the stored answers in front of what is
    /// in it; `None` if it is no array, or there are none.
    pub(in crate::exchange) fn opened(&self) -> Result<Option<Vec<u8>>, Refused> {
        let answer = &self.held.body[..];
        let Some(start) = answer.iter().position(|byte| !byte.is_ascii_whitespace()) else {
            return Ok(None);
        };
        if answer[start] != b'[' || self.is_all_asked() {
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
