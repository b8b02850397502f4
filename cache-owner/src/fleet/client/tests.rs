//! Tests of the client with a simulated server, in paused time: time passes only when all tasks
//! wait.

mod cluster;
mod failures;
mod full_queue;
mod half_dead;
mod sentinels;
mod server;

use sszip_core::config::fleet::FleetEndpoint;
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use self::server::SimulatedServer;
use super::*;
use crate::log::LogLevel;

const LOOKUP_LIMIT: Duration = Duration::from_millis(10);
const TTL: Duration = Duration::from_secs(60);
const MAX_ENTRY: u64 = 1 << 20;

/// A client of a simulated server, with its log lines.
struct TestClient {
    client: FleetClient,
    server: SimulatedServer,
    lines: Arc<Mutex<Vec<String>>>,
}

impl TestClient {
    fn new() -> Self {
        Self::from_info(RedisConnectionInfo::default().set_skip_set_lib_name())
    }

    fn from_info(info: RedisConnectionInfo) -> Self {
        let server = SimulatedServer::default();
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let logged = Arc::clone(&lines);
        let log: LogFunction = Arc::new(move |level, line: &str| {
            let mark = match level {
                LogLevel::Notice => "",
                LogLevel::Error => "error: ",
            };
            lock_ignoring_poison(&logged).push(format!("{mark}{line}"));
        });
        let settings = ClientSettings {
            subject: "fleet".into(),
            info,
            connect_timeout: Duration::from_millis(500),
            lookup_timeout: LOOKUP_LIMIT,
            max_entry: MAX_ENTRY,
            value_prefix: "sszip:1:".into(),
        };
        Self {
            client: FleetClient::from_opener(settings, server.opener(), log),
            server,
            lines,
        }
    }

    async fn connected() -> Self {
        let test = Self::new();
        test.client.connect(Duration::from_secs(1)).await.unwrap();
        test
    }

    async fn get(&self) -> Result<Option<Vec<u8>>, FleetError> {
        self.client.get(b"name", LOOKUP_LIMIT).await
    }

    async fn set(&self) -> Result<(), FleetError> {
        self.client.set(b"name", b"value", TTL).await
    }

    async fn ping(&self) -> Result<Value, FleetError> {
        let limit = Duration::from_millis(200);
        self.client.command(redis::cmd("PING"), limit).await
    }

    fn lookup_count(&self, result: FleetLookupResult) -> u64 {
        self.client.status().lookups[result.name()]
    }

    /// Returns the log lines of one connection, or of stores, since the last call.
    fn take_lines(&self, part: &str) -> Vec<String> {
        let mut lines = lock_ignoring_poison(&self.lines);
        let prefix = format!("fleet: {part}: ");
        lines
            .extract_if(.., |line| line.contains(&prefix))
            .map(|line| line.replacen(&prefix, "", 1))
            .collect()
    }
}

/// Limit of commands that are sent over TCP, whose time is not simulated.
const TCP_LIMIT: Duration = Duration::from_secs(20);

/// Creates the settings of a fleet with this URL, whose servers have much time.
fn tcp_settings(url: &str) -> FleetSettings {
    FleetSettings {
        connect_timeout_ms: 10_000,
        ..FleetSettings::new(FleetEndpoint::parse_url(url).unwrap())
    }
}

/// Waits until a condition holds.
async fn wait_until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TCP_LIMIT, waiting).await.unwrap();
}

/// Connects, as often as it takes.
async fn connect_finally(client: &FleetClient) {
    let connecting = async {
        while client.connect(TCP_LIMIT).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(TCP_LIMIT, connecting).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn values_are_stored_and_looked_up() {
    let test = TestClient::connected().await;
    assert_eq!(test.get().await, Ok(None));
    test.server.set_reaction("GET", "$7\r\na\r\nb\0\u{ff}\r\n");
    let value = test.get().await.unwrap().unwrap();
    assert_eq!(value, b"a\r\nb\0\xc3\xbf");
    assert_eq!(test.set().await, Ok(()));
    assert_eq!(
        test.server.commands("SET"),
        [["SET", "name", "value", "PX", "60000"]]
    );
    assert_eq!(test.server.commands("GET").len(), 2);
    let pong = test.ping().await.unwrap();
    assert_eq!(pong, Value::SimpleString("PONG".into()));
    let status = test.client.status();
    assert_eq!((status.lookups["hit"], status.lookups["miss"]), (1, 1));
    assert_eq!((status.lookup_seconds.count, status.stores_done), (2, 1));
    assert_eq!(
        (status.lookup_breaker, status.store_breaker),
        ("closed", "closed")
    );
    assert!(status.bytes_sent > 100 && status.bytes_received > 20);
    for part in ["lookup connection", "store connection"] {
        assert_eq!(test.take_lines(part), ["connected (0 ms)"]);
    }
}

#[tokio::test(start_paused = true)]
async fn lease_is_set_unless_the_server_has_another_or_refuses_writes() {
    let test = TestClient::connected().await;
    let set_lease = || test.client.set_lease(b"name", b"lease", 800, LOOKUP_LIMIT);
    assert_eq!(set_lease().await, Ok(true));
    let sent = test.server.commands("SET");
    assert_eq!(sent, [["SET", "name", "lease", "NX", "PX", "800"]]);
    test.server.set_reaction("SET", "$-1\r\n");
    assert_eq!(set_lease().await, Ok(false));
    test.server
        .set_reaction("SET", "-OOM command not allowed\r\n");
    assert!(matches!(set_lease().await, Err(FleetError::Rejected(_))));
    assert!(test.set().await.is_err());
    let sent = test.server.commands("SET").len();
    assert_eq!(set_lease().await, Err(FleetError::Open));
    assert_eq!(test.server.commands("SET").len(), sent);
    assert_eq!(test.client.status().lookup_breaker, "closed");
}

#[tokio::test(start_paused = true)]
async fn connections_are_authenticated_and_select_the_database() {
    let info = RedisConnectionInfo::default()
        .set_skip_set_lib_name()
        .set_username("sszip")
        .set_password("secret")
        .set_db(3);
    let test = TestClient::from_info(info);
    test.client.connect(Duration::from_secs(1)).await.unwrap();
    assert_eq!(
        test.server.commands("AUTH"),
        [["AUTH", "sszip", "secret"], ["AUTH", "sszip", "secret"]]
    );
    assert_eq!(
        test.server.commands("SELECT"),
        [["SELECT", "3"], ["SELECT", "3"]]
    );
    // no other command, which a user of the server may lack the right to
    let mut names = test.server.command_names();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["AUTH", "PING", "SELECT"]);
}

#[tokio::test(start_paused = true)]
async fn client_connects_at_the_first_command() {
    let test = TestClient::new();
    sleep(TTL).await;
    assert_eq!(test.server.attempts(), 0);
    assert!(!test.client.is_lookup_open());
    // a lookup does not wait for the connection, other commands do
    assert_eq!(test.get().await, Err(FleetError::Open));
    assert!(test.ping().await.is_ok());
    assert_eq!(test.get().await, Ok(None));
    assert!(test.client.is_lookup_open());
    assert_eq!(test.server.attempts(), 2);
}

#[tokio::test(start_paused = true)]
async fn lookup_without_a_connection_fails_at_once() {
    let test = TestClient::new();
    test.server.refuse_connections(true);
    test.client.start();
    let begun = Instant::now();
    for _ in 0..100 {
        assert_eq!(test.get().await, Err(FleetError::Open));
    }
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!(test.lookup_count(FleetLookupResult::Skipped), 100);
    sleep(Duration::from_secs(60)).await;
    // pauses from 100 ms to 10 s, for each of two connections
    let attempts = test.server.attempts();
    assert!((18..=30).contains(&attempts), "{attempts}");
    assert_eq!(
        test.take_lines("lookup connection"),
        ["error: not used: cannot connect: connection refused; requests go to the node"]
    );
    assert_eq!(
        test.ping().await,
        Err(FleetError::Connection(
            "cannot connect: connection refused".into()
        ))
    );
    test.server.refuse_connections(false);
    sleep(Duration::from_secs(13)).await;
    assert_eq!(test.get().await, Ok(None));
    assert_eq!(test.take_lines("lookup connection"), ["connected (0 ms)"]);
}

#[tokio::test(start_paused = true)]
async fn lookups_beyond_the_maximum_in_flight_are_not_sent() {
    let test = TestClient::connected().await;
    test.server.set_reaction("GET", server::Reaction::Stall);
    let lookups = (0..MAX_LOOKUPS + 44).map(|_| test.get());
    let results = futures_util::future::join_all(lookups).await;
    let busy = results
        .iter()
        .filter(|result| **result == Err(FleetError::Busy));
    assert_eq!(busy.count(), 44);
    assert_eq!(test.lookup_count(FleetLookupResult::Busy), 44);
    // the others have released their permits
    test.server.set_reaction("GET", "$-1\r\n");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(test.get().await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn lookup_without_time_is_not_sent() {
    let test = TestClient::connected().await;
    let result = test.client.get(b"name", Duration::ZERO).await;
    assert_eq!(result, Err(FleetError::Timeout));
    assert_eq!(test.lookup_count(FleetLookupResult::Skipped), 1);
    assert!(test.server.commands("GET").is_empty());
}

#[tokio::test(start_paused = true)]
async fn dropped_client_leaves_no_task_and_no_connection() {
    let metrics = Handle::current().metrics();
    for reaction in ["+PONG\r\n", "-LOADING\r\n"] {
        let test = TestClient::new();
        test.server.set_reaction("PING", reaction);
        test.server.set_reaction("GET", server::Reaction::Stall);
        let clone = test.client.clone();
        let _ = clone.connect(Duration::from_secs(1)).await;
        let _ = test.get().await;
        assert!(metrics.num_alive_tasks() >= 2);
        let TestClient { client, server, .. } = test;
        drop(client);
        sleep(Duration::from_millis(1)).await;
        assert!(metrics.num_alive_tasks() >= 2, "a clone uses them");
        drop(clone);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(metrics.num_alive_tasks(), 0);
        assert_eq!(server.open_connections(), 0);
    }
}
