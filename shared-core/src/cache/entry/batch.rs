//! Assembly of a JSON-RPC batch from responses; compressed entries are spliced in as they are
//! stored.

use std::sync::Arc;

use super::{Entry, Gate, Payload, Sink};
use crate::gzip::open::{open, Open};
use crate::gzip::splice::{Body, Member};

/// A response in a batch. White space after it is dropped.
#[derive(Clone, Copy, Debug)]
pub enum Element<'a> {
    /// A stored entry, under an id.
    Stored(&'a Entry, &'a [u8]),
    /// A response as JSON: a miss that was just fetched, or an error.
    Text(&'a [u8]),
    /// A response that is assembled from its parts.
    Built {
        /// The id, as JSON text.
        id: &'a [u8],
        /// Name of the member, `result` or `error`.
        member: &'static str,
        /// Value of that member, as JSON text.
        value: &'a [u8],
    },
}

/// The text around the parts of [`Element::Built`].
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

/// Returns the array of `elements`, in their order, for a client that accepts gzip.
///
/// The text between compressed elements is compressed now if the gate allows it, as many small
/// responses do not make a small batch. The body is identity if no element is compressed and
/// compression makes it no smaller, see [`Body::is_gzip`]. Returns `None` if memory is refused.
pub fn batch_gzip(elements: &[Element], gate: Gate) -> Option<Body> {
    gzip(elements, gate, false)
}

/// Returns the array for a client that accepts gzip only: the body is gzip in any case.
pub fn batch_gzip_always(elements: &[Element], gate: Gate) -> Option<Body> {
    gzip(elements, gate, true)
}

fn gzip(elements: &[Element], gate: Gate, always: bool) -> Option<Body> {
    // two brackets, and a comma between elements
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

/// Returns the array of `elements`, in their order, for a client that accepts identity. Returns
/// `None` if memory is refused.
pub fn batch_identity(elements: &[Element]) -> Option<Body> {
    let mut body = Body::identity();
    body.make_room(own_length(elements, Entry::plain_length))?;
    write(&mut body, elements, |body, entry, _| {
        body.push_shared(&entry.plain()?)
    })?;
    Some(body)
}

/// Writes the array; `coded` writes the payloads of compressed entries.
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

/// Number of bytes that are copied into a batch: brackets, commas, texts, ids, and the copied parts
/// of payloads.
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

/// Compresses the text that is being written, if that makes it smaller.
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
