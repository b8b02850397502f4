//! Presumed positions of a call and its id, found by a search of the text.
//!
//! Clients write calls in few ways. The next call of a batch begins after a comma, with a bracket
//! and the name of a member, and the id follows the first `"id":`. That may be wrong: a prefix only
//! shows where to look for a call in the key cache. The byte-for-byte comparison with the cached
//! call decides.

use memchr::memchr_iter;

use super::simd_scan::{digits_end, plain_string_run_end};

/// The presumed text of the next call in a request, split around its id, for a lookup in the key
/// cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresumedCall<'a> {
    /// Text from the opening bracket to the id.
    pub before: &'a [u8],
    /// A string without escapes, or digits.
    pub id: &'a [u8],
    /// The rest, with the closing bracket.
    pub after: &'a [u8],
}

impl<'a> PresumedCall<'a> {
    /// Splits the call at the beginning of `text`, the rest of a request; `None` if the search
    /// finds no call with an id.
    #[inline]
    pub fn split_first_call(text: &'a [u8]) -> Option<Self> {
        let call = memchr_iter(b'{', text)
            .find_map(|at| text_before_next_call(text, at))
            .unwrap_or_else(|| {
                let all = text.trim_ascii_end();
                all.strip_suffix(b"]").unwrap_or(all)
            })
            .trim_ascii_end();
        if call.last() != Some(&b'}') {
            return None;
        }
        let colon = if call.starts_with(b"{\"id\":") {
            5
        } else {
            memchr_iter(b':', call).find(|&at| call[..at].ends_with(b"\"id\""))?
        };
        let blanks = call[colon + 1..].iter().position(|byte| *byte != b' ')?;
        let id = colon + 1 + blanks;
        let end = if call[id] == b'"' {
            let end = plain_string_run_end(call, id + 1);
            (*call.get(end)? == b'"').then_some(end + 1)?
        } else {
            let end = digits_end(call, id);
            // at least one digit, and no leading zero
            (end > id && (call[id] != b'0' || end == id + 1)).then_some(end)?
        };
        Some(Self {
            before: &call[..id],
            id: &call[id..end],
            after: &call[end..],
        })
    }
}

/// Returns the text before the comma, if the bracket at `at` opens a call that follows another
/// one.
#[inline]
fn text_before_next_call(text: &[u8], at: usize) -> Option<&[u8]> {
    let (before, from) = text.split_at(at);
    let is_call = match from.get(2) {
        Some(b'i') => from.starts_with(b"{\"id\""),
        Some(b'j') => from.starts_with(b"{\"jsonrpc\""),
        Some(b'm') => from.starts_with(b"{\"method\""),
        Some(b'p') => from.starts_with(b"{\"params\""),
        _ => false,
    };
    if is_call {
        before.trim_ascii_end().strip_suffix(b",")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::PresumedCall;

    fn parts(text: &str) -> Option<[&str; 3]> {
        let sketch = PresumedCall::split_first_call(text.as_bytes())?;
        Some(
            [sketch.before, sketch.id, sketch.after].map(|part| std::str::from_utf8(part).unwrap()),
        )
    }

    #[test]
    fn sketch_finds_calls_in_the_usual_notations() {
        for (before, id, after) in [
            (
                r#"{"id":"#,
                "1",
                r#","jsonrpc":"2.0","method":"m","params":[{"a":{}}]}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","method":"m","params":[],"id":"#,
                "123456789012",
                "}",
            ),
            (
                r#"{"jsonrpc": "2.0", "method": "m", "id": "#,
                r#""a-b""#,
                r#", "params": []}"#,
            ),
            (r#"{"method":"m","id" :0,"id":"#, "0", r#" }"#),
        ] {
            let call = [before, id, after].concat();
            let parts_of = Some([before, id, after]);
            assert_eq!(parts(&call), parts_of);
            for next in ["jsonrpc", "method", "params", "id"] {
                let batch = format!("{call},{{\"{next}\":{{}}}}]");
                assert_eq!(parts(&batch), parts_of, "{batch}");
            }
            for (between, end) in [(",", "]"), (", ", " ]\n"), ("\n,\n", "")] {
                let batch = [&call, between, &call, end].concat();
                assert_eq!(parts(&batch), parts_of, "{batch}");
                assert_eq!(parts(&batch[call.len() + between.len()..]), parts_of);
            }
        }
    }

    #[test]
    fn sketch_is_none_for_unusual_ids() {
        for id in [
            "",
            "01",
            "-1",
            "null",
            "[1]",
            r#""a\n""#,
            r#""a"#,
            "\"a\x1f\"",
            " ",
        ] {
            let call = format!(r#"{{"jsonrpc":"2.0","method":"m","id":{id}}}"#);
            assert_eq!(parts(&call), None, "{id}");
        }
        for text in [
            "",
            "{",
            r#"{"id""#,
            r#"{"id":"#,
            r#"{"id":1"#,
            r#"{"id":}"#,
            "{\"id\": \"",
        ] {
            assert_eq!(parts(text), None, "{text}");
        }
    }
}
