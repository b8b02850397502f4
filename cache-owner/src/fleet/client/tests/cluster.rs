//! Tests of connections to a cluster of two simulated nodes, over TCP.

use sszip_core::config::fleet::FleetNode;

use super::*;

/// Slot of the key `name`, which the first node has. The second node has the key `foo`.
const SLOT: u32 = 5798;

/// Two nodes, which have the lower and the upper half of the slots.
struct TestCluster {
    nodes: [(SimulatedServer, FleetNode); 2],
}

impl TestCluster {
    async fn new() -> Self {
        let (first, second) = (SimulatedServer::default(), SimulatedServer::default());
        let nodes = [first.listen().await, second.listen().await];
        let range = |first: u32, last: u32, node: &FleetNode| {
            let FleetNode { host, port } = node;
            let length = host.len();
            format!("*3\r\n:{first}\r\n:{last}\r\n*2\r\n${length}\r\n{host}\r\n:{port}\r\n")
        };
        let slots = format!(
            "*2\r\n{}{}",
            range(0, 8_191, &nodes[0]),
            range(8_192, 16_383, &nodes[1])
        );
        for server in [&first, &second] {
            server.set_reaction("CLUSTER", &slots[..]);
            server.set_reaction("HELLO", "%1\r\n$5\r\nproto\r\n:3\r\n");
            server.set_reaction("GET", "_\r\n");
        }
        let [first_node, second_node] = nodes;
        Self {
            nodes: [(first, first_node), (second, second_node)],
        }
    }

    fn server(&self, index: usize) -> &SimulatedServer {
        &self.nodes[index].0
    }

    /// Returns the settings with the URL of one node.
    fn settings(&self) -> FleetSettings {
        tcp_settings(&format!("redis+cluster://{}", self.nodes[0].1))
    }

    fn open_connections(&self) -> usize {
        let nodes = self.nodes.iter();
        nodes.map(|(server, _)| server.open_connections()).sum()
    }

    fn client(&self) -> FleetClient {
        create_client(&self.settings())
    }
}

fn create_client(settings: &FleetSettings) -> FleetClient {
    FleetClient::new(settings, Arc::new(|_, _| {})).unwrap()
}

#[tokio::test]
async fn command_follows_a_redirection_to_another_node() {
    let cluster = TestCluster::new().await;
    let settings = FleetSettings {
        user: Some("user".into()),
        password: Some(Secret::new("secret")),
        ..cluster.settings()
    };
    let client = create_client(&settings);
    assert_eq!(client.connect(TCP_LIMIT).await, Ok(()));
    assert_eq!(client.get(b"name", TCP_LIMIT).await, Ok(None));
    assert_eq!(cluster.server(0).commands("GET"), [["GET", "name"]]);
    let moved = format!("-MOVED {SLOT} {}\r\n", cluster.nodes[1].1);
    cluster.server(0).set_reaction("GET", &moved[..]);
    cluster.server(1).set_reaction("GET", "$5\r\nvalue\r\n");
    let value = client.get(b"name", TCP_LIMIT).await;
    assert_eq!(value, Ok(Some(b"value".to_vec())));
    let login = ["HELLO", "3", "AUTH", "user", "secret"];
    for index in [0, 1] {
        let server = cluster.server(index);
        assert!(server.commands("HELLO").iter().all(|words| *words == login));
        let mut names = server.command_names();
        names.sort_unstable();
        names.dedup();
        // no other command, which a user may lack the right to; replicas would serve old values
        // after READONLY
        names.retain(|name| !["CLUSTER", "GET", "HELLO", "PING"].contains(&&name[..]));
        assert_eq!(names, Vec::<String>::new());
    }
}

#[tokio::test]
async fn stores_pause_when_a_cluster_refuses_writes() {
    for refusal in ["-OOM command not allowed\r\n", "-READONLY replica\r\n"] {
        let cluster = TestCluster::new().await;
        let client = cluster.client();
        client.connect(TCP_LIMIT).await.unwrap();
        cluster.server(0).set_reaction("SET", refusal);
        let stored = client.set(b"name", b"value", TTL).await;
        assert!(matches!(stored, Err(FleetError::Rejected(_))), "{stored:?}");
        let status = client.status();
        assert!(status.are_stores_paused, "{refusal}");
        assert_eq!(status.store_breaker, "closed");
        assert_eq!(client.get(b"name", TCP_LIMIT).await, Ok(None));
    }
}

#[tokio::test]
async fn replies_of_nodes_are_limited() {
    let cluster = TestCluster::new().await;
    let client = cluster.client();
    client.connect(TCP_LIMIT).await.unwrap();
    cluster.server(0).set_reaction("GET", "$9999999999\r\n");
    // the library sends the command to any node while it connects to the first one again
    let moved = format!("-MOVED {SLOT} {}\r\n", cluster.nodes[0].1);
    cluster.server(1).set_reaction("GET", &moved[..]);
    let value = client.get(b"name", TCP_LIMIT).await;
    assert_eq!(value, Err(FleetError::ReplyTooLong));
    cluster.server(0).set_reaction("GET", "$1\r\nv\r\n");
    connect_finally(&client).await;
    let value = client.get(b"name", TCP_LIMIT).await;
    assert_eq!(value, Ok(Some(b"v".to_vec())));
}

#[tokio::test]
async fn connection_is_replaced_when_no_command_succeeds() {
    let cluster = TestCluster::new().await;
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let logged = Arc::clone(&lines);
    let log: LogFunction = Arc::new(move |_, line: &str| {
        lock_ignoring_poison(&logged).push(line.to_owned());
    });
    let client = FleetClient::new(&cluster.settings(), log).unwrap();
    client.connect(TCP_LIMIT).await.unwrap();
    cluster
        .server(0)
        .set_reaction("GET", "-LOADING dataset\r\n");
    let has_line = |text: &str| {
        let lines = lock_ignoring_poison(&lines);
        lines.iter().any(|line| line.contains(text))
    };
    let failing = async {
        while !has_line("lookup connection: not used: no command has succeeded for 3 s") {
            let value = client.get(b"name", TCP_LIMIT).await;
            assert!(value.is_err(), "{value:?}");
            sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(TCP_LIMIT, failing).await.unwrap();
    cluster.server(0).set_reaction("GET", "_\r\n");
    connect_finally(&client).await;
    assert_eq!(client.get(b"name", TCP_LIMIT).await, Ok(None));
}

/// Looks up a value of each node, until `ends` holds for the result of the first node. Lookups of
/// the second node succeed meanwhile.
async fn look_up_until(
    client: &FleetClient,
    ends: impl Fn(Result<Option<Vec<u8>>, FleetError>) -> bool,
) {
    let looking_up = async {
        loop {
            // most commands succeed: the circuit breaker does not open
            for _ in 0..3 {
                assert_eq!(client.get(b"foo", TCP_LIMIT).await, Ok(None));
            }
            if ends(client.get(b"name", Duration::from_millis(50)).await) {
                return;
            }
        }
    };
    timeout(TCP_LIMIT, looking_up).await.unwrap();
}

#[tokio::test]
async fn silent_connection_to_a_node_is_replaced_while_others_reply() {
    let cluster = TestCluster::new().await;
    let client = cluster.client();
    client.connect(TCP_LIMIT).await.unwrap();
    let stalled = server::Reaction::Stall;
    cluster.server(0).set_reaction("GET", stalled);
    look_up_until(&client, |value| value == Err(FleetError::Timeout)).await;
    // other connections receive replies
    cluster.server(0).set_reaction("GET", "_\r\n");
    look_up_until(&client, |value| value == Ok(None)).await;
    assert_eq!(client.status().lookup_breaker, "closed");
}

#[tokio::test]
async fn silent_connection_is_kept_while_its_node_accepts_no_other() {
    let cluster = TestCluster::new().await;
    let client = create_client(&FleetSettings {
        // a third of this time limits each probe
        connect_timeout_ms: 3_000,
        ..cluster.settings()
    });
    client.connect(TCP_LIMIT).await.unwrap();
    let server = cluster.server(0);
    for command in ["GET", "HELLO"] {
        server.set_reaction(command, server::Reaction::Stall);
    }
    let logins = || server.commands("HELLO").len();
    let before = logins();
    look_up_until(&client, |_| logins() >= before + 2).await;
    // the library would send the commands of a node without a connection to another node
    let sent = cluster.server(1).commands("GET");
    assert!(sent.iter().all(|words| words[1] == "foo"), "{sent:?}");
    assert_eq!(client.status().lookup_breaker, "closed");
}

#[tokio::test]
async fn dropped_client_leaves_no_connection_to_a_node() {
    let cluster = TestCluster::new().await;
    let client = cluster.client();
    client.connect(TCP_LIMIT).await.unwrap();
    assert!(cluster.open_connections() >= 4);
    drop(client);
    wait_until(|| cluster.open_connections() == 0).await;
}

#[tokio::test]
async fn abandoned_attempt_leaves_no_connection_to_a_node() {
    for command in ["HELLO", "CLUSTER"] {
        let cluster = TestCluster::new().await;
        cluster
            .server(0)
            .set_reaction(command, server::Reaction::Stall);
        let settings = FleetSettings {
            connect_timeout_ms: 50,
            ..cluster.settings()
        };
        let client = create_client(&settings);
        assert!(client.connect(TCP_LIMIT).await.is_err());
        drop(client);
        wait_until(|| cluster.open_connections() == 0).await;
    }
}
