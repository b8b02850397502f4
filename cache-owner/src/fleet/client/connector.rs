//! The task that opens a connection of the client, and opens it again when it is lost.
//!
//! The task runs the connection's driver: it ends the connection when the task ends, or when the
//! circuit breaker drops it. It also sends the probes of an open breaker.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ProtocolVersion, Value};
use sszip_connect::error_text::format_error_causes;
use sszip_core::cache::fleet::breaker::Outcome;
use tokio::time::{sleep, timeout, Instant};

use super::backoff::{ReconnectBackoff, MAX_PAUSE_MS};
use super::cluster::{ClusterNodes, NodeSettings, OpenCluster};
use super::error::{
    bound_text, connection_error, format_server_error, outcome_of_lookup_error,
    outcome_of_server_error,
};
use super::link::{FleetConnection, FleetLink, LinkPhase, OpenConnection};
use super::stream_opener::{LinkTarget, StreamOpener};
use crate::fleet::reply_limit_stream::ReplyLimitStream;
use crate::fleet::{random_name, random_number};

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

    /// Opens a connection to a server that replies, or to a cluster.
    ///
    /// # Errors
    /// The reason, for log lines.
    async fn open_connection(&self) -> Result<(OpenConnection, ConnectionDriver), String> {
        match &self.target {
            LinkTarget::Server(open_stream) => {
                let ping = redis::cmd("PING");
                let (open, driver, reply) = self.open_server_connection(open_stream, &ping).await?;
                match reply {
                    // a user who may not send PING may send the other commands
                    Value::ServerError(error) if error.code() != "NOPERM" => {
                        match outcome_of_server_error(&error) {
                            Outcome::Failure => Err(format_server_error(&error)),
                            _ => Ok((open, driver)),
                        }
                    }
                    _ => Ok((open, driver)),
                }
            }
            LinkTarget::Primary(open_stream) => {
                let role = redis::cmd("ROLE");
                let (open, driver, reply) = self.open_server_connection(open_stream, &role).await?;
                check_primary_role(&reply)?;
                Ok((open, driver))
            }
            LinkTarget::Cluster(cluster) => {
                let open = self.open_cluster_connection(cluster).await?;
                // the library has a task for each node
                Ok((open, Box::pin(std::future::pending())))
            }
        }
    }

    /// Opens a connection to one server, and returns its reply to `first`.
    async fn open_server_connection(
        &self,
        open_stream: &StreamOpener,
        first: &Cmd,
    ) -> Result<(OpenConnection, ConnectionDriver, Value), String> {
        let stream = open_stream()
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
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(&self.settings.info, stream, config)
                .await
                .map_err(|error| connection_error(&error, violation.get().copied()).to_string())?;
        let mut driver: ConnectionDriver = Box::pin(driver);
        let reply = tokio::select! {
            // the reply is read before its error, if the connection fails
            biased;
            reply = connection.send_packed_command(first) => reply,
            () = &mut driver => return Err("the server closed the connection".into()),
        };
        let reply = reply
            .map_err(|error| connection_error(&error, violation.get().copied()).to_string())?;
        let open = OpenConnection {
            connection: FleetConnection::Server(connection),
            violation,
        };
        Ok((open, driver, reply))
    }

    /// Opens connections to the nodes of a cluster.
    async fn open_cluster_connection(
        &self,
        cluster: &ClusterNodes,
    ) -> Result<OpenConnection, String> {
        let violation = Arc::new(OnceLock::new());
        let settings = NodeSettings {
            connector: cluster.connector.clone(),
            info: self
                .settings
                .info
                .clone()
                .set_protocol(ProtocolVersion::RESP3),
            limits: self.settings.limits,
            queue_length: self.settings.queue_length,
            connect_timeout: self.settings.connect_timeout,
            traffic: Arc::clone(&self.traffic),
            violation: Arc::clone(&violation),
        };
        let opened = OpenCluster::connect(&cluster.nodes, settings).await;
        let open = opened
            .map_err(|error| connection_error(&error, violation.get().copied()).to_string())?;
        Ok(OpenConnection {
            connection: FleetConnection::Cluster(open),
            violation,
        })
    }

    /// Sends the probe of an open breaker: a query for a value that does not exist, within the time
    /// limit of a probe. So no client's request serves as the probe. Returns whether the connection
    /// may be used.
    async fn probe_connection(&self, open: &OpenConnection, driver: &mut ConnectionDriver) -> bool {
        if !self.begin_probe() {
            return true;
        }
        let mut command = redis::cmd("GET");
        let name = hex::encode(random_name());
        command.arg(format!("{}{name}", self.settings.value_prefix));
        let mut connection = open.connection.clone();
        let reply = tokio::select! {
            // the reply is read before its error, if the connection fails
            biased;
            reply = timeout(self.settings.probe_timeout, connection.send(&command)) => reply,
            () = driver => {
                let reason = "the server closed the connection";
                return self.record_probe(Outcome::Failure, Some(reason));
            }
        };
        match reply {
            Err(_) => self.record_probe(Outcome::Timeout, None),
            Ok(Ok(Value::ServerError(error))) => {
                let outcome = outcome_of_lookup_error(&error);
                self.record_probe(outcome, Some(&format_server_error(&error)))
            }
            Ok(Ok(_)) => self.record_probe(Outcome::Success, None),
            Ok(Err(error)) => {
                let error = connection_error(&error, open.violation.get().copied());
                self.record_probe(Outcome::Failure, Some(&error.to_string()))
            }
        }
    }

    /// Uses a connection until it is lost or dropped; not at all if its probe fails.
    async fn run_connection(
        &self,
        open: OpenConnection,
        mut driver: ConnectionDriver,
        connect_time: Duration,
    ) {
        if !self.probe_connection(&open, &mut driver).await {
            return;
        }
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

/// Checks the reply to `ROLE` of a server that a Sentinel has named.
///
/// # Errors
/// The server is not a primary, or its role is unknown. The reason is for log lines.
fn check_primary_role(reply: &Value) -> Result<(), String> {
    match reply {
        Value::Array(parts) => match parts.first() {
            Some(Value::BulkString(role)) if role == b"master" => Ok(()),
            _ => Err("the server that a Sentinel has named is not a primary".into()),
        },
        Value::ServerError(error) => Err(format_server_error(error)),
        _ => Err("the server sent a reply of another type".into()),
    }
}
