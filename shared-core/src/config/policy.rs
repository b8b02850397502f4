//! The policy of a route: allowed methods, concurrency limits, response limits, block ranges,
//! batches and upgrades.

use std::sync::Arc;

use super::error_entry::error_cache_entry;
use super::log_range::BlockRangeLimit;
use super::values::{
    inherit_unset, invalid_value_error, set_once, single_directive_value, DirectiveError,
    DirectiveValueRange, DirectiveValueUnit, GIB, KIB,
};
use crate::cache::entry::CacheEntry;
use crate::jsonrpc::concurrency_limit::ConcurrencyLimit;
use crate::jsonrpc::method_patterns::MethodPatternTable;
use crate::jsonrpc::method_rules::{
    MethodAccessDecision, MethodAccessRuleAction, MethodAccessRules,
};

/// Error of nodes for a method that does not exist (JSON-RPC 2.0, 5.1). Clients then try another
/// method or another node.
const METHOD_NOT_FOUND_ERROR: &[u8] =
    br#"{"code":-32601,"message":"the method does not exist/is not available"}"#;

/// Error for an exceeded concurrency limit (EIP-1474). Clients then retry.
const LIMIT_EXCEEDED_ERROR: &[u8] =
    br#"{"code":-32005,"message":"too many calls of this method at a time"}"#;

/// Error for an exceeded response limit (EIP-1474). Clients then request less.
const RESPONSE_TOO_LONG_ERROR: &[u8] =
    br#"{"code":-32005,"message":"the response is longer than the limit of its method"}"#;

/// Error for a method name with bytes that some nodes ignore and others do not.
const AMBIGUOUS_METHOD_ERROR: &[u8] =
    br#"{"code":-32600,"message":"a method name must be printable ASCII without spaces"}"#;

/// Range of response limits in bytes.
pub(super) const RESPONSE_LIMIT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: KIB,
    most: GIB,
    unit: DirectiveValueUnit::Bytes,
};

/// Protocols to which connections may be upgraded.
pub(super) const UPGRADE_WORDS: &[&str] = &["off", "websocket"];

pub(super) const CONCURRENCY_LIMIT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 1 << 20,
    unit: DirectiveValueUnit::Number,
};

/// The compiled policy of a route: its rules and limits for JSON-RPC methods, and the prepared
/// errors for calls that break them.
#[derive(Clone, Debug)]
pub struct CallAccessPolicy {
    rules: Option<Arc<MethodAccessRules>>,
    /// Response limits by method, in bytes.
    response_limits: Option<Arc<MethodPatternTable<u64>>>,
    block_range_limit: Option<Arc<BlockRangeLimit>>,
    max_batch_calls: Option<usize>,
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

impl CallAccessPolicy {
    /// Creates the policy of a configuration block. Returns `None` if no rules are configured.
    fn new(directives: &AccessPolicyConfigBlock, batch_max: Option<usize>) -> Option<Arc<Self>> {
        let block_range_limit = directives.block_range_limit.clone().flatten();
        if directives.rules.is_none()
            && directives.response_limits.is_none()
            && block_range_limit.is_none()
            && batch_max.is_none()
        {
            return None;
        }
        Some(Arc::new(Self {
            rules: directives.rules.clone(),
            response_limits: directives.response_limits.clone(),
            block_range_limit,
            max_batch_calls: batch_max,
            websocket: directives.websocket.unwrap_or(false),
            denied: Arc::new(error_cache_entry(METHOD_NOT_FOUND_ERROR)),
            limited: Arc::new(error_cache_entry(LIMIT_EXCEEDED_ERROR)),
            too_long: Arc::new(error_cache_entry(RESPONSE_TOO_LONG_ERROR)),
            misnamed: Arc::new(error_cache_entry(AMBIGUOUS_METHOD_ERROR)),
        }))
    }

    /// Evaluates the rules for a method name without escapes.
    pub fn evaluate_method_rules(&self, method: &[u8]) -> MethodAccessDecision<'_> {
        let rules = self.rules.as_ref();
        rules.map_or(MethodAccessDecision::Allowed, |rules| {
            rules.evaluate_method(method)
        })
    }

    /// Returns the response limit of a method in bytes, if it has one.
    pub fn method_response_limit(&self, method: &[u8]) -> Option<u64> {
        let response_limits = self.response_limits.as_ref()?;
        // independent of the case that the client uses
        response_limits
            .find_value_for_method(method, |_, _| true)
            .copied()
    }

    /// Returns the limit on the block ranges of calls, if there is one.
    pub(crate) fn block_range_limit(&self) -> Option<&BlockRangeLimit> {
        self.block_range_limit.as_deref()
    }

    /// Returns the maximum number of calls of a batch.
    pub fn max_batch_calls(&self) -> usize {
        self.max_batch_calls.unwrap_or(usize::MAX)
    }

    /// Whether connections may be upgraded to WebSockets, whose calls are not evaluated.
    pub fn allows_websocket(&self) -> bool {
        self.websocket
    }

    /// Returns the response to a call whose method name is ambiguous to nodes.
    pub(crate) fn ambiguous_method_name_error(&self) -> &Arc<CacheEntry> {
        &self.misnamed
    }

    /// Returns the response to a call whose method is denied.
    pub(crate) fn method_denied_error(&self) -> &Arc<CacheEntry> {
        &self.denied
    }

    /// Returns the response to a call above its concurrency limit.
    pub(crate) fn concurrency_limit_error(&self) -> &Arc<CacheEntry> {
        &self.limited
    }

    /// Returns the response to a call whose own response is longer than its limit.
    pub(crate) fn response_too_long_error(&self) -> &Arc<CacheEntry> {
        &self.too_long
    }
}

/// The policy settings that one configuration block sets itself, before inheritance; `None` where
/// it sets none.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessPolicyConfigBlock {
    rules: Option<Arc<MethodAccessRules>>,
    response_limits: Option<Arc<MethodPatternTable<u64>>>,
    /// The limit, or `Some(None)` where it is `off`.
    block_range_limit: Option<Option<Arc<BlockRangeLimit>>>,
    websocket: Option<bool>,
}

impl AccessPolicyConfigBlock {
    /// Sets `allow`, `deny` or `limit=N` for methods.
    pub(super) fn set_method_rules(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        const VERBS: &str = "\"allow\", \"deny\" or \"limit=NUMBER\", followed by method names";
        let (verb, patterns) = match values {
            [] => return Err(invalid_value_error(b"", VERBS)),
            [verb, patterns @ ..] => (*verb, patterns),
        };
        let action = match verb {
            b"allow" => MethodAccessRuleAction::Allow,
            b"deny" => MethodAccessRuleAction::Deny,
            [b'l', b'i', b'm', b'i', b't', b'=', most @ ..] => {
                let most = CONCURRENCY_LIMIT_RANGE
                    .parse_in_range(most)
                    .map_err(|error| error.with_rejected_word(verb))?;
                MethodAccessRuleAction::Limit(ConcurrencyLimit::new(
                    usize::try_from(most).unwrap_or(usize::MAX),
                ))
            }
            _ => return Err(invalid_value_error(verb, VERBS)),
        };
        if patterns.is_empty() {
            return Err(invalid_value_error(b"", "one or more method names"));
        }
        let mut rules = self.rules.as_deref().cloned().unwrap_or_default();
        for pattern in patterns {
            let added = rules.add_rule(pattern, action.clone());
            added.map_err(|error| invalid_value_error(pattern, error.to_string()))?;
        }
        self.rules = Some(Arc::new(rules));
        Ok(())
    }

    /// Adds a response limit from its method pattern and its length in bytes.
    pub(super) fn set_method_response_limit(
        &mut self,
        values: &[&[u8]],
    ) -> Result<(), DirectiveError> {
        let [pattern, size] = values else {
            return Err(DirectiveError::TwoValues);
        };
        let size = RESPONSE_LIMIT_RANGE.parse_in_range(size)?;
        let mut response_limits = self.response_limits.as_deref().cloned().unwrap_or_default();
        let added = response_limits.add_method_pattern(pattern, size);
        added.map_err(|error| invalid_value_error(pattern, error.to_string()))?;
        self.response_limits = Some(Arc::new(response_limits));
        Ok(())
    }

    /// Sets the limit on block ranges, or `off`.
    pub(super) fn set_block_range_limit(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        set_once(&mut self.block_range_limit, || {
            BlockRangeLimit::parse_limit(values)
        })
    }

    /// Sets the protocol of upgrades, or `off`.
    pub(super) fn set_allowed_upgrade_protocol(
        &mut self,
        values: &[&[u8]],
    ) -> Result<(), DirectiveError> {
        set_once(&mut self.websocket, || {
            let value = single_directive_value(values)?;
            match value {
                b"off" => Ok(false),
                b"websocket" => Ok(true),
                _ => Err(invalid_value_error(value, "\"off\" or \"websocket\"")),
            }
        })
    }

    /// Copies unset settings from the enclosing block, as
    /// [`super::RouteConfigBlock::inherit_unset_from`] does. Rules are not inherited into a block that
    /// sets its own.
    pub(super) fn inherit_unset_from(&mut self, outer: &Self) {
        inherit_unset(&mut self.rules, &outer.rules);
        inherit_unset(&mut self.response_limits, &outer.response_limits);
        inherit_unset(&mut self.block_range_limit, &outer.block_range_limit);
        inherit_unset(&mut self.websocket, &outer.websocket);
    }

    /// Returns the policy, as [`super::RouteConfigBlock::resolve_route_config`] does. Batches with more than
    /// `batch_max` calls are denied.
    pub(super) fn resolve_configured_policy(
        &self,
        batch_max: Option<usize>,
    ) -> Option<Arc<CallAccessPolicy>> {
        CallAccessPolicy::new(self, batch_max)
    }
}

#[cfg(test)]
mod tests {
    use super::MethodAccessDecision;
    use crate::config::{RouteConfig, RouteConfigBlock};
    use crate::jsonrpc::block_range::BlockRange;
    use crate::memory::MemoryBudget;

    fn directives(lines: &[&str]) -> RouteConfigBlock {
        let mut directives = RouteConfigBlock::default();
        for line in lines {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
            directives.set_directive(name, &values).unwrap();
        }
        directives
    }

    fn config(lines: &[&str]) -> RouteConfig {
        directives(lines).resolve_route_config(MemoryBudget::new())
    }

    #[test]
    fn policy_exists_when_rules_are_set_and_sszip_is_enabled() {
        assert!(config(&["enable on"]).active_call_policy().is_none());
        assert!(config(&["enable on", "batch_max 5"])
            .active_call_policy()
            .is_none());
        assert!(config(&["method deny a_b"]).active_call_policy().is_none());
        assert!(config(&["enable on", "logs_max_range off"])
            .active_call_policy()
            .is_none());
        for line in [
            "method deny a_b",
            "method allow *",
            "batch_max 5 deny",
            "logs_max_range 5",
        ] {
            let config = config(&["enable on", line]);
            assert!(
                config.active_call_policy().is_some() && config.may_read_request_body(),
                "{line}"
            );
        }
        let config = config(&["enable on", "batch_max 5 deny"]);
        let policy = config.active_call_policy().unwrap();
        assert!(
            matches!(
                policy.evaluate_method_rules(b"a_b"),
                MethodAccessDecision::Allowed
            ) && policy.max_batch_calls() == 5
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
            inner.inherit_unset_from(&outer);
            let config = inner.resolve_route_config(MemoryBudget::new());
            let policy = config.active_call_policy().unwrap();
            let allows = |method: &[u8]| {
                matches!(
                    policy.evaluate_method_rules(method),
                    MethodAccessDecision::Allowed
                )
            };
            let allowed = (allows(b"a_x"), allows(b"b_x"));
            assert_eq!(
                (allowed, policy.max_batch_calls()),
                ((a, b), 5),
                "{lines:?}"
            );
        }
    }

    #[test]
    fn block_range_limit_is_inherited_unless_the_inner_block_sets_its_own() {
        let outer = directives(&["enable on", "logs_max_range 10"]);
        for (lines, most) in [
            (&[][..], Some(10)),
            (&["method deny a_b"], Some(10)),
            (&["logs_max_range 20"], Some(20)),
            (&["logs_max_range off"], None),
        ] {
            let mut inner = directives(lines);
            inner.inherit_unset_from(&outer);
            let config = inner.resolve_route_config(MemoryBudget::new());
            let policy = config.active_call_policy();
            let limit = policy.and_then(|policy| policy.block_range_limit());
            let exceeds =
                |to| limit.is_some_and(|it| it.is_exceeded_by(BlockRange { from: 1, to }));
            assert_eq!(
                (
                    exceeds(most.unwrap_or(9)),
                    exceeds(most.map_or(99, |most| most + 1))
                ),
                (false, most.is_some()),
                "{lines:?}"
            );
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
            let error = RouteConfigBlock::default()
                .set_directive(name, &values)
                .unwrap_err();
            assert!(error.to_string().contains(message), "{line}: {error}");
        }
    }
}
