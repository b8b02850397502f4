//! Explanations of the cache's decisions: the rows of docs/reasons.md and docs/methods.md.

const REASONS_PAGE: &str = include_str!("../../../docs/reasons.md");
const METHODS_PAGE: &str = include_str!("../../../docs/methods.md");

/// Explains the reason for which a response is no hit, in a sentence. `None` for an unknown reason.
pub fn explain_reason(reason: &str) -> Option<String> {
    if reason == "miss" {
        return Some("the cache has no entry that may be sent without the node".into());
    }
    let mut subject = None;
    for line in REASONS_PAGE.lines() {
        match table_cells(line)[..] {
            ["Reason", header] => subject = Some(header.to_lowercase()),
            [name, text] if name == format!("`{reason}`") => {
                let text = text.strip_prefix("Envoy: ").unwrap_or(text);
                let text = text.replacen("the same:", "is not available as SSZ, or as JSON:", 1);
                return Some(format!("{} {}", subject?, plain_text(&text)));
            }
            _ => {}
        }
    }
    None
}

/// Describes on what the responses to a JSON-RPC method depend, and for how long they are cached.
/// `None` for a method that is in no table.
pub fn explain_method(name: &str) -> Option<String> {
    let quoted = format!("`{name}`");
    let mut rows = METHODS_PAGE.lines().map(table_cells);
    rows.find_map(|cells| match cells[..] {
        [method, class, block, finality, time, _, _] if method == quoted => Some(plain_text(
            &format!("{class}; block: {block}; finality: {finality}; default time: {time}"),
        )),
        [method, dependency, _] if method == quoted => {
            Some(plain_text(&format!("not cached; depends on: {dependency}")))
        }
        _ => None,
    })
}

/// Returns the cells of a row of a Markdown table; none for other lines.
fn table_cells(line: &str) -> Vec<&str> {
    let row = line
        .strip_prefix("| ")
        .and_then(|row| row.strip_suffix(" |"));
    row.map_or(Vec::new(), |row| row.split(" | ").map(str::trim).collect())
}

/// Returns the text of Markdown without code marks and the targets of links.
fn plain_text(markdown: &str) -> String {
    let mut rest = markdown;
    let mut text = String::with_capacity(rest.len());
    while let Some((before, target)) = rest.split_once("](") {
        text.push_str(before);
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    text.push_str(rest);
    text.retain(|character| character != '`');
    // the opening bracket of a link; `p[0]` follows a letter
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        let begins_word = plain.ends_with([' ', '(']) || plain.is_empty();
        if character != '[' || !begins_word {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use sszip_core::cache::reason::Reason;
    use sszip_core::jsonrpc::known_methods::{
        known_method_names, uncached_dependency, UncachedDependency,
    };

    use super::*;

    #[test]
    fn reasons_have_explanations() {
        for reason in Reason::ALL {
            let explanation = explain_reason(reason.name());
            assert_eq!(explanation.is_none(), *reason == Reason::None, "{reason:?}");
            let text = explanation.unwrap_or_default();
            assert!(!text.contains(['`', '[', ']']), "{text}");
        }
        for (reason, expected) in [
            ("method", "the request is neither GET nor HEAD nor POST"),
            (
                "rpc-method",
                "the request has a method that is never cached, or not with these parameters: \
                 methods.md",
            ),
            (
                "get",
                "the request is a GET outside the Beacon API, and sszip_cache_get is not all; or \
                 is a GET of the REST Engine API",
            ),
            (
                "ssz-fork",
                "the response is not available as SSZ, or as JSON: its fork is unknown, or has no \
                 such type",
            ),
            ("error", "the response is a JSON-RPC error"),
        ] {
            assert_eq!(explain_reason(reason).as_deref(), Some(expected));
        }
        assert_eq!(explain_reason("later"), None);
        assert_eq!(explain_reason("Reason"), None);
    }

    #[test]
    fn known_methods_have_explanations() {
        for name in known_method_names() {
            // docs/methods.md has no rows of methods that were not examined
            let unexamined = uncached_dependency(name) == Some(UncachedDependency::Unexamined);
            assert_eq!(explain_method(name).is_none(), unexamined, "{name}");
        }
        assert_eq!(
            explain_method("eth_getBlockReceipts").as_deref(),
            Some(
                "by finality; block: p[0]; finality: final number, or the hash; default time: 2s, \
                 final 1h, at a tag 1s"
            )
        );
        let send = explain_method("eth_sendRawTransaction").unwrap();
        assert!(
            send.starts_with("not cached; depends on: nothing to cache:"),
            "{send}"
        );
        assert_eq!(explain_method("acme_x"), None);
        assert_eq!(explain_method("Method"), None);
    }
}
