//! Submission of an execution payload for its witness: over REST and in SSZ, `POST
//! /engine/v1/payloads/witness` (execution-apis, src/engine/refactor.md as of #793, and #885), or
//! over JSON-RPC, `engine_newPayloadWithWitness`. The witness bridge lets a client use either one
//! with a node that has only the other.
//!
//! | module           | concern                                                   |
//! |------------------|-----------------------------------------------------------|
//! | [`rest_request`] | conversion of a REST request to a call                    |
//! | [`rpc_request`]  | conversion of a call to a REST request                    |
//! | [`problem`]      | errors of the REST route and of JSON-RPC                  |
//! | [`status`]       | the result of both: the payload's status with its witness |

pub mod problem;
pub mod rest_request;
pub mod rpc_request;
pub mod status;

use super::ssz_routes::ResponseType;

pub use self::problem::Problem;
pub use self::rest_request::RestRequest;

/// The route, relative to the path of JSON-RPC. The host may serve JSON-RPC below another path.
const ROUTE: &[u8] = b"engine/v1/payloads/witness";

/// Header that names a fork of the execution layer.
pub const VERSION: &str = "Eth-Execution-Version";

/// Type of the REST response to which the result of the call is converted.
pub static STATUS: ResponseType =
    ResponseType::Status("NewPayloadWithWitness", "PayloadStatusWithWitness", 1);

/// Type of the call's result to which the REST response is converted.
pub static REPLY: ResponseType = ResponseType::Reply("NewPayloadWithWitness", 1);

/// Forks of the execution layer since the introduction of payloads. The request's head names the
/// fork of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fork {
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

impl Fork {
    const ALL: [Self; 6] = [
        Self::Paris,
        Self::Shanghai,
        Self::Cancun,
        Self::Prague,
        Self::Osaka,
        Self::Amsterdam,
    ];

    /// Returns the name of the fork in `Eth-Execution-Version`.
    fn name(self) -> &'static str {
        match self {
            Self::Paris => "paris",
            Self::Shanghai => "shanghai",
            Self::Cancun => "cancun",
            Self::Prague => "prague",
            Self::Osaka => "osaka",
            Self::Amsterdam => "amsterdam",
        }
    }

    fn named(name: &[u8]) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|fork| fork.name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Returns the fork that the header `Eth-Execution-Version` of a request names.
    pub fn from_head<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Self> {
        let is_version = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(VERSION.as_bytes());
        let (_, name) = fields.filter(is_version).last()?;
        Self::named(name)
    }

    /// Returns the version of `engine_newPayloadWithWitness` for payloads of this fork.
    fn version(self) -> u8 {
        match self {
            Self::Paris => 1,
            Self::Shanghai => 2,
            Self::Cancun => 3,
            Self::Prague | Self::Osaka => 4,
            Self::Amsterdam => 5,
        }
    }

    /// Returns the name of the SSZ type of the REST request's body, which contains the payload.
    fn envelope(self) -> &'static str {
        match self {
            Self::Paris => "ExecutionPayloadEnvelopeParis",
            Self::Shanghai => "ExecutionPayloadEnvelopeShanghai",
            Self::Cancun => "ExecutionPayloadEnvelopeCancun",
            Self::Prague | Self::Osaka => "ExecutionPayloadEnvelopePrague",
            Self::Amsterdam => "ExecutionPayloadEnvelopeAmsterdam",
        }
    }

    /// Returns the name of the SSZ type of the fork's payload.
    fn payload(self) -> &'static str {
        match self {
            Self::Paris => "ExecutionPayloadParis",
            Self::Shanghai => "ExecutionPayloadShanghai",
            Self::Cancun | Self::Prague | Self::Osaka => "ExecutionPayloadCancun",
            Self::Amsterdam => "ExecutionPayloadAmsterdam",
        }
    }
}

/// Splits a target into its path and its query, which begins with `?`.
fn split_target(target: &[u8]) -> (&[u8], &[u8]) {
    let end = target.iter().position(|byte| *byte == b'?');
    target.split_at(end.unwrap_or(target.len()))
}
