//! Check that a text is not nested deeper than a [`StrictJsonReader`](super::scan::StrictJsonReader) reads,
//! by its brackets alone.
//!
//! A long response is not read strictly before it is stored, and must not be too deep when it is
//! read later. Counting brackets takes a tenth of the time of reading, because many bytes are
//! counted at once. Brackets in strings count, too: they make a text look deeper, or unbalanced,
//! and it is read strictly then. Only a text with strings of closing brackets before as many
//! opening ones looks shallower than it is.

use super::scan::MAX_DEPTH;

/// Bytes that are counted at once; a byte-sized counter must not overflow.
const COUNTED_BYTES: usize = 64;

/// Whether no more than [`MAX_DEPTH`] arrays and objects are open at once.
pub fn is_within_max_depth(text: &[u8]) -> bool {
    let (mut open, mut most) = (0_i64, 0_i64);
    for piece in text.chunks(COUNTED_BYTES) {
        let (mut opening, mut closing) = (0_u8, 0_u8);
        for byte in piece {
            // square brackets differ from curly ones in this bit only
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
    use super::is_within_max_depth;
    use crate::jsonrpc::scan::{check_json, MAX_DEPTH};

    #[test]
    fn nested_text_is_shallow_if_and_only_if_the_scanner_reads_it() {
        for (open, close, each) in [("[", "]", 1), ("{\"a\":", "}", 1), ("[{\"a\":", "}]", 2)] {
            let nested = |n: usize| format!("{}0{}", open.repeat(n), close.repeat(n));
            for depth in [1, 512, MAX_DEPTH / each - PIECES, 2 * MAX_DEPTH] {
                let text = nested(depth);
                assert_eq!(
                    is_within_max_depth(text.as_bytes()),
                    check_json(text.as_bytes()).is_ok()
                );
            }
        }
    }

    /// Difference from the maximum depth below which a text may look too deep.
    const PIECES: usize = super::COUNTED_BYTES;

    #[test]
    fn unbalanced_text_is_not_shallow() {
        for text in ["[", "]", "[\"]\"]", "{\"a\":\"[[[\"}"] {
            assert!(!is_within_max_depth(text.as_bytes()), "{text}");
        }
        assert!(is_within_max_depth(b"[\"a\",{}]") && is_within_max_depth(b""));
    }

    #[test]
    fn text_with_many_siblings_is_shallow() {
        let text = format!("[{}[]]", "{\"a\":[]},".repeat(2 * MAX_DEPTH));
        assert!(is_within_max_depth(text.as_bytes()));
    }
}
