//! Results that are not the last word on what they are of, though that is final.

use memchr::memmem;

use super::response::{content, Content};
use super::scan::{Kind, Scanner};

/// Whether one of the parts of a list has an `error` of its own: nodes trace a
/// block's transactions one by one, and one that took too long is no reason to
/// refuse the others. An `error` further inside is a call's that was traced.
pub fn has_failed_part(list: &[u8]) -> bool {
    // most traces have none at all
    memmem::find(list, b"\"error\"").is_some() && finds_failed_part(list).unwrap_or(false)
}

fn finds_failed_part(list: &[u8]) -> Option<bool> {
    let mut scanner = Scanner::of_value(list);
    let mut another = scanner.kind().ok()? == Kind::Array && scanner.first_element().ok()?;
    while another {
        if scanner.kind().ok()? == Kind::Object {
            let mut next = scanner.first_member().ok()?;
            while let Some(name) = next {
                let value = scanner.value().ok()?;
                let is_none = || content(&list[value.span.clone()]) == Content::Null;
                if &list[name.content] == b"error" && !is_none() {
                    return Some(true);
                }
                next = scanner.next_member().ok()?;
            }
        } else {
            scanner.value().ok()?;
        }
        another = scanner.next_element().ok()?;
    }
    Some(false)
}

/// Whether a block, or a part of one, has members that its node will fill in
/// when it is known to another chain, as ZKsync's do: by then it is final here
/// for long.
pub fn is_to_be_filled_in(result: &[u8]) -> bool {
    const NAME: &[u8] = b"\"l1BatchNumber\"";
    memmem::find_iter(result, NAME).any(|at| {
        let value = result[at + NAME.len()..].trim_ascii_start();
        value
            .strip_prefix(b":")
            .is_some_and(|value| value.trim_ascii_start().starts_with(b"null"))
    })
}

#[cfg(test)]
mod tests {
    use super::{has_failed_part, is_to_be_filled_in};

    #[test]
    fn a_part_that_failed_is_told_from_a_call_that_did() {
        for (list, expected) in [
            ("[]", false),
            (r#"[{"txHash":"0x1","result":{"gas":"0x1"}}]"#, false),
            (
                r#"[{"result":{"type":"CALL","error":"execution reverted","calls":[{"error":"x"}]}}]"#,
                false,
            ),
            (r#"[{"result":1,"error":null}]"#, false),
            (r#"[["error"],"error",{"a":"\"error\":1"}]"#, false),
            (r#"[{"result":1},{"error":"execution timeout"}]"#, true),
            (
                r#"[ {"txHash":"0x1" , "error" : {"code":-32000}} ,{"result":1}]"#,
                true,
            ),
            (r#"{"error":1}"#, false),
        ] {
            assert_eq!(has_failed_part(list.as_bytes()), expected, "{list}");
        }
    }

    #[test]
    fn what_will_be_filled_in() {
        for (result, expected) in [
            (r#"{"number":"0x1","l1BatchNumber":null}"#, true),
            (r#"{"l1BatchNumber" : null}"#, true),
            (
                r#"{"l1BatchNumber":"0x1","transactions":[{"l1BatchNumber":null}]}"#,
                true,
            ),
            (r#"{"l1BatchNumber":"0x1"}"#, false),
            (r#"{"a":"\"l1BatchNumber\":null"}"#, false),
            ("\"l1BatchNumber\"", false),
            ("{}", false),
        ] {
            assert_eq!(is_to_be_filled_in(result.as_bytes()), expected, "{result}");
        }
    }
}
