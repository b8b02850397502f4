//! Tests of servers that do not reply, fail, or send invalid replies.

use std::collections::BTreeMap;

use super::server::{Reaction, BUFFER_BYTES};
use super::*;

/// Looks up a value every 10 ms for a time, and returns the number of lookups by result.
pub(super) async fn look_up_for(test: &TestClient, time: Duration) -> BTreeMap<&'static str, u64> {
    let before = test.client.status().lookups;
    let end = Instant::now() + time;
    while Instant::now() < end {
        let begun = Instant::now();
        let _ = test.get().await;
        sleep(LOOKUP_LIMIT.saturating_sub(begun.elapsed())).await;
    }
    let after = test.client.status().lookups;
    after
        .into_iter()
        .map(|(name, count)| (name, count - before[name]))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn silent_server_costs_few_lookups_their_time() {
    let test = TestClient::connected().await;
    assert_eq!(test.server.open_connections(), 2);
    test.server.set_reaction("GET", Reaction::Stall);
    for _ in 0..5 {
        assert!(test.client.is_lookup_open());
        assert_eq!(test.get().await, Err(FleetError::Timeout));
    }
    assert!(!test.client.is_lookup_open());
    assert_eq!(test.client.status().lookup_breaker, "open");
    let begun = Instant::now();
    assert_eq!(test.get().await, Err(FleetError::Open));
    assert_eq!(begun.elapsed(), Duration::ZERO);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(
        test.server.open_connections(),
        1,
        "the connection is dropped"
    );

    // a connection on which the server stalls has one command
    let sent = test.server.commands("GET").len();
    let counts = look_up_for(&test, Duration::from_secs(60)).await;
    assert_eq!((counts["timeout"], counts["error"]), (0, 0), "{counts:?}");
    // one probe each after 1, 2, 4, 8 and 16 s and then 30 s
    let probes = test.server.commands("GET").len() - sent;
    assert!((4..=6).contains(&probes), "{probes}");
    let lines = test.take_lines("lookup connection");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[0], "connected (0 ms)");
    assert!(
        lines[1].starts_with("error: not used for at least ")
            && lines[1].ends_with("s: no reply in time; requests go to the node"),
        "{lines:?}"
    );

    test.server.set_reaction("GET", "$-1\r\n");
    let counts = look_up_for(&test, Duration::from_secs(40)).await;
    assert!(counts["miss"] > 300, "{counts:?}");
    assert_eq!((counts["timeout"], counts["error"]), (0, 0), "{counts:?}");
    let lines = test.take_lines("lookup connection");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("used again after "), "{lines:?}");
    // the other connection was used all the time
    assert_eq!(test.take_lines("store connection"), ["connected (0 ms)"]);
}

#[tokio::test(start_paused = true)]
async fn server_without_any_reply_is_not_connected() {
    let test = TestClient::new();
    test.server.set_reaction("PING", Reaction::Stall);
    let connected = test.client.connect(Duration::from_secs(1)).await;
    let error = "cannot connect: no reply within 500 ms";
    assert_eq!(connected, Err(FleetError::Connection(error.into())));
    assert!(!test.client.is_lookup_open());
    assert_eq!(test.get().await, Err(FleetError::Open));
    assert!(test.server.commands("GET").is_empty());
}

#[tokio::test(start_paused = true)]
async fn server_that_cannot_serve_is_not_connected_until_it_can() {
    for text in [
        "NOAUTH Authentication required.",
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script.",
        "DENIED Redis is running in protected mode",
        "ERR max number of clients reached",
    ] {
        let test = TestClient::new();
        test.server
            .set_reaction("PING", &format!("-{text}\r\n")[..]);
        let connected = test.client.connect(Duration::from_secs(1)).await;
        let reason = format!("cannot connect: {text}");
        assert_eq!(connected, Err(FleetError::Connection(reason.clone())));
        sleep(Duration::from_secs(30)).await;
        assert_eq!(
            test.take_lines("store connection"),
            [format!("error: not used: {reason}; no entry is shared")]
        );
        test.server.set_reaction("PING", "+PONG\r\n");
        sleep(Duration::from_secs(13)).await;
        assert_eq!(test.get().await, Ok(None));
        assert_eq!(test.take_lines("store connection"), ["connected (0 ms)"]);
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_password_is_reported() {
    let info = RedisConnectionInfo::default()
        .set_skip_set_lib_name()
        .set_password("wrong");
    let test = TestClient::from_info(info);
    let error = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    test.server.set_reaction("AUTH", error);
    let connected = test.client.connect(Duration::from_secs(1)).await;
    let reason = "cannot connect: the server rejected the user or the password; \
                  check user= and password_file=";
    assert_eq!(connected, Err(FleetError::Connection(reason.into())));
    assert!(!test.client.is_lookup_open());
}

#[tokio::test(start_paused = true)]
async fn user_without_the_right_to_ping_is_connected() {
    let test = TestClient::new();
    let error = "-NOPERM this user has no permissions to run the 'ping' command\r\n";
    test.server.set_reaction("PING", error);
    assert_eq!(test.client.connect(Duration::from_secs(1)).await, Ok(()));
    assert_eq!(test.get().await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn lost_connection_is_opened_again() {
    let test = TestClient::connected().await;
    test.server.set_reaction("GET", Reaction::Close);
    assert!(matches!(test.get().await, Err(FleetError::Connection(_))));
    assert_eq!(test.get().await, Err(FleetError::Open));
    test.server.set_reaction("GET", "$-1\r\n");
    sleep(Duration::from_millis(130)).await;
    assert_eq!(test.get().await, Ok(None));
    let lines = test.take_lines("lookup connection");
    assert_eq!(
        lines[..2],
        [
            "connected (0 ms)",
            "error: not used: the server closed the connection; requests go to the node"
        ]
    );
    assert!(lines[2].starts_with("used again after "), "{lines:?}");
    assert!(lines[2].ends_with(" ms"), "{lines:?}");
    assert_eq!(lines.len(), 3);
    assert_eq!(test.client.status().lookup_breaker, "closed");
}

#[tokio::test(start_paused = true)]
async fn lost_connection_is_logged_with_the_reason_why_no_other_one_opens() {
    let test = TestClient::connected().await;
    assert_eq!(test.take_lines("lookup connection"), ["connected (0 ms)"]);
    test.server.set_reaction("GET", Reaction::Close);
    test.server.refuse_connections(true);
    assert!(matches!(test.get().await, Err(FleetError::Connection(_))));
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        test.take_lines("lookup connection"),
        [
            "error: not used: the server closed the connection; requests go to the node",
            "error: not used: cannot connect: connection refused; requests go to the node"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn error_that_continues_after_a_failed_probe_is_logged_once() {
    let test = TestClient::connected().await;
    test.server.set_reaction("GET", "-LOADING the dataset\r\n");
    for _ in 0..20 {
        assert!(matches!(test.get().await, Err(FleetError::Rejected(_))));
    }
    sleep(Duration::from_secs(20)).await;
    let probes = test.server.commands("GET").len() - 20;
    assert!(probes >= 2, "{probes}");
    let lines = test.take_lines("lookup connection");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[1].ends_with("s: LOADING the dataset; requests go to the node"),
        "{lines:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn errors_of_lookups_open_the_breaker_unless_they_concern_the_key() {
    for (error, is_open) in [
        ("-LOADING the dataset", true),
        ("-CLUSTERDOWN the slot", true),
        ("-MASTERDOWN the link", true),
        ("-NOAUTH required", true),
        ("-NOPERM no permissions", true),
        ("-MOVED 1 127.0.0.1:1", true),
        ("-ERR anything", true),
        ("-UPSTREAM failure", true),
        ("-WRONGTYPE a list", false),
    ] {
        let test = TestClient::connected().await;
        test.server.set_reaction("GET", &format!("{error}\r\n")[..]);
        for _ in 0..20 {
            let expected = error[1..].to_owned();
            assert_eq!(test.get().await, Err(FleetError::Rejected(expected)));
        }
        assert_eq!(test.client.is_lookup_open(), !is_open, "{error}");
        let lines = test.take_lines("lookup connection");
        assert_eq!(lines.len(), 1 + usize::from(is_open), "{lines:?}");
        if is_open {
            assert!(lines[1].contains(&error[1..]), "{lines:?}");
        }
        let count = test.lookup_count(FleetLookupResult::Error);
        assert_eq!(count, 20);
    }
}

#[tokio::test(start_paused = true)]
async fn refused_writes_pause_stores_only() {
    for text in [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "READONLY You can't write against a read only replica.",
        "ERR unknown command",
    ] {
        let test = TestClient::connected().await;
        test.server.set_reaction("SET", &format!("-{text}\r\n")[..]);
        assert_eq!(test.set().await, Err(FleetError::Rejected(text.into())));
        assert!(test.client.status().are_stores_paused);
        for _ in 0..30 {
            assert_eq!(test.set().await, Err(FleetError::Open));
            assert_eq!(test.get().await, Ok(None));
            assert!(test.ping().await.is_ok());
        }
        assert_eq!(test.server.commands("SET").len(), 1);
        assert!(!test.client.is_store_open());
        let status = test.client.status();
        assert_eq!((status.stores_refused, status.stores_skipped), (1, 30));
        assert_eq!(
            (status.lookup_breaker, status.store_breaker),
            ("closed", "closed")
        );
        let lines = test.take_lines("stores");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].starts_with("error: not used for at least ")
                && lines[0].ends_with(&format!("s: {text}; lookups are not affected")),
            "{lines:?}"
        );
        test.server.set_reaction("SET", "+OK\r\n");
        sleep(Duration::from_millis(1_201)).await;
        assert!(test.client.is_store_open());
        assert_eq!(test.set().await, Ok(()));
        assert_eq!(test.set().await, Ok(()));
        let lines = test.take_lines("stores");
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("used again after 1."), "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_replies_end_the_connection_within_bounded_memory() {
    let limit = MAX_ENTRY + MAX_VALUE_OVERHEAD;
    let too_long = format!("${}\r\n", limit + 1);
    for (first, more, is_too_long) in [
        ("$9999999999\r\n", "a", true),
        (&too_long[..], "a", true),
        ("*1000000000\r\n", ":1\r\n", true),
        ("*17\r\n", ":1\r\n", true),
        ("%9\r\n", ":1\r\n", true),
        ("", "*1\r\n", true),
        ("+", "a", true),
        ("(", "1", false),
        ("$-7\r\n", "a", false),
        ("", "HTTP/1.1 400 Bad Request\r\n", false),
        (">2\r\n+message\r\n+x\r\n", "", false),
        ("*2\r\n:1\r\n:1\r\n", "", false),
        (":1\r\n", "", false),
    ] {
        let test = TestClient::connected().await;
        let before = test.client.status().bytes_received;
        let more = match more {
            "" => String::new(),
            _ => more.repeat(10_000 / more.len()),
        };
        let reaction = match &more[..] {
            "" => Reaction::Send(first.into()),
            _ => Reaction::Flood(first.into(), more.into_bytes()),
        };
        test.server.set_reaction("GET", reaction);
        match test.get().await {
            Err(FleetError::ReplyTooLong) => assert!(is_too_long, "{first:?}"),
            Err(FleetError::Connection(text)) => {
                assert!(!is_too_long, "{first:?}");
                assert!(text.len() <= 120, "{text}");
            }
            other => panic!("{first:?}: {other:?}"),
        }
        // no time passes while the client reads
        sleep(Duration::from_millis(1)).await;
        let received = test.client.status().bytes_received - before;
        let bound = 4 * BUFFER_BYTES as u64;
        assert!(received <= bound, "{first:?}: {received}");
        assert_eq!(test.server.open_connections(), 1, "{first:?}");
        test.server.set_reaction("GET", "$-1\r\n");
        sleep(Duration::from_millis(130)).await;
        assert_eq!(test.get().await, Ok(None), "{first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn values_up_to_the_limit_are_received() {
    let test = TestClient::connected().await;
    let length = usize::try_from(MAX_ENTRY + MAX_VALUE_OVERHEAD).unwrap();
    let reply = format!("${length}\r\n{}\r\n", "a".repeat(length));
    test.server.set_reaction("GET", &reply[..]);
    for _ in 0..3 {
        let value = test.get().await.unwrap().unwrap();
        assert_eq!(value.len(), length);
    }
}

#[tokio::test(start_paused = true)]
async fn ranges_of_the_store_connection_are_received() {
    let test = TestClient::connected().await;
    let record = "*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nr\r\n$4\r\nbody\r\n";
    let reply = format!("*256\r\n{}", record.repeat(256));
    test.server.set_reaction("XRANGE", &reply[..]);
    let command = redis::cmd("XRANGE");
    let value = test.client.command(command, TTL).await.unwrap();
    assert!(matches!(value, Value::Array(records) if records.len() == 256));
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_server_are_short_lines() {
    let test = TestClient::connected().await;
    let error = format!("-ERR \u{1b}[31m{}\r\n", "a".repeat(60_000));
    test.server.set_reaction("GET", &error[..]);
    let Err(FleetError::Rejected(text)) = test.get().await else {
        panic!("the lookup is not rejected");
    };
    assert!(text.starts_with("ERR \\u{1b}[31maaa"), "{text}");
    assert_eq!(text.len(), 120);
}

#[tokio::test(start_paused = true)]
async fn abandoned_lookups_do_not_open_the_breaker() {
    let test = TestClient::connected().await;
    let reply = Reaction::Delay(Duration::from_millis(8), b"$-1\r\n".into());
    test.server.set_reaction("GET", reply);
    for _ in 0..50 {
        let abandoned = timeout(Duration::from_millis(2), test.get()).await;
        assert!(abandoned.is_err());
        // its reply is not taken for the reply of a later lookup
        sleep(Duration::from_millis(10)).await;
    }
    assert!(test.client.is_lookup_open());
    assert_eq!(test.get().await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn probe_is_sent_by_the_connector_and_not_by_a_lookup_or_a_store() {
    let test = TestClient::connected().await;
    test.server.set_reaction("GET", Reaction::Stall);
    for _ in 0..5 {
        assert_eq!(test.get().await, Err(FleetError::Timeout));
    }
    let sent = test.server.commands("GET").len();
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        assert!(!test.client.is_lookup_open());
        assert_eq!(test.get().await, Err(FleetError::Open));
        sleep(Duration::from_millis(10)).await;
    }
    let probes = test.server.commands("GET").split_off(sent);
    // after 1, 2 and 4 s
    assert_eq!(probes.len(), 3, "{probes:?}");
    for probe in probes {
        let digits = probe[1].strip_prefix("sszip:1:").unwrap();
        assert_eq!(digits.len(), 32, "{probe:?}");
    }
    test.server.set_reaction("GET", "$-1\r\n");
    // the next probe, without any lookup
    sleep(Duration::from_secs(12)).await;
    assert!(test.client.is_lookup_open());
    assert_eq!(test.client.status().lookup_breaker, "closed");
    assert_eq!(test.get().await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn stores_are_not_sent_while_their_breaker_is_open() {
    let test = TestClient::connected().await;
    test.server.set_reaction("SET", Reaction::Stall);
    for _ in 0..5 {
        assert!(test.client.is_store_open());
        assert_eq!(test.set().await, Err(FleetError::Timeout));
    }
    let sent = test.server.commands("SET").len();
    assert!(!test.client.is_store_open());
    assert_eq!(test.set().await, Err(FleetError::Open));
    assert_eq!(test.server.commands("SET").len(), sent);
    // the probe succeeds
    test.server.set_reaction("SET", "+OK\r\n");
    sleep(Duration::from_secs(2)).await;
    assert!(test.client.is_store_open());
    assert_eq!(test.set().await, Ok(()));
}
