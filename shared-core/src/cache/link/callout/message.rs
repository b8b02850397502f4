//! The messages between a process and the owner (docs/owner-protocol.md). A
//! script writes them as HTTP/1.1; a host that makes callouts receives
//! method, target, headers and body.

use std::borrow::Cow;
use std::fmt::Write;

use crate::bytes::{try_copy_bytes, SharedBytes};
use crate::cache::chain::{ChainState, ShownBlock};
use crate::cache::entry::store_attributes::StoredEntryAttributes;
use crate::cache::entry::wire::{self, EncodedEntry};
use crate::cache::entry::CacheEntry;
use crate::cache::freshness::FinalityUpgrade;
use crate::cache::owner_event::OwnerEvent;
use crate::cache::{CacheKey, CacheNamespace};

/// The lease that a lookup requests from the owner if the entry does not exist: for whom, and how
/// long.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequestTerms<'a> {
    /// Name of the process.
    pub process: &'a str,
    /// Maximum duration in milliseconds.
    pub milliseconds: u64,
    /// Time to wait for the lease of another process, in milliseconds.
    pub wait: u64,
}

/// A message from a process to the owner, as an HTTP request.
#[derive(Debug)]
pub struct OwnerRequest {
    /// HTTP method.
    pub method: &'static str,
    /// Path and query.
    pub target: String,
    /// Headers without the length.
    pub fields: Vec<(&'static str, String)>,
    /// The body, or its first part.
    pub body: Vec<u8>,
    /// Second part of the body, which is shared with an entry.
    pub rest: Option<SharedBytes>,
}

impl OwnerRequest {
    fn new(method: &'static str, target: String) -> Self {
        Self {
            method,
            target,
            fields: Vec::new(),
            body: Vec::new(),
            rest: None,
        }
    }

    /// Creates a lookup of a key, with a request for its lease.
    pub fn lookup_request(key: &CacheKey, lease: Option<LeaseRequestTerms<'_>>) -> Self {
        let mut target = path_with_key("/v1/entries/", key, 96);
        if let Some(lease) = lease {
            let (process, milliseconds) = (lease.process, lease.milliseconds);
            // to a string nothing else can happen
            let _ = write!(target, "?lease={process}&for={milliseconds}");
            if lease.wait > 0 {
                let _ = write!(target, "&wait={}", lease.wait);
            }
        }
        Self::new("GET", target)
    }

    /// Requests the state of the chain behind that namespace in the reply, unless its number is
    /// `known`.
    #[must_use]
    pub fn with_chain_query(mut self, namespace: &CacheNamespace, known: Option<u64>) -> Self {
        let has = |fields: &[(&str, String)], name| fields.iter().any(|(other, _)| *other == name);
        if !has(&self.fields, "sszip-namespace") {
            let namespace = const_hex::encode(namespace);
            self.fields.push(("sszip-namespace", namespace));
        }
        let known = known.map(|known| ("sszip-chain-known", known.to_string()));
        self.fields.extend(known);
        self
    }

    /// Creates a lookup of several keys. Returns `None` if memory is refused.
    pub fn batch_lookup_request(keys: &[CacheKey]) -> Option<Self> {
        let mut message = Self::new("POST", "/v1/lookups".into());
        let length = keys.len() * (2 * size_of::<CacheKey>() + 1);
        message.body.try_reserve_exact(length).ok()?;
        for key in keys {
            let hex = blake3::Hash::from_bytes(*key).to_hex();
            message.body.extend_from_slice(hex.as_bytes());
            message.body.push(b'\n');
        }
        Some(message)
    }

    /// Creates a request that stores an entry. Returns `None` if the entry has expired at `now`, or
    /// memory is refused.
    pub fn store_request(
        key: &CacheKey,
        entry: &CacheEntry,
        about: &StoredEntryAttributes,
        if_final: Option<&FinalityUpgrade>,
        process: &str,
        now: u64,
    ) -> Option<Self> {
        let about_entry = entry.response_metadata();
        let fresh = about_entry.expires_at.checked_sub(now)?;
        let age = now.saturating_sub(about_entry.stored_at);
        let mut message = Self::new("PUT", path_with_key("/v1/entries/", key, 0));
        let fields = &mut message.fields;
        fields.reserve(11);
        fields.push(("sszip-generation", about.generation.to_string()));
        fields.push(("sszip-fresh", fresh.to_string()));
        fields.push(("sszip-age", age.to_string()));
        fields.push(("sszip-class", about.class.name().into()));
        fields.push(("sszip-namespace", const_hex::encode(about.namespace)));
        fields.push(("sszip-process", process.into()));
        if let Some(method) = &about.method {
            fields.push(("sszip-method", method.to_string()));
        }
        for (name, number) in [
            ("sszip-block", about.block),
            ("sszip-epoch", Some(about.epoch).filter(|epoch| *epoch > 0)),
            ("sszip-height", about.height),
        ] {
            if let Some(number) = number {
                fields.push((name, number.to_string()));
            }
        }
        if let Some(FinalityUpgrade {
            transaction,
            last,
            valid,
        }) = if_final
        {
            let hash = blake3::Hash::from_bytes(*transaction).to_hex();
            fields.push(("sszip-if-final", format!("{hash} {last} {valid}")));
        }
        let encoded = EncodedEntry::from_entry(entry)?;
        message.body = encoded.head;
        message.rest = Some(encoded.payload);
        Some(message)
    }

    /// Creates a request that returns a lease.
    pub fn release_lease_request(key: &CacheKey, process: &str) -> Self {
        let mut target = path_with_key("/v1/leases/", key, 80);
        let _ = write!(target, "?process={process}");
        Self::new("DELETE", target)
    }

    /// Creates a report of a block of the chain behind that namespace that was shown to a client.
    pub fn shown_block_report(namespace: &CacheNamespace, sighting: ShownBlock) -> Self {
        let (namespace, height) = (const_hex::encode(namespace), sighting.height);
        let kind = if sighting.is_block { "block" } else { "part" };
        let target = format!("/v1/heads?namespace={namespace}&height={height}&shown={kind}");
        Self::new("POST", target)
    }

    /// Creates a purge, with a body of [`purge_request`](crate::cache::link::purge_request). Returns `None` if
    /// memory is refused.
    pub fn purge_request(body: &str) -> Option<Self> {
        Some(Self {
            body: try_copy_bytes(body.as_bytes())?,
            ..Self::new("POST", "/v1/purges".into())
        })
    }

    /// Whether the request has a body and a length.
    pub fn has_body(&self) -> bool {
        !matches!(self.method, "GET" | "DELETE")
    }

    /// Returns the whole body, or `None` if memory is refused.
    pub fn whole_body(&self) -> Option<Cow<'_, [u8]>> {
        let Some(rest) = &self.rest else {
            return Some(Cow::Borrowed(&self.body));
        };
        let mut whole = Vec::new();
        whole.try_reserve_exact(self.body_length()).ok()?;
        whole.extend_from_slice(&self.body);
        whole.extend_from_slice(rest);
        Some(Cow::Owned(whole))
    }

    /// Length of the body in bytes.
    pub fn body_length(&self) -> usize {
        self.body.len() + self.rest.as_ref().map_or(0, |rest| rest.len())
    }
}

/// The owner's response to a request, parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerReply {
    /// Status code.
    pub status: u16,
    /// Remaining lifetime of the entry in milliseconds.
    pub fresh: u64,
    /// Age of the entry in seconds.
    pub age: u64,
    /// Whether the lease was granted to this process; `false`: another process has it.
    pub granted: Option<bool>,
    /// Purge generation when the reply was made.
    pub generation: Option<u64>,
    /// State of the chain that the request was [about](OwnerRequest::with_chain_query).
    pub chain: Option<ChainStateNumber>,
    /// Full state of that chain, if the request did not have its number.
    pub state: Option<(CacheNamespace, Box<ChainState>)>,
    /// Body of the reply.
    pub body: Vec<u8>,
}

/// The number of a chain's present state as a reply reports it, so that the process notices that
/// its own is outdated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainStateNumber {
    /// The owner does not follow the chain.
    NotFollowed,
    /// Number of the chain's state. It grows with each change, beyond the numbers of an earlier
    /// owner.
    Number(u64),
}

/// The error of a response that no owner of this protocol version sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerProtocolError;

impl OwnerReply {
    /// Parses a header of the owner's response; unknown headers have no effect.
    ///
    /// # Errors
    /// Returns [`OwnerProtocolError`] if the value is invalid.
    pub fn parse_reply_header(
        &mut self,
        name: &str,
        value: &[u8],
    ) -> Result<(), OwnerProtocolError> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("sszip-fresh") {
            self.fresh = parse_decimal(value)?;
        } else if is("age") {
            self.age = parse_decimal(value)?;
        } else if is("sszip-lease") {
            self.granted = Some(value == b"granted");
        } else if is("sszip-generation") {
            self.generation = Some(parse_decimal(value)?);
        } else if is("sszip-chain") {
            self.chain = Some(match value {
                b"none" => ChainStateNumber::NotFollowed,
                _ => ChainStateNumber::Number(parse_decimal(value)?),
            });
        } else if is("sszip-chain-state") {
            match OwnerEvent::parse_owner_event(b"chain", value) {
                Ok(Some(OwnerEvent::Chain { namespace, state })) => {
                    self.state = Some((namespace, state));
                }
                _ => return Err(OwnerProtocolError),
            }
        }
        Ok(())
    }

    /// Decodes the entry in the reply, at `now`.
    pub fn decode_carried_entry(self, now: u64) -> Option<CacheEntry> {
        let age = self.age.saturating_mul(1000);
        wire::decode_owned_entry(self.body, now, age, self.fresh)
    }

    /// Decodes the entries in a reply to a lookup of several keys; `None` for an entry that can't
    /// be sent.
    pub fn decode_entry_list(
        &self,
        now: u64,
    ) -> impl Iterator<Item = (CacheKey, Option<CacheEntry>)> + '_ {
        let mut rest = &self.body[..];
        std::iter::from_fn(move || {
            let (key, fresh, entry, after) = take_one(rest)?;
            rest = after;
            // no answer to a call says how old it is
            Some((key, wire::decode_cache_entry(entry, now, 0, fresh)))
        })
    }
}

/// A decimal number in a field.
///
/// # Errors
/// [`OwnerProtocolError`].
pub(in crate::cache::link) fn parse_decimal(value: &[u8]) -> Result<u64, OwnerProtocolError> {
    let text = std::str::from_utf8(value).map_err(|_| OwnerProtocolError)?;
    text.parse().map_err(|_| OwnerProtocolError)
}

fn take_one(bytes: &[u8]) -> Option<(CacheKey, u64, &[u8], &[u8])> {
    let (key, rest) = bytes.split_first_chunk::<32>()?;
    let (fresh, rest) = rest.split_first_chunk::<8>()?;
    let (length, rest) = rest.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_be_bytes(*length)).ok()?;
    let (entry, rest) = rest.split_at_checked(length)?;
    Some((*key, u64::from_be_bytes(*fresh), entry, rest))
}

/// A path that ends with a key, and room for so many bytes after it.
fn path_with_key(path: &str, key: &CacheKey, room: usize) -> String {
    let hex = blake3::Hash::from_bytes(*key).to_hex();
    let mut target = String::with_capacity(path.len() + hex.len() + room);
    target.push_str(path);
    target.push_str(&hex);
    target
}

#[cfg(test)]
mod tests {
    use super::{OwnerReply, OwnerRequest};
    use crate::cache::class::LifetimeClass;
    use crate::cache::entry::store_attributes::StoredEntryAttributes;
    use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};

    fn entry(expires_at: u64) -> CacheEntry {
        let meta = EntryMetadata {
            status: 200,
            expires_at,
            block_number: Some(7),
            class: LifetimeClass::Immutable,
            ..EntryMetadata::default()
        };
        CacheEntry::new(
            EnvelopeBytes::envelope_without_bytes(),
            EntryPayload::Raw(b"true".to_vec().into()),
            meta,
        )
    }

    fn store(method: Option<&[u8]>, expires_at: u64) -> Option<OwnerRequest> {
        let entry = entry(expires_at);
        let about = StoredEntryAttributes::attributes_for_entry(&entry, [1; 16], method, 3)?;
        OwnerRequest::store_request(&[0xab; 32], &entry, &about, None, "w-1", 1000)
    }

    #[test]
    fn stored_entry_is_sent_with_its_store_attributes() {
        let message = store(Some(b"eth_chainId"), 5000).unwrap();
        let target = format!("/v1/entries/{}", "ab".repeat(32));
        assert_eq!((message.method, &message.target), ("PUT", &target));
        let fields = message.fields.iter();
        let fields: Vec<_> = fields.map(|(name, value)| (*name, &**value)).collect();
        let expected = [
            ("sszip-generation", "3"),
            ("sszip-fresh", "4000"),
            ("sszip-age", "1000"),
            ("sszip-class", "immutable"),
            ("sszip-namespace", &"01".repeat(16)),
            ("sszip-process", "w-1"),
            ("sszip-method", "eth_chainId"),
            ("sszip-block", "7"),
        ];
        assert_eq!(fields, expected);
        assert!(message.body.starts_with(b"SZE"));
        assert_eq!(message.rest.as_deref(), Some(&b"true"[..]));
        assert_eq!(message.body_length(), message.body.len() + 4);
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
    fn entries_are_decoded_separately_without_invalid_ones() {
        let message = store(None, 5000).unwrap();
        let encoded = [&message.body[..], b"true"].concat();
        let one = |n: u8, bytes: &[u8]| {
            let length = (bytes.len() as u64).to_be_bytes();
            [&[n; 32][..], &500u64.to_be_bytes(), &length, bytes].concat()
        };
        let parts = [one(1, &encoded), one(2, b"SZE?"), one(3, &encoded)];
        let body = parts.concat();
        let answer = |body: &[u8]| OwnerReply {
            body: body.to_vec(),
            ..OwnerReply::default()
        };
        let keys = |body: &[u8]| -> Vec<u8> {
            let answer = answer(body);
            let entries = answer.decode_entry_list(1000);
            let valid = entries.filter(|(_, entry)| entry.is_some());
            valid.map(|(key, _)| key[0]).collect()
        };
        assert_eq!(keys(&body), [1, 3]);
        // a truncated entry is missing
        assert_eq!(keys(&body[..body.len() - 1]), [1]);
        assert!(answer(&encoded).decode_carried_entry(1000).is_some());
    }
}
