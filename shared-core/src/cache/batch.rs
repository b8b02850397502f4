//! A JSON-RPC batch of answers: coded ones stand in it as they are stored.

use std::sync::Arc;

use super::entry::{Entry, Gate, Payload};
use crate::bytes::{self, push};
use crate::gzip::open::open;
use crate::gzip::splice::{Body, Member};

/// An answer in a batch. White space after it is dropped.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// A stored one, under an id.
    Stored(&'a Entry, &'a [u8]),
    /// One that is at hand as JSON: a miss just fetched, an error.
    Text(&'a [u8]),
}

impl<'a> From<(&'a Arc<Entry>, &'a [u8])> for Element<'a> {
    fn from((entry, id): (&'a Arc<Entry>, &'a [u8])) -> Self {
        Self::Stored(entry, id)
    }
}

impl Element<'_> {
    fn length(&self) -> u64 {
        match self {
            Self::Stored(entry, id) => entry.length(id),
            Self::Text(text) => text.len() as u64,
        }
    }

    fn is_coded(&self) -> bool {
        matches!(self, Self::Stored(entry, _) if matches!(entry.payload(), Payload::Open(_)))
    }
}

/// The array of `elements`, in their order, for a client that accepts gzip.
///
/// What is between coded elements is coded now where the gate lets it: many
/// small answers would not make a small batch. In identity if there is nothing
/// coded and coding makes it no smaller: see [`Body::is_gzip`]. `None` when
/// memory is refused.
pub fn batch_gzip(elements: &[Element], gate: Gate) -> Option<Body> {
    // two brackets, and a comma after all but one
    let length = elements.iter().map(Element::length).sum::<u64>() + elements.len() as u64 + 1;
    let has_coded = elements.iter().any(Element::is_coded);
    if !has_coded && length < gate.min_length {
        return batch_identity(elements);
    }
    let mut member = Member::default();
    member.make_room(
        elements.len() + 1,
        own_length(elements, Entry::coded_length),
    )?;
    let mut text = Vec::with_capacity(256);
    for (n, element) in elements.iter().enumerate() {
        push(&mut text, if n == 0 { b'[' } else { b',' })?;
        match element {
            Element::Text(json) => bytes::extend(&mut text, json.trim_ascii())?,
            Element::Stored(entry, id) => {
                extend(&mut text, entry.envelope().head(id))?;
                match entry.payload() {
                    Payload::Raw(bytes) => bytes::extend(&mut text, bytes)?,
                    Payload::Open(open) => {
                        close(&mut text, gate, &mut member)?;
                        member.open(open)?;
                    }
                }
                extend(&mut text, trimmed(entry.envelope().tail(id)))?;
            }
        }
    }
    finish_text(&mut text, elements)?;
    close(&mut text, gate, &mut member)?;
    let body = member.finish()?;
    if has_coded || body.length() < length {
        Some(body)
    } else {
        batch_identity(elements)
    }
}

/// The array of `elements`, in their order, for a client that wants identity.
/// `None` when memory is refused.
pub fn batch_identity(elements: &[Element]) -> Option<Body> {
    let mut body = Body::identity();
    body.make_room(own_length(elements, Entry::plain_length))?;
    for (n, element) in elements.iter().enumerate() {
        body.copy(if n == 0 { b"[" } else { b"," })?;
        match element {
            Element::Text(json) => body.copy(json.trim_ascii())?,
            Element::Stored(entry, id) => {
                for text in entry.envelope().head(id) {
                    body.copy(text)?;
                }
                match entry.payload() {
                    Payload::Raw(bytes) => body.copy(bytes)?,
                    Payload::Open(_) => entry.plain()?.push_to(&mut body)?,
                }
                for text in trimmed(entry.envelope().tail(id)) {
                    body.copy(text)?;
                }
            }
        }
    }
    body.copy(if elements.is_empty() { b"[]" } else { b"]" })?;
    Some(body)
}

/// Bytes of a batch that are its own: brackets, commas, texts, ids, and what
/// of the payloads is copied.
fn own_length(elements: &[Element], payload: impl Fn(&Entry) -> usize) -> usize {
    let lengths = elements.iter().map(|element| match element {
        Element::Text(text) => text.len(),
        Element::Stored(entry, id) => {
            let around = entry.envelope().length() + id.len();
            around
                + match entry.payload() {
                    Payload::Raw(bytes) => bytes.len(),
                    Payload::Open(_) => Body::copied(payload(entry)),
                }
        }
    });
    lengths.sum::<usize>() + elements.len() + 2
}

fn extend(text: &mut Vec<u8>, pieces: [&[u8]; 3]) -> Option<()> {
    for piece in pieces {
        bytes::extend(text, piece)?;
    }
    Some(())
}

fn trimmed([between, id, after]: [&[u8]; 3]) -> [&[u8]; 3] {
    [between, id, after.trim_ascii_end()]
}

fn finish_text(text: &mut Vec<u8>, elements: &[Element]) -> Option<()> {
    if elements.is_empty() {
        push(text, b'[')?;
    }
    push(text, b']')
}

/// Moves `text` into `member`, coded if that is worth it.
fn close(text: &mut Vec<u8>, gate: Gate, member: &mut Member) -> Option<()> {
    let is_long = text.len() as u64 >= gate.min_length;
    let coded = if is_long {
        open(text, gate.level)
    } else {
        None
    };
    match coded.filter(|open| open.bytes.len() < text.len()) {
        Some(open) => member.open(&open)?,
        None => member.text(text)?,
    }
    text.clear();
    Some(())
}
