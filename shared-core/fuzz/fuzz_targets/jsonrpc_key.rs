//! Two texts share a key if and only if they have one canonical form. The second text is
//! independent, or equivalent to the first, or the first with some bytes changed.
#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sszip_core::jsonrpc::key::call_cache_key;
use sszip_fuzz::oracle::{agree_on_keys, key_and_canonical, Node};

#[derive(Arbitrary, Debug)]
enum Other<'a> {
    Text(&'a [u8]),
    Equivalent(&'a [u8]),
    Changed(u16, &'a [u8], bool),
}

fuzz_target!(|input: (Other, &[u8])| {
    let (other, params) = input;
    match other {
        Other::Text(text) => {
            agree_on_keys(params, text);
            assert_key_separates_parts(params, text);
        }
        Other::Equivalent(choices) => check_equivalent(params, choices),
        Other::Changed(place, bytes, insert) => {
            let place = usize::from(place) % (params.len() + 1);
            let (before, after) = params.split_at(place);
            let gone = if insert {
                0
            } else {
                after.len().min(bytes.len().max(1))
            };
            agree_on_keys(params, &[before, bytes, &after[gone..]].concat());
        }
    }
});

fn check_equivalent(params: &[u8], choices: &[u8]) {
    let Some(node) = Node::parse(params) else {
        return;
    };
    let mut choices = choices.iter().cycle();
    let rewritten = node.equivalent_text(&mut || choices.next().copied().unwrap_or(0));
    let ((ours, form), (other, same)) = (
        key_and_canonical(params),
        key_and_canonical(rewritten.as_bytes()),
    );
    assert_eq!(form, same, "{rewritten}");
    assert_eq!(ours.ok(), other.ok(), "{rewritten}");
}

/// Checks that a byte that moves from one part of a call to the next changes the key.
fn assert_key_separates_parts(scope: &[u8], method: &[u8]) {
    let one = call_cache_key(scope, method, None);
    if let Some((last, rest)) = scope.split_last() {
        assert_ne!(
            one,
            call_cache_key(rest, &[&[*last], method].concat(), None)
        );
    }
    assert_ne!(one, call_cache_key(scope, method, Some(b"[]")));
    assert_ne!(
        one,
        call_cache_key(scope, &[method, b"\x01[]"].concat(), None)
    );
}
