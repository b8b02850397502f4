//! Submission of an execution payload for its witness: over REST and in SSZ, `POST
//! /engine/v1/payloads/witness` (execution-apis, src/engine/refactor.md as of #793, and #885), or
//! over JSON-RPC, `engine_newPayloadWithWitness`. The witness bridge lets a client use either one
//! with a node that has only the other.
//!
//! | module           | concern                                                   |
//! |------------------|-----------------------------------------------------------|
//! | [`rest_request`] | conversion of a REST request to a call                    |
//! | [`rpc_request`]  | conversion of a call to a REST request                    |
//! | [`route`]        | the route, its header and its forks                       |
//! | [`problem`]      | errors of the REST route and of JSON-RPC                  |
//! | [`status`]       | the result of both: the payload's status with its witness |

pub mod problem;
pub mod rest_request;
mod route;
pub mod rpc_request;
pub mod status;

pub use self::problem::WitnessBridgeError;
pub use self::rest_request::RestPayloadWitnessRequest;
pub use self::route::{
    ExecutionFork, EXECUTION_VERSION_HEADER, REPLY_RESPONSE_TYPE, STATUS_RESPONSE_TYPE,
};
