//! Requests of scripts to the owner as HTTP/1.1 text (docs/owner-protocol.md), and the heads of its
//! responses: scripts have connections of their own.

use std::fmt::Write;

use crate::bytes::try_concat_bytes;
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::wire::EncodedEntry;
use crate::cache::entry::CacheEntry;
use crate::cache::CacheKey;

/// Returns the request that looks up a key.
pub fn lookup_request(key: &CacheKey) -> Vec<u8> {
    let target = path_of_entry(key);
    format!("GET {target} HTTP/1.1\r\nhost: sszip\r\n\r\n").into_bytes()
}

/// Returns the request that stores an entry. `None`: it has expired at `now`, or memory
/// is refused.
pub fn store_request(
    key: &CacheKey,
    entry: &CacheEntry,
    about: &StoredEntryAttributes,
    now: u64,
) -> Option<Vec<u8>> {
    let about_entry = entry.response_metadata();
    let fresh = about_entry.expires_at.checked_sub(now)?;
    let age = now.saturating_sub(about_entry.requested_at);
    let encoded = EncodedEntry::from_entry(entry)?;
    let length = encoded.head.len() + encoded.payload.len();
    let target = path_of_entry(key);
    let mut head = format!(
        "PUT {target} HTTP/1.1\r\nhost: sszip\r\ncontent-length: {length}\r\n\
         sszip-generation: {}\r\nsszip-fresh: {fresh}\r\nsszip-age: {age}\r\n\
         sszip-class: {}\r\nsszip-namespace: {}\r\n",
        about.generation,
        about.class.name(),
        const_hex::encode(about.namespace),
    );
    if let Some(method) = &about.method {
        // no error: a string has room
        let _ = write!(head, "sszip-method: {method}\r\n");
    }
    head.push_str("\r\n");
    try_concat_bytes([head.as_bytes(), &encoded.head, &encoded.payload])
}

/// Returns the request of a purge, with a body of
/// [`purge_request`](crate::cache::link::purge_request). `None`: memory is refused.
pub fn purge_request(body: &str) -> Option<Vec<u8>> {
    let length = body.len();
    let head =
        format!("POST /v1/purges HTTP/1.1\r\nhost: sszip\r\ncontent-length: {length}\r\n\r\n");
    try_concat_bytes([head.as_bytes(), body.as_bytes()])
}

fn path_of_entry(key: &CacheKey) -> String {
    format!("/v1/entries/{}", const_hex::encode(key))
}

/// The error of a response that no owner of this protocol version sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerProtocolError;

/// The head of an owner's HTTP/1.1 response, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerReplyHead {
    /// Status code.
    pub status: u16,
    /// Remaining lifetime of the entry in milliseconds.
    pub fresh: u64,
    /// Age of the entry in seconds.
    pub age: u64,
    /// Purge generation when the response was made.
    pub generation: Option<u64>,
    /// Length of the body in bytes.
    pub length: usize,
}

impl OwnerReplyHead {
    /// Parses the head of an owner's response at the start of `text`. Returns `None` if it is
    /// incomplete.
    ///
    /// # Errors
    /// Returns [`OwnerProtocolError`] if no owner sends such a head.
    pub fn parse(text: &[u8]) -> Result<Option<Self>, OwnerProtocolError> {
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut fields);
        match response.parse(text) {
            Ok(httparse::Status::Complete(_)) => {}
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(OwnerProtocolError),
        }
        let mut head = Self {
            status: response.code.ok_or(OwnerProtocolError)?,
            ..Self::default()
        };
        let mut length = None;
        for field in response.headers.iter() {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            if is("content-length") {
                length = Some(parse_decimal(field.value)?);
            } else if is("sszip-fresh") {
                head.fresh = parse_decimal(field.value)?;
            } else if is("age") {
                head.age = parse_decimal(field.value)?;
            } else if is("sszip-generation") {
                head.generation = Some(parse_decimal(field.value)?);
            }
        }
        let length = match head.status {
            204 => 0,
            _ => length.ok_or(OwnerProtocolError)?,
        };
        head.length = usize::try_from(length).map_err(|_| OwnerProtocolError)?;
        Ok(Some(head))
    }
}

fn parse_decimal(value: &[u8]) -> Result<u64, OwnerProtocolError> {
    let text = std::str::from_utf8(value).map_err(|_| OwnerProtocolError)?;
    text.parse().map_err(|_| OwnerProtocolError)
}

#[cfg(test)]
mod tests {
    use super::{purge_request, store_request, OwnerReplyHead};
    use crate::cache::class::LifetimeClass;
    use crate::cache::entry::store_attributes::StoredEntryAttributes;
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};

    fn store(method: Option<&[u8]>, expires_at: u64) -> Option<Vec<u8>> {
        let meta = EntryMetadata {
            status: 200,
            expires_at,
            class: LifetimeClass::Resource,
            ..EntryMetadata::default()
        };
        let entry = CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            EntryPayload::Raw(b"true".to_vec().into()),
            meta,
        );
        let about = StoredEntryAttributes::attributes_for_entry(&entry, [1; 16], method, 3)?;
        store_request(&[0xab; 32], &entry, &about, 1000)
    }

    #[test]
    fn stored_entry_is_sent_with_its_store_attributes_and_its_length() {
        let request = store(Some(b"eth_chainId"), 5000).unwrap();
        let at = request
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap()
            + 4;
        let (head, body) = request.split_at(at);
        let expected = format!(
            "PUT /v1/entries/{} HTTP/1.1\r\nhost: sszip\r\ncontent-length: {}\r\n\
             sszip-generation: 3\r\nsszip-fresh: 4000\r\nsszip-age: 1000\r\n\
             sszip-class: resource\r\nsszip-namespace: {}\r\n\
             sszip-method: eth_chainId\r\n\r\n",
            "ab".repeat(32),
            body.len(),
            "01".repeat(16),
        );
        assert_eq!(String::from_utf8(head.to_vec()).unwrap(), expected);
        assert!(body.starts_with(b"SZE") && body.ends_with(b"true"));
    }

    #[test]
    fn entry_with_an_invalid_method_or_without_lifetime_is_not_sent() {
        for method in [&b"a b"[..], b"a\r\nsszip-class: tip", b"\xff", b"a\0"] {
            assert!(store(Some(method), 5000).is_none());
        }
        // expired before it is sent
        assert!(store(None, 999).is_none());
    }

    #[test]
    fn purge_is_sent_with_its_length() {
        let expected = "POST /v1/purges HTTP/1.1\r\nhost: sszip\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(purge_request("{}").unwrap(), expected.as_bytes());
    }

    const FOUND: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nsszip-fresh: 700\r\n\
        Age: 3\r\n\r\nentry";

    #[test]
    fn head_is_parsed_when_it_is_complete() {
        let end = FOUND.len() - "entry".len();
        for at in 0..FOUND.len() {
            let head = OwnerReplyHead::parse(&FOUND[..at]).unwrap();
            assert_eq!(head.is_some(), at >= end, "{at}");
        }
        let head = OwnerReplyHead::parse(FOUND).unwrap().unwrap();
        let expected = OwnerReplyHead {
            status: 200,
            fresh: 700,
            age: 3,
            generation: None,
            length: 5,
        };
        assert_eq!(head, expected);
    }

    #[test]
    fn malformed_heads_are_rejected() {
        for bad in [
            &b"SSH-2.0-OpenSSH_9.2\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\nsszip-fresh: x\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
            b"HTTP/1.1 404 Not Found\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        ] {
            assert!(OwnerReplyHead::parse(bad).is_err(), "{bad:?}");
        }
        let head = OwnerReplyHead::parse(b"HTTP/1.1 204 No Content\r\n\r\n");
        assert_eq!(head.unwrap().unwrap().length, 0);
    }
}
