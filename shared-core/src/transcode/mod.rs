//! Transcoding between formats: JSON of the Beacon API and of JSON-RPC to SSZ, and SSZ to JSON.
//!
//! | module                   | concern                                                      |
//! |--------------------------|--------------------------------------------------------------|
//! | [`chain_spec`]           | preset and fork schedule of a node's chain                   |
//! | [`engine`]               | payloads and their witnesses over REST or JSON-RPC           |
//! | [`call_types`]           | JSON-RPC methods with SSZ results, and their types           |
//! | [`ssz_routes`]           | routes of the Beacon API with SSZ responses, and their types |
//! | [`submission`]           | request bodies in SSZ, and their conversion to JSON          |
//! | [`requested_root`]       | verification of values that are requested by their root      |
//! | [`transcoder`]           | conversion of one body while it arrives                      |
//! | [`light_client_updates`] | light client updates, which are not one SSZ value            |
//! | [`format`]               | the two formats, and the headers that describe them          |
//! | [`values`]               | types by their name, and the JSON of a value                 |
//! | [`error`]                | reasons why a response is not available in a format          |
//!
//! Nothing here depends on exchanges or caches: they decide what to do with a converted body.

pub mod call_types;
pub mod chain_spec;
pub mod engine;
pub mod error;
mod format;
mod light_client_updates;
pub mod requested_root;
pub mod ssz_routes;
pub mod submission;
pub mod transcoder;
mod values;

#[cfg(test)]
mod operations;

use self::ssz_routes::SszResponseType;
use crate::beacon;
use crate::negotiate::accept::{AcceptPreferences, FormatPreference};
use crate::negotiate::{cache_control, media_type};
use crate::ssz::{Fork, Preset, Schema};

pub use self::error::TranscodeError;
pub use self::format::{
    BodyFormat, CONSENSUS_VERSION_HEADER, JSON_MEDIA_TYPE, SSZ_MEDIA_TYPE, SSZ_TYPE_HEADER,
};
pub use self::submission::SszSubmission;
pub use self::transcoder::Transcoder;
pub use self::values::{ReserveCallback, TranscodedBody};

/// A request whose response may be transcoded: the type of its response, and the format that the
/// client prefers.
#[derive(Clone, Copy, Debug)]
pub struct TranscodeRequest {
    /// The response type of the route or call.
    pub gives: &'static SszResponseType,
    /// The client's format preference.
    pub preference: FormatPreference,
}

impl TranscodeRequest {
    /// Reads the head of a request. Returns `None` if the route has no SSZ responses, or if the
    /// response must not be transformed.
    pub fn from_head<'a>(
        method: &[u8],
        target: &[u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Option<Self> {
        let gives = ssz_routes::ssz_response_type(method, target)?;
        let mut accept = AcceptPreferences::default();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"accept") {
                accept.read_accept_line(value);
            } else if name.eq_ignore_ascii_case(b"cache-control")
                && cache_control::has_no_transform(value)
            {
                return None;
            }
        }
        let preference = accept.format_preference();
        Some(Self { gives, preference })
    }

    /// Returns the request if it is a GET or HEAD of the Beacon API to a route without an SSZ type,
    /// from a client that accepts one format only: the client must never receive the other one.
    /// `None` otherwise.
    pub fn for_untyped_route<'a>(
        method: &[u8],
        target: &[u8],
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Option<Self> {
        let is_read = matches!(method, b"GET" | b"HEAD") && beacon::is_beacon_route(target);
        if !is_read || ssz_routes::ssz_response_type(method, target).is_some() {
            return None;
        }
        let mut accept = AcceptPreferences::default();
        for (name, value) in fields {
            if name.eq_ignore_ascii_case(b"accept") {
                accept.read_accept_line(value);
            }
        }
        let (gives, preference) = (&ssz_routes::UNTYPED_RESPONSE, accept.format_preference());
        let takes_one = matches!(
            preference,
            FormatPreference::SszOnly | FormatPreference::JsonOnly
        );
        takes_one.then_some(Self { gives, preference })
    }

    /// Returns the format that the client is to receive, or `None` for the format that the node
    /// sends.
    pub fn client_format(self) -> Option<BodyFormat> {
        match self.preference {
            FormatPreference::Ssz | FormatPreference::SszOnly => Some(BodyFormat::Ssz),
            FormatPreference::Json | FormatPreference::JsonOnly => Some(BodyFormat::Json),
            FormatPreference::Other => None,
        }
    }

    /// Whether the client accepts the other format too. The client of a JSON-RPC call always does,
    /// because errors are JSON only.
    pub fn accepts_other_format(self) -> bool {
        // a response of REST is none of JSON-RPC in either format
        !self.is_bridged_to_rest() && self.accepts_either_format()
    }

    /// Whether the client accepts both formats, by its `Accept` or because the request is a
    /// JSON-RPC call.
    fn accepts_either_format(self) -> bool {
        self.gives.is_call_result()
            || matches!(
                self.preference,
                FormatPreference::Ssz | FormatPreference::Json
            )
    }

    /// Whether the client accepts SSZ only.
    pub fn accepts_ssz_only(self) -> bool {
        !self.accepts_other_format() && self.preference == FormatPreference::SszOnly
    }

    /// Whether the client of a route of the Beacon API accepts one format only.
    pub fn accepts_one_format_only(self) -> bool {
        let is_route =
            !self.is_rpc_call() && !self.is_bridged_to_rpc() && !self.is_bridged_to_rest();
        is_route
            && matches!(
                self.preference,
                FormatPreference::SszOnly | FormatPreference::JsonOnly
            )
    }

    /// Whether the response has an SSZ type, so that one format can be converted to the other.
    pub fn is_convertible(self) -> bool {
        *self.gives != SszResponseType::Untyped
    }

    /// Whether the response's SSZ names its forks by digests, which the chain's fork schedule must
    /// resolve.
    pub fn needs_fork_digests(self) -> bool {
        self.gives.names_forks_by_digest()
    }

    /// Whether the request is a JSON-RPC call whose result has a format in SSZ.
    pub fn is_rpc_call(self) -> bool {
        self.gives.is_call_result()
    }

    /// Whether the client uses REST and the node JSON-RPC.
    pub fn is_bridged_to_rpc(self) -> bool {
        matches!(self.gives, SszResponseType::Status(..))
    }

    /// Whether the client uses JSON-RPC and the node REST.
    pub fn is_bridged_to_rest(self) -> bool {
        matches!(self.gives, SszResponseType::Reply(..))
    }

    /// Returns the value of the header [`SSZ_TYPE_HEADER`] for an SSZ response, or `None` where the
    /// route determines the type.
    pub fn ssz_type_header(self) -> Option<String> {
        self.gives.ssz_type_header_value()
    }

    /// Returns the format to which a response with the given `Content-Type` is converted, or `None`
    /// if it is sent unchanged. For clients that accept one format only, a response without a media
    /// type or with another one is converted too.
    pub fn target_format(self, content_type: Option<&[u8]>) -> Option<BodyFormat> {
        let content_type = content_type.unwrap_or_default();
        if self.is_bridged_to_rest() {
            let wants_ssz = matches!(
                self.preference,
                FormatPreference::Ssz | FormatPreference::SszOnly
            );
            let format = if wants_ssz {
                BodyFormat::Ssz
            } else {
                BodyFormat::Json
            };
            return match () {
                () if media_type::is_octet_stream(content_type) => Some(format),
                () if media_type::is_problem_json(content_type) => Some(BodyFormat::Json),
                () => None,
            };
        }
        let wanted = self.client_format()?;
        let is_other = match (wanted, BodyFormat::from_content_type(content_type)) {
            (wanted, Some(actual)) => wanted != actual,
            (_, None) if !self.accepts_one_format_only() => false,
            (wanted, None) if content_type.is_empty() => {
                self.is_convertible() || wanted == BodyFormat::Ssz
            }
            // no client reads an event stream as SSZ
            (BodyFormat::Ssz, None) => !media_type::is_event_stream(content_type),
            (BodyFormat::Json, None) => self.is_convertible() && !is_read_as_text(content_type),
        };
        is_other.then_some(wanted)
    }

    /// Returns the `Accept` that the node receives, so that a node with only the other format does
    /// not refuse. `None`: the client's own `Accept` is forwarded.
    pub fn upstream_accept(self) -> Option<&'static [u8]> {
        match self.preference {
            // nodes have no other format for it
            _ if self.is_bridged_to_rest() => Some(SSZ_MEDIA_TYPE),
            _ if self.gives.is_call_result() || self.is_bridged_to_rpc() => Some(JSON_MEDIA_TYPE),
            FormatPreference::Ssz | FormatPreference::SszOnly => {
                Some(b"application/octet-stream;q=1.0,application/json;q=0.9")
            }
            FormatPreference::JsonOnly => {
                Some(b"application/json;q=1.0,application/octet-stream;q=0.9")
            }
            FormatPreference::Json | FormatPreference::Other => None,
        }
    }
}

/// Whether a client that accepts JSON will not read a response with that `Content-Type` as SSZ.
fn is_read_as_text(content_type: &[u8]) -> bool {
    media_type::is_text_media_type(content_type) || media_type::is_problem_json(content_type)
}

/// Compiles the schemas of all forks of a preset, which takes milliseconds.
pub fn prepare_schemas(preset: Preset) {
    for fork in Fork::ALL {
        Schema::for_fork(*fork, preset);
    }
}
