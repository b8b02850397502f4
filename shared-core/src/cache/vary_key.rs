//! Vary keys, which separate variants of a response: by the route, the caller, and other headers on
//! which the node's responses depend.

use std::sync::Arc;

use super::CacheNamespace;
use crate::jsonrpc::key::CallKeyBuilder;

/// Headers that often separate variants, and do not identify the caller.
const PUBLIC_HEADERS: [&str; 4] = ["accept", "accept-encoding", "accept-language", "origin"];

/// The headers of one request, kept until it is known on which of them the response depends.
#[derive(Clone, Debug, Default)]
pub struct RetainedRequestHeaders {
    bytes: Vec<u8>,
    /// Ends of name and value of each header.
    ends: Vec<(usize, usize)>,
}

impl RetainedRequestHeaders {
    /// Reserves memory for a number of headers of usual length.
    pub fn reserve_header_capacity(&mut self, fields: usize) {
        // a refusal shows when the headers are added
        let _ = self.ends.try_reserve(fields);
        let _ = self.bytes.try_reserve(fields * 48);
    }

    /// Appends a header; a name may occur several times.
    pub fn push_header(&mut self, name: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((name_end, self.bytes.len()));
    }

    /// Replaces all headers with this name by one header.
    pub fn replace_header(&mut self, name: &[u8], value: &[u8]) {
        let mut fields = RetainedRequestHeaders::default();
        for (other, value) in self.iter() {
            if !other.eq_ignore_ascii_case(name) {
                fields.push_header(other, value);
            }
        }
        fields.push_header(name, value);
        *self = fields;
    }

    /// Iterates over all headers as pairs of name and value, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.ends.iter().map(move |&(name_end, value_end)| {
            let field = (
                &self.bytes[start..name_end],
                &self.bytes[name_end..value_end],
            );
            start = value_end;
            field
        })
    }

    /// Iterates over the values of all headers with this name, in the order in which they were
    /// added.
    pub fn header_values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }
}

/// The part of a cache key that is made of the route and of request headers, as an injective
/// encoding of its parts, each preceded by its length.
#[derive(Clone, Debug, Default)]
pub struct VaryKey {
    bytes: Vec<u8>,
    /// End of the namespace.
    namespace_encoding: usize,
    /// End of the route part; the values of the headers in `Vary` follow.
    place: usize,
    pub(super) vary_header_names: Option<VaryHeaderNames>,
}

impl VaryKey {
    /// Creates an empty vary key with memory for a usual route part.
    pub fn new() -> Self {
        Self {
            bytes: Vec::with_capacity(128),
            ..Self::default()
        }
    }

    /// Appends a part to the route part, on which all responses of the route depend.
    pub fn push_route_part(&mut self, part: &[u8]) {
        self.push_key_part(part);
        self.place = self.bytes.len();
    }

    /// Appends a part with its length in front, so that no two sequences of parts have the same
    /// bytes.
    fn push_key_part(&mut self, part: &[u8]) {
        self.bytes
            .extend_from_slice(&(part.len() as u64).to_le_bytes());
        self.bytes.extend_from_slice(part);
    }

    /// Ends the namespace after the parts that were added so far.
    pub fn mark_namespace_end(&mut self) {
        self.namespace_encoding = self.bytes.len();
    }

    /// Returns the names of the headers in `Vary` that the vary key covers, or `None` if it covers
    /// none.
    pub fn vary_header_names(&self) -> Option<&VaryHeaderNames> {
        self.vary_header_names.as_ref()
    }

    /// Whether none of the headers in `Vary` that the vary key covers may identify the caller.
    pub fn has_only_public_headers(&self) -> bool {
        self.vary_header_names
            .iter()
            .flat_map(|names| names.split(NAME_SEPARATOR))
            .all(|name| PUBLIC_HEADERS.contains(&name))
    }

    /// Returns the encoding of the namespace: the parts before
    /// [`mark_namespace_end`](Self::mark_namespace_end).
    pub fn namespace_key_bytes(&self) -> &[u8] {
        &self.bytes[..self.namespace_encoding]
    }

    /// Adds a hash of the named headers to the route part. The key cache keeps vary keys for longer
    /// than their requests last, and must not contain credentials.
    pub fn push_header_hash<'a>(
        &mut self,
        fields: &RetainedRequestHeaders,
        names: impl Iterator<Item = &'a str>,
    ) {
        let mut all = Self::default();
        for name in names {
            all.push_key_part(name.as_bytes());
            all.push_header_values(fields, name);
        }
        self.push_route_part(blake3::hash(&all.bytes).as_bytes());
    }

    /// Replaces the headers on which responses of the route depend, and encodes their values. Their
    /// names are a part of the vary key: processes that share a store, or that were restarted, may
    /// have recorded different names.
    pub fn encode_vary_header_values(
        &mut self,
        fields: &RetainedRequestHeaders,
        names: Option<VaryHeaderNames>,
    ) {
        self.bytes.truncate(self.place);
        for name in names.iter().flat_map(|names| names.split(NAME_SEPARATOR)) {
            self.push_key_part(name.as_bytes());
            self.push_normalized_header(fields, name);
        }
        self.vary_header_names = names;
    }

    /// Adds a header as one line, without the white space around commas (RFC 9111, 4.1).
    fn push_normalized_header(&mut self, fields: &RetainedRequestHeaders, name: &str) {
        let mut line = Vec::new();
        let mut present = false;
        for value in fields.header_values(name) {
            for member in value.split(|byte| *byte == b',') {
                if present {
                    line.push(b',');
                }
                present = true;
                line.extend_from_slice(member.trim_ascii());
            }
        }
        self.bytes.push(u8::from(present));
        match PUBLIC_HEADERS.contains(&name) {
            true => self.push_key_part(&line),
            // hashed like credentials, as it may be one
            false => self.push_key_part(blake3::hash(&line).as_bytes()),
        }
    }

    /// Appends the number of values of a header, and each value in its order.
    fn push_header_values(&mut self, fields: &RetainedRequestHeaders, name: &str) {
        let count = fields.header_values(name).count() as u64;
        self.bytes.extend_from_slice(&count.to_le_bytes());
        for value in fields.header_values(name) {
            self.push_key_part(value);
        }
    }

    /// Returns the bytes of all parts, which the keys of the request's calls are hashed from.
    pub fn vary_key_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns a hasher that makes the cache keys of the request's calls, which all begin with this
    /// vary key.
    pub fn call_key_builder(&self) -> CallKeyBuilder {
        CallKeyBuilder::for_vary_key(&self.bytes)
    }

    /// Returns the bytes of the route part, without the headers in `Vary`.
    pub(super) fn route_key_bytes(&self) -> &[u8] {
        &self.bytes[..self.place]
    }

    /// Whether the vary key has the value of this header, as one of those in `Vary`.
    pub(super) fn covers_header(&self, name: &str) -> bool {
        self.vary_header_names
            .iter()
            .flat_map(|names| names.split(NAME_SEPARATOR))
            .any(|known| known == name)
    }
}

/// Returns the namespace that a `sszip_cache_namespace` of this name has.
pub fn named_cache_namespace(namespace: &[u8]) -> CacheNamespace {
    let mut scope = VaryKey::default();
    scope.push_route_part(namespace);
    truncated_blake3(&scope.bytes)
}

/// Returns the first half of the BLAKE3 hash of the encoding of a namespace or a route.
pub fn truncated_blake3(encoding: &[u8]) -> CacheNamespace {
    let mut name = CacheNamespace::default();
    name.copy_from_slice(&blake3::hash(encoding).as_bytes()[..16]);
    name
}

/// Returns the name in the encoding of a namespace, or the first part of its route's identity.
pub(crate) fn decode_namespace_name(encoding: &[u8]) -> &[u8] {
    let Some((length, rest)) = encoding.split_first_chunk() else {
        return encoding;
    };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    &rest[..length.min(rest.len())]
}

/// The names of request headers in lower case and in order, joined by a separator.
pub type VaryHeaderNames = Arc<str>;

/// Separator of names, which no header name contains.
pub(super) const NAME_SEPARATOR: char = '\n';

#[cfg(test)]
pub(super) mod tests {
    use super::{RetainedRequestHeaders, VaryKey};

    pub(in crate::cache) fn fields(lines: &[(&str, &str)]) -> RetainedRequestHeaders {
        let mut fields = RetainedRequestHeaders::default();
        for (name, value) in lines {
            fields.push_header(name.as_bytes(), value.as_bytes());
        }
        fields
    }

    pub(in crate::cache) fn scope(parts: &[&str]) -> VaryKey {
        let mut scope = VaryKey::default();
        for part in parts {
            scope.push_route_part(part.as_bytes());
        }
        scope
    }

    #[test]
    fn vary_keys_with_other_part_boundaries_are_different() {
        assert_ne!(
            scope(&["ab", "c"]).vary_key_bytes(),
            scope(&["a", "bc"]).vary_key_bytes()
        );
        assert_ne!(
            scope(&["a", ""]).vary_key_bytes(),
            scope(&["a"]).vary_key_bytes()
        );
    }

    #[test]
    fn credentials_separate_vary_keys_and_are_not_stored_in_them() {
        let of = |lines: &[(&str, &str)], names: &[&str]| {
            let mut scope = scope(&["here"]);
            scope.push_header_hash(&fields(lines), names.iter().copied());
            scope.vary_key_bytes().to_vec()
        };
        let both = ["authorization", "x-api-key"];
        let all = [
            of(&[], &[]),
            of(&[], &both[..1]),
            of(&[], &both[1..]),
            of(&[], &both),
            of(&[("Authorization", "secret")], &both),
            of(&[("Authorization", "other")], &both),
            of(&[("Authorization", "secret")], &both[..1]),
            of(&[("X-Api-Key", "secret")], &both[1..]),
            of(&[("X-Api-Key", "secret")], &both),
            of(&[("X-Api-Key", "")], &both),
            of(&[("X-Api-Key", "secret"), ("X-Api-Key", "")], &both),
            of(
                &[("X-Api-Key", "secret"), ("Authorization", "secret")],
                &both,
            ),
        ];
        for (n, one) in all.iter().enumerate() {
            assert!(!all[..n].contains(one), "{n}");
            assert!(!one.windows(6).any(|part| part == b"secret"), "{n}");
        }
        let again = of(&[("x-api-KEY", "secret"), ("Accept", "a")], &both);
        assert_eq!(again, all[8]);
    }

    #[test]
    fn varying_header_is_not_stored_in_the_vary_key() {
        let mut varied = scope(&["here"]);
        varied.encode_vary_header_values(&fields(&[("X-Token", "secret")]), Some("x-token".into()));
        let mut other = scope(&["here"]);
        other.encode_vary_header_values(&fields(&[("X-Token", "secrets")]), Some("x-token".into()));
        assert_ne!(varied.vary_key_bytes(), other.vary_key_bytes());
        let mut parts = varied.vary_key_bytes().windows(6);
        assert!(!parts.any(|part| part == b"secret"));
    }

    #[test]
    fn headers_are_public_unless_one_may_identify_the_caller() {
        for (names, expected) in [
            (None, true),
            (Some("accept"), true),
            (Some("accept\norigin"), true),
            (Some("x-token"), false),
            (Some("accept\ncookie"), false),
        ] {
            let mut scope = scope(&["here"]);
            scope.encode_vary_header_values(&fields(&[]), names.map(Into::into));
            assert_eq!(scope.has_only_public_headers(), expected, "{names:?}");
        }
    }

    #[test]
    fn absent_header_is_distinguished_from_an_empty_one() {
        let names: super::VaryHeaderNames = "origin".into();
        let (mut absent, mut empty) = (scope(&["here"]), scope(&["here"]));
        absent.encode_vary_header_values(&fields(&[]), Some(names.clone()));
        empty.encode_vary_header_values(&fields(&[("Origin", "")]), Some(names));
        assert_ne!(absent.vary_key_bytes(), empty.vary_key_bytes());
    }
}
