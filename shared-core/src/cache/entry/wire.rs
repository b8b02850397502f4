//! Serialization of entries for the store and for other processes.
//!
//! The format is: four bytes of magic and version, the length of the head (4 bytes, little endian),
//! a byte of flags, the head in postcard's format (<https://postcard.jamesmunns.com>), and the
//! payload up to the end of the bytes. Times are not serialized, as clocks of processes differ.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition};
use crate::bytes::{try_copy_bytes, SharedBytes};
use crate::cache::class::LifetimeClass;
use crate::cache::{response_directives, CacheNamespace};
use crate::gzip::open_stream::OpenDeflateStream;
use crate::negotiate::media_type;

/// Magic and version. The version changes with every change of the format; bytes of another version
/// are ignored.
const MAGIC: [u8; 4] = *b"SZE\x07";

/// Version of the format. Bytes of entries of another version are not decoded.
pub const ENTRY_FORMAT_VERSION: u8 = MAGIC[3];

/// Length of magic and head length, then of all that precedes the head, in bytes.
const FLAGS_OFFSET: usize = 8;
const HEAD_OFFSET: usize = FLAGS_OFFSET + 1;

/// Maximum expansion by deflate: two bits make at most 258 bytes.
const MAX_EXPANSION: u64 = 258 * 4;

/// Maximum length of the head of an entry that owners share, in bytes. Parsing a head takes memory
/// for each of its headers, and the bytes may come from another program.
const MAX_SHARED_HEAD_LENGTH: u32 = 8 << 10;

/// Maximum `Age` of a shared entry at its request, in seconds: 10 years.
const MAX_SHARED_AGE: u64 = 10 * 365 * 86_400;

/// Flag of an entry that has to be checked before it is sent.
const UNCHECKED_FLAG: u8 = 1;

/// Flag of an entry whose range of blocks the node has proven to have.
const RANGE_PROVEN_FLAG: u8 = 2;

const ALL_FLAGS: u8 = UNCHECKED_FLAG | RANGE_PROVEN_FLAG;

/// Maximum length of a number in postcard's format (LEB128), in bytes.
const MAX_NUMBER_LENGTH: usize = 10;

/// Upper bound of a head's length without its variable parts: numbers, lengths, a namespace and
/// tags, in bytes.
const MAX_FIXED_LENGTH: usize = 13 * MAX_NUMBER_LENGTH + 16 + 9;

/// The properties and the envelope of a serialized entry, without its payload and its times.
#[derive(Deserialize, Serialize)]
pub(super) struct SerializedEntryHead<'a> {
    meta: Cow<'a, EntryMetadata>,
    #[serde(borrow, deserialize_with = "deserialize_headers")]
    fields: Vec<(&'a [u8], &'a [u8])>,
    id: ResponseIdPosition,
    before: &'a [u8],
    between: &'a [u8],
    after: &'a [u8],
    /// Checksum and length of a compressed payload; `None` if it is not compressed.
    pub(super) coded: Option<(u32, u64)>,
    /// Whether the entry is unchecked; serialized in the flags.
    #[serde(skip)]
    unread: bool,
    /// Whether the node has proven its range of blocks; serialized in the flags.
    #[serde(skip)]
    is_range_proven: bool,
    /// Whether the payload was recompressed, and gets no smaller.
    pub(super) recompressed: bool,
}

impl<'a> SerializedEntryHead<'a> {
    /// Parses the head of an entry's bytes, and returns it with the payload.
    pub(super) fn parse_entry_head(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (fixed, rest) = bytes.split_at_checked(HEAD_OFFSET)?;
        let (magic, length) = fixed[..FLAGS_OFFSET].split_at(MAGIC.len());
        let flags = fixed[FLAGS_OFFSET];
        if magic != MAGIC || flags & !ALL_FLAGS != 0 {
            return None;
        }
        let length = u32::from_le_bytes(length.try_into().ok()?);
        let (head, payload) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let (mut head, left): (Self, _) = postcard::take_from_bytes(head).ok()?;
        head.unread = flags & UNCHECKED_FLAG != 0;
        head.is_range_proven = flags & RANGE_PROVEN_FLAG != 0;
        left.is_empty().then_some((head, payload))
    }

    /// Serializes the bytes before the payload. Returns `None` if memory is refused.
    pub(super) fn serialize_entry_head(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(HEAD_OFFSET + self.max_serialized_head_length())
            .ok()?;
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&[0; HEAD_OFFSET - MAGIC.len()]);
        let mut bytes = postcard::to_extend(self, bytes).ok()?;
        let length = u32::try_from(bytes.len() - HEAD_OFFSET).ok()?;
        bytes[MAGIC.len()..FLAGS_OFFSET].copy_from_slice(&length.to_le_bytes());
        bytes[FLAGS_OFFSET] = self.encode_flags();
        Some(bytes)
    }
}

impl SerializedEntryHead<'_> {
    fn encode_flags(&self) -> u8 {
        let unchecked = if self.unread { UNCHECKED_FLAG } else { 0 };
        let proven = if self.is_range_proven {
            RANGE_PROVEN_FLAG
        } else {
            0
        };
        unchecked | proven
    }

    /// Whether this may be sent as the head of a response with that payload: a final status,
    /// headers that a cache may store (RFC 9111, 3 and 3.1), and a possible length.
    fn is_sendable_with_payload(&self, payload: &[u8]) -> bool {
        let has_body = !payload.is_empty() || !self.before.is_empty();
        let can_have_body = !matches!(self.meta.status, 204 | 205);
        let is_field = |&(name, value): &(&[u8], &[u8])| {
            media_type::is_http_token(name)
                && response_directives::is_stored_header(name)
                && !name.eq_ignore_ascii_case(b"set-cookie")
                && !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
        };
        let inflates = |(_, length)| {
            let most = (payload.len() as u64).saturating_mul(MAX_EXPANSION);
            length <= most
        };
        response_directives::is_storable_status(self.meta.status)
            && (can_have_body || !has_body)
            && self.fields.iter().all(is_field)
            && self.coded.is_none_or(inflates)
    }

    /// Upper bound of the serialized length.
    fn max_serialized_head_length(&self) -> usize {
        let fields = self.fields.iter();
        let fields: usize = fields
            .map(|(name, value)| name.len() + value.len() + 2 * MAX_NUMBER_LENGTH)
            .sum();
        MAX_FIXED_LENGTH + fields + self.before.len() + self.between.len() + self.after.len()
    }
}

/// Number of headers up to which their declared number is reserved before they are read.
const MAX_RESERVED_HEADERS: usize = 64;

/// Visitor of the headers of an entry, whose number is another program's: refused memory is an
/// error.
struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Vec<(&'de [u8], &'de [u8])>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("headers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut headers: A) -> Result<Self::Value, A::Error> {
        let refused = |_| A::Error::custom("out of memory");
        let declared = headers.size_hint().unwrap_or(0);
        let mut fields = Vec::new();
        fields
            .try_reserve_exact(declared.min(MAX_RESERVED_HEADERS))
            .map_err(refused)?;
        while let Some(field) = headers.next_element()? {
            fields.try_reserve(1).map_err(refused)?;
            fields.push(field);
        }
        Ok(fields)
    }
}

/// The headers of a serialized entry.
type BorrowedHeaders<'de> = Vec<(&'de [u8], &'de [u8])>;

fn deserialize_headers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BorrowedHeaders<'de>, D::Error> {
    deserializer.deserialize_seq(HeadersVisitor)
}

/// The bytes of an entry for the owner or the store, in two parts: the head, and the payload, which
/// is shared with the entry.
#[derive(Debug)]
pub struct EncodedEntry {
    /// Bytes before the payload.
    pub head: Vec<u8>,
    /// The payload.
    pub payload: SharedBytes,
}

impl EncodedEntry {
    /// Serializes an entry for the owner or the store. Returns `None` if memory is refused.
    pub fn from_entry(entry: &CacheEntry) -> Option<Self> {
        let (meta, envelope) = (entry.response_metadata(), entry.response_envelope());
        let (coded, payload) = match entry.stored_payload() {
            EntryPayload::Raw(bytes) => (None, bytes),
            EntryPayload::Open(open) => (Some((open.crc, open.length)), &open.bytes),
        };
        let fields = meta.fields.iter();
        let head = SerializedEntryHead {
            meta: Cow::Borrowed(meta),
            fields: fields
                .map(|(name, value)| (&name[..], &value[..]))
                .collect(),
            id: envelope.id,
            before: &envelope.before,
            between: &envelope.between,
            after: &envelope.after,
            coded,
            unread: entry.needs_strict_check(),
            is_range_proven: entry.is_range_proven(),
            recompressed: false,
        };
        Some(Self {
            head: head.serialize_entry_head()?,
            payload: payload.clone(),
        })
    }

    /// Returns the bytes of head and payload in one vector.
    pub fn to_vec(&self) -> Vec<u8> {
        [&self.head[..], &self.payload].concat()
    }
}

/// Decodes an entry that is `age` milliseconds old at `now` and fresh for `fresh` more, both of the
/// caller's clock. Returns `None` if the bytes are no entry, or memory is refused.
pub fn decode_cache_entry(bytes: &[u8], now: u64, age: u64, fresh: u64) -> Option<CacheEntry> {
    let (start, entry_with) = read_entry_head(bytes, now, age, fresh)?;
    Some(entry_with(SharedBytes::try_copy_from(bytes.get(start..)?)?))
}

/// Decodes an entry like [`decode_cache_entry`], without copying a long payload.
pub fn decode_owned_entry(bytes: Vec<u8>, now: u64, age: u64, fresh: u64) -> Option<CacheEntry> {
    let (start, entry_with) = read_entry_head(&bytes, now, age, fresh)?;
    Some(entry_with(SharedBytes::try_tail_from_offset(bytes, start)?))
}

/// Returns the length of the identity payload in bytes, as the head specifies it, if the entry is
/// [unchecked](CacheEntry::needs_strict_check).
pub fn payload_length_if_unchecked(bytes: &[u8]) -> Option<u64> {
    if bytes.get(FLAGS_OFFSET)? & UNCHECKED_FLAG == 0 {
        return None;
    }
    let (head, payload) = SerializedEntryHead::parse_entry_head(bytes)?;
    Some(
        head.coded
            .map_or(payload.len() as u64, |(_, length)| length),
    )
}

/// Returns the bytes of the same entry without the flag of an unchecked one. Returns `None` if the
/// bytes are no entry, or memory is refused.
pub fn clear_unchecked_flag(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut read = try_copy_bytes(bytes)?;
    *read.get_mut(FLAGS_OFFSET)? &= !UNCHECKED_FLAG;
    Some(read)
}

/// Sets the flag of an [unchecked](CacheEntry::needs_strict_check) entry in its bytes. Returns
/// `None` if they are too short for an entry.
pub fn set_unchecked_flag(bytes: &mut [u8]) -> Option<()> {
    *bytes.get_mut(FLAGS_OFFSET)? |= UNCHECKED_FLAG;
    Some(())
}

/// Returns the bytes of the same entry as an immutable one of `block`, which was finalized when the
/// request was sent to the node. Returns `None` if the bytes are no entry, or memory is refused.
pub fn as_immutable_entry(bytes: &[u8], block: u64) -> Option<Vec<u8>> {
    copy_with_changed_metadata(bytes, |meta| {
        meta.class = LifetimeClass::Immutable;
        (meta.block_number, meta.height) = (Some(block), Some(block));
    })
}

/// Returns the bytes of the same entry without its namespace and epoch, for another owner: the
/// epochs of owners can't be compared. The block and the height stay. Returns `None` if the bytes
/// are no entry, or memory is refused.
pub fn without_chain_dependency(bytes: &[u8]) -> Option<Vec<u8>> {
    copy_with_changed_metadata(bytes, |meta| meta.follows = None)
}

/// Returns the bytes of the same entry as one of `namespace` and `class` that was fetched in `epoch`
/// of this owner. Returns `None` if the bytes are no entry, or memory is refused.
pub fn set_chain_dependency(
    mut bytes: Vec<u8>,
    class: LifetimeClass,
    namespace: CacheNamespace,
    epoch: u64,
) -> Option<Vec<u8>> {
    let (start, head) = {
        let (mut head, payload) = SerializedEntryHead::parse_entry_head(&bytes)?;
        let meta = head.meta.to_mut();
        (meta.class, meta.follows) = (class, Some((namespace, epoch)));
        (bytes.len() - payload.len(), head.serialize_entry_head()?)
    };
    // the splice allocates nothing then
    let growth = head.len().saturating_sub(start);
    bytes.try_reserve_exact(growth).ok()?;
    drop(bytes.splice(..start, head));
    Some(bytes)
}

/// Copies an entry with changed properties. Returns `None` if the bytes are no entry, or memory is
/// refused.
fn copy_with_changed_metadata(
    bytes: &[u8],
    change: impl FnOnce(&mut EntryMetadata),
) -> Option<Vec<u8>> {
    let (mut head, payload) = SerializedEntryHead::parse_entry_head(bytes)?;
    change(head.meta.to_mut());
    let mut other = head.serialize_entry_head()?;
    other.try_reserve_exact(payload.len()).ok()?;
    other.extend_from_slice(payload);
    Some(other)
}

/// The properties of a serialized entry that owners compare before they share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedEntryProperties {
    /// Class of the response.
    pub class: LifetimeClass,
    /// Block that the response is about.
    pub block: Option<u64>,
    /// The highest block on which the response depends, or the head that it reports.
    pub height: Option<u64>,
    /// Whether the entry has the namespace and the epoch of an owner.
    pub has_chain_dependency: bool,
    /// Whether the entry has to be [checked](CacheEntry::needs_strict_check) before it is sent.
    pub is_unchecked: bool,
    /// Whether the entry is the response to a call, which that check can parse.
    pub is_call_response: bool,
    /// Length of the payload in bytes as it is sent without compression.
    pub identity_length: u64,
}

/// Reads the properties of an entry that another owner has stored, or may use. Returns `None` if
/// the bytes are no entry that may be sent, or if its head is too long or its age too high to be
/// shared.
pub fn read_shared_entry_properties(bytes: &[u8]) -> Option<SharedEntryProperties> {
    let head_length = bytes.get(MAGIC.len()..FLAGS_OFFSET)?;
    if u32::from_le_bytes(head_length.try_into().ok()?) > MAX_SHARED_HEAD_LENGTH {
        return None;
    }
    let (head, payload) = SerializedEntryHead::parse_entry_head(bytes)?;
    if !head.is_sendable_with_payload(payload) || head.meta.age > MAX_SHARED_AGE {
        return None;
    }
    Some(SharedEntryProperties {
        class: head.meta.class,
        block: head.meta.block_number,
        height: head.meta.height,
        has_chain_dependency: head.meta.follows.is_some(),
        is_unchecked: head.unread,
        is_call_response: head.id != ResponseIdPosition::None,
        identity_length: head
            .coded
            .map_or(payload.len() as u64, |(_, length)| length),
    })
}

/// Parses a head. Returns the start of the payload, and a function that makes the entry of the
/// payload.
fn read_entry_head(
    bytes: &[u8],
    now: u64,
    age: u64,
    fresh: u64,
) -> Option<(usize, impl FnOnce(SharedBytes) -> CacheEntry)> {
    let (head, payload) = SerializedEntryHead::parse_entry_head(bytes)?;
    if !head.is_sendable_with_payload(payload) {
        return None;
    }
    let start = bytes.len() - payload.len();
    let envelope = EnvelopeBytes {
        id: head.id,
        before: try_copy_bytes(head.before)?.into(),
        between: try_copy_bytes(head.between)?.into(),
        after: try_copy_bytes(head.after)?.into(),
    };
    let mut fields = Vec::new();
    fields.try_reserve_exact(head.fields.len()).ok()?;
    for (name, value) in &head.fields {
        fields.push((try_copy_bytes(name)?, try_copy_bytes(value)?));
    }
    let meta = EntryMetadata {
        fields,
        requested_at: now.saturating_sub(age),
        expires_at: now.saturating_add(fresh),
        ..head.meta.into_owned()
    };
    let (coded, unread, is_range_proven) = (head.coded, head.unread, head.is_range_proven);
    let entry_with = move |payload| {
        let payload = match coded {
            None => EntryPayload::Raw(payload),
            Some((crc, length)) => EntryPayload::Open(OpenDeflateStream::new(payload, crc, length)),
        };
        let entry = CacheEntry::new(envelope, payload, meta);
        let entry = match is_range_proven {
            true => entry.mark_range_proven(),
            false => entry,
        };
        match unread {
            true => entry.mark_for_strict_check(),
            false => entry,
        }
    };
    Some((start, entry_with))
}

#[cfg(test)]
mod tests;
