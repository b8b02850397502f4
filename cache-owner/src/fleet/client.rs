//! The client of a fleet's servers: commands, each within a time limit.
//!
//! Lookups have a connection of their own, so that no long value delays them; all other commands
//! share another one. Both are opened in the background, and each has a circuit breaker: a lookup
//! never waits for a connection, and a server that does not reply costs a few lookups their time.
//! While a breaker is open, a lookup or a store costs one read of a flag; the connector sends the
//! probes.

mod availability;
mod backoff;
pub mod client_status;
mod cluster;
mod connector;
mod counters;
mod error;
mod fleet_lease;
mod link;
pub(super) mod reply_monitor;
mod sentinels;
mod store_pause;
mod stream_opener;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use redis::{Cmd, RedisConnectionInfo, ServerError, Value};
use sszip_core::cache::fleet::keyring::FleetKeyring;
use sszip_core::cache::fleet::leases::is_fleet_lease;
use sszip_core::cache::fleet::reply_limit::ReplyLimits;
use sszip_core::config::fleet::{FleetSettings, FleetTopology, Secret};
use sszip_core::lock::lock_ignoring_poison;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::cluster::ClusterNodes;
use self::counters::FleetCounters;
pub use self::counters::{FleetLookupResult, LatencyBucket, LatencySnapshot};
pub use self::error::FleetError;
use self::error::{format_server_error, refuses_writes};
use self::link::link_call::Reply;
use self::link::{FleetLink, LinkSettings};
use self::sentinels::Sentinels;
use self::store_pause::StorePause;
use self::stream_opener::LinkTarget;
use super::connect::FleetConnector;
use super::reply_limit_stream::FleetTraffic;
use crate::log::LogFunction;

/// Maximum number of lookups in flight.
const MAX_LOOKUPS: usize = 256;

/// Maximum length of the parts of a value that are not the entry's, in bytes.
const MAX_VALUE_OVERHEAD: u64 = 4 << 10;

/// Maximum length of a reply apart from its values, in bytes.
const MAX_REPLY_OVERHEAD: u64 = 4 << 10;

/// Maximum number of elements of a reply on the lookup connection: its replies are no aggregates.
const MAX_LOOKUP_ELEMENTS: u64 = 16;

/// Maximum number of elements of the reply of a primary about its role: four for each replica.
const MAX_ROLE_ELEMENTS: u64 = 1 << 10;

/// Maximum length of a reply about the replicas of a primary, or the slots of a cluster, in bytes.
const MAX_TOPOLOGY_REPLY: u64 = 1 << 20;

/// Limits of the replies on the store connection: ranges of the purge stream.
const STORE_LIMITS: ReplyLimits = ReplyLimits {
    bulk: 64 << 10,
    elements: 64 << 10,
    reply: 8 << 20,
};

/// Maximum number of commands of the store connection that wait to be written. Each may have a long
/// value.
const STORE_QUEUE_LENGTH: usize = 4;

/// Time limit of a store: nothing waits for it.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// The client of a fleet's server; clones share its connections, which end with the last clone.
#[derive(Clone)]
pub struct FleetClient {
    shared: Arc<SharedClient>,
}

struct SharedClient {
    lookups: Arc<FleetLink>,
    /// The connection of stores and purges.
    stores: Arc<FleetLink>,
    /// Permits of lookups in flight.
    permits: Semaphore,
    pause: StorePause,
    counters: FleetCounters,
    traffic: Arc<FleetTraffic>,
    is_started: AtomicBool,
    /// Tasks of the connections, aborted with the client.
    tasks: Mutex<JoinSet<()>>,
}

/// The parts of the settings that the client uses.
struct ClientSettings {
    /// Beginning of the log lines.
    subject: String,
    info: RedisConnectionInfo,
    connect_timeout: Duration,
    /// Time limit of a lookup.
    lookup_timeout: Duration,
    max_entry: u64,
    /// Beginning of the names of values.
    value_prefix: String,
}

impl ClientSettings {
    fn new(settings: &FleetSettings) -> Result<Self, String> {
        let info = login_info(settings.user.as_deref(), settings.password.as_ref())?;
        Ok(Self {
            subject: format!("fleet {}", settings.endpoint),
            info: info.set_db(settings.endpoint.database.into()),
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms),
            lookup_timeout: Duration::from_millis(settings.timeout_ms),
            max_entry: settings.max_entry,
            value_prefix: FleetKeyring::value_prefix(&settings.prefix),
        })
    }
}

/// Returns the parameters of a login.
fn login_info(
    user: Option<&str>,
    password: Option<&Secret>,
) -> Result<RedisConnectionInfo, String> {
    // needs rights that no other command needs
    let mut info = RedisConnectionInfo::default().set_skip_set_lib_name();
    if let Some(user) = user {
        info = info.set_username(user);
    }
    if let Some(password) = password {
        let password = password.as_text();
        info = info.set_password(password.ok_or("the password is not UTF-8")?);
    }
    Ok(info)
}

impl FleetClient {
    /// Creates a client. Nothing connects before [`start`](Self::start) or the first command.
    ///
    /// # Errors
    /// The settings cannot be used. The message is for operators.
    pub fn new(settings: &FleetSettings, log: LogFunction) -> Result<Self, String> {
        let connector = FleetConnector::new(settings)?;
        let traffic = Arc::<FleetTraffic>::default();
        let nodes = settings.endpoint.nodes.clone();
        let target = match &settings.endpoint.topology {
            FleetTopology::Server => {
                let first = nodes.into_iter().next().ok_or("it has no server")?;
                LinkTarget::Server(Arc::new(move || {
                    let (connector, node) = (connector.clone(), first.clone());
                    async move { connector.open_node_stream(&node).await }.boxed()
                }))
            }
            FleetTopology::Sentinel { primary_name } => {
                let user = settings.sentinel_user.as_deref();
                let sentinels = Arc::new(Sentinels::new(
                    connector,
                    nodes,
                    primary_name.clone(),
                    login_info(user, settings.sentinel_password.as_ref())?,
                    Arc::clone(&traffic),
                    Duration::from_millis(settings.connect_timeout_ms),
                ));
                LinkTarget::Primary(Arc::new(move || {
                    let sentinels = Arc::clone(&sentinels);
                    async move { sentinels.open_primary_stream().await }.boxed()
                }))
            }
            FleetTopology::Cluster => LinkTarget::Cluster(ClusterNodes { connector, nodes }),
        };
        let settings = ClientSettings::new(settings)?;
        Ok(Self::from_target(settings, &target, traffic, log))
    }

    /// Creates a client of one server, whose connections are opened by `open_stream`.
    #[cfg(test)]
    fn from_opener(
        settings: ClientSettings,
        open_stream: stream_opener::StreamOpener,
        log: LogFunction,
    ) -> Self {
        let target = LinkTarget::Server(open_stream);
        Self::from_target(settings, &target, Arc::default(), log)
    }

    fn from_target(
        settings: ClientSettings,
        target: &LinkTarget,
        traffic: Arc<FleetTraffic>,
        log: LogFunction,
    ) -> Self {
        let bulk = settings.max_entry.saturating_add(MAX_VALUE_OVERHEAD);
        let subject = &settings.subject;
        let lookups = LinkSettings {
            subject: format!("{subject}: lookup connection"),
            effect: "requests go to the node",
            limits: ReplyLimits {
                bulk,
                elements: match target {
                    LinkTarget::Server(_) => MAX_LOOKUP_ELEMENTS,
                    LinkTarget::Primary(_) => MAX_ROLE_ELEMENTS,
                    LinkTarget::Cluster(_) => STORE_LIMITS.elements,
                },
                reply: match target {
                    LinkTarget::Server(_) => bulk.saturating_add(MAX_REPLY_OVERHEAD),
                    LinkTarget::Primary(_) | LinkTarget::Cluster(_) => {
                        bulk.saturating_add(MAX_TOPOLOGY_REPLY)
                    }
                },
            },
            queue_length: MAX_LOOKUPS,
            connect_timeout: settings.connect_timeout,
            probe_timeout: settings.lookup_timeout,
            value_prefix: settings.value_prefix.clone(),
            info: settings.info.clone(),
        };
        let stores = LinkSettings {
            subject: format!("{subject}: store connection"),
            effect: "no entry is shared",
            limits: STORE_LIMITS,
            queue_length: STORE_QUEUE_LENGTH,
            connect_timeout: settings.connect_timeout,
            probe_timeout: settings.connect_timeout,
            value_prefix: settings.value_prefix,
            info: settings.info,
        };
        let link = |settings| {
            Arc::new(FleetLink::new(
                settings,
                target.clone(),
                Arc::clone(&traffic),
                Arc::clone(&log),
            ))
        };
        Self {
            shared: Arc::new(SharedClient {
                lookups: link(lookups),
                stores: link(stores),
                permits: Semaphore::new(MAX_LOOKUPS),
                pause: StorePause::new(settings.subject, Arc::clone(&log)),
                counters: FleetCounters::default(),
                traffic,
                is_started: AtomicBool::new(false),
                tasks: Mutex::new(JoinSet::new()),
            }),
        }
    }

    /// Starts to connect, in the background. Must be called on a runtime; further calls have no
    /// effect.
    pub fn start(&self) {
        let shared = &self.shared;
        if !shared.is_started.swap(true, Ordering::AcqRel) {
            let mut tasks = lock_ignoring_poison(&shared.tasks);
            tasks.spawn(Arc::clone(&shared.lookups).run_connector());
            tasks.spawn(Arc::clone(&shared.stores).run_connector());
        }
    }

    /// Starts to connect, and waits until both connections are open or one cannot be opened.
    ///
    /// # Errors
    /// A connection is not open within `limit`, or cannot be opened.
    pub async fn connect(&self, limit: Duration) -> Result<(), FleetError> {
        self.start();
        let begun = Instant::now();
        for link in [&self.shared.lookups, &self.shared.stores] {
            let rest = limit.saturating_sub(begun.elapsed());
            link.wait_for_connection(rest).await?;
        }
        Ok(())
    }

    /// Looks up a value within `limit`. Never waits for a connection.
    ///
    /// # Errors
    /// The reason why the value is unknown.
    pub async fn get(&self, name: &[u8], limit: Duration) -> Result<Option<Vec<u8>>, FleetError> {
        self.start();
        let result = self.send_get(name, limit).await;
        let lookup_result = match &result {
            // counted with its latency
            Ok(_) => return result,
            Err(FleetError::Busy) => FleetLookupResult::Busy,
            Err(FleetError::Open) => FleetLookupResult::Skipped,
            Err(FleetError::Timeout) if limit.is_zero() => FleetLookupResult::Skipped,
            Err(FleetError::Timeout) => FleetLookupResult::Timeout,
            Err(FleetError::Connection(_) | FleetError::Rejected(_) | FleetError::ReplyTooLong) => {
                FleetLookupResult::Error
            }
        };
        self.shared.counters.count_lookup(lookup_result);
        result
    }

    async fn send_get(&self, name: &[u8], limit: Duration) -> Result<Option<Vec<u8>>, FleetError> {
        if limit.is_zero() {
            return Err(FleetError::Timeout);
        }
        let shared = &self.shared;
        let _permit = shared.permits.try_acquire().map_err(|_| FleetError::Busy)?;
        let call = shared.lookups.begin_call()?.counted_as_lookup();
        let begun = Instant::now();
        let mut command = redis::cmd("GET");
        command.arg(name);
        let reply = call.send(&command, limit, decode_value).await?;
        match reply {
            Reply::Value(value) => {
                let counters = &shared.counters;
                let is_value = value.as_deref().is_some_and(|value| !is_fleet_lease(value));
                counters.count_reply(is_value, begun.elapsed());
                Ok(value)
            }
            Reply::Error(error) => Err(FleetError::Rejected(format_server_error(&error))),
        }
    }

    /// Stores a value. Not sent while the server refuses writes.
    ///
    /// # Errors
    /// The reason why the value may not be stored.
    pub async fn set(&self, name: &[u8], value: &[u8], ttl: Duration) -> Result<(), FleetError> {
        self.start();
        let counters = &self.shared.counters;
        let result = self.send_set(name, value, ttl).await;
        let (counter, result) = match result {
            Ok(Reply::Value(())) => (&counters.stores_done, Ok(())),
            Ok(Reply::Error(error)) => (
                match refuses_writes(&error) {
                    true => &counters.stores_refused,
                    false => &counters.stores_failed,
                },
                Err(FleetError::Rejected(format_server_error(&error))),
            ),
            Err(FleetError::Open) => (&counters.stores_skipped, Err(FleetError::Open)),
            Err(error) => (&counters.stores_failed, Err(error)),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        result
    }

    async fn send_set(
        &self,
        name: &[u8],
        value: &[u8],
        ttl: Duration,
    ) -> Result<Reply<()>, FleetError> {
        let pause = self.shared.pause.begin_store()?;
        let call = self.shared.stores.begin_call()?;
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut command = Cmd::with_capacity(5, name.len() + value.len() + 32);
        command.arg("SET").arg(name).arg(value).arg("PX").arg(ttl);
        let reply = call.send(&command, STORE_TIMEOUT, decode_okay).await?;
        match &reply {
            Reply::Value(()) => pause.record_success(),
            Reply::Error(error) if refuses_writes(error) => {
                pause.record_refusal(&format_server_error(error));
                self.discard_replica(error);
            }
            Reply::Error(_) => {}
        }
        Ok(reply)
    }

    /// Sends any other command, and returns its reply within `limit`. Waits for a connection that
    /// is being opened. The reply is within the limits of the store connection.
    ///
    /// # Errors
    /// The reason why there is no reply.
    pub async fn command(&self, command: Cmd, limit: Duration) -> Result<Value, FleetError> {
        self.start();
        let begun = Instant::now();
        let stores = &self.shared.stores;
        stores.wait_for_connection(limit).await?;
        let rest = limit.saturating_sub(begun.elapsed());
        if rest.is_zero() {
            return Err(FleetError::Timeout);
        }
        let call = stores.begin_call()?;
        match call.send(&command, rest, Some).await? {
            Reply::Value(value) => Ok(value),
            Reply::Error(error) => {
                self.discard_replica(&error);
                Err(FleetError::Rejected(format_server_error(&error)))
            }
        }
    }

    /// Drops both connections if the error shows that the server is not the primary any more, and
    /// Sentinels know the new one.
    fn discard_replica(&self, error: &ServerError) {
        self.shared.lookups.discard_replica(error);
        self.shared.stores.discard_replica(error);
    }

    /// Whether lookups are sent: they have a connection, and its breaker is closed.
    pub fn is_lookup_open(&self) -> bool {
        self.shared.lookups.is_connected()
    }

    /// Whether stores are sent: they have a connection, its breaker is closed, and the server does
    /// not refuse writes.
    pub(crate) fn is_store_open(&self) -> bool {
        self.shared.stores.is_connected() && self.shared.pause.permits_store()
    }

    /// Returns the flags of the connections of lookups and of stores: whether each is open, and its
    /// breaker closed.
    pub(crate) fn connected_flags(&self) -> [Arc<AtomicBool>; 2] {
        let links = [&self.shared.lookups, &self.shared.stores];
        links.map(|link| link.connected_flag())
    }
}

/// Decodes the reply to `GET`; `None`: it is of another type.
fn decode_value(value: Value) -> Option<Option<Vec<u8>>> {
    match value {
        Value::Nil => Some(None),
        Value::BulkString(value) => Some(Some(value)),
        _ => None,
    }
}

/// Decodes the reply to `SET`; `None`: it is of another type.
fn decode_okay(value: Value) -> Option<()> {
    (value == Value::Okay).then_some(())
}
