//! Responses of a batch in any notation or truncated: `jsonrpc::batch_elements` finds the elements
//! that another parser finds, no element of a truncated text is incomplete, and each can be moved
//! to another array.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;
use sszip_core::jsonrpc::batch_elements::{
    read_batch_responses, BatchResponseJsonKind, BatchResponseSpans, ParsedBatchResponses,
};

/// Returns the texts of all elements.
fn element_texts<'a>(text: &'a [u8], elements: &ParsedBatchResponses) -> Vec<&'a [u8]> {
    let spans = elements.all.iter().map(|one| one.span.clone());
    spans.map(|span| &text[span]).collect()
}

/// Checks that spans lie in the text in their order, and values in their elements.
fn assert_spans_in_order(text: &[u8], all: &[BatchResponseSpans]) {
    let mut end = 0;
    for one in all {
        assert!(end <= one.span.start && one.span.start < one.span.end);
        end = one.span.end;
        for value in [&one.id, &one.result, &one.error].into_iter().flatten() {
            assert!(one.span.start < value.start && value.start < value.end);
            assert!(value.end < end);
        }
    }
    assert!(end <= text.len());
}

/// Compares the elements with another parser, which refuses escaped halves of surrogate pairs
/// that clients accept.
fn assert_agrees_with_serde(text: &[u8], elements: &ParsedBatchResponses) {
    let plain = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let Ok(plain) = std::str::from_utf8(plain) else {
        return;
    };
    let parsed = serde_json::from_str::<&RawValue>(plain);
    if parsed.is_ok() {
        assert!(elements.is_whole);
    } else if !plain.contains("\\u") {
        assert!(!elements.is_whole);
    }
    let parsed = serde_json::from_str::<Vec<&RawValue>>(plain);
    if let (Ok(parsed), BatchResponseJsonKind::Array) = (parsed, elements.shape) {
        let parsed: Vec<_> = parsed.iter().map(|one| one.get().as_bytes()).collect();
        assert_eq!(element_texts(text, elements), parsed);
    }
}

fuzz_target!(|data: &[u8]| {
    let [high, low, text @ ..] = data else {
        return;
    };
    let elements = read_batch_responses(text).expect("there is memory");
    assert_spans_in_order(text, &elements.all);
    assert_agrees_with_serde(text, &elements);

    let cut = usize::from(u16::from_be_bytes([*high, *low])) % (text.len() + 1);
    let beginning = read_batch_responses(&text[..cut]).expect("there is memory");
    assert_spans_in_order(&text[..cut], &beginning.all);
    if text[cut..].iter().any(|byte| !byte.is_ascii_whitespace()) {
        assert!(
            !beginning.is_whole
                || !elements.is_whole
                || beginning.shape == BatchResponseJsonKind::Other
        );
    }
    assert!(
        elements.all.starts_with(&beginning.all),
        "an answer goes on"
    );

    let joined = [
        b"[",
        &element_texts(text, &elements).join(&b","[..])[..],
        b"]",
    ]
    .concat();
    let again = read_batch_responses(&joined).expect("there is memory");
    assert!(again.is_whole && again.all.len() == elements.all.len());
});
