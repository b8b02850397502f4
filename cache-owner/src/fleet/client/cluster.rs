//! Connections to the nodes of a Redis Cluster.
//!
//! The client library has the slots, follows redirections and connects to the nodes that a cluster
//! names. It opens connections with a function that has no context ([`Connect`]): the settings of a
//! cluster are registered here under a number, which the library passes as the number of the
//! database. A cluster has no other databases than 0.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::FutureExt;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::{ClusterConnection, Connect};
use redis::{
    Arg, AsyncConnectionConfig, Cmd, ConnectionAddr, ErrorKind, IntoConnectionInfo, Pipeline,
    ProtocolVersion, RedisConnectionInfo, RedisError, RedisFuture, RedisResult, Value,
};
use sszip_core::cache::fleet::reply_limit::{ReplyLimits, ReplyViolation};
use sszip_core::config::fleet::FleetNode;
use sszip_core::lock::lock_ignoring_poison;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::reply_monitor::ReplyMonitor;
use crate::fleet::connect::FleetConnector;
use crate::fleet::reply_limit_stream::{FleetTraffic, ReplyLimitStream};

/// Maximum number of repetitions of a command, after a redirection or a failure.
const MAX_RETRIES: u32 = 2;

/// Shortest and longest pause before a repetition in milliseconds.
const RETRY_PAUSES_MS: (u64, u64) = (5, 50);

/// Timeout of one attempt of a command, and of the library's own commands. The client limits the
/// time of the whole.
const NODE_RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for which a node may send no byte after a command was written. Then the node is probed over
/// another connection. The library keeps a connection whose commands time out.
const MAX_NODE_SILENCE: Duration = Duration::from_secs(2);

/// Number of attempts to connect, one after the other, for which the time to connect to a cluster
/// must be sufficient: to the configured nodes, to those that they name, and one for the slots.
const CONNECT_ROUNDS: u32 = 3;

/// The configured nodes of a cluster.
#[derive(Clone)]
pub(super) struct ClusterNodes {
    pub(super) connector: FleetConnector,
    pub(super) nodes: Vec<FleetNode>,
}

/// The settings of a cluster's connections.
pub(super) struct NodeSettings {
    pub(super) connector: FleetConnector,
    pub(super) info: RedisConnectionInfo,
    pub(super) limits: ReplyLimits,
    pub(super) queue_length: usize,
    /// Maximum time to connect to the cluster.
    pub(super) connect_timeout: Duration,
    pub(super) traffic: Arc<FleetTraffic>,
    pub(super) violation: Arc<OnceLock<ReplyViolation>>,
}

/// The settings of clusters by their number.
static CLUSTERS: Mutex<BTreeMap<i64, Arc<NodeSettings>>> = Mutex::new(BTreeMap::new());

/// Number of the last cluster.
static LAST_CLUSTER: AtomicI64 = AtomicI64::new(0);

/// The registration of a cluster's settings, which ends with this value.
struct ClusterRegistration(i64);

impl ClusterRegistration {
    fn new(settings: NodeSettings) -> Self {
        let number = LAST_CLUSTER.fetch_add(1, Ordering::Relaxed) + 1;
        lock_ignoring_poison(&CLUSTERS).insert(number, Arc::new(settings));
        Self(number)
    }
}

impl Drop for ClusterRegistration {
    fn drop(&mut self) {
        lock_ignoring_poison(&CLUSTERS).remove(&self.0);
    }
}

/// An open connection to a cluster; clones share its connections to the nodes.
#[derive(Clone)]
pub(super) struct OpenCluster {
    connection: ClusterConnection<NodeConnection>,
    /// The library connects to further nodes as long as the cluster is used.
    _registration: Arc<ClusterRegistration>,
}

impl OpenCluster {
    /// Connects to the first of `nodes` that names all nodes. The caller limits the time; nothing
    /// is left of an attempt that is abandoned.
    ///
    /// # Errors
    /// The error of a node.
    pub(super) async fn connect(nodes: &[FleetNode], settings: NodeSettings) -> RedisResult<Self> {
        let node_timeout = settings.node_timeout();
        let registration = Arc::new(ClusterRegistration::new(settings));
        let addresses = nodes
            .iter()
            .map(|node| ConnectionAddr::Tcp(node.host.clone(), node.port));
        let (shortest, longest) = RETRY_PAUSES_MS;
        let client = ClusterClientBuilder::new(addresses)
            // without it, the library does not notice that a connection is lost
            .use_protocol(ProtocolVersion::RESP3)
            .database_id(registration.0)
            .retries(MAX_RETRIES)
            .min_retry_wait(shortest)
            .max_retry_wait(longest)
            .connection_timeout(node_timeout)
            .response_timeout(NODE_RESPONSE_TIMEOUT)
            // the client limits the time of each command
            .overall_response_timeout(None)
            .build()?;
        let connection = client
            .get_async_generic_connection::<NodeConnection>()
            .await?;
        Ok(Self {
            connection,
            _registration: registration,
        })
    }

    /// Sends a command to the node of its key.
    ///
    /// # Errors
    /// The connection failed, or the node replied with an error that a repetition has not resolved.
    pub(super) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.connection.req_packed_command(command).await
    }
}

impl NodeSettings {
    fn node_timeout(&self) -> Duration {
        self.connect_timeout / CONNECT_ROUNDS
    }

    /// Opens a connection to a node, and uses it until the node is silent there and accepts another
    /// connection.
    async fn open_node(
        self: Arc<Self>,
        node: FleetNode,
        config: AsyncConnectionConfig,
    ) -> RedisResult<NodeConnection> {
        let monitor = Arc::<ReplyMonitor>::default();
        let (watched, violation) = (Arc::clone(&monitor), Arc::clone(&self.violation));
        let opened = self.open_monitored_connection(&node, config, watched, violation);
        let (connection, driver) = opened.await?;
        let task = tokio::spawn(async move {
            tokio::select! {
                () = driver => {}
                () = self.wait_until_replaceable(&node, &monitor) => {}
            }
        });
        Ok(NodeConnection {
            connection,
            _driver: Arc::new(DriverTask(task.abort_handle())),
        })
    }

    async fn open_monitored_connection(
        &self,
        node: &FleetNode,
        config: AsyncConnectionConfig,
        monitor: Arc<ReplyMonitor>,
        violation: Arc<OnceLock<ReplyViolation>>,
    ) -> RedisResult<(MultiplexedConnection, BoxFuture<'static, ()>)> {
        let stream = self.connector.open_node_stream(node).await?;
        let traffic = Arc::clone(&self.traffic);
        let stream = ReplyLimitStream::new(stream, self.limits, traffic, violation);
        let stream = stream.monitored_by(monitor);
        let config = config.set_pipeline_buffer_size(self.queue_length);
        let (connection, driver) =
            MultiplexedConnection::new_with_config(&self.info, stream, config).await?;
        Ok((connection, driver.boxed()))
    }

    /// Waits until a node is silent on a connection although it accepts another one. The connection
    /// to a node that accepts none is kept: as long as the library has no connection to a node, its
    /// attempts to connect delay commands to the others.
    async fn wait_until_replaceable(&self, node: &FleetNode, monitor: &ReplyMonitor) {
        loop {
            let silence = monitor.wait_for_silence(MAX_NODE_SILENCE).await;
            // the node has replied to the login of an opened connection
            let probe = self.open_monitored_connection(
                node,
                AsyncConnectionConfig::new(),
                Arc::default(),
                Arc::default(),
            );
            let probe = timeout(self.node_timeout(), probe).await;
            if matches!(probe, Ok(Ok(_))) && monitor.is_ongoing(silence) {
                return;
            }
        }
    }
}

/// The task of a connection, aborted with this value.
struct DriverTask(AbortHandle);

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection to one node, whose replies are limited; it ends with its last clone.
#[derive(Clone)]
pub(super) struct NodeConnection {
    connection: MultiplexedConnection,
    _driver: Arc<DriverTask>,
}

impl Connect for NodeConnection {
    fn connect_with_config<'a, T>(info: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        async move {
            let info = info.into_connection_info()?;
            let number = info.redis_settings().db();
            let settings = lock_ignoring_poison(&CLUSTERS).get(&number).cloned();
            let settings = settings.ok_or_else(|| {
                RedisError::from((ErrorKind::Client, "the cluster is not used any more"))
            })?;
            let node = match info.addr() {
                ConnectionAddr::Tcp(host, port) => FleetNode::from_reported_address(host, *port),
                _ => None,
            };
            let node = node.ok_or_else(|| {
                RedisError::from((ErrorKind::Client, "a node has an invalid address"))
            })?;
            let opening = Arc::clone(&settings).open_node(node.clone(), config);
            match timeout(settings.node_timeout(), opening).await {
                Ok(opened) => opened,
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("{node}: no reply in time"),
                )
                .into()),
            }
        }
        .boxed()
    }
}

impl ConnectionLike for NodeConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        // The library sends it to each node. Replicas then serve reads when the primary is not
        // connected, although they may lack the newest purges: without it they redirect.
        if let Some(Arg::Simple(b"READONLY")) = command.args_iter().next() {
            return std::future::ready(Ok(Value::Okay)).boxed();
        }
        self.connection.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(pipeline, offset, count)
    }

    fn get_db(&self) -> i64 {
        0
    }
}
