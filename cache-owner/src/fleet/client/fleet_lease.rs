//! The command that takes a lease of the fleet.

use std::time::Duration;

use redis::Value;

use super::error::{format_server_error, FleetError};
use super::link::link_call::Reply;
use super::FleetClient;

impl FleetClient {
    /// Stores a lease in place of a value that is absent, for `ttl_ms` milliseconds. Returns `false`
    /// if the server has a value or another lease there. Sent on the lookup connection, where no long
    /// value delays it, and not while the server refuses writes. Never waits for a connection.
    ///
    /// # Errors
    /// The reason why it is unknown whether the lease is stored.
    pub(crate) async fn set_lease(
        &self,
        name: &[u8],
        lease: &[u8],
        ttl_ms: u64,
        limit: Duration,
    ) -> Result<bool, FleetError> {
        let shared = &self.shared;
        if limit.is_zero() {
            return Err(FleetError::Timeout);
        }
        if shared.pause.is_paused() || !shared.stores.is_connected() {
            return Err(FleetError::Open);
        }
        let _permit = shared.permits.try_acquire().map_err(|_| FleetError::Busy)?;
        let call = shared.lookups.begin_call()?;
        let mut command = redis::cmd("SET");
        command.arg(name).arg(lease).arg("NX").arg("PX").arg(ttl_ms);
        match call.send(&command, limit, decode_lease).await? {
            Reply::Value(is_stored) => Ok(is_stored),
            Reply::Error(error) => {
                self.discard_replica(&error);
                Err(FleetError::Rejected(format_server_error(&error)))
            }
        }
    }
}

/// Decodes the reply to `SET NX`; `None`: it is of another type.
fn decode_lease(value: Value) -> Option<bool> {
    match value {
        Value::Okay => Some(true),
        Value::Nil => Some(false),
        _ => None,
    }
}
