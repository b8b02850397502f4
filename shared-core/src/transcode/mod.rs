//! One format for another: JSON of the Beacon API and of JSON-RPC as SSZ, and SSZ as
//! JSON.
//!
//! | module    | concern                                                      |
//! |-----------|--------------------------------------------------------------|
//! | [`chain`] | what nodes say of their chain                                |
//! | [`engine`] | payloads and their witnesses over REST or JSON-RPC          |
//! | [`call`]  | which calls of JSON-RPC there are, and what each gives       |
//! | [`route`] | which routes there are, and the type of what each gives      |
//! | [`submitted`] | which bodies of requests are SSZ, and the same as JSON   |
//! | [`root`]  | whether a value is the one that was asked for by its root     |
//! | [`stage`] | a body as it comes, and what there is at its end             |
//! | [`updates`] | light clients' updates, which are no value              |
//! | [`why`]   | why an answer can't be had in the other format               |
//!
//! Nothing here knows of exchanges or caches: what to do with what comes of a
//! body is theirs.

pub mod call;
pub mod chain;
pub mod engine;
pub mod root;
pub mod route;
pub mod stage;
pub mod submitted;
mod updates;
pub mod why;

#[cfg(test)]
mod operations;

use self::route::Gives;
use crate::beacon;
use crate::negotiate::accept::{Accept, Wish};
use crate::negotiate::{cache_control, media_type};
use crate::ssz::{Fork, Preset, Schema};

pub use self::stage::{Made, MayTake, Transcoder};
pub use self::submitted::Submitted;
pub use self::why::Why;

/// What SSZ is sent as.
pub const OCTETS: &[u8] = b"application/octet-stream";

/// The field that names a fork.
pub const VERSION: &str = "Eth-Consensus-Version";

/// The field that names the type of a result: this project's own
/// (docs/transcoding.md).
pub const TYPE: &str = "Sszip-Type";

/// What JSON is sent as.
pub const JSON: &[u8] = b"application/json";

/// The two formats of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// In an envelope.
    Json,
    /// The value alone.
    Ssz,
}

impl Format {
    /// That of such a `Content-Type`; `None`: of neither.
    pub fn of(content_type: &[u8]) -> Option<Self> {
        match () {
            () if media_type::names_json(content_type) => Some(Format::Json),
            () if media_type::is_octets(content_type) => Some(Format::Ssz),
            () => None,
        }
    }

    /// The media type that it is sent as.
    pub fn media_type(self) -> &'static [u8] {
        match self {
            Format::Json => JSON,
            Format::Ssz => OCTETS,
        }
    }
}

/// A request to a route that gives SSZ, or a call whose result is.
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
        let gives = route::gives(method, target)?;
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

    /// The same of a GET of the Beacon API that is for no such route, from a client that
    /// takes one format only: it never gets the other. `None`: it is none.
    pub fn of_untyped<'a>(
        method: &[u8],
        target: &[u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Option<Self> {
        let is_read = matches!(method, b"GET" | b"HEAD") && beacon::is_route(target);
        if !is_read || route::gives(method, target).is_some() {
            return None;
        }
        let mut accept = Accept::default();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"accept") {
                accept.read_line(value);
            }
        }
        let (gives, wish) = (&route::UNTYPED, accept.wish());
        let takes_one = matches!(wish, Wish::SszOnly | Wish::JsonOnly);
        takes_one.then_some(Self { gives, wish })
    }

    /// What the client is to get; `None`: whatever the node sends.
    pub fn format(self) -> Option<Format> {
        match self.wish {
            Wish::Ssz | Wish::SszOnly => Some(Format::Ssz),
            Wish::Json | Wish::JsonOnly => Some(Format::Json),
            Wish::Other => None,
        }
    }

    /// Whether the client can do with the other format. Who makes a call can: errors
    /// come in nothing else.
    pub fn takes_other(self) -> bool {
        // REST's is none of JSON-RPC's in any format
        !self.is_reply() && self.is_for_either()
    }

    fn is_for_either(self) -> bool {
        self.gives.is_result() || matches!(self.wish, Wish::Ssz | Wish::Json)
    }

    /// Whether the client can do with nothing else.
    pub fn takes_ssz_only(self) -> bool {
        !self.takes_other() && self.wish == Wish::SszOnly
    }

    /// Whether the client of a route of the Beacon API can do with one format only.
    pub fn takes_one_only(self) -> bool {
        let is_route = !self.is_call() && !self.is_bridged() && !self.is_reply();
        is_route && matches!(self.wish, Wish::SszOnly | Wish::JsonOnly)
    }

    /// Whether one format can be made of the other.
    pub fn is_typed(self) -> bool {
        *self.gives != Gives::Untyped
    }

    /// Whether its SSZ says by digests of which forks it is.
    pub fn names_forks(self) -> bool {
        self.gives.names_forks()
    }

    /// Whether it is a call.
    pub fn is_call(self) -> bool {
        self.gives.is_result()
    }

    /// Whether the client has asked for it over REST, and the node over JSON-RPC.
    pub fn is_bridged(self) -> bool {
        matches!(self.gives, Gives::Status(..))
    }

    /// Whether the client has asked for it over JSON-RPC, and the node over REST.
    pub fn is_reply(self) -> bool {
        matches!(self.gives, Gives::Reply(..))
    }

    /// What an answer in SSZ says of its type, where the route does not.
    pub fn label(self) -> Option<String> {
        self.gives.label()
    }

    /// What an answer with that `Content-Type` is to become; `None`: it is that already,
    /// or goes as it came. What has none or another is made what it has to be for
    /// clients that take nothing else.
    pub fn makes(self, content_type: Option<&[u8]>) -> Option<Format> {
        let content_type = content_type.unwrap_or_default();
        if self.is_reply() {
            let wants_ssz = matches!(self.wish, Wish::Ssz | Wish::SszOnly);
            let format = if wants_ssz { Format::Ssz } else { Format::Json };
            return match () {
                () if media_type::is_octets(content_type) => Some(format),
                () if media_type::is_problem(content_type) => Some(Format::Json),
                () => None,
            };
        }
        let wanted = self.format()?;
        let is_other = match (wanted, Format::of(content_type)) {
            (wanted, Some(came)) => wanted != came,
            (_, None) if !self.takes_one_only() => false,
            (wanted, None) if content_type.is_empty() => self.is_typed() || wanted == Format::Ssz,
            // nobody takes these for SSZ
            (Format::Ssz, None) => !media_type::is_event_stream(content_type),
            (Format::Json, None) => self.is_typed() && !is_read_as_text(content_type),
        };
        is_other.then_some(wanted)
    }

    /// What the node is asked for instead: one that has only the other format must
    /// not refuse. `None`: what the client says will do.
    pub fn accept(self) -> Option<&'static [u8]> {
        match self.wish {
            // no node has another
            _ if self.is_reply() => Some(OCTETS),
            _ if self.gives.is_result() || self.is_bridged() => Some(JSON),
            Wish::Ssz | Wish::SszOnly => {
                Some(b"application/octet-stream;q=1.0,application/json;q=0.9")
            }
            Wish::JsonOnly => Some(b"application/json;q=1.0,application/octet-stream;q=0.9"),
            Wish::Json | Wish::Other => None,
        }
    }
}

/// Whether a client that takes JSON will not take an answer with that `Content-Type` for SSZ.
fn is_read_as_text(content_type: &[u8]) -> bool {
    media_type::is_text(content_type) || media_type::is_problem(content_type)
}

/// Compiles the types of a preset, which takes milliseconds.
pub fn prepare(preset: Preset) {
    for fork in Fork::ALL {
        Schema::of(*fork, preset);
    }
}
