//! Whether a text is nested no deeper than a [`Scanner`](super::scan::Scanner) reads, by its
//! brackets alone.
//!
//! A long answer is not read strictly when it is stored, and must not turn out to be too
//! deep when it is. Brackets are counted in a tenth of the time that reading takes, since
//! this is done for many bytes at once. Those within strings count, too: they make a text
//! look deeper, or unbalanced, and it is read strictly then. Only a text with strings of
//! closing brackets in front of as many opening ones looks shallower than it is.

use super::scan::MAX_DEPTH;

/// Bytes that are counted at once: no more than fit into a byte's count.
const PIECE: usize = 64;

/// Whether no more than [`MAX_DEPTH`] arrays and objects are open at once.
pub fn is_shallow(text: &[u8]) -> bool {
    let (mut open, mut most) = (0_i64, 0_i64);
    for piece in text.chunks(PIECE) {
        let (mut opening, mut closing) = (0_u8, 0_u8);
        for byte in piece {
            // square brackets have this bit only less than curly ones
            let bracket = byte | 0x20;
            opening += u8::from(bracket == b'{');
            closing += u8::from(bracket == b'}');
        }
        let (opening, closing) = (i64::from(opening), i64::from(closing));
        most = most.max(open + opening);
        open += opening - closing;
    }
    open == 0 && usize::try_from(most).is_ok_and(|most| most <= MAX_DEPTH)
}

#[cfg(test)]
mod tests {
    use super::is_shallow;
    use crate::jsonrpc::scan::{check, MAX_DEPTH};

    #[test]
    fn text_is_shallow_if_it_is_read() {
        for (open, close, each) in [("[", "]", 1), ("{\"a\":", "}", 1), ("[{\"a\":", "}]", 2)] {
            let nested = |n: usize| format!("{}0{}", open.repeat(n), close.repeat(n));
            for depth in [1, 512, MAX_DEPTH / each - PIECES, 2 * MAX_DEPTH] {
                let text = nested(depth);
                assert_eq!(is_shallow(text.as_bytes()), check(text.as_bytes()).is_ok());
            }
        }
    }

    /// What is nearly too deep may be taken for too deep.
    const PIECES: usize = super::PIECE;

    #[test]
    fn unbalanced_text_is_not_shallow() {
        for text in ["[", "]", "[\"]\"]", "{\"a\":\"[[[\"}"] {
            assert!(!is_shallow(text.as_bytes()), "{text}");
        }
        assert!(is_shallow(b"[\"a\",{}]") && is_shallow(b""));
    }

    #[test]
    fn siblings_are_not_nested() {
        let text = format!("[{}[]]", "{\"a\":[]},".repeat(2 * MAX_DEPTH));
        assert!(is_shallow(text.as_bytes()));
    }
}
