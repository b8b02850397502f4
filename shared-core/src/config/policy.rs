//! The policy of a route: allowed methods, concurrency limits, response limits, batches and
//! upgrades.

use std::sync::Arc;

use super::values::{
    inherit_unset, invalid, set_once, single_value, DirectiveError, Range, Unit, GIB, KIB,
};
use crate::bytes::Bytes;
use crate::cache::entry::{CacheEntry, EntryMeta, Envelope, IdPosition, Payload};
use crate::jsonrpc::limit::ConcurrencyLimit;
use crate::jsonrpc::patterns::Patterns;
use crate::jsonrpc::rules::{RuleAction, RuleDecision, Rules};
use crate::transcode::JSON;

/// Error of nodes for a method that does not exist (JSON-RPC 2.0, 5.1). Clients then try another
/// method or another node.
const NOT_FOUND: &[u8] =
    br#"{"code":-32601,"message":"the method does not exist/is not available"}"#;

/// Error for an exceeded concurrency limit (EIP-1474). Clients then retry.
const LIMITED: &[u8] = br#"{"code":-32005,"message":"too many calls of this method at a time"}"#;

/// Error for an exceeded response limit (EIP-1474). Clients then request less.
const TOO_LONG: &[u8] =
    br#"{"code":-32005,"message":"the response is longer than the limit of its method"}"#;

/// Error for a method name with bytes that some nodes ignore and others do not.
const AMBIGUOUS_METHOD: &[u8] =
    br#"{"code":-32600,"message":"a method name must be printable ASCII without spaces"}"#;

/// Range of response limits in bytes.
pub(super) const ANSWERS: Range = Range {
    least: KIB,
    most: GIB,
    unit: Unit::Bytes,
};

/// Protocols to which connections may be upgraded.
pub(super) const UPGRADES: &[&str] = &["off", "websocket"];

pub(super) const LIMITS: Range = Range {
    least: 1,
    most: 1 << 20,
    unit: Unit::Number,
};

/// The compiled policy of a route: its rules, its limits, and the responses to calls that break
/// them.
#[derive(Clone, Debug)]
pub struct Policy {
    rules: Option<Arc<Rules>>,
    /// Response limits by method, in bytes.
    answers: Option<Arc<Patterns<u64>>>,
    batch_max: Option<usize>,
    websocket: bool,
    /// Response to a denied call, in the form of a cache entry.
    denied: Arc<CacheEntry>,
    /// Response to a call above its concurrency limit.
    limited: Arc<CacheEntry>,
    /// Response to a call whose own response is longer than its limit.
    too_long: Arc<CacheEntry>,
    /// Response to a call whose method name is ambiguous.
    misnamed: Arc<CacheEntry>,
}

impl Policy {
    /// Creates the policy of a configuration block. Returns `None` if no rules are configured.
    fn new(directives: &PolicyConfigBlock, batch_max: Option<usize>) -> Option<Arc<Self>> {
        if directives.rules.is_none() && directives.answers.is_none() && batch_max.is_none() {
            return None;
        }
        Some(Arc::new(Self {
            rules: directives.rules.clone(),
            answers: directives.answers.clone(),
            batch_max,
            websocket: directives.websocket.unwrap_or(false),
            denied: Arc::new(error(NOT_FOUND)),
            limited: Arc::new(error(LIMITED)),
            too_long: Arc::new(error(TOO_LONG)),
            misnamed: Arc::new(error(AMBIGUOUS_METHOD)),
        }))
    }

    /// Evaluates the rules for a method name without escapes.
    pub fn evaluate(&self, method: &[u8]) -> RuleDecision<'_> {
        let rules = self.rules.as_ref();
        rules.map_or(RuleDecision::Allowed, |rules| rules.evaluate(method))
    }

    /// Returns the response limit of a method in bytes, if it has one.
    pub fn max_answer(&self, method: &[u8]) -> Option<u64> {
        let answers = self.answers.as_ref()?;
        // independent of the case that the client uses
        answers.find(method, |_, _| true).copied()
    }

    /// Returns the maximum number of calls of a batch.
    pub fn batch_max(&self) -> usize {
        self.batch_max.unwrap_or(usize::MAX)
    }

    /// Whether connections may be upgraded to WebSockets, whose calls are not evaluated.
    pub fn allows_websocket(&self) -> bool {
        self.websocket
    }

    /// Returns the response to a call whose method name is ambiguous to nodes.
    pub(crate) fn ambiguous_method_error(&self) -> &Arc<CacheEntry> {
        &self.misnamed
    }

    /// Returns the response to a call whose method is denied.
    pub(crate) fn method_denied_error(&self) -> &Arc<CacheEntry> {
        &self.denied
    }

    /// Returns the response to a call above its concurrency limit.
    pub(crate) fn limit_exceeded_error(&self) -> &Arc<CacheEntry> {
        &self.limited
    }

    /// Returns the response to a call whose own response is longer than its limit.
    pub(crate) fn response_too_long_error(&self) -> &Arc<CacheEntry> {
        &self.too_long
    }
}

/// Creates an error response in the form of a cache entry.
fn error(text: &[u8]) -> CacheEntry {
    let envelope = Envelope {
        id: IdPosition::BeforeResult,
        before: Box::from(&b"{\"jsonrpc\":\"2.0\",\"id\":"[..]),
        between: Box::from(&b",\"error\":"[..]),
        after: Box::from(&b"}"[..]),
    };
    let meta = EntryMeta {
        status: 200,
        fields: vec![(b"Content-Type".to_vec(), JSON.to_vec())],
        ..EntryMeta::default()
    };
    CacheEntry::new(envelope, Payload::Raw(Bytes::from(text.to_vec())), meta)
}

/// Policy settings of one configuration block; `None` where they are not set.
#[derive(Clone, Debug, Default)]
pub(super) struct PolicyConfigBlock {
    rules: Option<Arc<Rules>>,
    answers: Option<Arc<Patterns<u64>>>,
    websocket: Option<bool>,
}

impl PolicyConfigBlock {
    /// Sets `allow`, `deny` or `limit=N` for methods.
    pub(super) fn set_method(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        const VERBS: &str = "\"allow\", \"deny\" or \"limit=NUMBER\", followed by method names";
        let (verb, patterns) = match values {
            [] => return Err(invalid(b"", VERBS)),
            [verb, patterns @ ..] => (*verb, patterns),
        };
        let action = match verb {
            b"allow" => RuleAction::Allow,
            b"deny" => RuleAction::Deny,
            [b'l', b'i', b'm', b'i', b't', b'=', most @ ..] => {
                let most = LIMITS.read(most).map_err(|error| error.with_word(verb))?;
                RuleAction::Limit(ConcurrencyLimit::new(
                    usize::try_from(most).unwrap_or(usize::MAX),
                ))
            }
            _ => return Err(invalid(verb, VERBS)),
        };
        if patterns.is_empty() {
            return Err(invalid(b"", "one or more method names"));
        }
        let mut rules = self.rules.as_deref().cloned().unwrap_or_default();
        for pattern in patterns {
            let added = rules.add(pattern, action.clone());
            added.map_err(|error| invalid(pattern, error.to_string()))?;
        }
        self.rules = Some(Arc::new(rules));
        Ok(())
    }

    /// Sets the response limit of a method.
    pub(super) fn set_max_answer(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        let [pattern, size] = values else {
            return Err(DirectiveError::TwoValues);
        };
        let size = ANSWERS.read(size)?;
        let mut answers = self.answers.as_deref().cloned().unwrap_or_default();
        let added = answers.add(pattern, size);
        added.map_err(|error| invalid(pattern, error.to_string()))?;
        self.answers = Some(Arc::new(answers));
        Ok(())
    }

    /// Sets the protocol of upgrades, or `off`.
    pub(super) fn set_upgrade(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        set_once(&mut self.websocket, || {
            let value = single_value(values)?;
            match value {
                b"off" => Ok(false),
                b"websocket" => Ok(true),
                _ => Err(invalid(value, "\"off\" or \"websocket\"")),
            }
        })
    }

    /// Copies unset settings from the enclosing block, as [`super::ConfigBlock::inherit`] does.
    /// Rules are not inherited into a block that sets its own.
    pub(super) fn inherit(&mut self, outer: &Self) {
        inherit_unset(&mut self.rules, &outer.rules);
        inherit_unset(&mut self.answers, &outer.answers);
        inherit_unset(&mut self.websocket, &outer.websocket);
    }

    /// Returns the policy, as [`super::ConfigBlock::resolve`] does. Batches with more than
    /// `batch_max` calls are denied.
    pub(super) fn resolve(&self, batch_max: Option<usize>) -> Option<Arc<Policy>> {
        Policy::new(self, batch_max)
    }
}

#[cfg(test)]
mod tests {
    use super::RuleDecision;
    use crate::config::{ConfigBlock, RouteConfig};
    use crate::memory::Budget;

    fn directives(lines: &[&str]) -> ConfigBlock {
        let mut directives = ConfigBlock::default();
        for line in lines {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
            directives.set(name, &values).unwrap();
        }
        directives
    }

    fn config(lines: &[&str]) -> RouteConfig {
        directives(lines).resolve(Budget::new())
    }

    #[test]
    fn policy_exists_when_rules_are_set_and_sszip_is_enabled() {
        assert!(config(&["enable on"]).policy().is_none());
        assert!(config(&["enable on", "batch_max 5"]).policy().is_none());
        assert!(config(&["method deny a_b"]).policy().is_none());
        for line in ["method deny a_b", "method allow *", "batch_max 5 deny"] {
            let config = config(&["enable on", line]);
            assert!(
                config.policy().is_some() && config.may_read_request_body(),
                "{line}"
            );
        }
        let config = config(&["enable on", "batch_max 5 deny"]);
        let policy = config.policy().unwrap();
        assert!(
            matches!(policy.evaluate(b"a_b"), RuleDecision::Allowed) && policy.batch_max() == 5
        );
        assert_eq!(config.cache.batch_max, 5);
    }

    #[test]
    fn rules_are_not_inherited_into_a_block_that_sets_its_own() {
        let outer = directives(&["enable on", "method deny a_*", "batch_max 5 deny"]);
        for (lines, a, b) in [
            (&[][..], false, true),
            (&["method deny b_*"], true, false),
            (&["method allow *"], true, true),
        ] {
            let mut inner = directives(lines);
            inner.inherit(&outer);
            let config = inner.resolve(Budget::new());
            let policy = config.policy().unwrap();
            let allows = |method: &[u8]| matches!(policy.evaluate(method), RuleDecision::Allowed);
            let allowed = (allows(b"a_x"), allows(b"b_x"));
            assert_eq!((allowed, policy.batch_max()), ((a, b), 5), "{lines:?}");
        }
    }

    #[test]
    fn invalid_rules_are_rejected_with_the_allowed_values() {
        for (line, message) in [
            (
                "method",
                "it must be \"allow\", \"deny\" or \"limit=NUMBER\", followed by method names",
            ),
            (
                "method permit a_b",
                "\"permit\": it must be \"allow\", \"deny\" or \"limit=NUMBER\"",
            ),
            (
                "method limit=0 a_b",
                "\"limit=0\": it must be a number from 1 to 1048576",
            ),
            ("method limit a_b", "\"limit\": it must be \"allow\""),
            ("method limit=5", "it must be one or more method names"),
            ("method deny", "it must be one or more method names"),
            (
                "method deny a*b",
                "\"a*b\": it must be a method name, or a prefix",
            ),
            (
                "method deny a_b A_B",
                "\"A_B\": it must be a method or prefix that this block",
            ),
            (
                "batch_max 5 refuse",
                "\"refuse\": it must be \"deny\" or omitted",
            ),
            ("batch_max 5 deny 5", "takes one or two values"),
        ] {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
            let error = ConfigBlock::default().set(name, &values).unwrap_err();
            assert!(error.to_string().contains(message), "{line}: {error}");
        }
    }
}
