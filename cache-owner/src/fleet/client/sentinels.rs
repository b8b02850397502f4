//! The Sentinels of a fleet's primary: they name its address.
//!
//! The address that a Sentinel names is used for a connection to the primary only. The server there
//! must report the role of a primary before it is used: a Sentinel may know less than others.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, RedisError, Value};
use sszip_connect::error_text::format_error_causes;
use sszip_core::cache::fleet::reply_limit::ReplyLimits;
use sszip_core::config::fleet::FleetNode;
use tokio::time::timeout;

use super::error::{connection_error, format_server_error};
use crate::fleet::connect::{FleetByteStream, FleetConnector};
use crate::fleet::reply_limit_stream::{FleetTraffic, ReplyLimitStream};

/// Limits of the replies of a Sentinel: an address.
const SENTINEL_LIMITS: ReplyLimits = ReplyLimits {
    bulk: 1 << 10,
    elements: 16,
    reply: 4 << 10,
};

/// Maximum number of Sentinels whose silence leaves time for the primary in one attempt to connect.
/// The next attempt begins with the Sentinel after them.
const MAX_SILENT_SENTINELS: u32 = 3;

/// The Sentinels of a primary.
pub(super) struct Sentinels {
    connector: FleetConnector,
    nodes: Vec<FleetNode>,
    primary_name: String,
    info: RedisConnectionInfo,
    traffic: Arc<FleetTraffic>,
    /// Maximum time of one Sentinel.
    limit: Duration,
    /// Index of the Sentinel that is queried first.
    first: AtomicUsize,
}

impl Sentinels {
    /// Creates the Sentinels at `nodes`, which monitor a primary under `primary_name`.
    pub(super) fn new(
        connector: FleetConnector,
        nodes: Vec<FleetNode>,
        primary_name: String,
        info: RedisConnectionInfo,
        traffic: Arc<FleetTraffic>,
        connect_timeout: Duration,
    ) -> Self {
        let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        Self {
            connector,
            nodes,
            primary_name,
            info,
            traffic,
            limit: connect_timeout / (count.min(MAX_SILENT_SENTINELS) + 1),
            first: AtomicUsize::new(0),
        }
    }

    /// Opens a connection to the server that a Sentinel names as the primary. The caller limits the
    /// time.
    ///
    /// # Errors
    /// No Sentinel names a primary, or it is not reachable.
    pub(super) async fn open_primary_stream(&self) -> io::Result<Box<dyn FleetByteStream>> {
        let primary = self.find_primary().await?;
        let stream = self.connector.open_node_stream(&primary).await;
        stream.map_err(|error| {
            let reason = format_error_causes(&error);
            io::Error::new(error.kind(), format!("primary {primary}: {reason}"))
        })
    }

    /// Queries one Sentinel after the other, and returns the address that the first one names.
    async fn find_primary(&self) -> io::Result<FleetNode> {
        let count = self.nodes.len();
        let first = self.first.load(Ordering::Relaxed);
        let mut last_reason = String::new();
        for index in (first..first.saturating_add(count)).map(|index| index % count) {
            let Some(sentinel) = self.nodes.get(index) else {
                continue;
            };
            // The next attempt begins with another one: this one may be silent, or know less.
            self.first.store((index + 1) % count, Ordering::Relaxed);
            let reason = match timeout(self.limit, self.query_sentinel(sentinel)).await {
                Ok(Ok(primary)) => return Ok(primary),
                Ok(Err(reason)) => reason,
                Err(_) => format!("no reply within {} ms", self.limit.as_millis()),
            };
            last_reason = format!("Sentinel {sentinel}: {reason}");
        }
        Err(io::Error::other(last_reason))
    }

    /// Returns the address of the primary that one Sentinel names.
    ///
    /// # Errors
    /// The reason, for log lines.
    async fn query_sentinel(&self, sentinel: &FleetNode) -> Result<FleetNode, String> {
        let stream = self.connector.open_node_stream(sentinel).await;
        let stream = stream.map_err(|error| format_error_causes(&error))?;
        let violation = Arc::new(OnceLock::new());
        let stream = ReplyLimitStream::new(
            stream,
            SENTINEL_LIMITS,
            Arc::clone(&self.traffic),
            Arc::clone(&violation),
        );
        let config = AsyncConnectionConfig::new()
            // the caller limits the time
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let reason = |error: RedisError| match error.kind() {
            ErrorKind::AuthenticationFailed => "it rejected the user or the password; check \
                                                sentinel_user= and sentinel_password_file="
                .into(),
            _ => connection_error(&error, violation.get().copied()).to_string(),
        };
        let (mut connection, driver) =
            MultiplexedConnection::new_with_config(&self.info, stream, config)
                .await
                .map_err(reason)?;
        let mut command = redis::cmd("SENTINEL");
        command
            .arg("GET-MASTER-ADDR-BY-NAME")
            .arg(&*self.primary_name);
        let reply = tokio::select! {
            // the reply is read before its error, if the connection fails
            biased;
            reply = connection.send_packed_command(&command) => reply.map_err(reason)?,
            () = driver => return Err("the Sentinel closed the connection".into()),
        };
        match reply {
            Value::Nil => Err(format!(
                "it does not monitor a primary of the name \"{}\"",
                self.primary_name
            )),
            Value::ServerError(error) => Err(format_server_error(&error)),
            reply => decode_address(&reply).ok_or_else(|| "it sent no valid address".into()),
        }
    }
}

/// Decodes the reply with an address: host and port.
fn decode_address(reply: &Value) -> Option<FleetNode> {
    let Value::Array(parts) = reply else {
        return None;
    };
    let [Value::BulkString(host), Value::BulkString(port)] = &parts[..] else {
        return None;
    };
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    FleetNode::from_reported_address(std::str::from_utf8(host).ok()?, port)
}
