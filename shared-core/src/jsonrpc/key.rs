//! Cache keys of calls, and their canonical params.
//!
//! Two calls have one key if and only if they differ at most in white space, in the order of an
//! object's members, and in the case of the digits of addresses (`0x` and 40) and hashes (`0x`
//! and 64). All other differences count: kinds of values, notations of numbers, escapes, a
//! `null` member against an absent one. A call in an unusual notation only misses the entry.
//!
//! The hashed text is injective: the length of the method and the method, then a byte for absent
//! params or the canonical text of present ones, keyed (BLAKE3's keyed mode) by the hash of the
//! scope, which the calls of a batch share.
//!
//! An object has no key if two nodes may find different members in it: a name that occurs
//! twice, also in another case, which is one name to Go's decoder; names with escapes; names
//! beyond ASCII, where Go's decoder reads U+212A as K.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;

use super::scan::{JsonScanError, JsonValueKind, StrictJsonReader, StringSpan};

/// Maximum number of arrays and objects that may be open at once in params. Each level may move
/// the text within it: the limit bounds the work that a request can cause.
pub const MAX_PARAMS_DEPTH: usize = 32;

/// The cache key of one response to a call: a hash of 256 bits of the vary key, the method and the
/// canonical params.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallCacheKey(pub [u8; 32]);

impl fmt::Debug for CallCacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

/// The reason why a call has no cache key, so that its response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKeyError {
    /// The params are not JSON.
    Syntax(JsonScanError),
    /// The params open more than [`MAX_PARAMS_DEPTH`] arrays and objects.
    Depth,
    /// An object has two members of one name, without regard to case.
    Duplicate,
    /// A member's name has escapes or is not ASCII.
    Name,
}

impl fmt::Display for CallKeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallKeyError::Syntax(error) => error.fmt(f),
            CallKeyError::Depth => write!(f, "more than {MAX_PARAMS_DEPTH} levels"),
            CallKeyError::Duplicate => f.write_str("a member occurs twice"),
            CallKeyError::Name => f.write_str("a member's name is not plain ASCII"),
        }
    }
}

impl std::error::Error for CallKeyError {}

impl From<JsonScanError> for CallKeyError {
    fn from(error: JsonScanError) -> CallKeyError {
        CallKeyError::Syntax(error)
    }
}

/// The builder of the cache keys of all calls with one vary key. The vary key separates calls that
/// must not share a response, by chain, namespace and credentials.
#[derive(Clone, Copy)]
pub struct CallKeyBuilder([u8; 32]);

impl CallKeyBuilder {
    /// Creates the builder for the calls with the vary key `scope`.
    pub fn for_vary_key(scope: &[u8]) -> CallKeyBuilder {
        CallKeyBuilder(*blake3::hash(scope).as_bytes())
    }

    /// Returns the cache key of a call of `method`. Errors: a [`CallKeyError`] of the params.
    pub fn build_key(
        &self,
        method: &[u8],
        params: Option<&[u8]>,
    ) -> Result<CallCacheKey, CallKeyError> {
        let length = params.map_or(0, <[u8]>::len);
        let mut text = Vec::with_capacity(method.len() + length + 9);
        text.extend_from_slice(&(method.len() as u64).to_le_bytes());
        text.extend_from_slice(method);
        match params {
            None => text.push(0),
            Some(params) => {
                text.push(1);
                CanonicalJsonWriter::new(params, &mut text)?.write_params()?;
            }
        }
        Ok(CallCacheKey(*blake3::keyed_hash(&self.0, &text).as_bytes()))
    }
}

impl fmt::Debug for CallKeyBuilder {
    /// Formats only the type's name: a scope may contain credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyBuilder")
    }
}

/// Returns the cache key of one call of `method` with the vary key `scope`. Has the errors of
/// [`CallKeyBuilder::build_key`].
pub fn call_cache_key(
    scope: &[u8],
    method: &[u8],
    params: Option<&[u8]>,
) -> Result<CallCacheKey, CallKeyError> {
    CallKeyBuilder::for_vary_key(scope).build_key(method, params)
}

/// Returns the canonical form of a JSON text, which all texts with the same meaning share; it is
/// never longer than the text. `None` if memory is refused.
pub fn canonical_json(source: &[u8]) -> Option<Result<Vec<u8>, CallKeyError>> {
    let mut text = Vec::new();
    text.try_reserve_exact(source.len()).ok()?;
    let written =
        CanonicalJsonWriter::new(source, &mut text).and_then(CanonicalJsonWriter::write_params);
    Some(written.map(|()| text))
}

/// A writer that appends the canonical form of a JSON text, `source`, to `text`.
struct CanonicalJsonWriter<'a> {
    source: &'a [u8],
    scanner: StrictJsonReader<'a>,
    text: &'a mut Vec<u8>,
    /// Open containers, innermost last.
    open_containers: Vec<OpenParamsContainer>,
    /// Members of all open objects, innermost last.
    members: Vec<CanonicalObjectMember>,
}

/// A container of the params whose end is not written yet.
enum OpenParamsContainer {
    Array,
    Object {
        /// Index of the object's first member in `members`.
        first: usize,
        /// The names have been in strictly ascending order.
        in_order: bool,
    },
}

/// A member of an open object, by the spans of its name and of its canonical form.
struct CanonicalObjectMember {
    /// Span of the name in the source.
    name: Range<usize>,
    /// Span from name to value in the text.
    span: Range<usize>,
}

impl<'a> CanonicalJsonWriter<'a> {
    fn new(
        source: &'a [u8],
        text: &'a mut Vec<u8>,
    ) -> Result<CanonicalJsonWriter<'a>, CallKeyError> {
        Ok(CanonicalJsonWriter {
            source,
            scanner: StrictJsonReader::for_untrusted_text(source)?,
            text,
            open_containers: Vec::with_capacity(4),
            members: Vec::with_capacity(8),
        })
    }

    /// Writes the canonical form of the source, which must be exactly one JSON value.
    fn write_params(mut self) -> Result<(), CallKeyError> {
        loop {
            if self.write_scalar_or_open()? {
                continue;
            }
            while let Some(open) = self.open_containers.last() {
                let another = match open {
                    OpenParamsContainer::Array => self.next_element()?,
                    OpenParamsContainer::Object { .. } => self.next_member()?,
                };
                if another {
                    break;
                }
            }
            if self.open_containers.is_empty() {
                return Ok(self.scanner.expect_end()?);
            }
        }
    }

    /// Writes a scalar or an empty container, or opens a container that is not empty; returns
    /// whether it has opened one.
    fn write_scalar_or_open(&mut self) -> Result<bool, CallKeyError> {
        match self.scanner.next_value_kind()? {
            JsonValueKind::Object => {
                self.open_container(OpenParamsContainer::Object {
                    first: self.members.len(),
                    in_order: true,
                })?;
                self.text.push(b'{');
                match self.scanner.read_first_member_name()? {
                    Some(name) => {
                        self.start_object_member(&name)?;
                        return Ok(true);
                    }
                    None => self.text.push(b'}'),
                }
                self.open_containers.pop();
            }
            JsonValueKind::Array => {
                self.open_container(OpenParamsContainer::Array)?;
                self.text.push(b'[');
                if self.scanner.enter_array()? {
                    return Ok(true);
                }
                self.text.push(b']');
                self.open_containers.pop();
            }
            JsonValueKind::String => {
                let string = self.scanner.read_string()?;
                self.write_string(string.content);
            }
            JsonValueKind::Number | JsonValueKind::Bool | JsonValueKind::Null => {
                let span = self.scanner.skip_value()?.span;
                self.text.extend_from_slice(&self.source[span]);
            }
        }
        Ok(false)
    }

    /// Records an opened container. More than [`MAX_PARAMS_DEPTH`] nested ones are an error.
    fn open_container(&mut self, open: OpenParamsContainer) -> Result<(), CallKeyError> {
        if self.open_containers.len() == MAX_PARAMS_DEPTH {
            return Err(CallKeyError::Depth);
        }
        self.open_containers.push(open);
        Ok(())
    }

    /// Writes a comma or the closing bracket of the array, and returns whether another element
    /// follows.
    fn next_element(&mut self) -> Result<bool, CallKeyError> {
        let another = self.scanner.next_element()?;
        self.text.push(if another { b',' } else { b']' });
        if !another {
            self.open_containers.pop();
        }
        Ok(another)
    }

    /// Ends the present member of the object, and returns whether another one follows, whose name
    /// has been read then.
    fn next_member(&mut self) -> Result<bool, CallKeyError> {
        if let Some(member) = self.members.last_mut() {
            member.span.end = self.text.len();
        }
        match self.scanner.next_member()? {
            Some(name) => {
                self.text.push(b',');
                self.start_object_member(&name)?;
                Ok(true)
            }
            None => {
                self.close_object()?;
                Ok(false)
            }
        }
    }

    /// Starts a member of the innermost container, which is an object.
    fn start_object_member(&mut self, name: &StringSpan) -> Result<(), CallKeyError> {
        let bytes = &self.source[name.content.clone()];
        if name.escaped || !bytes.is_ascii() {
            return Err(CallKeyError::Name);
        }
        if let Some(OpenParamsContainer::Object { first, in_order }) =
            self.open_containers.last_mut()
        {
            if let Some(last) = self.members[*first..].last() {
                let last = &self.source[last.name.clone()];
                *in_order &= compare_ignoring_case(last, bytes) == Ordering::Less;
            }
        }
        let start = self.text.len();
        self.members.push(CanonicalObjectMember {
            name: name.content.clone(),
            span: start..start,
        });
        self.write_string(name.content.clone());
        self.text.push(b':');
        Ok(())
    }

    /// Sorts the written members of the innermost object, and writes its closing bracket.
    fn close_object(&mut self) -> Result<(), CallKeyError> {
        if let Some(OpenParamsContainer::Object { first, in_order }) = self.open_containers.pop() {
            if !in_order {
                self.sort_members(first)?;
            }
            self.members.truncate(first);
        }
        self.text.push(b'}');
        Ok(())
    }

    /// Sorts the members of an object, which is the end of the text.
    fn sort_members(&mut self, first: usize) -> Result<(), CallKeyError> {
        let (source, members) = (self.source, &mut self.members[first..]);
        let name = |member: &CanonicalObjectMember| &source[member.name.clone()];
        let start = members.first().map_or(0, |member| member.span.start);
        members.sort_unstable_by(|a, b| compare_ignoring_case(name(a), name(b)));
        let same = |pair: &[CanonicalObjectMember]| {
            compare_ignoring_case(name(&pair[0]), name(&pair[1])).is_eq()
        };
        if members.windows(2).any(same) {
            return Err(CallKeyError::Duplicate);
        }
        let end = self.text.len();
        for (n, member) in members.iter().enumerate() {
            if n > 0 {
                self.text.push(b',');
            }
            self.text.extend_from_within(member.span.clone());
        }
        self.text.copy_within(end.., start);
        self.text.truncate(end);
        Ok(())
    }

    /// Writes a string, whose content is passed without its quotes.
    fn write_string(&mut self, content: Range<usize>) {
        let content = &self.source[content];
        self.text.push(b'"');
        let start = self.text.len();
        self.text.extend_from_slice(content);
        if is_address_or_hash(content) {
            self.text[start..].make_ascii_lowercase();
        }
        self.text.push(b'"');
    }
}

/// Whether the content of a string is 20 or 32 bytes of hex after `0x`.
fn is_address_or_hash(content: &[u8]) -> bool {
    matches!(content.len(), 42 | 66)
        && content.starts_with(b"0x")
        && content[2..].iter().all(u8::is_ascii_hexdigit)
}

/// Compares names without regard to case.
fn compare_ignoring_case(a: &[u8], b: &[u8]) -> Ordering {
    let a = a.iter().map(u8::to_ascii_lowercase);
    a.cmp(b.iter().map(u8::to_ascii_lowercase))
}
