//! Suggestions for misspelt words of a configuration.

/// Returns the word among `words` that is nearest to a misspelt one, or `None` if none is near
/// enough to be a likely correction. Case is ignored. Of equally near words the first is returned.
pub(super) fn nearest_word<'a>(
    misspelt: &str,
    words: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let misspelt = misspelt.to_ascii_lowercase();
    let near = words.filter_map(|word| {
        let edits = EditDistance::new(misspelt.as_bytes(), word.to_ascii_lowercase().as_bytes())
            .edit_distance_to_word();
        (edits <= max_suggestion_edits(misspelt.len())).then_some((edits, word))
    });
    // `min_by_key` keeps the first of equals
    near.min_by_key(|(edits, _)| *edits).map(|(_, word)| word)
}

/// Returns the prefix of one of `words` that is nearest to a misspelt prefix. A prefix that ends
/// with an underscore is preferred, because it is a namespace.
pub(super) fn nearest_prefix_by_edits<'a>(
    misspelt: &str,
    words: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let misspelt = misspelt.to_ascii_lowercase();
    let near = words.filter_map(|word| {
        let lower = word.to_ascii_lowercase();
        let (edits, end) =
            EditDistance::new(misspelt.as_bytes(), lower.as_bytes()).edit_distance_to_prefix();
        let beginning = word.get(..end)?;
        let key = (
            edits,
            !beginning.ends_with('_'),
            end.abs_diff(misspelt.len()),
        );
        (edits <= max_suggestion_edits(misspelt.len())).then_some((key, beginning))
    });
    let near = near.filter(|(_, beginning)| !beginning.is_empty());
    near.min_by_key(|(key, _)| *key).map(|(_, word)| word)
}

/// Returns the maximum number of edits between a misspelt word of this length and its correction.
fn max_suggestion_edits(length: usize) -> usize {
    // the shortest words are near to too many others
    if length < 4 {
        0
    } else {
        (length / 4).clamp(1, 3)
    }
}

/// The numbers of edits (insertions, deletions, replacements, and swaps of neighbours) between a
/// misspelt word and each prefix of a known word.
struct EditDistance(Vec<usize>);

impl EditDistance {
    /// Counts the edits between `misspelt` and each prefix of `word`.
    fn new(misspelt: &[u8], word: &[u8]) -> Self {
        let mut rows = [
            Vec::new(),
            Vec::new(),
            (0..=word.len()).collect::<Vec<usize>>(),
        ];
        for (row, byte) in misspelt.iter().enumerate() {
            let [before, last, _] = &mut rows;
            std::mem::swap(before, last);
            rows.swap(1, 2);
            let [before, last, next] = &mut rows;
            next.clear();
            next.push(row + 1);
            for (column, other) in word.iter().enumerate() {
                let replaced = last[column] + usize::from(byte != other);
                let mut least = replaced.min(last[column + 1] + 1).min(next[column] + 1);
                let is_swap = row > 0
                    && column > 0
                    && misspelt[row - 1] == *other
                    && word[column - 1] == *byte;
                if is_swap {
                    least = least.min(before[column - 1] + 1);
                }
                next.push(least);
            }
        }
        let [_, _, last] = rows;
        Self(last)
    }

    /// Returns the number of edits to the whole known word.
    fn edit_distance_to_word(&self) -> usize {
        self.0.last().copied().unwrap_or(0)
    }

    /// Returns the least number of edits to a prefix of the known word, and the length of the
    /// longest prefix that has it.
    fn edit_distance_to_prefix(&self) -> (usize, usize) {
        let ends = self.0.iter().enumerate();
        let least = ends.min_by_key(|(end, edits)| (**edits, usize::MAX - end));
        least.map_or((0, 0), |(end, edits)| (*edits, end))
    }
}

#[cfg(test)]
mod tests {
    use super::{nearest_prefix_by_edits, nearest_word, EditDistance};

    #[test]
    fn edits_count_insertions_deletions_replacements_and_swaps() {
        for (misspelt, word, edits) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "abc", 0),
            ("abc", "abd", 1),
            ("abc", "ac", 1),
            ("abc", "acb", 1),
            ("abcd", "badc", 2),
            ("kitten", "sitting", 3),
        ] {
            let counted =
                EditDistance::new(misspelt.as_bytes(), word.as_bytes()).edit_distance_to_word();
            assert_eq!(counted, edits, "{misspelt} {word}");
        }
    }

    #[test]
    fn nearest_word_is_found_up_to_three_edits() {
        let words = ["cache", "cache_lock", "enable", "Types"];
        for (misspelt, expected) in [
            ("cach", Some("cache")),
            ("enabel", Some("enable")),
            ("TYPES", Some("Types")),
            ("cache_lok", Some("cache_lock")),
            ("xy", None),
            ("", None),
            ("compression", None),
        ] {
            let found = nearest_word(misspelt, words.into_iter());
            assert_eq!(found, expected, "{misspelt}");
        }
    }

    #[test]
    fn nearest_beginning_prefers_a_namespace() {
        let words = ["debug_traceCall", "eth_getTransactionByHash", "admin_peers"];
        for (misspelt, expected) in [
            ("debug-", Some("debug_")),
            ("debug-trace", Some("debug_trace")),
            ("admn_", Some("admin_")),
            ("eth_getTranscation", Some("eth_getTransaction")),
            ("foo_", None),
        ] {
            assert_eq!(
                nearest_prefix_by_edits(misspelt, words.into_iter()),
                expected,
                "{misspelt}"
            );
        }
    }
}
