use proptest::prelude::*;

use super::{FinalizedBlockRule, HeadSource, NodeApi};

fn parse(line: &str) -> Result<(HeadSource, Option<String>), String> {
    let words: Vec<&[u8]> = line.split('|').map(str::as_bytes).collect();
    HeadSource::parse_head_source(&words).map_err(|error| error.to_string())
}

fn head(line: &str) -> HeadSource {
    parse(line).unwrap().0
}

#[test]
fn parameters_have_defaults_when_only_the_url_is_set() {
    let (head, namespace) = parse("http://127.0.0.1:8545").unwrap();
    let expected = HeadSource {
        url: "http://127.0.0.1:8545".into(),
        interval: 1_000,
        finality: FinalizedBlockRule::Tag,
        api: NodeApi::Execution,
        headers: vec![],
        ca: None,
    };
    assert_eq!((head, namespace), (expected, None));
}

#[test]
fn head_source_parameters_are_parsed() {
    let (head, namespace) = parse(
        "https://node.example/v3/key?x=y|interval=250ms|finality=depth:12|api=beacon|\
         header=Authorization: Bearer abc=|header=X-A:1|ca=/etc/ca.pem|namespace=main net",
    )
    .unwrap();
    let expected = HeadSource {
        url: "https://node.example/v3/key?x=y".into(),
        interval: 250,
        finality: FinalizedBlockRule::Depth(12),
        api: NodeApi::Beacon,
        headers: vec![
            ("Authorization".into(), "Bearer abc=".into()),
            ("X-A".into(), "1".into()),
        ],
        ca: Some("/etc/ca.pem".into()),
    };
    assert_eq!((head, namespace), (expected, Some("main net".into())));
}

#[test]
fn log_name_omits_path_and_query_of_the_url() {
    for (url, place) in [
        ("http://node", "http://node"),
        ("http://node/", "http://node"),
        ("https://node:443/v3/secret", "https://node:443"),
        ("ws://10.0.0.1:8546", "ws://10.0.0.1:8546"),
        (
            "wss://node_1.example-2.org/ws/secret",
            "wss://node_1.example-2.org",
        ),
        ("http://[::1]:8545/", "http://[::1]:8545"),
        ("http://node?key=secret", "http://node"),
        ("http://node/a@b", "http://node"),
        ("unix:/run/node.ipc", "unix:/run/node.ipc"),
        ("unix:/run/node.sock:/rpc?secret", "unix:/run/node.sock"),
    ] {
        let head = head(url);
        assert_eq!((head.url.as_str(), head.url_origin()), (url, place));
    }
    assert_eq!(head("HTTPS://Node/A").url, "https://Node/A");
    let longest = format!("unix:/{}", "a".repeat(106));
    assert_eq!(head(&longest).url, longest);
}

#[test]
fn parameters_at_their_bounds_are_accepted() {
    assert_eq!(head("http://n|interval=100ms").interval, 100);
    assert_eq!(head("http://n|interval=1h").interval, 3_600_000);
    assert_eq!(head("http://n|interval=2s").interval, 2_000);
    assert_eq!(
        head("http://n|finality=tag").finality,
        FinalizedBlockRule::Tag
    );
    assert_eq!(
        head("http://n|finality=depth:1").finality,
        FinalizedBlockRule::Depth(1)
    );
    let deepest = head("http://n|finality=depth:1000000").finality;
    assert_eq!(deepest, FinalizedBlockRule::Depth(1_000_000));
    assert_eq!(head("http://n|api=execution").api, NodeApi::Execution);
    assert_eq!(head("wss://n|ca=/a").ca, Some("/a".into()));
    assert_eq!(head("unix:/s|api=beacon").api, NodeApi::Beacon);
}

const URL: &str = "it must be a URL: \"http://\", \"https://\", \"ws://\" or \"wss://\" and \
                   \"HOST[:PORT][/PATH]\", or \"unix:/SOCKET[:/PATH]\"";
const INTERVAL: &str = "it must be a time with its unit (ms, s, m, h or d), from 100ms to 1h";
const FINALITY: &str = "it must be \"finality=tag\" or \"finality=depth:N\", where N is a number \
     from 1 to 1000000";
const PARAMETERS: &str = "it must be \"interval=TIME\", \"finality=tag|depth:N\", \
     \"api=execution|beacon\", \"header=NAME:VALUE\" (in quotes if it \
          contains spaces), \"ca=FILE\" or \"namespace=NAME\"";
const HEADER: &str = "it must be \"header=NAME:VALUE\" with a header name and printable \
     ASCII (in quotes if it contains spaces)";
const NOT_OURS: &str = "it must be a header that does not describe the connection or the body";
const USER: &str = "it must be without user and password; set \
     \"header=Authorization: Basic ...\" instead";
const CA: &str = "it must be \"ca=FILE\" with an absolute path in UTF-8";
const NAMESPACE: &str = "it must be \"namespace=NAME\" in UTF-8 without control characters";

#[test]
fn invalid_head_source_is_rejected_with_the_allowed_values() {
    let long = format!("unix:/{}", "a".repeat(107));
    for (line, value, allowed) in [
        ("", "", URL),
        ("node", "node", URL),
        ("127.0.0.1:8545", "127.0.0.1:8545", URL),
        ("ftp://node", "ftp://node", URL),
        ("http:node", "http:node", URL),
        ("http://", "http://", URL),
        ("http:///x", "http:///x", URL),
        ("http://:80", "http://:80", URL),
        ("http://node:", "http://node:", URL),
        ("http://node:0", "http://node:0", URL),
        ("http://node:65536", "http://node:65536", URL),
        ("http://node:+80", "http://node:+80", URL),
        ("http://node:80x", "http://node:80x", URL),
        ("http://a b", "http://a b", URL),
        ("http://no\u{e9}", "http://no\u{e9}", URL),
        ("http://$host", "http://$host", URL),
        ("http://[::1", "http://[::1", URL),
        ("http://[::g]", "http://[::g]", URL),
        ("http://node#x", "http://node#x", URL),
        ("http://node/\r\nX: y", "http://node/\r\nX: y", URL),
        ("http://unix:/run/s", "http://unix:/run/s", URL),
        ("unix:", "unix:", URL),
        ("unix:/", "unix:/", URL),
        ("unix:run/s", "unix:run/s", URL),
        ("unix:/run/s:", "unix:/run/s:", URL),
        ("unix:/run/s:rpc", "unix:/run/s:rpc", URL),
        ("unix:/run/s:/a:/b c", "unix:/run/s:/a:/b c", URL),
        (long.as_str(), long.as_str(), URL),
        ("http://me:secret@node/v1", "http://...@node", USER),
        ("wss://secret@node", "wss://...@node", USER),
        ("HTTP://me:s@cret@node", "http://...@node", USER),
        ("http://n|interval=", "interval=", INTERVAL),
        ("http://n|interval=99ms", "interval=99ms", INTERVAL),
        ("http://n|interval=61m", "interval=61m", INTERVAL),
        ("http://n|interval=1000", "interval=1000", INTERVAL),
        ("http://n|interval=-1s", "interval=-1s", INTERVAL),
        (
            "http://n|interval=99999999999999999999s",
            "interval=99999999999999999999s",
            INTERVAL,
        ),
        ("http://n|finality=", "finality=", FINALITY),
        ("http://n|finality=safe", "finality=safe", FINALITY),
        ("http://n|finality=depth", "finality=depth", FINALITY),
        ("http://n|finality=depth:", "finality=depth:", FINALITY),
        ("http://n|finality=depth:0", "finality=depth:0", FINALITY),
        ("http://n|finality=depth:+1", "finality=depth:+1", FINALITY),
        (
            "http://n|finality=depth:1000001",
            "finality=depth:1000001",
            FINALITY,
        ),
        (
            "http://n|api=rpc",
            "api=rpc",
            "it must be \"api=execution\" or \"api=beacon\"",
        ),
        (
            "http://n|api=Beacon",
            "api=Beacon",
            "it must be \"api=execution\" or \"api=beacon\"",
        ),
        (
            "ws://n|api=beacon",
            "api=beacon",
            "it must be used with an \"http://\", an \"https://\" or a \"unix:\" URL",
        ),
        ("http://n|header=", "header=...", HEADER),
        ("http://n|header=secret", "header=...", HEADER),
        ("http://n|header=:secret", "header=...", HEADER),
        ("http://n|header=A b:secret", "header=A b:...", HEADER),
        ("http://n|header=A :secret", "header=A :...", HEADER),
        ("http://n|header=A:", "header=A:...", HEADER),
        ("http://n|header=A: ", "header=A:...", HEADER),
        ("http://n|header=A:secret\r\nB: c", "header=A:...", HEADER),
        ("http://n|header=A:secret\0", "header=A:...", HEADER),
        ("http://n|header=A:s\u{e9}cret", "header=A:...", HEADER),
        (
            "http://n|header=Content-length:3",
            "header=Content-length:...",
            NOT_OURS,
        ),
        (
            "http://n|header=Connection:close",
            "header=Connection:...",
            NOT_OURS,
        ),
        // a value that should have been quoted is not shown
        (
            "http://n|header=Authorization:Bearer|secret",
            "...",
            PARAMETERS,
        ),
        (
            "http://n|secret=|header=Authorization:Bearer",
            "...",
            PARAMETERS,
        ),
        ("https://n|ca=", "ca=", CA),
        ("https://n|ca=ca.pem", "ca=ca.pem", CA),
        (
            "http://n|ca=/ca.pem",
            "ca=/ca.pem",
            "it must be used with an \"https://\" or a \"wss://\" URL",
        ),
        (
            "unix:/s|ca=/ca.pem",
            "ca=/ca.pem",
            "it must be used with an \"https://\" or a \"wss://\" URL",
        ),
        ("http://n|namespace=", "namespace=", NAMESPACE),
        ("http://n|namespace=a\nb", "namespace=a\nb", NAMESPACE),
        ("http://n|", "", PARAMETERS),
        ("http://n|5s", "5s", PARAMETERS),
        ("http://n|Interval=5s", "Interval=5s", PARAMETERS),
        ("http://n|max=3", "max=3", PARAMETERS),
    ] {
        let error = parse(line).unwrap_err();
        let expected = format!("has an invalid value \"{value}\": {allowed}");
        assert_eq!(error, expected, "{line}");
        assert!(!error.contains("secret"), "{error}");
    }
    for name in [
        "interval=1s",
        "finality=tag",
        "api=beacon",
        "ca=/a",
        "namespace=a",
    ] {
        let parameter = name.split('=').next().unwrap();
        let error = parse(&format!("https://n|{name}|{name}")).unwrap_err();
        assert_eq!(error, format!("has the parameter \"{parameter}=\" twice"));
    }
}

#[test]
fn debug_output_contains_no_secret() {
    let head = head("https://node:8/v3/secret|header=Authorization: Bearer secret");
    let text = format!("{head:?}");
    assert!(!text.contains("secret"), "{text}");
    assert!(
        text.contains("https://node:8") && text.contains("Authorization"),
        "{text}"
    );
}

#[test]
fn head_source_equals_the_one_parsed_from_its_words() {
    for line in [
        "http://n",
        "unix:/a:/b|finality=depth:3|interval=1h",
        "https://n/p?q|api=beacon|header=A: b:c=d|header=A:e f|ca=/c d",
    ] {
        let head = head(line);
        let words = head.to_directive_words();
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        assert_eq!(HeadSource::parse_head_source(&words), Ok((head, None)));
    }
}

proptest! {
    #[test]
    fn parsed_head_source_survives_a_round_trip_through_its_words(
        url in "(http|https|ws|wss|unix|HTTP)://?/?[a-z0-9:@/?#\\[\\]. é-]{0,20}",
        words in prop::collection::vec(
            "(interval=|finality=|finality=depth:|api=|header=|header=A:|ca=/|namespace=|)\
             (beacon|execution|tag|[0-9]{1,7}(ms|s|m|h)?|[ -~é]{0,8})",
            0..4,
        ),
    ) {
        let words: Vec<&[u8]> = std::iter::once(&url).chain(&words).map(String::as_bytes).collect();
        if let Ok((head, _)) = HeadSource::parse_head_source(&words) {
            let again = head.to_directive_words();
            let again: Vec<&[u8]> = again.iter().map(String::as_bytes).collect();
            prop_assert!(head.url.starts_with(head.url_origin()));
            prop_assert_eq!(HeadSource::parse_head_source(&again), Ok((head, None)));
        }
    }
}
