//! Transcoding between formats: JSON of the Beacon API and of JSON-RPC to SSZ, and SSZ to JSON.
//!
//! | module    | concern                                                      |
//! |-----------|--------------------------------------------------------------|
//! | [`chain`] | preset and fork schedule of a node's chain                   |
//! | [`engine`] | payloads and their witnesses over REST or JSON-RPC          |
//! | [`call`]  | JSON-RPC methods with SSZ results, and their types           |
//! | [`route`] | routes of the Beacon API with SSZ responses, and their types |
//! | [`submitted`] | request bodies in SSZ, and their conversion to JSON      |
//! | [`root`]  | verification of values that are requested by their root      |
//! | [`stage`] | conversion of one body while it arrives                      |
//! | [`updates`] | light client updates, which are not one SSZ value          |
//! | [`why`]   | reasons why a response is not available in a format          |
//!
//! Nothing here depends on exchanges or caches: they decide what to do with a converted body.

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

/// Media type of SSZ.
pub const OCTETS: &[u8] = b"application/octet-stream";

/// Header that names a fork of the consensus layer.
pub const VERSION: &str = "Eth-Consensus-Version";

/// Header that names the type of a result. It is this project's own (docs/transcoding.md).
pub const TYPE: &str = "Sszip-Type";

/// Media type of JSON.
pub const JSON: &[u8] = b"application/json";

/// The two formats of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The value in an envelope.
    Json,
    /// The value alone.
    Ssz,
}

impl Format {
    /// Returns the format of a `Content-Type`, or `None` if it is neither.
    pub fn of(content_type: &[u8]) -> Option<Self> {
        match () {
            () if media_type::names_json(content_type) => Some(Format::Json),
            () if media_type::is_octets(content_type) => Some(Format::Ssz),
            () => None,
        }
    }

    /// The media type of the format.
    pub fn media_type(self) -> &'static [u8] {
        match self {
            Format::Json => JSON,
            Format::Ssz => OCTETS,
        }
    }
}

/// A request to a route with SSZ responses, or a call with an SSZ result.
#[derive(Clone, Copy, Debug)]
pub struct Negotiated {
    /// The response type of the route or call.
    pub gives: &'static Gives,
    /// The client's format preference.
    pub wish: Wish,
}

impl Negotiated {
    /// Reads the head of a request. Returns `None` if the route has no SSZ responses, or if the
    /// response must not be transformed.
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

    /// Returns the request if it is a GET or HEAD of the Beacon API to a route without an SSZ type,
    /// from a client that accepts one format only: the client must never receive the other one.
    /// `None` otherwise.
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

    /// The format that the client is to receive, or `None` for the format that the node sends.
    pub fn format(self) -> Option<Format> {
        match self.wish {
            Wish::Ssz | Wish::SszOnly => Some(Format::Ssz),
            Wish::Json | Wish::JsonOnly => Some(Format::Json),
            Wish::Other => None,
        }
    }

    /// Whether the client accepts the other format too. The client of a JSON-RPC call always does,
    /// because errors are JSON only.
    pub fn takes_other(self) -> bool {
        // a response of REST is none of JSON-RPC in either format
        !self.is_reply() && self.is_for_either()
    }

    fn is_for_either(self) -> bool {
        self.gives.is_result() || matches!(self.wish, Wish::Ssz | Wish::Json)
    }

    /// Whether the client accepts SSZ only.
    pub fn takes_ssz_only(self) -> bool {
        !self.takes_other() && self.wish == Wish::SszOnly
    }

    /// Whether the client of a route of the Beacon API accepts one format only.
    pub fn takes_one_only(self) -> bool {
        let is_route = !self.is_call() && !self.is_bridged() && !self.is_reply();
        is_route && matches!(self.wish, Wish::SszOnly | Wish::JsonOnly)
    }

    /// Whether one format can be converted to the other.
    pub fn is_typed(self) -> bool {
        *self.gives != Gives::Untyped
    }

    /// Whether the response's SSZ names its forks by digests.
    pub fn names_forks(self) -> bool {
        self.gives.names_forks()
    }

    /// Whether the request is a JSON-RPC call.
    pub fn is_call(self) -> bool {
        self.gives.is_result()
    }

    /// Whether the client uses REST and the node JSON-RPC.
    pub fn is_bridged(self) -> bool {
        matches!(self.gives, Gives::Status(..))
    }

    /// Whether the client uses JSON-RPC and the node REST.
    pub fn is_reply(self) -> bool {
        matches!(self.gives, Gives::Reply(..))
    }

    /// Type of an SSZ response for the header [`TYPE`], where the route does not determine it.
    pub fn label(self) -> Option<String> {
        self.gives.label()
    }

    /// Returns the format to which a response with the given `Content-Type` is converted, or `None`
    /// if it is sent unchanged. For clients that accept one format only, a response without a media
    /// type or with another one is converted too.
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
            // no client reads an event stream as SSZ
            (Format::Ssz, None) => !media_type::is_event_stream(content_type),
            (Format::Json, None) => self.is_typed() && !is_read_as_text(content_type),
        };
        is_other.then_some(wanted)
    }

    /// Returns the `Accept` that the node receives, so that a node with only the other format does
    /// not refuse. `None`: the client's own `Accept` is forwarded.
    pub fn accept(self) -> Option<&'static [u8]> {
        match self.wish {
            // nodes have no other format for it
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

/// Whether a client that accepts JSON will not read a response with that `Content-Type` as SSZ.
fn is_read_as_text(content_type: &[u8]) -> bool {
    media_type::is_text(content_type) || media_type::is_problem(content_type)
}

/// Compiles the schemas of all forks of a preset, which takes milliseconds.
pub fn prepare(preset: Preset) {
    for fork in Fork::ALL {
        Schema::of(*fork, preset);
    }
}
