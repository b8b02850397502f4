//! Rules about methods, as an operator writes them: exact names, and prefixes that end in `*`.
//!
//! An exact name has precedence over a prefix, and a longer prefix over a shorter one. A method
//! without a rule is allowed, unless there is an `allow` rule: then only methods with an `allow`
//! or `limit` rule are. Nodes compare method names exactly, and so does an `allow` rule; `deny`
//! and `limit` rules ignore case, because they must not be bypassed on a node that is less
//! strict.

use std::sync::Arc;

use super::concurrency_limit::ConcurrencyLimit;
use super::method_patterns::{MethodPatternError, MethodPatternTable};

/// The rules of a route that allow, deny or limit methods, by name or prefix. Without a rule all
/// methods are allowed.
#[derive(Clone, Debug, Default)]
pub struct MethodAccessRules {
    patterns: MethodPatternTable<MethodAccessRuleAction>,
    /// Methods without a rule are denied.
    is_closed: bool,
}

/// The action of one rule on the methods that it matches.
#[derive(Clone, Debug)]
pub enum MethodAccessRuleAction {
    /// The method is allowed.
    Allow,
    /// The method is denied.
    Deny,
    /// The method is allowed within a concurrency limit, which it may share with other methods.
    Limit(Arc<ConcurrencyLimit>),
}

/// The decision about one method that follows from all rules.
#[derive(Clone, Copy, Debug)]
pub enum MethodAccessDecision<'a> {
    /// The method is allowed.
    Allowed,
    /// The method is denied.
    Denied,
    /// The method is allowed if a permit is available.
    Limited(&'a Arc<ConcurrencyLimit>),
}

impl MethodAccessRuleAction {
    /// Returns the decision about a method that this rule alone matches.
    fn to_decision(&self) -> MethodAccessDecision<'_> {
        match self {
            MethodAccessRuleAction::Allow => MethodAccessDecision::Allowed,
            MethodAccessRuleAction::Deny => MethodAccessDecision::Denied,
            MethodAccessRuleAction::Limit(limit) => MethodAccessDecision::Limited(limit),
        }
    }
}

impl MethodAccessRules {
    /// Adds a rule for a method name or a prefix.
    ///
    /// # Errors
    /// Returns [`MethodPatternError`] and leaves the rules unchanged.
    pub fn add_rule(
        &mut self,
        pattern: &[u8],
        action: MethodAccessRuleAction,
    ) -> Result<(), MethodPatternError> {
        let allows = matches!(action, MethodAccessRuleAction::Allow);
        self.patterns.add_method_pattern(pattern, action)?;
        self.is_closed |= allows;
        Ok(())
    }

    /// Evaluates the rules for a method name without escapes.
    pub fn evaluate_method(&self, method: &[u8]) -> MethodAccessDecision<'_> {
        let action = self
            .patterns
            .find_value_for_method(method, |action, to_the_letter| match action {
                MethodAccessRuleAction::Deny | MethodAccessRuleAction::Limit(_) => true,
                MethodAccessRuleAction::Allow => to_the_letter,
            });
        match (action, self.is_closed) {
            (Some(MethodAccessRuleAction::Limit(limit)), true)
                if self.allows_exact_name(method) =>
            {
                MethodAccessDecision::Limited(limit)
            }
            (Some(MethodAccessRuleAction::Limit(_)), true) => MethodAccessDecision::Denied,
            (Some(action), _) => action.to_decision(),
            (None, true) => MethodAccessDecision::Denied,
            (None, false) => MethodAccessDecision::Allowed,
        }
    }

    /// Whether a rule allows a method of exactly this name.
    fn allows_exact_name(&self, method: &[u8]) -> bool {
        let action = self
            .patterns
            .find_value_for_method(method, |action, to_the_letter| match action {
                MethodAccessRuleAction::Deny => true,
                MethodAccessRuleAction::Limit(_) | MethodAccessRuleAction::Allow => to_the_letter,
            });
        matches!(
            action,
            Some(MethodAccessRuleAction::Limit(_) | MethodAccessRuleAction::Allow)
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        ConcurrencyLimit, MethodAccessDecision, MethodAccessRuleAction, MethodAccessRules,
        MethodPatternError,
    };

    fn rules(lines: &[&str]) -> MethodAccessRules {
        let mut rules = MethodAccessRules::default();
        for line in lines {
            let mut words = line.split(' ');
            let action = match words.next().unwrap() {
                "allow" => MethodAccessRuleAction::Allow,
                "deny" => MethodAccessRuleAction::Deny,
                _ => MethodAccessRuleAction::Limit(ConcurrencyLimit::new(1)),
            };
            for word in words {
                rules.add_rule(word.as_bytes(), action.clone()).unwrap();
            }
        }
        rules
    }

    impl MethodAccessRules {
        fn allow(&self, method: &[u8]) -> bool {
            matches!(self.evaluate_method(method), MethodAccessDecision::Allowed)
        }

        fn deny(&self, method: &[u8]) -> bool {
            matches!(self.evaluate_method(method), MethodAccessDecision::Denied)
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
                let verdict = rules.evaluate_method(method.as_bytes());
                assert!(
                    matches!(verdict, MethodAccessDecision::Limited(_)),
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
            ("", MethodPatternError::Name),
            ("a b", MethodPatternError::Name),
            ("a*b", MethodPatternError::Name),
            ("**", MethodPatternError::Name),
            ("\"a_b\"", MethodPatternError::Name),
            ("a_b,c_d", MethodPatternError::Name),
            ("a\\u005fb", MethodPatternError::Name),
            ("\u{e9}", MethodPatternError::Name),
            ("a_b", MethodPatternError::Duplicate),
            ("A_b", MethodPatternError::Duplicate),
            ("C_*", MethodPatternError::Duplicate),
        ] {
            let added = rules.add_rule(pattern.as_bytes(), MethodAccessRuleAction::Allow);
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
            let mut rules = MethodAccessRules::default();
            let mut taken: Vec<(String, bool, bool)> = Vec::new();
            for (name, is_beginning, allows) in all {
                let pattern = if is_beginning { format!("{name}*") } else { name.clone() };
                let action = if allows { MethodAccessRuleAction::Allow } else { MethodAccessRuleAction::Deny };
                if rules.add_rule(pattern.as_bytes(), action).is_ok() {
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
