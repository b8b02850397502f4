//! Allocations that are refused to the script API at every point where one can be: a script
//! receives the right value, or an error.

#![allow(unsafe_code)] // it calls the C ABI
#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "support/refused.rs"]
mod support;

use std::ptr::null;
use std::slice::from_raw_parts;
use std::sync::Arc;

use sszip_core::allocator::{ReserveAllocator, MAX_RESERVE_ALLOCATION};
use sszip_core::bytes::SharedBytes;
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::cache::process::ProcessCacheState;
use sszip_core::ffi::{sszip_calls_parse, sszip_header, sszip_status, sszip_str};
use sszip_core::gzip::oneshot::gzip_oneshot;
use sszip_core::script::{cached_responses, stored_values};

use support::repeat_with_refusals;

#[global_allocator]
static ALLOCATOR: ReserveAllocator = ReserveAllocator;

fn text(bytes: &[u8]) -> sszip_str {
    sszip_str {
        data: bytes.as_ptr(),
        len: bytes.len(),
    }
}

/// Returns the ids of the calls, or the reported error.
fn ids(coding: Option<&[u8]>, body: &[u8]) -> Result<Vec<usize>, String> {
    let (mut calls, mut count, mut is_batch) = (null(), 0, false);
    let mut out = text(b"");
    let field = sszip_header {
        name: text(b"Content-Encoding"),
        value: text(coding.unwrap_or_default()),
    };
    // SAFETY: all arguments are valid, and the results are read before the next call.
    unsafe {
        let status = sszip_calls_parse(
            &raw const field,
            usize::from(coding.is_some()),
            text(body),
            1 << 30,
            1 << 20,
            &raw mut calls,
            &raw mut count,
            &raw mut is_batch,
            &raw mut out,
        );
        let owned = |text: sszip_str| {
            let bytes = from_raw_parts(text.data, text.len).to_vec();
            String::from_utf8(bytes).unwrap()
        };
        match status {
            sszip_status::SSZIP_STATUS_OK => {}
            _ => return Err(owned(out)),
        }
        let calls = from_raw_parts(calls, count).iter();
        Ok(calls.map(|call| owned(call.id).parse().unwrap()).collect())
    }
}

#[test]
fn calls_of_a_long_batch_are_right_or_fail_when_allocations_are_refused() {
    let call = |id: usize| format!(r#"{{"id":{id},"method":"a","jsonrpc":"2.0"}}"#);
    let expected: Vec<usize> = (0..8000).collect();
    let calls: Vec<_> = expected.iter().map(|id| call(*id)).collect();
    let batch = format!("[{}]", calls.join(","));
    let coded = gzip_oneshot(batch.as_bytes(), 1, batch.len()).unwrap();
    // the calls of a batch are long only in total: the core first reserves more than any of their
    // allocations takes
    let from = 4 * batch.len();
    assert!(repeat_with_refusals(from, &expected, || ids(None, batch.as_bytes())) > 0);
    assert!(repeat_with_refusals(from, &expected, || ids(Some(b"gzip"), &coded)) > 0);
}

fn shared() -> ProcessCacheState {
    let shared = ProcessCacheState::default();
    shared.start_hot_tier(64 << 20, 64 << 20, 1);
    shared
}

#[test]
fn script_value_is_set_or_fails_when_allocations_are_refused() {
    let shared = shared();
    let value = vec![b'v'; 1 << 20];
    let set = || stored_values::set_stored_value(&shared, b"name", &value, 5000, 0);
    assert!(repeat_with_refusals(MAX_RESERVE_ALLOCATION + 1, &None, set) > 0);
    let length = stored_values::stored_value(&shared, b"name", 0)
        .unwrap()
        .map(|it| it.len());
    assert_eq!(length, Some(value.len()));
}

#[test]
fn stored_response_is_right_or_fails_when_allocations_are_refused() {
    let shared = shared();
    let envelope = EnvelopeBytes {
        id: ResponseIdPosition::BeforeResult,
        before: b"{\"id\":".as_slice().into(),
        between: b",\"result\":\"".as_slice().into(),
        after: b"\"}".as_slice().into(),
    };
    let gate = CompressionGate {
        min_length: 0,
        level: 1,
    };
    let result: SharedBytes = vec![b'r'; 1 << 20].into();
    let meta = EntryMetadata {
        expires_at: 10,
        ..EntryMetadata::default()
    };
    let entry = CacheEntry::from_fetched_result(envelope, &result, gate, meta).unwrap();
    shared.hot_tier().unwrap().insert([1; 32], Arc::new(entry));
    let whole = [b"{\"id\":7,\"result\":\"", &result[..], b"\"}"].concat();
    let get = || cached_responses::cached_call_response(&shared, &[1; 32], b"7", 0);
    let is_right = |found: Option<Vec<u8>>| found.as_deref() == Some(&whole[..]);
    assert!(repeat_with_refusals(MAX_RESERVE_ALLOCATION + 1, &true, || get().map(is_right)) > 0);
}
