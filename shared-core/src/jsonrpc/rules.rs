//! Which methods may be called, as an operator has said it: names, and beginnings of
//! names with a `*` after them.
//!
//! A name beats a beginning, and a longer beginning a shorter one. What nothing names
//! may be called, unless something is allowed: then only that is. Nodes take a method's
//! name to the letter, and so does what allows one; what denies or limits one does so in any
//! case of its letters, since a node that is less strict must not be reached that way.

use std::sync::Arc;

use super::limit::Limit;
use super::patterns::{PatternError, Patterns};

/// What may be called, and what may not. Nothing was said: everything may be.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    patterns: Patterns<Says>,
    /// What nothing names may not be called.
    is_closed: bool,
}

/// What a rule says of a method.
#[derive(Clone, Debug)]
pub enum Says {
    /// It may be called.
    Allow,
    /// It may not.
    Deny,
    /// It may be called so often at a time, with all others of that limit.
    Limit(Arc<Limit>),
}

/// What is said of a method by all rules.
#[derive(Clone, Copy, Debug)]
pub enum Verdict<'a> {
    /// It may be called.
    Allowed,
    /// It may not.
    Denied,
    /// It may if there is room.
    Limited(&'a Arc<Limit>),
}

impl Says {
    fn verdict(&self) -> Verdict<'_> {
        match self {
            Says::Allow => Verdict::Allowed,
            Says::Deny => Verdict::Denied,
            Says::Limit(limit) => Verdict::Limited(limit),
        }
    }
}

impl Rules {
    /// One more.
    ///
    /// # Errors
    /// [`PatternError`]; nothing is changed then.
    pub fn add(&mut self, pattern: &[u8], says: Says) -> Result<(), PatternError> {
        let allows = matches!(says, Says::Allow);
        self.patterns.add(pattern, says)?;
        self.is_closed |= allows;
        Ok(())
    }

    /// What is said of a method of that name, without escapes.
    pub fn judge(&self, method: &[u8]) -> Verdict<'_> {
        let says = self
            .patterns
            .find(method, |says, to_the_letter| match says {
                Says::Deny | Says::Limit(_) => true,
                Says::Allow => to_the_letter,
            });
        match (says, self.is_closed) {
            (Some(Says::Limit(limit)), true) if self.names(method) => Verdict::Limited(limit),
            (Some(Says::Limit(_)), true) => Verdict::Denied,
            (Some(says), _) => says.verdict(),
            (None, true) => Verdict::Denied,
            (None, false) => Verdict::Allowed,
        }
    }

    /// Whether a rule lets a method of that name, to the letter, be called.
    fn names(&self, method: &[u8]) -> bool {
        let says = self
            .patterns
            .find(method, |says, to_the_letter| match says {
                Says::Deny => true,
                Says::Limit(_) | Says::Allow => to_the_letter,
            });
        matches!(says, Some(Says::Limit(_) | Says::Allow))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Limit, PatternError, Rules, Says, Verdict};

    fn rules(lines: &[&str]) -> Rules {
        let mut rules = Rules::default();
        for line in lines {
            let mut words = line.split(' ');
            let says = match words.next().unwrap() {
                "allow" => Says::Allow,
                "deny" => Says::Deny,
                _ => Says::Limit(Limit::of(1)),
            };
            for word in words {
                rules.add(word.as_bytes(), says.clone()).unwrap();
            }
        }
        rules
    }

    impl Rules {
        fn allow(&self, method: &[u8]) -> bool {
            matches!(self.judge(method), Verdict::Allowed)
        }

        fn deny(&self, method: &[u8]) -> bool {
            matches!(self.judge(method), Verdict::Denied)
        }
    }

    #[test]
    fn what_is_limited_is_allowed_but_allows_nothing_to_others() {
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
                let verdict = rules.judge(method.as_bytes());
                assert!(matches!(verdict, Verdict::Limited(_)), "{lines:?} {method}");
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
    fn a_name_beats_a_beginning_and_a_longer_one_a_shorter() {
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
    fn what_is_no_rule_is_refused() {
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
            ("a_b", PatternError::Twice),
            ("A_b", PatternError::Twice),
            ("C_*", PatternError::Twice),
        ] {
            let added = rules.add(pattern.as_bytes(), Says::Allow);
            assert_eq!(added, Err(error), "{pattern}");
        }
        // and nothing is changed
        assert!(rules.allow(b"other"));
    }

    proptest! {
        #[test]
        fn the_longest_rule_decides(
            all in prop::collection::vec(("[abAB]{0,3}", any::<bool>(), any::<bool>()), 0..8),
            methods in prop::collection::vec("[abAB]{0,4}", 8),
        ) {
            let mut rules = Rules::default();
            let mut taken: Vec<(String, bool, bool)> = Vec::new();
            for (name, is_beginning, allows) in all {
                let pattern = if is_beginning { format!("{name}*") } else { name.clone() };
                let says = if allows { Says::Allow } else { Says::Deny };
                if rules.add(pattern.as_bytes(), says).is_ok() {
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
