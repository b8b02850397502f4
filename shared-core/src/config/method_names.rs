//! Warnings about unknown methods in settings that name methods.

use super::suggest::{nearest_prefix_by_edits, nearest_word};
use crate::jsonrpc::known_methods;

/// The case sensitivity with which a setting compares method names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaseSensitivity {
    /// Names are compared exactly.
    Exact,
    /// Names are compared without regard to case.
    Any,
}

/// Returns a warning about the patterns (names or prefixes with `*`) that match no known method,
/// with the nearest known ones. The text continues a sentence that begins with the setting's name.
/// `None` if all match. `is_defined` returns whether the operator has described a method.
pub(super) fn unknown_methods_warning(
    patterns: &[&[u8]],
    case: CaseSensitivity,
    is_defined: impl Fn(&[u8]) -> bool,
) -> Option<String> {
    let unknown = patterns.iter().filter(|pattern| !is_defined(pattern));
    let texts: Vec<_> = unknown
        .filter_map(|pattern| describe_unknown_method(pattern, case))
        .collect();
    (!texts.is_empty()).then(|| texts.join("; "))
}

/// Returns the known name or pattern that an unknown one was probably meant to be.
pub(super) fn suggest_method(pattern: &str) -> Option<String> {
    let beginning = |beginning: &str| format!("{beginning}*");
    if let Some(prefix) = pattern.strip_suffix('*') {
        return nearest_prefix_by_edits(prefix, known_methods::known_method_names()).map(beginning);
    }
    if let Some(name) = nearest_word(pattern, known_methods::known_method_names()) {
        return Some(name.to_owned());
    }
    let lower = pattern.to_ascii_lowercase();
    let without_namespace = |name: &&str| {
        let rest = name.split_once('_').map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.eq_ignore_ascii_case(pattern))
    };
    if known_methods::known_method_names().any(|name| name.to_ascii_lowercase().starts_with(&lower))
    {
        return Some(beginning(pattern));
    }
    let mut names: Vec<_> = known_methods::known_method_names()
        .filter(without_namespace)
        .collect();
    // most clients call methods of this namespace
    names.sort_by_key(|name| !name.starts_with("eth_"));
    names.first().map(|name| (*name).to_owned())
}

/// Returns the warning for a pattern that matches no known method, with a suggestion if there is a
/// similar name. Returns `None` if the pattern matches one.
fn describe_unknown_method(pattern: &[u8], case: CaseSensitivity) -> Option<String> {
    let pattern = String::from_utf8_lossy(pattern);
    if matches_known_method(&pattern, case) {
        return None;
    }
    let problem = match pattern.ends_with('*') {
        true => format!("matches no known method with \"{pattern}\""),
        false => format!("names the unknown method \"{pattern}\""),
    };
    Some(match suggest_method(&pattern) {
        Some(suggestion) => format!("{problem}; did you mean \"{suggestion}\"?"),
        None => problem,
    })
}

/// Whether a name, or a prefix that ends in `*`, matches a method that sszip knows.
fn matches_known_method(pattern: &str, case: CaseSensitivity) -> bool {
    let equal = |one: &str, other: &str| match case {
        CaseSensitivity::Exact => one == other,
        CaseSensitivity::Any => one.eq_ignore_ascii_case(other),
    };
    match pattern.strip_suffix('*') {
        None if known_methods::is_known_method(pattern) => true,
        None => {
            case == CaseSensitivity::Any
                && known_methods::known_method_names().any(|name| equal(name, pattern))
        }
        Some(beginning) => {
            let of_beginning = |name: &str| {
                name.get(..beginning.len())
                    .is_some_and(|part| equal(part, beginning))
            };
            let namespace = beginning.strip_suffix('_').unwrap_or_default();
            known_methods::known_method_names().any(of_beginning)
                || known_methods::is_known_namespace(namespace)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{unknown_methods_warning, CaseSensitivity};

    fn warning_for(pattern: &str, case: CaseSensitivity) -> Option<String> {
        unknown_methods_warning(&[pattern.as_bytes()], case, |_| false)
    }

    #[test]
    fn known_names_and_patterns_have_no_warning() {
        for pattern in [
            "*",
            "e*",
            "eth_*",
            "eth_call",
            "eth_sendRawTransaction",
            "eth_sendRawTransactionSync",
            "debug_*",
            "debug_traceB*",
            "admin_*",
            "vault_*",
            "engine_newPayloadV4",
            "engine_newPayloadWithWitnessV5",
            "web3_clientVersion",
            "anvil_setBalance",
        ] {
            assert_eq!(
                warning_for(pattern, CaseSensitivity::Exact),
                None,
                "{pattern}"
            );
        }
    }

    #[test]
    fn unknown_names_are_reported_with_the_nearest_known_one() {
        for (pattern, suggestion) in [
            ("eth_sendRawTransacton", "eth_sendRawTransaction"),
            ("eth_gasPrise", "eth_gasPrice"),
            ("eth_getLog", "eth_getLogs"),
            ("ethcall", "eth_call"),
            ("eth-call", "eth_call"),
            ("eth_Call", "eth_call"),
            ("getBalance", "eth_getBalance"),
            ("debug_", "debug_*"),
            ("trace", "trace*"),
            ("debug-*", "debug_*"),
            ("debug.*", "debug_*"),
            ("admn_*", "admin_*"),
            ("personnal_*", "personal_*"),
            ("DEBUG_*", "debug_*"),
            ("eth_getTranscation*", "eth_getTransaction*"),
        ] {
            let message = warning_for(pattern, CaseSensitivity::Exact).unwrap_or_default();
            let expected = format!("\"{pattern}\"; did you mean \"{suggestion}\"?");
            assert!(message.ends_with(&expected), "{pattern}: {message}");
        }
    }

    #[test]
    fn distant_names_are_reported_without_a_suggestion() {
        for pattern in ["acme_priceOracle", "mychain_*"] {
            let message = warning_for(pattern, CaseSensitivity::Any).unwrap();
            assert!(message.ends_with(&format!("\"{pattern}\"")), "{message}");
        }
    }

    #[test]
    fn case_is_ignored_only_by_case_insensitive_settings() {
        for pattern in ["ETH_CALL", "Debug_*"] {
            assert_eq!(
                warning_for(pattern, CaseSensitivity::Any),
                None,
                "{pattern}"
            );
            assert!(
                warning_for(pattern, CaseSensitivity::Exact).is_some(),
                "{pattern}"
            );
        }
    }

    #[test]
    fn unknown_methods_of_a_line_share_one_warning() {
        let patterns = [
            &b"eth_sendRawTransacton"[..],
            b"acme_x",
            b"eth_call",
            b"debug-*",
        ];
        let message =
            unknown_methods_warning(&patterns, CaseSensitivity::Any, |name| name == b"acme_x")
                .unwrap();
        assert_eq!(
            message,
            "names the unknown method \"eth_sendRawTransacton\"; did you mean \
             \"eth_sendRawTransaction\"?; matches no known method with \"debug-*\"; did you mean \
             \"debug_*\"?"
        );
    }
}
