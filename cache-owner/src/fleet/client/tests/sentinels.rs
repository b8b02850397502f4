//! Tests of Sentinels and of the primary that they name, over TCP.

use sszip_core::config::fleet::FleetNode;

use super::*;

const MASTER: &str = "*3\r\n$6\r\nmaster\r\n:1\r\n*0\r\n";
const REPLICA: &str = "*5\r\n$5\r\nslave\r\n$9\r\n127.0.0.1\r\n:1\r\n$9\r\nconnected\r\n:1\r\n";

/// Returns the reply that names this address.
fn address_reply(node: &FleetNode) -> server::Reaction {
    let (host, port) = (&node.host, node.port.to_string());
    let text = format!(
        "*2\r\n${}\r\n{host}\r\n${}\r\n{port}\r\n",
        host.len(),
        port.len()
    );
    (&text[..]).into()
}

/// Starts a server that reports this role.
async fn start_server(role: &str) -> (SimulatedServer, FleetNode) {
    let server = SimulatedServer::default();
    server.set_reaction("ROLE", role);
    let node = server.listen().await;
    (server, node)
}

/// Starts a Sentinel with this reply to the query for the primary.
async fn start_sentinel(reply: impl Into<server::Reaction>) -> (SimulatedServer, FleetNode) {
    let server = SimulatedServer::default();
    server.set_reaction("SENTINEL", reply);
    let node = server.listen().await;
    (server, node)
}

fn sentinel_settings(sentinels: &[&FleetNode]) -> FleetSettings {
    let nodes: Vec<_> = sentinels.iter().map(ToString::to_string).collect();
    tcp_settings(&format!("redis+sentinel://{}/main", nodes.join(",")))
}

fn create_client(settings: &FleetSettings) -> FleetClient {
    FleetClient::new(settings, Arc::new(|_, _| {})).unwrap()
}

#[tokio::test]
async fn primary_is_the_server_that_a_sentinel_names() {
    let (primary, node) = start_server(MASTER).await;
    let (sentinel, first) = start_sentinel(address_reply(&node)).await;
    let settings = FleetSettings {
        user: Some("user".into()),
        password: Some(Secret::new("secret")),
        sentinel_user: Some("watcher".into()),
        sentinel_password: Some(Secret::new("other")),
        ..sentinel_settings(&[&first])
    };
    let client = create_client(&settings);
    assert_eq!(client.connect(TCP_LIMIT).await, Ok(()));
    assert_eq!(client.get(b"name", TCP_LIMIT).await, Ok(None));
    let query = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main"];
    assert_eq!(sentinel.commands("SENTINEL"), [query, query]);
    let login = ["AUTH", "watcher", "other"];
    assert_eq!(sentinel.commands("AUTH"), [login, login]);
    let login = ["AUTH", "user", "secret"];
    assert_eq!(primary.commands("AUTH"), [login, login]);
    let mut names = [sentinel.command_names(), primary.command_names()].concat();
    names.sort_unstable();
    names.dedup();
    // no other command, which a user may lack the right to
    assert_eq!(names, ["AUTH", "GET", "ROLE", "SENTINEL"]);
    wait_until(|| sentinel.open_connections() == 0).await;
}

#[tokio::test]
async fn next_sentinel_is_queried_when_one_names_no_primary() {
    let (_primary, node) = start_server(MASTER).await;
    for reply in [
        "*-1\r\n",
        "-NOPERM no permission\r\n",
        "*1\r\n$1\r\na\r\n",
        "*2\r\n$1\r\n/\r\n$1\r\n1\r\n",
        "*2\r\n$1\r\na\r\n$1\r\n0\r\n",
        "*2\r\n$9999999\r\n",
        "+OK\r\n",
    ] {
        let (other, first) = start_sentinel(reply).await;
        let (sentinel, second) = start_sentinel(address_reply(&node)).await;
        let client = create_client(&sentinel_settings(&[&first, &second]));
        assert_eq!(client.connect(TCP_LIMIT).await, Ok(()), "{reply}");
        assert!(!other.commands("SENTINEL").is_empty());
        assert!(!sentinel.commands("SENTINEL").is_empty());
    }
}

#[tokio::test]
async fn silent_sentinel_leaves_time_for_the_next_one() {
    let (_primary, node) = start_server(MASTER).await;
    let (silent, first) = start_sentinel(server::Reaction::Stall).await;
    let (_sentinel, second) = start_sentinel(address_reply(&node)).await;
    let settings = FleetSettings {
        connect_timeout_ms: 1_500,
        ..sentinel_settings(&[&first, &second])
    };
    let client = create_client(&settings);
    connect_finally(&client).await;
    assert!(!silent.commands("SENTINEL").is_empty());
}

#[tokio::test]
async fn reason_is_reported_when_no_sentinel_knows_the_primary() {
    let (_sentinel, first) = start_sentinel("*-1\r\n").await;
    let client = create_client(&sentinel_settings(&[&first]));
    let expected = format!(
        "cannot connect: Sentinel {first}: it does not monitor a primary of the name \"main\""
    );
    let error = client.connect(TCP_LIMIT).await;
    assert_eq!(error, Err(FleetError::Connection(expected)));
}

#[tokio::test]
async fn named_server_is_used_only_as_a_primary() {
    let (server, node) = start_server(REPLICA).await;
    let (_sentinel, first) = start_sentinel(address_reply(&node)).await;
    let client = create_client(&sentinel_settings(&[&first]));
    let expected = "cannot connect: the server that a Sentinel has named is not a primary";
    let error = client.connect(TCP_LIMIT).await;
    assert_eq!(error, Err(FleetError::Connection(expected.into())));
    server.set_reaction("ROLE", MASTER);
    connect_finally(&client).await;
    assert_eq!(client.get(b"name", TCP_LIMIT).await, Ok(None));
}

#[tokio::test]
async fn sentinels_are_queried_again_when_the_primary_refuses_a_write_as_a_replica() {
    let (old, old_node) = start_server(MASTER).await;
    let (new, new_node) = start_server(MASTER).await;
    let (sentinel, first) = start_sentinel(address_reply(&old_node)).await;
    let client = create_client(&sentinel_settings(&[&first]));
    client.connect(TCP_LIMIT).await.unwrap();
    sentinel.set_reaction("SENTINEL", address_reply(&new_node));
    old.set_reaction(
        "SET",
        "-READONLY You can't write against a read only replica.\r\n",
    );
    let stored = client.set(b"name", b"value", TTL).await;
    assert!(matches!(stored, Err(FleetError::Rejected(_))), "{stored:?}");
    assert!(client.status().are_stores_paused);
    connect_finally(&client).await;
    assert_eq!(client.get(b"name", TCP_LIMIT).await, Ok(None));
    assert_eq!(new.commands("GET").len(), 1);
    wait_until(|| old.open_connections() == 0).await;
}
