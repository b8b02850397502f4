//! A JSON-RPC batch of answers: coded ones stand in it as they are stored.

use std::sync::Arc;

use super::{Entry, Gate, Payload, Sink};
use crate::gzip::open::{open, Open};
use crate::gzip::splice::{Body, Member};

/// An answer in a batch. White space after it is dropped.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// A stored one, under an id.
    Stored(&'a Entry, &'a [u8]),
    /// One that is at hand as JSON: a miss just fetched, an error.
    Text(&'a [u8]),
    /// One of these parts.
    Built {
        /// A JSON text.
        id: &'a [u8],
        /// `result` or `error`.
        member: &'static str,
        /// The value of that member, a JSON text.
        value: &'a [u8],
    },
}

/// What is around the parts of [`Element::Built`].
const BUILT: [&[u8]; 4] = [b"{\"jsonrpc\":\"2.0\",\"id\":", b",\"", b"\":", b"}"];

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
            Self::Built { id, member, value } => {
                let around: usize = BUILT.iter().map(|part| part.len()).sum();
                (around + id.len() + member.len() + value.len()) as u64
            }
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
    gzip(elements, gate, false)
}

/// The same for a client that takes nothing else: gzip in any case.
pub fn batch_gzip_always(elements: &[Element], gate: Gate) -> Option<Body> {
    gzip(elements, gate, true)
}

fn gzip(elements: &[Element], gate: Gate, always: bool) -> Option<Body> {
    // two brackets, and a comma after all but one
    let length = elements.iter().map(Element::length).sum::<u64>() + elements.len() as u64 + 1;
    let has_coded = elements.iter().any(Element::is_coded);
    if !always && !has_coded && length < gate.min_length {
        return batch_identity(elements);
    }
    let own = own_length(elements, Entry::coded_length);
    let mut member = Member::with_room(elements.len() + 1, own)?;
    write(&mut member, elements, |member, _, open| {
        code(member, gate)?;
        member.open(open)
    })?;
    code(&mut member, gate)?;
    let body = member.finish()?;
    if always || has_coded || body.length() < length {
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
    write(&mut body, elements, |body, entry, _| {
        body.push_shared(&entry.plain()?)
    })?;
    Some(body)
}

/// Writes the array, and of each coded entry what `coded` writes.
fn write<S: Sink>(
    to: &mut S,
    elements: &[Element],
    mut coded: impl FnMut(&mut S, &Entry, &Open) -> Option<()>,
) -> Option<()> {
    for (n, element) in elements.iter().enumerate() {
        to.text(if n == 0 { b"[" } else { b"," })?;
        match element {
            Element::Text(json) => to.text(json.trim_ascii())?,
            Element::Built { id, member, value } => {
                let parts = [id, member.as_bytes(), value, b""];
                for (around, part) in BUILT.iter().zip(parts) {
                    to.text(around)?;
                    to.text(part)?;
                }
            }
            Element::Stored(entry, id) => {
                entry.write(to, id, true, |to| match entry.payload() {
                    Payload::Raw(bytes) => to.text(bytes),
                    Payload::Open(open) => coded(to, entry, open),
                })?;
            }
        }
    }
    to.text(if elements.is_empty() { b"[]" } else { b"]" })
}

/// Bytes of a batch that are its own: brackets, commas, texts, ids, and what
/// of the payloads is copied.
fn own_length(elements: &[Element], payload: impl Fn(&Entry) -> usize) -> usize {
    let lengths = elements.iter().map(|element| match element {
        Element::Text(_) | Element::Built { .. } => {
            usize::try_from(element.length()).unwrap_or(usize::MAX)
        }
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

/// Codes the text that is being written, if that is worth it.
fn code(member: &mut Member, gate: Gate) -> Option<()> {
    let text = member.written();
    if (text.len() as u64) < gate.min_length {
        return Some(());
    }
    match open(text, gate.level).filter(|open| open.bytes.len() < text.len()) {
        Some(open) => member.replace(&open),
        None => Some(()),
    }
}
