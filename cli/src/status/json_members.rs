//! Members of the JSON of a server, of any type.

use serde_json::Value;

use crate::server_text::printable;

/// Maximum number of methods, reasons or chains that are shown.
const MAX_ROWS: usize = 10_000;

/// Returns a text without control characters.
pub fn text_of(text: &Value) -> Option<String> {
    text.as_str().map(printable)
}

/// Returns the elements of an array, which are limited in number.
pub fn rows_of(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().into_iter().flatten().take(MAX_ROWS)
}

/// Returns the counters of an object.
pub fn parse_counts(counts: &Value) -> Vec<(String, u64)> {
    let counts = counts.as_object().into_iter().flatten().take(MAX_ROWS);
    counts
        .filter_map(|(name, count)| Some((printable(name), count.as_u64()?)))
        .collect()
}
