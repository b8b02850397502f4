//! Bodies of requests that clients have coded (RFC 9110, 8.4), and what they are
//! without that.

use crate::gzip::inflate::{gunzip_beginning, gunzip_within, InflateError};
use crate::negotiate::list::members;
use crate::zstd::{unzstd, unzstd_beginning};

/// A coding that is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coded {
    /// RFC 1952; `x-gzip` is the same (RFC 9110, 8.4.1.3).
    Gzip,
    /// RFC 8878.
    Zstd,
}

impl Coded {
    fn of(name: &[u8]) -> Option<Self> {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        match () {
            () if is("gzip") || is("x-gzip") => Some(Coded::Gzip),
            () if is("zstd") => Some(Coded::Zstd),
            () => None,
        }
    }

    /// Which of them it is, below 32.
    pub fn number(self) -> usize {
        match self {
            Coded::Gzip => 0,
            Coded::Zstd => 1,
        }
    }

    /// The whole of a body, of at most `cap` bytes; `may_take` is asked before so
    /// many bytes are taken in all.
    ///
    /// # Errors
    /// [`InflateError`].
    pub fn decode(
        self,
        body: &[u8],
        cap: usize,
        may_take: impl FnMut(usize) -> bool,
    ) -> Result<Vec<u8>, InflateError> {
        match self {
            Coded::Gzip => gunzip_within(body, cap, may_take),
            Coded::Zstd => unzstd(body, cap, may_take),
        }
    }

    /// Decodes as much of a cut body as came; no checksum proves it.
    ///
    /// # Errors
    /// The errors of [`decode`](Self::decode); [`InflateError::Bad`] where there is something
    /// else in it.
    pub fn decode_beginning(
        self,
        body: &[u8],
        cap: usize,
        may_take: impl FnMut(usize) -> bool,
    ) -> Result<Vec<u8>, InflateError> {
        match self {
            Coded::Gzip => gunzip_beginning(body, cap, may_take),
            Coded::Zstd => unzstd_beginning(body, cap, may_take),
        }
    }
}

/// What a request's head says of the coding of its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyCoding {
    /// Nothing: it is what it is.
    #[default]
    None,
    /// One that is undone.
    Coded(Coded),
    /// Another one, or several: what it says is not known.
    Other,
}

impl BodyCoding {
    /// A line of `Content-Encoding`.
    pub fn read(&mut self, value: &[u8]) {
        for name in members(value) {
            *self = match (*self, Coded::of(name)) {
                (BodyCoding::None, Some(coded)) => BodyCoding::Coded(coded),
                _ => BodyCoding::Other,
            };
        }
    }

    /// What a response's head says of the coding of its body, where `identity` counts
    /// for nothing.
    pub fn of_response<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        let mut coding = BodyCoding::None;
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"content-encoding") {
                let names = members(value);
                let is_coding = |name: &&[u8]| !name.eq_ignore_ascii_case(b"identity");
                names.filter(is_coding).for_each(|name| coding.read(name));
            }
        }
        coding
    }

    /// The one that is undone.
    pub fn coded(self) -> Option<Coded> {
        match self {
            BodyCoding::Coded(coded) => Some(coded),
            BodyCoding::None | BodyCoding::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BodyCoding, Coded};

    #[test]
    fn one_coding_that_is_known_is_undone() {
        let of = |lines: &[&str]| {
            let mut coding = BodyCoding::None;
            lines.iter().for_each(|line| coding.read(line.as_bytes()));
            coding
        };
        for lines in [&[][..], &[""], &[" , "]] {
            assert_eq!(of(lines), BodyCoding::None, "{lines:?}");
        }
        for lines in [&["gzip"][..], &["X-GZip"], &["", " gzip ,"]] {
            assert_eq!(of(lines), BodyCoding::Coded(Coded::Gzip), "{lines:?}");
        }
        assert_eq!(of(&["Zstd"]), BodyCoding::Coded(Coded::Zstd));
        for lines in [
            &["br"][..],
            &["zstd, gzip"],
            &["identity"],
            &["gzip, gzip"],
            &["gzip", "br"],
            &["identity", "gzip"],
            &["gzi"],
        ] {
            assert_eq!(of(lines), BodyCoding::Other, "{lines:?}");
        }
    }
}
