//! One format for another: the Beacon API's JSON as SSZ.
//!
//! | module    | concern                                                      |
//! |-----------|--------------------------------------------------------------|
//! | [`route`] | which routes there are, and the type of what each gives      |
//! | [`stage`] | a body as it comes, and what there is at its end             |
//! | [`why`]   | why an answer can't be had as SSZ                            |
//!
//! Nothing here knows of exchanges or caches: what to do with what comes of a
//! body is theirs.

pub mod route;
pub mod stage;
pub mod why;

use self::route::Gives;
use crate::negotiate::accept::{Accept, Wish};
use crate::negotiate::cache_control;
use crate::ssz::{Fork, Preset, Schema};

pub use self::stage::{Made, Transcoder};
pub use self::why::Why;

/// What SSZ is sent as.
pub const OCTETS: &[u8] = b"application/octet-stream";

/// The field that names a fork.
pub const VERSION: &str = "Eth-Consensus-Version";

/// What a node is asked for so that a client may get SSZ: one that has none must
/// not refuse.
pub const EITHER: &[u8] = b"application/octet-stream;q=1.0,application/json;q=0.9";

/// A request to a route that gives SSZ.
#[derive(Clone, Copy, Debug)]
pub struct Negotiated {
    /// What the route gives.
    pub gives: &'static Gives,
    /// What the client is to get.
    pub wish: Wish,
}

impl Negotiated {
    /// Of such a request; `None`: it is for no such route, or its answer must not
    /// be changed.
    pub fn read<'a>(
        method: &[u8],
        target: &[u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Option<Self> {
        if !matches!(method, b"GET" | b"HEAD") {
            return None;
        }
        let gives = route::gives(target)?;
        let mut accept = Accept::default();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"accept") {
                accept.read_line(value);
            } else if name.eq_ignore_ascii_case(b"cache-control")
                && cache_control::has_no_transform(value)
            {
                return None;
            }
        }
        let wish = accept.wish();
        Some(Self { gives, wish })
    }

    /// Whether the client is to get SSZ.
    pub fn wants_ssz(self) -> bool {
        matches!(self.wish, Wish::Ssz | Wish::SszOnly)
    }

    /// Whether it can do with JSON.
    pub fn takes_json(self) -> bool {
        matches!(self.wish, Wish::Ssz | Wish::Json)
    }

    /// The `Accept` that stands for all that mean the same; `None`: there are no
    /// others.
    pub fn class(self) -> Option<&'static [u8]> {
        match self.wish {
            Wish::Ssz | Wish::SszOnly => Some(OCTETS),
            Wish::Json => Some(b"application/json"),
            Wish::Other => None,
        }
    }
}

/// Compiles the types of a preset, which takes milliseconds.
pub fn prepare(preset: Preset) {
    for fork in Fork::ALL {
        Schema::of(*fork, preset);
    }
}
