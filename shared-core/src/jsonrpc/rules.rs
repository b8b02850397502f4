//! Which methods may be called, as an operator has said it: names, and beginnings of
//! names with a `*` after them.
//!
//! A name beats a beginning, and a longer beginning a shorter one. What nothing names
//! may be called, unless something is allowed: then only that is. Nodes take a method's
//! name to the letter, and so does what allows one; what denies or limits one does so in any
//! case of its letters, since a node that is less strict must not be reached that way.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::limit::Limit;

/// What may be called, and what may not. Nothing was said: everything may be.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// In the order of the alphabet, whatever their case.
    names: Vec<Rule>,
    /// The longest first.
    beginnings: Vec<Rule>,
    /// What nothing names may not be called.
    is_closed: bool,
}

#[derive(Clone, Debug)]
struct Rule {
    /// As it was written, without its `*`.
    name: Box<[u8]>,
    says: Says,
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

/// Why a rule was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// It is no name of a method, nor the beginning of any.
    Name,
    /// There is one for that already.
    Twice,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleError::Name => "the name of a method, or the beginning of names with a \"*\"",
            RuleError::Twice => "a method, or a beginning, that no other rule here has",
        })
    }
}

impl std::error::Error for RuleError {}

impl Rules {
    /// One more.
    ///
    /// # Errors
    /// [`RuleError`]; nothing is changed then.
    pub fn add(&mut self, pattern: &[u8], says: Says) -> Result<(), RuleError> {
        let (name, is_beginning) = match pattern {
            [name @ .., b'*'] => (name, true),
            name => (name, false),
        };
        if name.is_empty() && !is_beginning || !name.iter().all(is_of_name) {
            return Err(RuleError::Name);
        }
        let rules = match is_beginning {
            true => &mut self.beginnings,
            false => &mut self.names,
        };
        let is_there = |rule: &Rule| rule.name.eq_ignore_ascii_case(name);
        if rules.iter().any(is_there) {
            return Err(RuleError::Twice);
        }
        self.is_closed |= matches!(says, Says::Allow);
        rules.push(Rule {
            name: name.into(),
            says,
        });
        match is_beginning {
            true => rules.sort_by_key(|rule| usize::MAX - rule.name.len()),
            false => rules.sort_by(|a, b| in_any_case(&a.name, &b.name)),
        }
        Ok(())
    }

    /// What is said of a method of that name, without escapes.
    pub fn judge(&self, method: &[u8]) -> Verdict<'_> {
        let found = |rule: &Rule| in_any_case(&rule.name, method);
        if let Ok(at) = self.names.binary_search_by(found) {
            let rule = &self.names[at];
            if self.is_of(rule, method) {
                return rule.says.verdict();
            }
        }
        for rule in &self.beginnings {
            let Some(beginning) = method.get(..rule.name.len()) else {
                continue;
            };
            if self.is_of(rule, beginning) {
                return rule.says.verdict();
            }
        }
        match self.is_closed {
            true => Verdict::Denied,
            false => Verdict::Allowed,
        }
    }

    /// Whether a rule is of that name or beginning, as long as its own.
    fn is_of(&self, rule: &Rule, name: &[u8]) -> bool {
        match rule.says {
            Says::Deny => rule.name.eq_ignore_ascii_case(name),
            // where only what is named may be called that is to the letter
            Says::Limit(_) if !self.is_closed => rule.name.eq_ignore_ascii_case(name),
            Says::Allow | Says::Limit(_) => *rule.name == *name,
        }
    }
}

/// What is neither a blank nor to be escaped in JSON, nor would be taken for two names in
/// a list.
fn is_of_name(byte: &u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b'*')
}

fn in_any_case(one: &[u8], other: &[u8]) -> Ordering {
    let lower = |name: &[u8], at: usize| name.get(at).map(u8::to_ascii_lowercase);
    let mut at = 0;
    loop {
        match (lower(one, at), lower(other, at)) {
            (None, None) => return Ordering::Equal,
            (a, b) if a != b => return a.cmp(&b),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Limit, RuleError, Rules, Says, Verdict};

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
            ("", RuleError::Name),
            ("a b", RuleError::Name),
            ("a*b", RuleError::Name),
            ("**", RuleError::Name),
            ("\"a_b\"", RuleError::Name),
            ("a_b,c_d", RuleError::Name),
            ("a\\u005fb", RuleError::Name),
            ("\u{e9}", RuleError::Name),
            ("a_b", RuleError::Twice),
            ("A_b", RuleError::Twice),
            ("C_*", RuleError::Twice),
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
