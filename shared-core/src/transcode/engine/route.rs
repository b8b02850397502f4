//! The route of the submission, its header, its types and the forks that they depend on.

use crate::transcode::ssz_routes::SszResponseType;

/// The route, relative to the path of JSON-RPC. The host may serve JSON-RPC below another path.
pub(super) const WITNESS_ROUTE: &[u8] = b"engine/v1/payloads/witness";

/// Header that names a fork of the execution layer.
pub const EXECUTION_VERSION_HEADER: &str = "Eth-Execution-Version";

/// Type of the REST response to which the result of the call is converted.
pub static STATUS_RESPONSE_TYPE: SszResponseType =
    SszResponseType::Status("NewPayloadWithWitness", "PayloadStatusWithWitness", 1);

/// Type of the call's result to which the REST response is converted.
pub static REPLY_RESPONSE_TYPE: SszResponseType =
    SszResponseType::Reply("NewPayloadWithWitness", 1);

/// A fork of the execution layer, from the first one with payloads on. The head of a REST request
/// names the fork of its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExecutionFork {
    /// The first fork with payloads.
    Paris,
    /// Adds withdrawals.
    Shanghai,
    /// Adds blobs.
    Cancun,
    /// Adds execution requests.
    Prague,
    /// Has the same types as Prague.
    Osaka,
    /// Adds the block access list.
    Amsterdam,
}

impl ExecutionFork {
    const ALL: [Self; 6] = [
        Self::Paris,
        Self::Shanghai,
        Self::Cancun,
        Self::Prague,
        Self::Osaka,
        Self::Amsterdam,
    ];

    /// Returns the name of the fork in `Eth-Execution-Version`.
    pub(super) fn execution_version_value(self) -> &'static str {
        match self {
            Self::Paris => "paris",
            Self::Shanghai => "shanghai",
            Self::Cancun => "cancun",
            Self::Prague => "prague",
            Self::Osaka => "osaka",
            Self::Amsterdam => "amsterdam",
        }
    }

    /// Returns the fork that `Eth-Execution-Version` names, in any case, or `None` if it is
    /// unknown.
    pub(super) fn from_name(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|fork| {
            fork.execution_version_value()
                .as_bytes()
                .eq_ignore_ascii_case(name)
        })
    }

    /// Returns the fork that the header `Eth-Execution-Version` of a request names.
    pub fn from_execution_version_header<'a>(
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Option<Self> {
        let is_version = |(name, _): &(&[u8], &[u8])| {
            name.eq_ignore_ascii_case(EXECUTION_VERSION_HEADER.as_bytes())
        };
        let (_, name) = fields.filter(is_version).last()?;
        Self::from_name(name)
    }

    /// Returns the version of `engine_newPayloadWithWitness` for payloads of this fork.
    pub(super) fn method_version(self) -> u8 {
        match self {
            Self::Paris => 1,
            Self::Shanghai => 2,
            Self::Cancun => 3,
            Self::Prague | Self::Osaka => 4,
            Self::Amsterdam => 5,
        }
    }

    /// Returns the name of the SSZ type of the REST request's body, which contains the payload.
    pub(super) fn payload_envelope_type(self) -> &'static str {
        match self {
            Self::Paris => "ExecutionPayloadEnvelopeParis",
            Self::Shanghai => "ExecutionPayloadEnvelopeShanghai",
            Self::Cancun => "ExecutionPayloadEnvelopeCancun",
            Self::Prague | Self::Osaka => "ExecutionPayloadEnvelopePrague",
            Self::Amsterdam => "ExecutionPayloadEnvelopeAmsterdam",
        }
    }

    /// Returns the name of the SSZ type of the fork's payload.
    pub(super) fn payload_ssz_type(self) -> &'static str {
        match self {
            Self::Paris => "ExecutionPayloadParis",
            Self::Shanghai => "ExecutionPayloadShanghai",
            Self::Cancun | Self::Prague | Self::Osaka => "ExecutionPayloadCancun",
            Self::Amsterdam => "ExecutionPayloadAmsterdam",
        }
    }
}

/// Splits a target into its path and its query, which begins with `?`.
pub(super) fn split_target(target: &[u8]) -> (&[u8], &[u8]) {
    let end = target.iter().position(|byte| *byte == b'?');
    target.split_at(end.unwrap_or(target.len()))
}
