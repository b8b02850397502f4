//! The end of a block of Lua in an nginx configuration.

/// Returns the length of the rest of a block of Lua with its closing brace, or `None` if it is not
/// closed. Braces in strings and comments do not count.
pub fn lua_block_length(text: &[u8]) -> Option<usize> {
    let (mut at, mut open) = (0_usize, 1_usize);
    while let Some(byte) = text.get(at).copied() {
        let rest = &text[at..];
        at += match byte {
            b'"' | b'\'' => string_length(rest, byte),
            b'[' => long_bracket_length(rest).unwrap_or(1),
            b'-' if rest.starts_with(b"--") => 2 + comment_length(&rest[2..]),
            _ => 1,
        };
        match byte {
            b'{' => open += 1,
            b'}' => open -= 1,
            _ => {}
        }
        if open == 0 {
            return Some(at);
        }
    }
    None
}

/// Returns the length of the string that the quote at the beginning of a text opens.
fn string_length(text: &[u8], quote: u8) -> usize {
    let mut at = 1_usize;
    while let Some(byte) = text.get(at).copied() {
        at += 1;
        match byte {
            b'\\' => at += 1,
            _ if byte == quote => return at,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a comment without its `--`.
fn comment_length(text: &[u8]) -> usize {
    long_bracket_length(text).unwrap_or_else(|| {
        let end = text.iter().position(|byte| *byte == b'\n');
        end.unwrap_or(text.len())
    })
}

/// Returns the length of the long bracket, `[[ ]]` or `[==[ ]==]`, that begins a text, if one does.
fn long_bracket_length(text: &[u8]) -> Option<usize> {
    let rest = text.strip_prefix(b"[")?;
    let level = rest.iter().take_while(|byte| **byte == b'=').count();
    if rest.get(level) != Some(&b'[') {
        return None;
    }
    let end = format!("]{}]", "=".repeat(level)).into_bytes();
    let at = text.windows(end.len()).position(|part| part == end);
    Some(at.map_or(text.len(), |at| at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::lua_block_length;

    #[test]
    fn braces_in_strings_and_comments_do_not_end_a_block() {
        for (text, is_closed) in [
            ("}", true),
            (r#"{} "}" '\'}' }"#, true),
            ("-- }\n}", true),
            ("--[==[ } ]] ]==] }", true),
            ("x = [[ } ]] y = [=[ } ]] ]=] }", true),
            ("a[b[1]] --[ }\n }", true),
            ("{ }", false),
            ("\"}", false),
            ("'\\", false),
            ("[[ }", false),
            ("--", false),
        ] {
            let expected = is_closed.then_some(text.len());
            assert_eq!(lua_block_length(text.as_bytes()), expected, "{text}");
        }
    }
}
