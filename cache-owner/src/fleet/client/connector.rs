//! The task that opens a connection of the client, and opens it again when it is lost.
//!
//! The task runs the connection's driver: it ends the connection when the task ends, or when the
//! circuit breaker drops it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};
use sszip_core::cache::fleet::breaker::Outcome;
use tokio::time::{sleep, timeout, Instant};

use super::backoff::{ReconnectBackoff, MAX_PAUSE_MS};
use super::error::{bound_text, connection_error, format_server_error, outcome_of_server_error};
use super::link::{FleetLink, LinkPhase, OpenConnection};
use crate::fleet::random_number;
use crate::fleet::reply_limit_stream::ReplyLimitStream;
use crate::follow::format_error_causes;

/// The future that reads and writes the bytes of a connection, as long as it is open.
type ConnectionDriver = Pin<Box<dyn Future<Output = ()> + Send>>;

impl FleetLink {
    /// Keeps the link connected. Ends only when its task is aborted.
    pub(super) async fn run_connector(self: Arc<Self>) {
        let mut backoff = ReconnectBackoff::new();
        loop {
            let wait = self.breaker_wait();
            if !wait.is_zero() {
                sleep(wait).await;
            }
            self.phase.send_replace(LinkPhase::Connecting);
            let begun = Instant::now();
            match timeout(self.settings.connect_timeout, self.open_connection()).await {
                Ok(Ok((open, driver))) => {
                    self.run_connection(open, driver, begun.elapsed()).await;
                    let lasted = begun.elapsed() >= Duration::from_millis(MAX_PAUSE_MS);
                    if lasted || self.has_replied() {
                        backoff.reset();
                    }
                }
                Ok(Err(reason)) => self.set_disconnected(&format!("cannot connect: {reason}")),
                Err(_) => {
                    let limit = self.settings.connect_timeout.as_millis();
                    self.set_disconnected(&format!("cannot connect: no reply within {limit} ms"));
                }
            }
            sleep(backoff.next_pause(random_number())).await;
        }
    }

    /// Opens a connection to a server that replies.
    ///
    /// # Errors
    /// The reason, for log lines.
    async fn open_connection(&self) -> Result<(OpenConnection, ConnectionDriver), String> {
        let stream = (self.open_stream)()
            .await
            .map_err(|error| bound_text(&format_error_causes(&error)))?;
        let violation = Arc::new(OnceLock::new());
        let stream = ReplyLimitStream::new(
            stream,
            self.settings.limits,
            Arc::clone(&self.traffic),
            Arc::clone(&violation),
        );
        let config = AsyncConnectionConfig::new()
            // the client has its own
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(self.settings.queue_length);
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&self.settings.info, stream, config)
                .await
                .map_err(|error| connection_error(&error, violation.get().copied()).to_string())?;
        let mut driver: ConnectionDriver = Box::pin(driver);
        let mut open = OpenConnection {
            connection,
            violation,
        };
        let ping = redis::cmd("PING");
        let reply = tokio::select! {
            // the reply is read before its error, if the connection fails
            biased;
            reply = open.connection.send_packed_command(&ping) => reply,
            () = &mut driver => return Err("the server closed the connection".into()),
        };
        match reply {
            // a user who may not send PING may send the other commands
            Ok(Value::ServerError(error)) if error.code() != "NOPERM" => {
                match outcome_of_server_error(&error) {
                    Outcome::Failure => Err(format_server_error(&error)),
                    _ => Ok((open, driver)),
                }
            }
            Ok(_) => Ok((open, driver)),
            Err(error) => Err(connection_error(&error, open.violation.get().copied()).to_string()),
        }
    }

    /// Uses a connection until it is lost or dropped.
    async fn run_connection(
        &self,
        open: OpenConnection,
        mut driver: ConnectionDriver,
        connect_time: Duration,
    ) {
        let violation = Arc::clone(&open.violation);
        let generation = self.set_connection(open, connect_time);
        loop {
            tokio::select! {
                () = &mut driver => break,
                // may have been notified for an earlier connection
                () = self.dropped.notified() => if !self.is_current(generation) {
                    return;
                },
            }
        }
        if self.is_current(generation) {
            self.set_disconnected(match violation.get() {
                Some(violation) => violation.name(),
                None => "the server closed the connection",
            });
        }
    }
}
