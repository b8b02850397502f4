//! Response limits, which the operator sets for methods.
//!
//! The limit applies to the decompressed body. [`too_long`](super::too_long) replaces a longer
//! response.

use crate::config::CallAccessPolicy;
use crate::jsonrpc::request::JsonRpcCall;

/// Returns the maximum length of a compressed body whose decompressed length is at most `most`:
/// incompressible data grows by less than this.
pub(in crate::exchange) fn max_compressed_length(most: u64) -> u64 {
    most + most / 64 + 1024
}

/// The maximum length that the policy sets for the response to a single call, and the error that
/// replaces a longer one.
#[derive(Debug)]
pub(in crate::exchange) struct CallResponseLengthLimit {
    /// Maximum length of the response. Bytes.
    pub(in crate::exchange) most: u64,
    /// Error that replaces a longer response.
    pub(in crate::exchange) error: Vec<u8>,
}

impl CallResponseLengthLimit {
    /// Returns the limit for a call that is forwarded; `None` without a limit, or for a
    /// notification.
    pub(in crate::exchange) fn limit_for_call(
        policy: &CallAccessPolicy,
        call: &JsonRpcCall<'_>,
    ) -> Option<Self> {
        let (most, id) = (policy.method_response_limit(call.method)?, call.id?);
        let error = policy
            .response_too_long_error()
            .response_for_identity_client(id)?
            .try_to_vec()?;
        Some(Self { most, error })
    }
}
