//! Header values of any bytes.
#![no_main]

use std::iter::once;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sszip_core::negotiate::accept_encoding::EncodingPreferences;
use sszip_core::negotiate::list_header::list_header_members;
use sszip_core::negotiate::media_type::{is_event_stream, is_grpc_type, MediaTypeSet};
use sszip_core::negotiate::{cache_control, etag, vary};
use sszip_core::request_coding::SupportedContentCoding::{Gzip, Zstd};

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
        if let Some(weak) = etag::weaken_entity_tag(value) {
            assert!(weak.strip_prefix(b"W/") == Some(value));
            assert!(etag::weaken_entity_tag(&weak).is_none());
        }
    }
    Value::List(value) => {
        let list: Vec<&[u8]> = list_header_members(value).collect();
        let joined = list.join(&b", "[..]);
        assert!(list_header_members(&joined).eq(list), "joined {joined:?}");
    }
    Value::Vary(lines) => vary(&lines),
});

fn accept_encoding(lines: &[&[u8]]) {
    let mut accept = EncodingPreferences::default();
    for line in lines {
        accept.read_accept_encoding_line(line);
    }
    let (enabled, disabled) = (
        accept.preferred_coding(true),
        accept.preferred_coding(false),
    );
    assert!(enabled.is_none_or(|coding| accept.allows_coding(coding)));
    assert!(disabled != Some(Zstd) && (enabled == Some(Zstd) || enabled == disabled));
    let is_zstd_named = lines.iter().any(|line| names_zstd(line));
    assert!(is_zstd_named || enabled != Some(Zstd));
    let mut refused = EncodingPreferences::default();
    refused.read_accept_encoding_line(b"gzip;q=0, zstd;q=0");
    assert!(!refused.allows_coding(Gzip) && !refused.allows_coding(Zstd));
    assert!(refused.preferred_coding(true).is_none());
    if lines.is_empty() {
        assert!(!accept.allows_coding(Gzip) && !accept.refuses_identity());
    }
}

fn names_zstd(line: &[u8]) -> bool {
    line.windows(4)
        .any(|word| word.eq_ignore_ascii_case(b"zstd"))
}

fn content_type(words: &[&[u8]], value: &[u8]) {
    is_event_stream(value);
    let any = MediaTypeSet::parse_media_type_patterns([&b"*"[..]].into_iter()).expect("a pattern");
    if let Ok(types) = MediaTypeSet::parse_media_type_patterns(words.iter().copied()) {
        assert!(any.contains_media_type(value) || !types.contains_media_type(value));
    }
    assert!(!(is_grpc_type(value) && any.contains_media_type(value)));
}

fn vary(lines: &[&[u8]]) {
    const NAME: &str = "Accept-Encoding";
    let lines = || lines.iter().copied();
    if !vary::is_named_in_vary(lines(), NAME) {
        let with = vary::add_vary_name(lines(), NAME);
        assert!(vary::is_named_in_vary(once(&with[..]), NAME), "{with:?}");
        let again = vary::remove_vary_name(once(&with[..]), NAME);
        assert!(again == vary::remove_vary_name(lines(), NAME), "{again:?}");
    }
    let without = vary::remove_vary_name(lines(), NAME);
    assert!(vary::remove_vary_name(once(&without[..]), NAME) == without);
}
