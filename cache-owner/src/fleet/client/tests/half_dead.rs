//! Tests of servers that accept connections and are of no use.

use super::failures::look_up_for;
use super::server::Reaction;
use super::*;

#[tokio::test(start_paused = true)]
async fn probe_with_an_error_keeps_the_breaker_open() {
    let test = TestClient::connected().await;
    test.server.set_reaction("GET", "-ERR upstream failure\r\n");
    for _ in 0..20 {
        assert!(matches!(test.get().await, Err(FleetError::Rejected(_))));
    }
    let counts = look_up_for(&test, Duration::from_secs(60)).await;
    assert_eq!((counts["timeout"], counts["error"]), (0, 0), "{counts:?}");
    assert_eq!(test.take_lines("lookup connection").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn server_that_closes_each_connection_costs_few_lookups_an_error() {
    let test = TestClient::connected().await;
    test.server.set_reaction("GET", Reaction::Close);
    let counts = look_up_for(&test, Duration::from_secs(60)).await;
    assert_eq!(counts["timeout"], 0, "{counts:?}");
    // one for each connection, after 0.1 s and growing intervals up to 10 s
    assert!((8..=16).contains(&counts["error"]), "{counts:?}");
}

#[tokio::test(start_paused = true)]
async fn server_that_replies_too_late_costs_few_lookups_their_time() {
    let test = TestClient::connected().await;
    let late = Reaction::Delay(LOOKUP_LIMIT * 3, b"$-1\r\n".into());
    test.server.set_reaction("GET", late);
    let counts = look_up_for(&test, Duration::from_secs(60)).await;
    assert_eq!((counts["timeout"], counts["error"]), (5, 0), "{counts:?}");
    assert!(!test.client.is_lookup_open());
}
