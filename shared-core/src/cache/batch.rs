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
    let mut member = Member::new();
    let mut text = Vec::new();
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
    let mut text = Vec::new();
    for (n, element) in elements.iter().enumerate() {
        push(&mut text, if n == 0 { b'[' } else { b',' })?;
        match element {
            Element::Text(json) => bytes::extend(&mut text, json.trim_ascii())?,
            Element::Stored(entry, id) => {
                extend(&mut text, entry.envelope().head(id))?;
                match entry.payload() {
                    Payload::Raw(bytes) => bytes::extend(&mut text, bytes)?,
                    Payload::Open(_) => {
                        body.push(std::mem::take(&mut text))?;
                        entry.plain()?.push_to(&mut body)?;
                    }
                }
                extend(&mut text, trimmed(entry.envelope().tail(id)))?;
            }
        }
    }
    finish_text(&mut text, elements)?;
    body.push(text)?;
    Some(body)
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
