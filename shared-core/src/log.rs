//! Text for log lines. Text from a node, a client, an owner or a configuration may contain a
//! line feed, which would begin a line of its own, or control sequences of a terminal: every
//! host passes its lines through [`escape_log_text`].

use std::borrow::Cow;

/// Returns `text` with an escape for each character that is not visible: `\n`, `\u{1b}`.
pub fn escape_log_text(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        || !text.contains(is_invisible_character)
    {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match is_invisible_character(character) {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    Cow::Owned(line)
}

/// Escapes bytes that need not be UTF-8, as [`escape_log_text`] does.
pub fn escape_log_bytes(text: &[u8]) -> String {
    escape_log_text(&String::from_utf8_lossy(text)).into_owned()
}

/// Whether the character is a control character, a line separator, changes the direction of
/// writing, or has no width.
fn is_invisible_character(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::{escape_log_bytes, escape_log_text};

    #[test]
    fn escaped_text_is_one_visible_line() {
        for (text, line) in [
            ("", ""),
            ("a \"b\" \\ caf\u{e9}", "a \"b\" \\ caf\u{e9}"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[31m\0\u{7f}", "\\u{1b}[31m\\u{0}\\u{7f}"),
            (
                "\u{85}\u{2028}\u{202e}\u{feff}",
                "\\u{85}\\u{2028}\\u{202e}\\u{feff}",
            ),
        ] {
            assert_eq!(escape_log_text(text), line);
        }
        assert_eq!(escape_log_bytes(b"a\xff\n"), "a\u{fffd}\\n");
    }
}
