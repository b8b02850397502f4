//! A payload that is submitted for its witness: over REST and in SSZ, `POST
//! /engine/v1/payloads/witness` (execution-apis, src/engine/refactor.md as of #793, and
//! #885), or over JSON-RPC, `engine_newPayloadWithWitness`. Who asks in one of them gets
//! the answer of a node that has only the other.
//!
//! | module      | concern                                                   |
//! |-------------|-----------------------------------------------------------|
//! | [`asked`]   | a request of the route, and the call that says the same   |
//! | [`called`]  | a call, and the request of the route that says the same    |
//! | [`problem`] | errors of the route, and those of JSON-RPC                |
//! | [`status`]  | what both answer: the status of a payload, with a witness |

pub mod asked;
pub mod called;
pub mod problem;
pub mod status;

use super::route::Gives;

pub use self::asked::Asked;
pub use self::problem::Problem;

/// The route below the path of JSON-RPC. What is before it may be the host's.
const ROUTE: &[u8] = b"engine/v1/payloads/witness";

/// The field that names a fork.
pub const VERSION: &str = "Eth-Execution-Version";

/// What the result of the call becomes.
pub static STATUS: Gives = Gives::Status("NewPayloadWithWitness", "PayloadStatusWithWitness", 1);

/// What the answer of the route becomes.
pub static REPLY: Gives = Gives::Reply("NewPayloadWithWitness", 1);

/// Forks of the execution layer since there are payloads. Which of them a payload is
/// of is said by the request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fork {
    /// The first.
    Paris,
    /// With withdrawals.
    Shanghai,
    /// With blobs.
    Cancun,
    /// With requests of the execution layer's.
    Prague,
    /// As Prague.
    Osaka,
    /// With a list of what a block accesses.
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

    /// As heads name it.
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

    /// The one that a request's head names.
    pub fn of_head<'a>(fields: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Self> {
        let is_version = |(name, _): &(&[u8], &[u8])| name.eq_ignore_ascii_case(VERSION.as_bytes());
        let (_, name) = fields.filter(is_version).last()?;
        Self::named(name)
    }

    /// The method's version.
    fn version(self) -> u8 {
        match self {
            Self::Paris => 1,
            Self::Shanghai => 2,
            Self::Cancun => 3,
            Self::Prague | Self::Osaka => 4,
            Self::Amsterdam => 5,
        }
    }

    /// The type of what is submitted.
    fn envelope(self) -> &'static str {
        match self {
            Self::Paris => "ExecutionPayloadEnvelopeParis",
            Self::Shanghai => "ExecutionPayloadEnvelopeShanghai",
            Self::Cancun => "ExecutionPayloadEnvelopeCancun",
            Self::Prague | Self::Osaka => "ExecutionPayloadEnvelopePrague",
            Self::Amsterdam => "ExecutionPayloadEnvelopeAmsterdam",
        }
    }

    /// The type of a payload.
    fn payload(self) -> &'static str {
        match self {
            Self::Paris => "ExecutionPayloadParis",
            Self::Shanghai => "ExecutionPayloadShanghai",
            Self::Cancun | Self::Prague | Self::Osaka => "ExecutionPayloadCancun",
            Self::Amsterdam => "ExecutionPayloadAmsterdam",
        }
    }
}

/// Path and query of a target, and where in it the query begins, with its `?`.
fn path_of(target: &[u8]) -> (&[u8], &[u8]) {
    let end = target.iter().position(|byte| *byte == b'?');
    target.split_at(end.unwrap_or(target.len()))
}
