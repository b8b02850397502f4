//! One command on a connection, whose result the circuit breaker counts.

use std::time::Duration;

use redis::{Cmd, ServerError, Value};
use sszip_core::cache::fleet::breaker::Outcome;
use sszip_core::lock::lock_ignoring_poison;
use tokio::time::timeout;

use super::super::error::{
    connection_error, format_server_error, outcome_of_lookup_error, outcome_of_server_error,
    FleetError,
};
use super::{FleetLink, OpenConnection};

/// The reply of a server to a command.
pub(in crate::fleet::client) enum Reply<T> {
    Value(T),
    Error(ServerError),
}

/// A permitted command. Its result is recorded, or that it was abandoned.
pub(in crate::fleet::client) struct LinkCall<'a> {
    link: &'a FleetLink,
    generation: u64,
    open: OpenConnection,
    /// Returns the outcome of the command for an error of the server.
    outcome_of_error: fn(&ServerError) -> Outcome,
    is_recorded: bool,
}

impl FleetLink {
    /// Begins a command. Nothing is waited for.
    ///
    /// # Errors
    /// [`FleetError::Open`]: there is no connection, or the breaker is open.
    pub(in crate::fleet::client) fn begin_call(&self) -> Result<LinkCall<'_>, FleetError> {
        if !self.is_connected() {
            return Err(FleetError::Open);
        }
        let state = lock_ignoring_poison(&self.state);
        let open = state.open.clone().ok_or(FleetError::Open)?;
        Ok(LinkCall {
            link: self,
            generation: state.generation,
            open,
            outcome_of_error: outcome_of_server_error,
            is_recorded: false,
        })
    }
}

impl LinkCall<'_> {
    /// Counts an error of the server as the result of a lookup.
    pub(in crate::fleet::client) fn counted_as_lookup(mut self) -> Self {
        self.outcome_of_error = outcome_of_lookup_error;
        self
    }

    /// Sends the command and returns its reply within `limit`. `decode` returns `None` for a value
    /// that is no reply to this command: the connection is dropped.
    ///
    /// # Errors
    /// The reason why there is no reply.
    pub(in crate::fleet::client) async fn send<T>(
        mut self,
        command: &Cmd,
        limit: Duration,
        decode: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Reply<T>, FleetError> {
        let reply = timeout(limit, self.open.connection.send(command)).await;
        match reply {
            Err(_) => {
                self.record(Outcome::Timeout, None);
                Err(FleetError::Timeout)
            }
            Ok(Ok(Value::ServerError(error))) => {
                let outcome = (self.outcome_of_error)(&error);
                self.record(outcome, Some(&format_server_error(&error)));
                Ok(Reply::Error(error))
            }
            Ok(Ok(value)) => match decode(value) {
                Some(value) => {
                    self.record(Outcome::Success, None);
                    Ok(Reply::Value(value))
                }
                None => {
                    let reason = "the server sent a reply of another type";
                    self.record(Outcome::Failure, Some(reason));
                    self.link.discard_connection(self.generation, reason);
                    Err(FleetError::Connection(reason.into()))
                }
            },
            Ok(Err(error)) => {
                let violation = self.open.violation.get().copied();
                let error = connection_error(&error, violation);
                self.record(Outcome::Failure, Some(&error.to_string()));
                if let (true, Some(violation)) = (self.link.is_cluster(), violation) {
                    // the library would connect to the same node again
                    self.link
                        .discard_connection(self.generation, violation.name());
                }
                Err(error)
            }
        }
    }

    fn record(&mut self, outcome: Outcome, detail: Option<&str>) {
        self.is_recorded = true;
        self.link.record(self.generation, outcome, detail);
    }
}

impl Drop for LinkCall<'_> {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.link.record(self.generation, Outcome::Abandoned, None);
        }
    }
}
