//! URLs of servers, clusters and Sentinels.

use super::*;

#[test]
fn urls_of_clusters_and_sentinels_are_parsed_and_displayed() {
    for (url, expected, topology, is_secure, shown) in [
        (
            "redis+cluster://a",
            &[("a", 6379)][..],
            FleetTopology::Cluster,
            false,
            "redis+cluster://a:6379",
        ),
        (
            "REDISS+Cluster://a:1,[::1],b:3/",
            &[("a", 1), ("::1", 6379), ("b", 3)],
            FleetTopology::Cluster,
            true,
            "rediss+cluster://a:1,[::1]:6379,b:3",
        ),
        (
            "redis+sentinel://a,b:7/my-main.1_x",
            &[("a", 26_379), ("b", 7)],
            sentinel("my-main.1_x"),
            false,
            "redis+sentinel://a:26379,b:7/my-main.1_x",
        ),
        (
            "rediss+sentinel://[::1]:9,a:9/0",
            &[("::1", 9), ("a", 9)],
            sentinel("0"),
            true,
            "rediss+sentinel://[::1]:9,a:9/0",
        ),
    ] {
        let expected = FleetEndpoint {
            nodes: nodes(expected),
            topology,
            is_secure,
            database: 0,
        };
        let parsed = FleetEndpoint::parse_url(url);
        assert_eq!(parsed, Some(expected.clone()), "{url}");
        assert_eq!(expected.to_string(), shown);
        assert_eq!(FleetEndpoint::parse_url(shown), Some(expected));
    }
}

#[test]
fn invalid_urls_are_rejected_with_the_allowed_form() {
    let name = ", with the name under which the Sentinels monitor the primary: 1 to 64 letters, \
                digits, \"_\", \"-\" or \".\"";
    for (url, allowed) in [
        ("", SCHEMES.to_owned()),
        ("h", SCHEMES.into()),
        ("h:6379", SCHEMES.into()),
        ("http://h", SCHEMES.into()),
        ("redis:h", SCHEMES.into()),
        (
            "redis+://h",
            format!("{SCHEMES}; did you mean \"redis://\"?"),
        ),
        (
            "redis+clustr://a",
            format!("{SCHEMES}; did you mean \"redis+cluster://\"?"),
        ),
        (
            "rediss+sentinal://a",
            format!("{SCHEMES}; did you mean \"rediss+sentinel://\"?"),
        ),
        ("unix:/run/redis.sock", SCHEMES.into()),
        ("redis://", SERVER.into()),
        ("redis://:6379", SERVER.into()),
        ("redis://h:", SERVER.into()),
        ("redis://h:0", SERVER.into()),
        ("redis://h:65536", SERVER.into()),
        ("redis://h:+1", SERVER.into()),
        ("redis://h/x", SERVER.into()),
        ("redis://h/0/1", SERVER.into()),
        ("redis://h/65536", SERVER.into()),
        ("redis://h/-1", SERVER.into()),
        ("redis://h i", SERVER.into()),
        ("redis://::1", SERVER.into()),
        ("redis://[::1", SERVER.into()),
        ("redis://[h]", SERVER.into()),
        ("redis://h#0", SERVER.into()),
        (
            "redis://a,b",
            "a URL of one server; \"redis+cluster://\" has the nodes of a Redis Cluster, and \
             \"redis+sentinel://\" the Sentinels of a primary"
                .into(),
        ),
        ("redis+cluster://", CLUSTER.into()),
        ("redis+cluster://a,", CLUSTER.into()),
        ("redis+cluster://a,,b", CLUSTER.into()),
        ("redis+cluster://a:0", CLUSTER.into()),
        (
            "redis+cluster://a,b/0",
            format!("{CLUSTER}, without a database: a cluster has database 0 only"),
        ),
        (
            "redis+cluster://a:1,b,A:1",
            "a URL of different servers: \"A:1\" is there twice".into(),
        ),
        ("redis+sentinel://a", format!("{SENTINELS}{name}")),
        ("redis+sentinel://a,b/", format!("{SENTINELS}{name}")),
        ("redis+sentinel://a/main/0", format!("{SENTINELS}{name}")),
        ("redis+sentinel://a/ma in", format!("{SENTINELS}{name}")),
        ("redis+sentinel:///main", SENTINELS.into()),
        (
            "redis+sentinel://a,a:26379/main",
            "a URL of different servers: \"a:26379\" is there twice".into(),
        ),
    ] {
        let expected = format!("has an invalid value \"{url}\": it must be {allowed}");
        assert_eq!(parse(url), Err(expected));
    }
    let empty = FleetSettings::parse_fleet_directive(&[], "").unwrap_err();
    assert!(empty.to_string().ends_with(SCHEMES), "{empty}");
    let hosts: Vec<_> = (0..33).map(|number| format!("h{number}")).collect();
    let url = |count: usize| format!("redis+cluster://{}", hosts[..count].join(","));
    assert!(parse(&url(32)).is_ok());
    let error = parse(&url(33)).unwrap_err();
    assert!(
        error.ends_with("it must be a URL of at most 32 servers"),
        "{error}"
    );
    let name = |length| format!("redis+sentinel://h/{}", "n".repeat(length));
    assert!(parse(&name(64)).is_ok());
    assert!(parse(&name(65)).is_err());
}
