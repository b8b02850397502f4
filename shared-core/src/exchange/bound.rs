//! How long the answer to a single call may be.

use crate::config::Policy;
use crate::jsonrpc::request::Call;

/// How long a compressed body may be that is not longer than `most` without that: what
/// can't be compressed gets longer by less than this.
pub(super) fn coded_at_most(most: u64) -> u64 {
    most + most / 64 + 1024
}

/// What the answer to a single call may be.
#[derive(Debug)]
pub(super) struct Bound {
    /// Bytes.
    pub(super) most: u64,
    /// What a longer one is answered with.
    pub(super) error: Vec<u8>,
}

impl Bound {
    /// Of that call, which goes on; `None`: its answer may be of any length, or there is
    /// none.
    pub(super) fn of(policy: &Policy, call: &Call<'_>) -> Option<Self> {
        let (most, id) = (policy.max_answer(call.method)?, call.id?);
        let error = policy.too_long().identity(id)?.try_to_vec()?;
        Some(Self { most, error })
    }
}
