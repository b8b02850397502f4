//! Rules about methods, as an operator writes them: exact names, and prefixes that end in `*`.
//!
//! An exact name has precedence over a prefix, and a longer prefix over a shorter one. A method
//! without a rule is allowed, unless there is an `allow` rule: then only methods with an `allow`
//! or `limit` rule are. Nodes compare method names exactly, and so does an `allow` rule; `deny`
//! and `limit` rules ignore case, because they must not be bypassed on a node that is less
//! strict.

use std::sync::Arc;

use super::limit::ConcurrencyLimit;
use super::patterns::{PatternError, Patterns};

/// The rules of a route that allow, deny or limit methods, by name or prefix. Without a rule all
/// methods are allowed.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    patterns: Patterns<RuleAction>,
    /// Methods without a rule are denied.
    is_closed: bool,
}

/// The action of one rule on the methods that it matches.
#[derive(Clone, Debug)]
pub enum RuleAction {
    /// The method is allowed.
    Allow,
    /// The method is denied.
    Deny,
    /// The method is allowed within a concurrency limit, which it may share with other methods.
    Limit(Arc<ConcurrencyLimit>),
}

/// The decision about one method that follows from all rules.
#[derive(Clone, Copy, Debug)]
pub enum RuleDecision<'a> {
    /// The method is allowed.
    Allowed,
    /// The method is denied.
    Denied,
    /// The method is allowed if a permit is available.
    Limited(&'a Arc<ConcurrencyLimit>),
}

impl RuleAction {
    /// Returns the decision about a method that this rule alone matches.
    fn verdict(&self) -> RuleDecision<'_> {
        match self {
            RuleAction::Allow => RuleDecision::Allowed,
            RuleAction::Deny => RuleDecision::Denied,
            RuleAction::Limit(limit) => RuleDecision::Limited(limit),
        }
    }
}

impl Rules {
    /// Adds a rule for a method name or a prefix.
    ///
    /// # Errors
    /// Returns [`PatternError`] and leaves the rules unchanged.
    pub fn add(&mut self, pattern: &[u8], action: RuleAction) -> Result<(), PatternError> {
        let allows = matches!(action, RuleAction::Allow);
        self.patterns.add(pattern, action)?;
        self.is_closed |= allows;
        Ok(())
    }

    /// Evaluates the rules for a method name without escapes.
    pub fn evaluate(&self, method: &[u8]) -> RuleDecision<'_> {
        let action = self
            .patterns
            .find(method, |action, to_the_letter| match action {
                RuleAction::Deny | RuleAction::Limit(_) => true,
                RuleAction::Allow => to_the_letter,
            });
        match (action, self.is_closed) {
            (Some(RuleAction::Limit(limit)), true) if self.allows_exact_name(method) => {
                RuleDecision::Limited(limit)
            }
            (Some(RuleAction::Limit(_)), true) => RuleDecision::Denied,
            (Some(action), _) => action.verdict(),
            (None, true) => RuleDecision::Denied,
            (None, false) => RuleDecision::Allowed,
        }
    }

    /// Whether a rule allows a method of exactly this name.
    fn allows_exact_name(&self, method: &[u8]) -> bool {
        let action = self
            .patterns
            .find(method, |action, to_the_letter| match action {
                RuleAction::Deny => true,
                RuleAction::Limit(_) | RuleAction::Allow => to_the_letter,
            });
        matches!(action, Some(RuleAction::Limit(_) | RuleAction::Allow))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ConcurrencyLimit, PatternError, RuleAction, RuleDecision, Rules};

    fn rules(lines: &[&str]) -> Rules {
        let mut rules = Rules::default();
        for line in lines {
            let mut words = line.split(' ');
            let action = match words.next().unwrap() {
                "allow" => RuleAction::Allow,
                "deny" => RuleAction::Deny,
                _ => RuleAction::Limit(ConcurrencyLimit::new(1)),
            };
            for word in words {
                rules.add(word.as_bytes(), action.clone()).unwrap();
            }
        }
        rules
    }

    impl Rules {
        fn allow(&self, method: &[u8]) -> bool {
            matches!(self.evaluate(method), RuleDecision::Allowed)
        }

        fn deny(&self, method: &[u8]) -> bool {
            matches!(self.evaluate(method), RuleDecision::Denied)
        }
    }

    #[test]
    fn limited_methods_are_allowed_and_limits_do_not_deny_other_methods() {
        for (lines, limited, allowed, denied) in [
            (
                &["limit trace_* eth_getLogs"][..],
                &["trace_x", "Trace_x", "eth_getLogs", "ETH_getlogs"][..],
                &["eth_call", "trace"][..],
                &[][..],
            ),
            (
                &[
                    "limit trace_*",
                    "allow eth_* trace_block",
                    "deny trace_call",
                ],
                &["trace_x"],
                &["eth_call", "trace_block"],
                &["Trace_x", "trace_call", "net_version", "TRACE_CALL"],
            ),
            (
                &["allow eth_*", "limit eth_getLogs"],
                &["eth_getLogs", "eth_GETLOGS", "eth_getlogs"],
                &["eth_call"],
                &["ETH_getLogs", "trace_x"],
            ),
            (
                &["deny debug_*", "limit debug_traceCall"],
                &["debug_traceCall", "debug_tracecall"],
                &["eth_call"],
                &["debug_x"],
            ),
        ] {
            let rules = rules(lines);
            for method in limited {
                let verdict = rules.evaluate(method.as_bytes());
                assert!(
                    matches!(verdict, RuleDecision::Limited(_)),
                    "{lines:?} {method}"
                );
            }
            for method in allowed {
                assert!(rules.allow(method.as_bytes()), "{lines:?} {method}");
            }
            for method in denied {
                assert!(rules.deny(method.as_bytes()), "{lines:?} {method}");
            }
        }
    }

    #[test]
    fn exact_name_beats_prefix_and_longer_prefix_beats_shorter() {
        for (lines, allowed, denied) in [
            (&[][..], &["eth_call", "", "x"][..], &[][..]),
            (
                &["deny debug_* eth_sign"],
                &["eth_call", "debug", "eth_signTransaction", "debu", ""],
                &[
                    "debug_",
                    "debug_traceCall",
                    "eth_sign",
                    "ETH_SIGN",
                    "Debug_x",
                ],
            ),
            (
                &["allow eth_* net_version"],
                &["eth_call", "eth_", "net_version"],
                &[
                    "net_versio",
                    "net_version2",
                    "ETH_call",
                    "Net_Version",
                    "",
                    "admin_x",
                ],
            ),
            (
                &["deny debug_*", "allow * debug_traceBlockByHash"],
                &["eth_call", "", "debug_traceBlockByHash"],
                &["debug_traceblockbyhash", "debug_x"],
            ),
            (
                &["allow a*", "deny ab*", "allow abc*", "deny abcd"],
                &["a", "aX", "abc", "abcde"],
                &["ab", "abX", "abcd", "ABC", "b"],
            ),
            (&["deny *"], &[], &["", "x", "eth_call"]),
        ] {
            let rules = rules(lines);
            for method in allowed {
                assert!(rules.allow(method.as_bytes()), "{lines:?} {method}");
            }
            for method in denied {
                assert!(!rules.allow(method.as_bytes()), "{lines:?} {method}");
            }
        }
    }

    #[test]
    fn invalid_pattern_is_rejected_and_changes_nothing() {
        let mut rules = rules(&["deny a_b c_*"]);
        for (pattern, error) in [
            ("", PatternError::Name),
            ("a b", PatternError::Name),
            ("a*b", PatternError::Name),
            ("**", PatternError::Name),
            ("\"a_b\"", PatternError::Name),
            ("a_b,c_d", PatternError::Name),
            ("a\\u005fb", PatternError::Name),
            ("\u{e9}", PatternError::Name),
            ("a_b", PatternError::Duplicate),
            ("A_b", PatternError::Duplicate),
            ("C_*", PatternError::Duplicate),
        ] {
            let added = rules.add(pattern.as_bytes(), RuleAction::Allow);
            assert_eq!(added, Err(error), "{pattern}");
        }
        // the rules are unchanged
        assert!(rules.allow(b"other"));
    }

    proptest! {
        #[test]
        fn exact_or_longest_matching_rule_decides(
            all in prop::collection::vec(("[abAB]{0,3}", any::<bool>(), any::<bool>()), 0..8),
            methods in prop::collection::vec("[abAB]{0,4}", 8),
        ) {
            let mut rules = Rules::default();
            let mut taken: Vec<(String, bool, bool)> = Vec::new();
            for (name, is_beginning, allows) in all {
                let pattern = if is_beginning { format!("{name}*") } else { name.clone() };
                let action = if allows { RuleAction::Allow } else { RuleAction::Deny };
                if rules.add(pattern.as_bytes(), action).is_ok() {
                    taken.push((name, is_beginning, allows));
                }
            }
            for method in methods {
                let lower = method.to_ascii_lowercase();
                let matches = taken.iter().filter(|(name, is_beginning, allows)| {
                    let (name, method) = match allows {
                        true => (name.clone(), &method),
                        false => (name.to_ascii_lowercase(), &lower),
                    };
                    if *is_beginning { method.starts_with(&name) } else { *method == name }
                });
                let best = matches.max_by_key(|(name, is_beginning, _)| (!is_beginning, name.len()));
                let closed = taken.iter().any(|(_, _, allows)| *allows);
                let expected = best.map_or(!closed, |(_, _, allows)| *allows);
                prop_assert_eq!(rules.allow(method.as_bytes()), expected, "{} {:?}", method, taken);
            }
        }
    }
}
