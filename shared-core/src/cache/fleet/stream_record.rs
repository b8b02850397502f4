//! Records of the purge stream: their ids, fields and tags.
//!
//! A record has the fields `k` (kind), `o` (owner that has written it), `u` (name of the record), `s`
//! (scope, in postcard's format) and `t` (tag over the others and the record's id). Numbers and
//! names are hex digits, so that an operator can read them.

use std::fmt;

use super::keyring::FleetKeyring;
use crate::cache::entry::store_attributes::{PurgeScope, MAX_METHOD_LENGTH};

/// Maximum length of a field's value in bytes; a scope has a method name of 255 bytes at most.
pub const MAX_FIELD_BYTES: usize = 512;

/// Maximum number of fields of a record; other versions may add some.
pub const MAX_FIELDS: usize = 16;

/// The id of an owner in the fleet, which is random and the same after a restart.
pub type FleetOwnerId = [u8; 8];

/// The random name of a purge: a purge that was published twice has the same name.
pub type PurgeName = [u8; 16];

/// The id of a record in the stream. Its milliseconds are the position of the record: ids grow, and
/// two records never have the same milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// Milliseconds since 1970, or later than the record before.
    pub milliseconds: u64,
    /// Number among the records of a millisecond; 0 in records of this project.
    pub sequence: u64,
}

impl StreamId {
    /// Returns the id of a record at a position.
    pub const fn from_position(milliseconds: u64) -> Self {
        Self {
            milliseconds,
            sequence: 0,
        }
    }

    /// Parses the text of an id: two decimal numbers with a hyphen. Returns `None` if it is none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let number = |text: &str| {
            let is_decimal = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_decimal.then(|| text.parse().ok()).flatten()
        };
        let (milliseconds, sequence) = std::str::from_utf8(text).ok()?.split_once('-')?;
        Some(Self {
            milliseconds: number(milliseconds)?,
            sequence: number(sequence)?,
        })
    }

    /// Returns the greatest id below this one.
    pub fn predecessor(self) -> Self {
        match self.sequence.checked_sub(1) {
            Some(sequence) => Self { sequence, ..self },
            None => Self {
                milliseconds: self.milliseconds.saturating_sub(1),
                sequence: match self.milliseconds {
                    0 => 0,
                    _ => u64::MAX,
                },
            },
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.milliseconds, self.sequence)
    }
}

/// The effect of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeRecordKind {
    /// Purges values of the fleet, and the entries of all owners.
    Purge,
    /// Purges values of the fleet only. With the scope "everything" it is a fence: values that were
    /// stored before it are not used.
    ValuesOnly,
    /// A fence that has begun a new stream: there was no stream, so that no records of this stream
    /// were trimmed before it.
    NewStream,
}

impl PurgeRecordKind {
    #[cfg(test)]
    const ALL: [Self; 3] = [Self::Purge, Self::ValuesOnly, Self::NewStream];

    fn field_text(self) -> &'static [u8] {
        match self {
            Self::Purge => b"p",
            Self::ValuesOnly => b"v",
            Self::NewStream => b"n",
        }
    }

    fn parse_field(text: &[u8]) -> Option<Self> {
        match text {
            b"p" => Some(Self::Purge),
            b"v" => Some(Self::ValuesOnly),
            b"n" => Some(Self::NewStream),
            _ => None,
        }
    }
}

/// A purge as owners publish it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedPurge {
    /// Effect of the purge.
    pub kind: PurgeRecordKind,
    /// Name of the purge.
    pub name: PurgeName,
    /// Values and entries that are purged.
    pub scope: PurgeScope,
}

/// A record as the server has returned it: its id, and names and values of its fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawStreamRecord {
    /// Id of the record.
    pub id: StreamId,
    /// Names and values of the fields.
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The identity of a record: another record may get its id after a failover of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamMark {
    /// Id of the record.
    pub id: StreamId,
    /// Hash of the record's fields.
    pub fingerprint: [u8; 16],
}

/// A record that was read from the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRecord {
    /// Identity of the record.
    pub mark: StreamMark,
    /// The purge; `None` if the record cannot be read, or has a wrong tag.
    pub purge: Option<PublishedPurge>,
}

impl StreamRecord {
    /// Whether no value that was stored before the record is used.
    pub fn is_fence(&self) -> bool {
        let purge = self.purge.as_ref();
        purge.is_some_and(|purge| purge.scope == PurgeScope::Everything)
    }

    /// Parses a record, and checks its tag.
    pub fn parse(raw: &RawStreamRecord, keyring: &FleetKeyring) -> Self {
        let mut hash = blake3::Hasher::new();
        for (name, value) in &raw.fields {
            for part in [name, value] {
                hash.update(&(part.len() as u64).to_le_bytes());
                hash.update(part);
            }
        }
        let mut fingerprint = [0; 16];
        fingerprint.copy_from_slice(&hash.finalize().as_bytes()[..16]);
        Self {
            mark: StreamMark {
                id: raw.id,
                fingerprint,
            },
            purge: parse_purge(raw, keyring),
        }
    }
}

/// The fields of a record that is to be written.
pub type RecordFields = [(&'static str, Vec<u8>); 5];

/// Returns the fields of a record with an id.
pub fn encode_record(
    purge: &PublishedPurge,
    owner: &FleetOwnerId,
    id: StreamId,
    keyring: &FleetKeyring,
) -> RecordFields {
    let kind = purge.kind.field_text().to_vec();
    let owner = const_hex::encode(owner).into_bytes();
    let name = const_hex::encode(purge.name).into_bytes();
    // hashes, numbers and strings can always be serialized
    let scope = postcard::to_allocvec(&purge.scope).unwrap_or_default();
    let id = id.to_string();
    let parts: [&[u8]; 5] = [&kind, &owner, &name, &scope, id.as_bytes()];
    let tag = keyring.record_tag(&parts);
    let tag = const_hex::encode(tag).into_bytes();
    [
        ("k", kind),
        ("o", owner),
        ("u", name),
        ("s", scope),
        ("t", tag),
    ]
}

fn parse_purge(raw: &RawStreamRecord, keyring: &FleetKeyring) -> Option<PublishedPurge> {
    let is_too_long =
        |(name, value): &(Vec<u8>, Vec<u8>)| name.len().max(value.len()) > MAX_FIELD_BYTES;
    if raw.id.sequence != 0 || raw.fields.len() > MAX_FIELDS || raw.fields.iter().any(is_too_long) {
        return None;
    }
    let field = |name: &[u8]| {
        let mut fields = raw.fields.iter().filter(|(other, _)| other == name);
        let found = fields.next()?;
        // two of a name: it is not clear which of them counts
        fields.next().is_none().then_some(&found.1[..])
    };
    let (kind, owner, name) = (field(b"k")?, field(b"o")?, field(b"u")?);
    let (scope, tag) = (field(b"s")?, field(b"t")?);
    let tag: [u8; 16] = decode_hex(tag)?;
    let id = raw.id.to_string();
    let parts = [kind, owner, name, scope, id.as_bytes()];
    if !keyring.verifies_record(&tag, &parts) {
        return None;
    }
    let _: FleetOwnerId = decode_hex(owner)?;
    let (scope, rest): (PurgeScope, _) = postcard::take_from_bytes(scope).ok()?;
    (rest.is_empty() && is_valid_scope(&scope)).then_some(PublishedPurge {
        kind: PurgeRecordKind::parse_field(kind)?,
        name: decode_hex(name)?,
        scope,
    })
}

/// Whether a request to purge may have this scope.
fn is_valid_scope(scope: &PurgeScope) -> bool {
    match scope {
        PurgeScope::Method { method, .. } => (1..=MAX_METHOD_LENGTH).contains(&method.len()),
        PurgeScope::Blocks { from, to, .. } => from <= to,
        PurgeScope::Everything | PurgeScope::Namespace(_) | PurgeScope::Key(_) => true,
    }
}

fn decode_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    const_hex::decode_to_slice(text, &mut bytes).ok()?;
    // without a prefix "0x", and in lower case
    (const_hex::encode(bytes).as_bytes() == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: FleetOwnerId = [7; 8];

    fn purge() -> PublishedPurge {
        PublishedPurge {
            kind: PurgeRecordKind::Purge,
            name: [3; 16],
            scope: PurgeScope::Method {
                namespace: Some([1; 16]),
                method: "eth_call".into(),
            },
        }
    }

    fn raw(purge: &PublishedPurge, id: StreamId, keyring: &FleetKeyring) -> RawStreamRecord {
        let fields = encode_record(purge, &OWNER, id, keyring);
        let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value));
        RawStreamRecord {
            id,
            fields: fields.to_vec(),
        }
    }

    #[test]
    fn stream_ids_are_parsed_and_ordered() {
        let id = |milliseconds, sequence| StreamId {
            milliseconds,
            sequence,
        };
        assert_eq!(StreamId::parse(b"12-3"), Some(id(12, 3)));
        assert_eq!(id(12, 3).to_string(), "12-3");
        for text in [
            "",
            "12",
            "-",
            "1-",
            "-1",
            "+1-0",
            "1-0-0",
            "1- 0",
            "99999999999999999999-0",
        ] {
            assert_eq!(StreamId::parse(text.as_bytes()), None, "{text}");
        }
        assert!(id(1, u64::MAX) < id(2, 0));
        assert_eq!(id(2, 0).predecessor(), id(1, u64::MAX));
        assert_eq!(id(2, 5).predecessor(), id(2, 4));
        assert_eq!(id(0, 0).predecessor(), id(0, 0));
    }

    #[test]
    fn records_of_each_scope_are_read_as_they_were_written() {
        let keyring = FleetKeyring::from_key_files(&[vec![b'k'; 32]]).unwrap();
        let id = StreamId::from_position(1_700_000_000_000);
        let blocks = PurgeScope::Blocks {
            namespace: [2; 16],
            from: 1,
            to: u64::MAX,
        };
        for scope in [
            PurgeScope::Everything,
            PurgeScope::Namespace([1; 16]),
            PurgeScope::Key([9; 32]),
            purge().scope,
            blocks,
        ] {
            for kind in PurgeRecordKind::ALL {
                let scope = scope.clone();
                let purge = PublishedPurge {
                    kind,
                    scope,
                    ..purge()
                };
                let record = StreamRecord::parse(&raw(&purge, id, &keyring), &keyring);
                assert_eq!(record.purge, Some(purge));
            }
        }
    }

    #[test]
    fn record_is_unreadable_after_a_change_of_any_part() {
        let keyring = FleetKeyring::from_key_files(&[vec![b'k'; 32]]).unwrap();
        let id = StreamId::from_position(5_000);
        let right = raw(&purge(), id, &keyring);
        let mark = StreamRecord::parse(&right, &keyring).mark;
        let is_rejected =
            |raw: &RawStreamRecord| StreamRecord::parse(raw, &keyring).purge.is_none();
        assert!(!is_rejected(&right));
        for field in 0..right.fields.len() {
            let mut changed = right.clone();
            changed.fields[field].1[0] ^= 1;
            assert!(is_rejected(&changed));
            assert_ne!(StreamRecord::parse(&changed, &keyring).mark, mark);
            let mut absent = right.clone();
            absent.fields.remove(field);
            assert!(is_rejected(&absent));
            let mut doubled = right.clone();
            doubled.fields.push(right.fields[field].clone());
            assert!(is_rejected(&doubled));
            let mut long = right.clone();
            long.fields[field].1.resize(MAX_FIELD_BYTES + 1, b'0');
            assert!(is_rejected(&long));
        }
        let moved = RawStreamRecord {
            id: StreamId::from_position(5_001),
            ..right.clone()
        };
        assert!(is_rejected(&moved));
        let other = FleetKeyring::from_key_files(&[vec![b'x'; 32]]).unwrap();
        assert!(StreamRecord::parse(&right, &other).purge.is_none());
        // of another version
        let mut more = right;
        more.fields.push((b"z".to_vec(), b"1".to_vec()));
        assert!(!is_rejected(&more));
    }

    #[test]
    fn scope_that_no_request_can_have_is_rejected() {
        let keyring = FleetKeyring::unkeyed();
        let id = StreamId::from_position(1);
        let method = |method: String| PurgeScope::Method {
            namespace: None,
            method: method.into(),
        };
        let empty_range = PurgeScope::Blocks {
            namespace: [0; 16],
            from: 2,
            to: 1,
        };
        for scope in [method(String::new()), method("m".repeat(256)), empty_range] {
            let purge = PublishedPurge { scope, ..purge() };
            let record = StreamRecord::parse(&raw(&purge, id, &keyring), &keyring);
            assert_eq!(record.purge, None);
        }
    }
}
