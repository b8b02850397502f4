//! Detection of truncated JSON (RFC 8259).

/// Whether `body` is an object or array that closes, followed by nothing but white space. The
/// contents are not checked.
///
/// A body that ends with its connection looks the same whether its sender has finished or
/// failed; this distinguishes most truncated bodies from complete ones.
pub fn is_closed_json(body: &[u8]) -> bool {
    let mut depth = 0usize;
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 1 => {
                return bytes.all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
            }
            b'}' | b']' if depth > 1 => depth -= 1,
            b' ' | b'\t' | b'\n' | b'\r' => {}
            _ if depth == 0 => return false,
            b'"' if !skip_json_string(&mut bytes) => return false,
            _ => {}
        }
    }
    false
}

/// Advances past the rest of a string, whose opening quote was read. Returns `false` if the bytes
/// end before its closing quote.
fn skip_json_string(bytes: &mut std::slice::Iter<'_, u8>) -> bool {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return true,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_closed_json;

    #[test]
    fn complete_text_closes() {
        for text in [
            "{}",
            " [1,2] \r\n",
            r#"{"a":"}","b":["\"]",{}]}"#,
            "[\"\\\\\"]\n",
        ] {
            assert!(is_closed_json(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn truncated_text_does_not_close() {
        let text = r#"{"jsonrpc":"2.0","id":"a}","result":[{"x":"\"]}"},[]]}"#;
        for cut in 0..text.len() {
            assert!(!is_closed_json(&text.as_bytes()[..cut]), "{}", &text[..cut]);
        }
    }

    #[test]
    fn text_that_is_no_object_or_array_does_not_close() {
        for text in ["", " ", "1", "null", "}", "]{", "{}{}", "[] x", "\"[]\""] {
            assert!(!is_closed_json(text.as_bytes()), "{text}");
        }
    }
}
