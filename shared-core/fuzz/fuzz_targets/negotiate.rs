//! Header values of any bytes.
#![no_main]

use std::iter::once;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sszip_core::negotiate::accept_encoding::AcceptEncoding;
use sszip_core::negotiate::list_header::members;
use sszip_core::negotiate::media_type::{is_event_stream, is_grpc, MediaTypes};
use sszip_core::negotiate::{cache_control, etag, vary};

#[derive(Arbitrary, Debug)]
enum Value<'a> {
    AcceptEncoding(Vec<&'a [u8]>),
    CacheControl(&'a [u8]),
    ContentType(Vec<&'a [u8]>, &'a [u8]),
    ETag(&'a [u8]),
    List(&'a [u8]),
    Vary(Vec<&'a [u8]>),
}

fuzz_target!(|value: Value| match value {
    Value::AcceptEncoding(lines) => accept_encoding(&lines),
    Value::CacheControl(value) => {
        cache_control::has_no_transform(value);
        let more = [b"no-transform,", value].concat();
        assert!(cache_control::has_no_transform(&more));
    }
    Value::ContentType(words, value) => content_type(&words, value),
    Value::ETag(value) => {
        if let Some(weak) = etag::weakened(value) {
            assert!(weak.strip_prefix(b"W/") == Some(value));
            assert!(etag::weakened(&weak).is_none());
        }
    }
    Value::List(value) => {
        let list: Vec<&[u8]> = members(value).collect();
        let joined = list.join(&b", "[..]);
        assert!(members(&joined).eq(list), "joined {joined:?}");
    }
    Value::Vary(lines) => vary(&lines),
});

fn accept_encoding(lines: &[&[u8]]) {
    let mut accept = AcceptEncoding::default();
    for line in lines {
        accept.read_line(line);
    }
    assert!(accept.allows_gzip() || !accept.prefers_gzip());
    let mut refused = AcceptEncoding::default();
    refused.read_line(b"gzip;q=0");
    assert!(!refused.allows_gzip());
    if lines.is_empty() {
        assert!(!accept.allows_gzip() && !accept.refuses_identity());
    }
}

fn content_type(words: &[&[u8]], value: &[u8]) {
    is_event_stream(value);
    let any = MediaTypes::parse([&b"*"[..]].into_iter()).expect("a pattern");
    if let Ok(types) = MediaTypes::parse(words.iter().copied()) {
        assert!(any.contains(value) || !types.contains(value));
    }
    assert!(!(is_grpc(value) && any.contains(value)));
}

fn vary(lines: &[&[u8]]) {
    const NAME: &str = "Accept-Encoding";
    let lines = || lines.iter().copied();
    if !vary::covers(lines(), NAME) {
        let with = vary::add_name(lines(), NAME);
        assert!(vary::covers(once(&with[..]), NAME), "{with:?}");
        let again = vary::remove_name(once(&with[..]), NAME);
        assert!(again == vary::remove_name(lines(), NAME), "{again:?}");
    }
    let without = vary::remove_name(lines(), NAME);
    assert!(vary::remove_name(once(&without[..]), NAME) == without);
}
