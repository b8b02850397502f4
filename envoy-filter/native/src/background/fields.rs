//! The head of a request of our own.

use sszip_core::exchange::HeadEdit;

use crate::envoy::Head;

/// What the router says of its own doings, which are others with another request.
const OF_THE_ROUTER: [&[u8]; 3] = [TIMEOUT, b"x-envoy-attempt-count", b"x-envoy-original-path"];

/// For how long the router awaits the answer.
const TIMEOUT: &[u8] = b"x-envoy-expected-rq-timeout-ms";

/// Its fields, with names in lower case, pseudo-header fields among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<(Vec<u8>, Vec<u8>)>);

impl Fields {
    /// Those of a head.
    pub fn of(head: &Head) -> Self {
        let fields = head.fields();
        Self(
            fields
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect(),
        )
    }

    /// Each of them.
    pub fn all(&self) -> &[(Vec<u8>, Vec<u8>)] {
        &self.0
    }

    /// The lines of that name.
    pub fn lines<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let named = self.0.iter().filter(move |(known, _)| known == name);
        named.map(|(_, value)| &**value)
    }

    /// One line more.
    pub fn add(&mut self, name: &[u8], value: &[u8]) {
        self.0.push((name.to_vec(), value.to_vec()));
    }

    /// One line of a field, and no other.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        self.remove(name);
        self.add(name, value);
    }

    /// No line of a field.
    pub fn remove(&mut self, name: &[u8]) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Changes them as the driver says.
    pub fn edit(&mut self, edits: &[HeadEdit]) {
        for edit in edits {
            let name = edit.name.to_ascii_lowercase();
            match &edit.value {
                Some(value) => self.set(name.as_bytes(), value),
                None => self.remove(name.as_bytes()),
            }
        }
    }

    /// A body of that length comes after it.
    pub fn has_body(&mut self, length: usize) {
        for name in [
            &b"content-length"[..],
            b"transfer-encoding",
            b"trailer",
            b"expect",
        ] {
            self.remove(name);
        }
        if length > 0 {
            self.add(b"content-length", length.to_string().as_bytes());
        }
    }

    /// For how long the router awaits an answer, in milliseconds, if it says so. That is
    /// not sent.
    pub fn take_timeout(&mut self) -> Option<u64> {
        let said = self.lines(TIMEOUT).next().and_then(|value| {
            let digits = std::str::from_utf8(value).ok()?;
            digits.parse().ok()
        });
        for name in OF_THE_ROUTER {
            self.remove(name);
        }
        said
    }
}
