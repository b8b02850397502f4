//! Texts of servers in the output of a command.

use sszip_core::log::escape_log_text;

/// Maximum number of characters of a server's text that are printed.
const MAX_CHARACTERS: usize = 500;

/// Returns a text of a server without control characters, which a terminal would execute, and cut
/// at 500 characters.
pub fn printable(text: &str) -> String {
    let escaped = escape_log_text(text);
    match escaped.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}...", &escaped[..end]),
        None => escaped.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn texts_are_escaped_and_cut() {
        assert_eq!(printable("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(printable(&"é".repeat(500)), "é".repeat(500));
        let cut = printable(&"é".repeat(501));
        assert_eq!(cut, format!("{}...", "é".repeat(500)));
    }
}
