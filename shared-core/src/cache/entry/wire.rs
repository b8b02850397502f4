//! Serialization of entries for the store and for other processes.
//!
//! The format is: four bytes of magic and version, the length of the head (4 bytes, little endian),
//! a byte of flags, the head in postcard's format (<https://postcard.jamesmunns.com>), and the
//! payload up to the end of the bytes. Times are not serialized, as clocks of processes differ.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition};
use crate::bytes::{try_copy_bytes, SharedBytes};
use crate::cache::class::LifetimeClass;
use crate::cache::response_directives;
use crate::gzip::open_stream::OpenDeflateStream;
use crate::negotiate::media_type;

/// Magic and version. The version changes with every change of the format; bytes of another version
/// are ignored.
const MAGIC: [u8; 4] = *b"SZE\x07";

/// Length of magic and head length, then of all that precedes the head, in bytes.
const FLAGS_OFFSET: usize = 8;
const HEAD_OFFSET: usize = FLAGS_OFFSET + 1;

/// Maximum expansion by deflate: two bits make at most 258 bytes.
const MAX_EXPANSION: u64 = 258 * 4;

/// Flag of an entry that has to be checked before it is sent.
const UNCHECKED_FLAG: u8 = 1;

/// Maximum length of a number in postcard's format (LEB128), in bytes.
const MAX_NUMBER_LENGTH: usize = 10;

/// Upper bound of a head's length without its variable parts: numbers, lengths, a namespace and
/// tags, in bytes.
const MAX_FIXED_LENGTH: usize = 13 * MAX_NUMBER_LENGTH + 16 + 9;

/// The properties and the envelope of a serialized entry, without its payload and its times.
#[derive(Deserialize, Serialize)]
pub(super) struct SerializedEntryHead<'a> {
    meta: Cow<'a, EntryMetadata>,
    #[serde(borrow)]
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
    /// Whether the payload was recompressed, and gets no smaller.
    pub(super) recompressed: bool,
}

impl<'a> SerializedEntryHead<'a> {
    /// Parses the head of an entry's bytes, and returns it with the payload.
    pub(super) fn parse_entry_head(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (fixed, rest) = bytes.split_at_checked(HEAD_OFFSET)?;
        let (magic, length) = fixed[..FLAGS_OFFSET].split_at(MAGIC.len());
        let flags = fixed[FLAGS_OFFSET];
        if magic != MAGIC || flags & !UNCHECKED_FLAG != 0 {
            return None;
        }
        let length = u32::from_le_bytes(length.try_into().ok()?);
        let (head, payload) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        let (mut head, left): (Self, _) = postcard::take_from_bytes(head).ok()?;
        head.unread = flags & UNCHECKED_FLAG != 0;
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
        bytes[FLAGS_OFFSET] = if self.unread { UNCHECKED_FLAG } else { 0 };
        Some(bytes)
    }
}

impl SerializedEntryHead<'_> {
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

/// Returns the bytes of the same entry as an immutable one of `block`, which was finalized when the
/// request was sent to the node. Returns `None` if the bytes are no entry, or memory is refused.
pub fn as_immutable_entry(bytes: &[u8], block: u64) -> Option<Vec<u8>> {
    let (mut head, payload) = SerializedEntryHead::parse_entry_head(bytes)?;
    let meta = head.meta.to_mut();
    meta.class = LifetimeClass::Immutable;
    (meta.block_number, meta.height) = (Some(block), Some(block));
    let mut other = head.serialize_entry_head()?;
    other.try_reserve_exact(payload.len()).ok()?;
    other.extend_from_slice(payload);
    Some(other)
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
    let fields = head.fields.iter();
    let fields = fields.map(|(name, value)| Some((try_copy_bytes(name)?, try_copy_bytes(value)?)));
    let meta = EntryMetadata {
        fields: fields.collect::<Option<_>>()?,
        requested_at: now.saturating_sub(age),
        expires_at: now.saturating_add(fresh),
        ..head.meta.into_owned()
    };
    let (coded, unread) = (head.coded, head.unread);
    let entry_with = move |payload| {
        let payload = match coded {
            None => EntryPayload::Raw(payload),
            Some((crc, length)) => EntryPayload::Open(OpenDeflateStream::new(payload, crc, length)),
        };
        let entry = CacheEntry::new(envelope, payload, meta);
        match unread {
            true => entry.mark_for_strict_check(),
            false => entry,
        }
    };
    Some((start, entry_with))
}

#[cfg(test)]
mod tests {
    use super::{
        clear_unchecked_flag, decode_cache_entry, decode_owned_entry, payload_length_if_unchecked,
        EncodedEntry,
    };
    use crate::bytes::SharedBytes;
    use crate::cache::class::LifetimeClass;
    use crate::cache::entry::{
        CacheEntry, CompressionGate, EntryMetadata, EntryPayload, EnvelopeBytes, ResponseIdPosition,
    };
    use crate::cache::response_directives::StaleDirectives;
    use crate::gzip::open_stream::OpenDeflateStream;

    fn envelope(id: ResponseIdPosition) -> EnvelopeBytes {
        EnvelopeBytes {
            id,
            before: b"{\"jsonrpc\":\"2.0\",\"id\":"[..].into(),
            between: b",\"result\":"[..].into(),
            after: b"}\n"[..].into(),
        }
    }

    fn meta() -> EntryMetadata {
        EntryMetadata {
            status: 200,
            fields: vec![(b"content-type".to_vec(), b"application/json".to_vec())],
            requested_at: 1000,
            age: 3,
            revalidates: true,
            stale: StaleDirectives {
                if_error: 60_000,
                while_revalidate: u64::MAX,
                never: true,
            },
            expires_at: 9000,
            class: LifetimeClass::Tip,
            block_number: Some(20_000_000),
            follows: Some(([9; 16], u64::MAX)),
            height: Some(u64::MAX),
        }
    }

    fn empty() -> EntryMetadata {
        EntryMetadata {
            status: 204,
            ..EntryMetadata::default()
        }
    }

    fn bytes_of(entry: &CacheEntry) -> Vec<u8> {
        EncodedEntry::from_entry(entry).unwrap().to_vec()
    }

    fn entries() -> Vec<CacheEntry> {
        let gate = |min_length| CompressionGate {
            min_length,
            level: 1,
        };
        let long = [&b"\""[..], &b"00112233".repeat(500), b"\""].concat();
        [
            ResponseIdPosition::BeforeResult,
            ResponseIdPosition::AfterResult,
            ResponseIdPosition::None,
        ]
        .into_iter()
        .flat_map(|id| {
            [
                CacheEntry::from_fetched_result(envelope(id), b"null", gate(1000), meta()).unwrap(),
                CacheEntry::from_fetched_result(envelope(id), &long, gate(0), meta()).unwrap(),
                CacheEntry::from_fetched_result(
                    EnvelopeBytes::envelope_without_bytes(),
                    b"",
                    gate(1000),
                    empty(),
                )
                .unwrap(),
            ]
        })
        .collect()
    }

    #[test]
    fn serialized_entry_is_decoded_unchanged() {
        for entry in entries() {
            let read = decode_cache_entry(&bytes_of(&entry), 11_000, 500, 700).unwrap();
            let whole = decode_owned_entry(bytes_of(&entry), 11_000, 500, 700).unwrap();
            assert_eq!(bytes_of(&whole), bytes_of(&read));
            assert_eq!(
                (whole.response_envelope(), whole.response_metadata()),
                (read.response_envelope(), read.response_metadata())
            );
            assert_eq!(read.response_envelope(), entry.response_envelope());
            let expected = EntryMetadata {
                requested_at: 10_500,
                expires_at: 11_700,
                ..entry.response_metadata().clone()
            };
            assert_eq!(read.response_metadata(), &expected);
            let gzip = |entry: &CacheEntry| entry.response_for_gzip_client(b"9").unwrap().to_vec();
            assert_eq!(gzip(&read), gzip(&entry));
            assert_eq!(read.memory_weight(), entry.memory_weight());
        }
    }

    #[test]
    fn unchecked_flag_is_kept_by_serialization() {
        for entry in entries() {
            let read = decode_cache_entry(&bytes_of(&entry), 0, 0, 0).unwrap();
            assert!(!read.needs_strict_check());
            assert_eq!(payload_length_if_unchecked(&bytes_of(&entry)), None);
            let (read, entry) = (bytes_of(&entry), entry.mark_for_strict_check());
            let unread = bytes_of(&entry);
            assert!(decode_cache_entry(&unread, 0, 0, 0)
                .unwrap()
                .needs_strict_check());
            let length =
                entry.response_length(b"") - entry.response_envelope().envelope_length() as u64;
            assert_eq!(payload_length_if_unchecked(&unread), Some(length));
            assert_eq!(clear_unchecked_flag(&unread), Some(read));
        }
    }

    #[test]
    fn truncated_or_damaged_heads_are_not_decoded() {
        for entry in entries() {
            let bytes = bytes_of(&entry);
            let head = EncodedEntry::from_entry(&entry).unwrap().head.len();
            for cut in 0..head {
                assert!(
                    decode_cache_entry(&bytes[..cut], 0, 0, 0).is_none(),
                    "{cut}"
                );
            }
            for at in 0..9 {
                let mut other = bytes.clone();
                other[at] ^= 0x10;
                assert!(decode_cache_entry(&other, 0, 0, 0).is_none(), "{at}");
            }
        }
    }

    #[test]
    fn entry_with_an_invalid_status_or_header_is_not_decoded() {
        let with = |change: &dyn Fn(&mut EntryMetadata)| {
            let mut meta = meta();
            change(&mut meta);
            let gate = CompressionGate {
                min_length: 1000,
                level: 1,
            };
            let entry = CacheEntry::from_fetched_result(
                EnvelopeBytes::envelope_without_bytes(),
                b"null",
                gate,
                meta,
            )
            .unwrap();
            decode_cache_entry(&bytes_of(&entry), 0, 0, 0).is_some()
        };
        for status in [
            0,
            100,
            101,
            103,
            199,
            204,
            205,
            206,
            304,
            600,
            999,
            1224,
            u16::MAX,
        ] {
            assert!(!with(&|meta| meta.status = status), "{status}");
        }
        for status in [200, 203, 299, 301, 404, 410, 429, 500, 503, 599] {
            assert!(with(&|meta| meta.status = status), "{status}");
        }
        for (name, value, is_valid) in [
            ("vary", "Origin", true),
            ("Access-Control-Allow-Origin", "*", true),
            ("x", "caf\u{e9}\tb", true),
            ("x", "", true),
            ("", "a", false),
            ("a b", "a", false),
            ("a:", "a", false),
            ("a\r\nb", "a", false),
            (":status", "200", false),
            ("x", "a\r\nSet-Cookie: b", false),
            ("x", "a\nb", false),
            ("x", "a\0", false),
            ("Connection", "close", false),
            ("transfer-encoding", "chunked", false),
            ("Content-Length", "7", false),
            ("Upgrade", "h2c", false),
            ("Set-Cookie", "a=b", false),
            ("Trailer", "x", false),
        ] {
            let field = || (name.as_bytes().to_vec(), value.as_bytes().to_vec());
            assert_eq!(
                with(&|meta| meta.fields.push(field())),
                is_valid,
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn entry_with_an_impossible_payload_length_is_not_decoded() {
        for (length, is_valid) in [(4128, true), (4129, false), (u64::MAX, false)] {
            let open =
                OpenDeflateStream::new(SharedBytes::try_copy_from(b"abcd").unwrap(), 1, length);
            let entry = CacheEntry::new(
                EnvelopeBytes::envelope_without_bytes(),
                EntryPayload::Open(open),
                meta(),
            );
            let decoded = decode_cache_entry(&bytes_of(&entry), 0, 0, 0);
            assert_eq!(decoded.is_some(), is_valid, "{length}");
        }
    }

    #[test]
    fn damaged_entries_are_decoded_without_a_panic() {
        let bytes = bytes_of(&entries()[1]);
        for at in 0..200.min(bytes.len()) {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] = value;
                if let Some(entry) = decode_cache_entry(&other, 0, 0, 0) {
                    let _ = entry.response_length(b"1");
                    let _ = entry.memory_weight();
                }
            }
        }
    }
}
