//! Settings of the cache: which responses are cached, for how long, and for which clients.

use std::sync::Arc;

use super::head_source::HeadSource;
use super::head_sources::DeclaredHeadSource;
use super::log_split::{LogSplitConfig, LogSplitLimits};
use super::method_names::{self, CaseSensitivity};
use super::values::{
    inherit_unset, invalid_value_error, parse_flag, set_once, single_directive_value,
    DirectiveError, DirectiveLocation, DirectiveValueRange, DirectiveValueUnit,
};
use super::values::{GIB, KIB, MIB};
use super::verify::HitVerificationConfig;
use crate::cache::class::LifetimeClass;
use crate::cache::credentials::{CredentialsPolicies, CredentialsPolicy};
use crate::cache::freshness::CacheLifetimes;
use crate::cache::use_stale::UseStaleConditions;
use crate::jsonrpc::method_spec::{MethodSpecError, MethodSpecs};
use crate::jsonrpc::methods;
use crate::jsonrpc::stateful_methods::is_stateful_method;

/// The cache settings of one route after inheritance, with defaults: the responses that are stored,
/// for how long, and for which clients.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Whether responses are stored and looked up.
    pub enable: bool,
    /// The namespace that separates the responses of this chain from others, if it is the same for
    /// all requests of the route.
    pub namespace: Option<Arc<[u8]>>,
    /// The GET requests that are looked up and stored.
    pub get: CacheableGetRequests,
    /// Lifetimes of responses.
    pub valid: Arc<CacheLifetimes>,
    /// Maximum length of a response that is stored, in bytes before compression.
    pub max_entry: u64,
    /// Maximum length of a request that is looked up, in bytes.
    pub max_request: u64,
    /// The treatment of request headers that identify the caller.
    pub credentials: Arc<CredentialsPolicies>,
    /// Maximum number of calls of a batch that is looked up.
    pub batch_max: usize,
    /// Memory limit of the hot tier over all processes of the host, in bytes.
    pub memory: u64,
    /// Whether requests for the same key are coalesced.
    pub lock: bool,
    /// Time for which followers wait for the leader, in milliseconds.
    pub lock_timeout: u64,
    /// The conditions for serving stale responses.
    pub use_stale: UseStaleConditions,
    /// Whether a stale response is also sent to the request that fetches the new one.
    pub background_update: bool,
    /// The share of hits that are compared with the node.
    pub verify: HitVerificationConfig,
    /// The split of wide calls for logs; `None` if they are not split.
    pub logs_split: Option<LogSplitConfig>,
    /// Whether the logs of a block are derived from its stored receipts.
    pub logs_from_receipts: bool,
    /// Head sources for the owner's chain followers.
    pub follows: Arc<Vec<DeclaredHeadSource>>,
}

/// The value of `cache_get`: the GET and HEAD requests of a route that the cache serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheableGetRequests {
    /// Requests of the Beacon API.
    #[default]
    Beacon,
    /// All requests that RFC 9111 permits.
    All,
}

impl CacheConfig {
    /// Whether the proxy may send requests of its own to the node, to revalidate or verify entries,
    /// or for the pieces of a response.
    pub fn may_send_background_requests(&self) -> bool {
        self.background_update || self.verify.is_verification_enabled() || self.logs_split.is_some()
    }
}

/// The cache settings that one configuration block sets itself, before inheritance; `None` where it
/// sets none.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheConfigBlock {
    enable: Option<bool>,
    namespace: Option<Arc<[u8]>>,
    get: Option<CacheableGetRequests>,
    lifetimes: Option<Arc<CacheLifetimes>>,
    rows: Option<Arc<MethodSpecs>>,
    max_entry: Option<u64>,
    max_request: Option<u64>,
    credentials: Option<Arc<CredentialsPolicies>>,
    /// Maximum number of calls, and whether larger batches are denied.
    batch_max: Option<(u64, bool)>,
    memory: Option<u64>,
    lock: Option<bool>,
    lock_timeout: Option<u64>,
    use_stale: Option<UseStaleConditions>,
    background_update: Option<bool>,
    verify: Option<HitVerificationConfig>,
    /// The limits, or `Some(None)` where it is `off`.
    logs_split: Option<Option<LogSplitLimits>>,
    logs_from_receipts: Option<bool>,
    /// Empty if it is `off`.
    follows: Option<Arc<Vec<DeclaredHeadSource>>>,
    /// Warning about the directive that was set last.
    pub(super) warning: Option<String>,
}

pub(super) const LIFETIME_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 365 * 24 * 3600 * 1000,
    unit: DirectiveValueUnit::Time,
};
pub(super) const LOCK_TIMEOUT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 3600 * 1000,
    unit: DirectiveValueUnit::Time,
};
/// Range of the lookup timeout, below `link_silence`, after which a silent connection is closed.
pub(super) const LOOKUP_TIMEOUT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 1_000,
    unit: DirectiveValueUnit::Time,
};
pub(super) const MAX_ENTRY_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: KIB,
    most: GIB,
    unit: DirectiveValueUnit::Bytes,
};
/// Range of `cache_max_request`. A request is scanned before it is forwarded: the limit bounds that
/// work.
pub(super) const MAX_REQUEST_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: KIB,
    most: 64 * MIB,
    unit: DirectiveValueUnit::Bytes,
};
pub(super) const BATCH_MAX_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 10_000,
    unit: DirectiveValueUnit::Number,
};
/// Word that denies larger batches.
const DENY_WORD: &[u8] = b"deny";
pub(super) const CACHE_MEMORY_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: MIB,
    most: 1 << 40,
    unit: DirectiveValueUnit::Bytes,
};

impl CacheConfigBlock {
    /// Sets one directive whose name starts with `cache`, `batch_max`, `verify` or `logs`, as
    /// [`super::RouteConfigBlock::set_directive_with_location`] does.
    pub(super) fn set_cache_directive(
        &mut self,
        name: &str,
        values: &[&[u8]],
        source: DirectiveLocation<'_>,
    ) -> Result<(), DirectiveError> {
        match name {
            "cache" => set_once(&mut self.enable, || {
                parse_flag(single_directive_value(values)?)
            }),
            "cache_namespace" => set_once(&mut self.namespace, || {
                parse_namespace(single_directive_value(values)?)
            }),
            "cache_get" => set_once(&mut self.get, || {
                parse_cache_get_scope(single_directive_value(values)?)
            }),
            "cache_valid" => self.set_lifetimes(values),
            "cache_method" => self.set_method_spec(values),
            "cache_max_entry" => set_once(&mut self.max_entry, || {
                MAX_ENTRY_RANGE.parse_in_range(single_directive_value(values)?)
            }),
            "cache_max_request" => set_once(&mut self.max_request, || {
                MAX_REQUEST_RANGE.parse_in_range(single_directive_value(values)?)
            }),
            "cache_credentials" => self.set_credentials(values),
            "cache_memory" => set_once(&mut self.memory, || {
                CACHE_MEMORY_RANGE.parse_in_range(single_directive_value(values)?)
            }),
            "cache_lock" => set_once(&mut self.lock, || {
                parse_flag(single_directive_value(values)?)
            }),
            "cache_lock_timeout" => set_once(&mut self.lock_timeout, || {
                LOCK_TIMEOUT_RANGE.parse_in_range(single_directive_value(values)?)
            }),
            "cache_use_stale" => set_once(&mut self.use_stale, || parse_use_stale(values)),
            "cache_background_update" => set_once(&mut self.background_update, || {
                parse_flag(single_directive_value(values)?)
            }),
            "verify" => set_once(&mut self.verify, || {
                HitVerificationConfig::parse_verify_values(values)
            }),
            "logs_split" => set_once(&mut self.logs_split, || {
                LogSplitLimits::parse_log_split(values)
            }),
            "logs_from_receipts" => set_once(&mut self.logs_from_receipts, || {
                parse_flag(single_directive_value(values)?)
            }),
            "cache_head" => self.set_head_source(values, source),
            "batch_max" => set_once(&mut self.batch_max, || match values {
                [number] => Ok((BATCH_MAX_RANGE.parse_in_range(number)?, false)),
                [number, word] if *word == DENY_WORD => {
                    Ok((BATCH_MAX_RANGE.parse_in_range(number)?, true))
                }
                [_, word] => Err(invalid_value_error(word, "\"deny\" or omitted")),
                _ => Err(DirectiveError::OneOrTwoValues),
            }),
            _ => Err(DirectiveError::Unknown),
        }
    }

    /// Sets the lifetime of a class or a method, and records a warning if the method has no caching
    /// rule. A method with side effects is an error.
    fn set_lifetimes(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        let [class_or_method, time] = values else {
            return Err(DirectiveError::TwoValues);
        };
        let milliseconds = LIFETIME_RANGE.parse_in_range(time)?;
        let valid = Arc::make_mut(self.lifetimes.get_or_insert_default());
        // the lifetime of a resource is in its own headers
        let class = LifetimeClass::from_class_name(class_or_method)
            .filter(|class| *class != LifetimeClass::Resource);
        if let Some(class) = class {
            return valid
                .set_class_lifetime(class, milliseconds)
                .map_err(|_| DirectiveError::Duplicate);
        }
        if !class_or_method.contains(&b'_') {
            return Err(invalid_value_error(
                class_or_method,
                "\"immutable\", \"unfinalized\", \"tip\", \"nothing\", \"config\" or a method name",
            ));
        }
        if is_stateful_method(class_or_method) {
            return Err(invalid_value_error(
                class_or_method,
                "a method without side effects and without state on the node",
            ));
        }
        valid
            .set_method_lifetime(class_or_method, milliseconds)
            .map_err(|_| DirectiveError::Duplicate)?;
        if methods::method_table_index(class_or_method).is_none()
            && !self.has_method_rule(class_or_method)
        {
            let unknown = method_names::unknown_methods_warning(
                &[class_or_method],
                CaseSensitivity::Exact,
                |_| false,
            );
            let odd = unknown.unwrap_or_else(|| {
                format!(
                    "names \"{}\", a method without a caching rule",
                    String::from_utf8_lossy(class_or_method)
                )
            });
            self.warning = Some(format!(
                "{odd}; its responses are cached until the next head, whatever block they are \
                 about, unless \"cache_method\" above describes it"
            ));
        }
        Ok(())
    }

    /// Whether a `cache_method` of this block specifies the method.
    pub(super) fn has_method_rule(&self, method: &[u8]) -> bool {
        let rows = self.rows.as_ref();
        rows.is_some_and(|rows| rows.find_operator_method_row(method).is_some())
    }

    /// Adds a method row from a name and one or two words, and records a warning if the name is
    /// similar to a known one.
    fn set_method_spec(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        let (name, words) = match values {
            [name, words @ ..] if (1..=2).contains(&words.len()) => (*name, words),
            _ => return Err(DirectiveError::TwoOrThreeValues),
        };
        let mut rows = self.rows.as_deref().cloned().unwrap_or_default();
        rows.add_method_row(name, words).map_err(|error| {
            let rejected = match error {
                MethodSpecError::Word(word) | MethodSpecError::Combination(word) => word,
                MethodSpecError::Name | MethodSpecError::Duplicate | MethodSpecError::Stateful => {
                    name
                }
            };
            invalid_value_error(rejected, error.to_string())
        })?;
        self.rows = Some(Arc::new(rows));
        // most methods that are added exist on one chain only, and are not in the list of known
        // ones
        let is_suggested = |name: &str| method_names::suggest_method(name).is_some();
        if std::str::from_utf8(name).is_ok_and(is_suggested) {
            self.warning =
                method_names::unknown_methods_warning(&[name], CaseSensitivity::Exact, |_| false);
        }
        Ok(())
    }

    /// Sets the policy of the named headers, or without names the default policy.
    fn set_credentials(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        const MEANINGS: &str =
            "\"bypass\", \"ignore\" or \"key\", optionally followed by header names";
        let (word, names) = match values {
            [] => return Err(invalid_value_error(b"", MEANINGS)),
            [word, names @ ..] => (*word, names),
        };
        let means = CredentialsPolicy::from_policy_name(word)
            .ok_or_else(|| invalid_value_error(word, MEANINGS))?;
        let mut credentials = self.credentials.as_deref().cloned().unwrap_or_default();
        if names.is_empty() {
            let usual = credentials.set_default_credentials_policy(means);
            usual.map_err(|_| DirectiveError::Duplicate)?;
        }
        for name in names {
            let added = credentials.set_credentials_policy(name, means);
            added.map_err(|error| invalid_value_error(name, error.to_string()))?;
        }
        self.credentials = Some(Arc::new(credentials));
        Ok(())
    }

    /// Adds a head source, or turns inherited ones off. A second source for the same namespace is
    /// an error.
    fn set_head_source(
        &mut self,
        values: &[&[u8]],
        source: DirectiveLocation<'_>,
    ) -> Result<(), DirectiveError> {
        let off = matches!(values, [b"off"]);
        if self
            .follows
            .as_ref()
            .is_some_and(|follows| off || follows.is_empty())
        {
            return Err(DirectiveError::Duplicate);
        }
        if off {
            self.follows = Some(Arc::default());
            return Ok(());
        }
        let (follow, namespace) = HeadSource::parse_head_source(values)?;
        let follows = self.follows.iter().flat_map(|follows| follows.iter());
        if follows
            .map(|declared| &declared.namespace)
            .any(|other| *other == namespace)
        {
            return Err(DirectiveError::Duplicate);
        }
        let declared = DeclaredHeadSource {
            follow,
            namespace,
            at: source.at.to_owned(),
        };
        Arc::make_mut(self.follows.get_or_insert_default()).push(declared);
        Ok(())
    }

    /// Copies unset settings from the enclosing block, as
    /// [`super::RouteConfigBlock::inherit_unset_from`] does.
    pub(super) fn inherit_unset_from(&mut self, outer: &Self) {
        inherit_unset(&mut self.enable, &outer.enable);
        inherit_unset(&mut self.namespace, &outer.namespace);
        inherit_unset(&mut self.get, &outer.get);
        inherit_unset(&mut self.lifetimes, &outer.lifetimes);
        inherit_unset(&mut self.rows, &outer.rows);
        inherit_unset(&mut self.max_entry, &outer.max_entry);
        inherit_unset(&mut self.max_request, &outer.max_request);
        inherit_unset(&mut self.credentials, &outer.credentials);
        inherit_unset(&mut self.batch_max, &outer.batch_max);
        inherit_unset(&mut self.memory, &outer.memory);
        inherit_unset(&mut self.lock, &outer.lock);
        inherit_unset(&mut self.lock_timeout, &outer.lock_timeout);
        inherit_unset(&mut self.use_stale, &outer.use_stale);
        inherit_unset(&mut self.background_update, &outer.background_update);
        inherit_unset(&mut self.verify, &outer.verify);
        inherit_unset(&mut self.logs_split, &outer.logs_split);
        inherit_unset(&mut self.logs_from_receipts, &outer.logs_from_receipts);
        inherit_unset(&mut self.follows, &outer.follows);
    }

    /// Returns the maximum number of calls of a batch, if larger ones are denied.
    pub(super) fn batch_denial_limit(&self) -> Option<usize> {
        let limit = self.batch_max.filter(|(_, denies)| *denies);
        limit.map(|(number, _)| number as usize)
    }

    /// Returns the lifetimes of the block with the method rows that the operator added; unset
    /// lifetimes have their defaults.
    fn resolve_lifetimes(&self) -> Arc<CacheLifetimes> {
        let valid = self.lifetimes.clone().unwrap_or_default();
        match &self.rows {
            Some(rows) => Arc::new(valid.with_operator_method_rows(Arc::clone(rows))),
            None => valid,
        }
    }

    /// Returns the settings with their defaults, as [`super::RouteConfigBlock::resolve_route_config`] does.
    pub(super) fn resolve_cache_config(&self) -> CacheConfig {
        CacheConfig {
            enable: self.enable.unwrap_or(false),
            namespace: self.namespace.clone(),
            get: self.get.unwrap_or_default(),
            valid: self.resolve_lifetimes(),
            max_entry: self.max_entry.unwrap_or(16 * MIB),
            max_request: self.max_request.unwrap_or(64 * KIB),
            credentials: self.credentials.clone().unwrap_or_default(),
            batch_max: self.batch_max.map_or(100, |(number, _)| number) as usize,
            memory: self.memory.unwrap_or(128 * MIB),
            lock: self.lock.unwrap_or(true),
            lock_timeout: self.lock_timeout.unwrap_or(5_000),
            use_stale: self.use_stale.unwrap_or_default(),
            background_update: self.background_update.unwrap_or(false),
            verify: self.verify.unwrap_or_default(),
            logs_split: self.logs_split.flatten().map(LogSplitConfig::new),
            logs_from_receipts: self.logs_from_receipts.unwrap_or(false),
            follows: self.follows.clone().unwrap_or_default(),
        }
    }
}

pub(super) const CACHE_GET_WORDS: &[&str] = &["beacon", "all"];

fn parse_cache_get_scope(value: &[u8]) -> Result<CacheableGetRequests, DirectiveError> {
    match value {
        b"beacon" => Ok(CacheableGetRequests::Beacon),
        b"all" => Ok(CacheableGetRequests::All),
        _ => Err(invalid_value_error(value, "\"beacon\" or \"all\"")),
    }
}

fn parse_use_stale(values: &[&[u8]]) -> Result<UseStaleConditions, DirectiveError> {
    const ALLOWED: &str = "\"error\", \"timeout\", \"invalid_header\", \"updating\", \
         \"http_500\", \"http_502\", \"http_503\", \"http_504\", \
         \"http_403\", \"http_404\", \"http_429\" or \"off\"";
    if values.is_empty() {
        return Err(invalid_value_error(b"", ALLOWED));
    }
    UseStaleConditions::parse_use_stale_conditions(values.iter().copied())
        .map_err(|word| invalid_value_error(word, ALLOWED))
}

/// Parses the name of a namespace, which must not be empty.
fn parse_namespace(value: &[u8]) -> Result<Arc<[u8]>, DirectiveError> {
    match value {
        b"" => Err(invalid_value_error(value, "a name")),
        name => Ok(name.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::CacheConfigBlock;
    use crate::cache::class::LifetimeClass;
    use crate::cache::freshness::{CallLifetimeRules, ResponseClassificationInput};
    use crate::config::DirectiveLocation;

    fn set(directives: &mut CacheConfigBlock, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap();
        let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
        let set = directives.set_cache_directive(name, &values, DirectiveLocation::default());
        set.map_err(|error| error.to_string())
    }

    fn directives(lines: &[&str]) -> CacheConfigBlock {
        let mut directives = CacheConfigBlock::default();
        for line in lines {
            set(&mut directives, line).unwrap();
        }
        directives
    }

    /// Returns the bypassed headers among three, and the headers that are part of the key.
    fn bypassed_and_keyed(directives: &CacheConfigBlock) -> (Vec<&'static str>, Vec<String>) {
        let credentials = directives.resolve_cache_config().credentials;
        let names = ["Authorization", "Cookie", "X-Api-Key"];
        let bypass = names
            .into_iter()
            .filter(|name| credentials.header_causes_bypass(name.as_bytes()));
        (
            bypass.collect(),
            credentials.cache_key_headers().map(str::to_owned).collect(),
        )
    }

    #[test]
    fn credentials_are_bypassed_ignored_or_keyed_as_configured() {
        const USUAL: &[&str] = &["Authorization", "Cookie"];
        for (lines, bypass, keyed) in [
            (&[][..], USUAL, &[][..]),
            (&["cache_credentials bypass"], USUAL, &[]),
            (&["cache_credentials ignore"], &[], &[]),
            (
                &["cache_credentials key"],
                &[],
                &["authorization", "cookie"],
            ),
            (
                &["cache_credentials key Authorization X-Api-Key"],
                &["Cookie"],
                &["authorization", "x-api-key"],
            ),
            (&["cache_credentials key X-Api-Key"], USUAL, &["x-api-key"]),
            (
                &[
                    "cache_credentials ignore",
                    "cache_credentials key x-api-key",
                ],
                &[],
                &["x-api-key"],
            ),
            (
                &[
                    "cache_credentials bypass X-Api-Key",
                    "cache_credentials ignore cookie",
                ],
                &["Authorization", "X-Api-Key"],
                &[],
            ),
        ] {
            let directives = directives(lines);
            assert_eq!(
                bypassed_and_keyed(&directives),
                (
                    bypass.to_vec(),
                    keyed.iter().map(|it| (*it).to_owned()).collect()
                )
            );
        }
    }

    #[test]
    fn invalid_credentials_are_rejected_and_change_nothing() {
        let mut directives = directives(&["cache_credentials key Cookie"]);
        let before = bypassed_and_keyed(&directives);
        for (line, error) in [
            (
                "cache_credentials",
                "\"\": it must be \"bypass\", \"ignore\" or \"key\"",
            ),
            (
                "cache_credentials X-Api-Key",
                "\"X-Api-Key\": it must be \"bypass\"",
            ),
            (
                "cache_credentials ignore X:Y",
                "\"X:Y\": it must be the name of a request header",
            ),
            (
                "cache_credentials key X-A ignore",
                "\"ignore\": it must be the name of a request",
            ),
            (
                "cache_credentials key X-A x-a",
                "\"x-a\": it must be a header that this block",
            ),
            ("cache_credentials ignore", "is duplicate"),
            (
                "cache_credentials ignore X-A COOKIE",
                "\"COOKIE\": it must be a header that",
            ),
        ] {
            let message = set(&mut directives, line).unwrap_err();
            assert!(message.contains(error), "{line}: {message}");
        }
        assert_eq!(bypassed_and_keyed(&directives), before);
    }

    /// Returns class and lifetime of the result `1` of a call with the params `[{}, "0x5"]`.
    fn class_and_lifetime(
        directives: &CacheConfigBlock,
        method: &str,
    ) -> Option<(LifetimeClass, u64)> {
        let valid = directives.resolve_cache_config().valid;
        let params = Some(&br#"[{},"0x5"]"#[..]);
        let known = ResponseClassificationInput {
            params,
            mark: None,
            valid: &valid,
        };
        let prospect =
            CallLifetimeRules::lifetime_rules_for_call(method.as_bytes(), params, &valid)?;
        let judged = prospect.classify_fetched_result(b"1", known)?;
        Some((judged.class, judged.valid))
    }

    #[test]
    fn method_rules_add_replace_and_remove_methods() {
        let outer = directives(&[
            "cache_method acme_a block=p[1]",
            "cache_method acme_b class=tip",
            "cache_method acme_c class=immutable",
            "cache_valid acme_a 7s",
            "cache_method eth_getBalance class=none",
            "cache_valid eth_getBalance 7s",
            "cache_method eth_getCode class=config",
        ]);
        for (method, expected) in [
            ("acme_a", Some((LifetimeClass::Unfinalized, 7_000))),
            ("acme_b", Some((LifetimeClass::Tip, 1_000))),
            ("acme_c", Some((LifetimeClass::Immutable, 3_600_000))),
            ("acme_d", None),
            ("eth_getBalance", None),
            ("eth_getCode", Some((LifetimeClass::Config, 60_000))),
            (
                "eth_getTransactionCount",
                Some((LifetimeClass::Unfinalized, 2_000)),
            ),
        ] {
            assert_eq!(class_and_lifetime(&outer, method), expected, "{method}");
        }
        // methods of a block replace the methods of the blocks around it
        let mut inner = directives(&["cache_valid unfinalized 3s"]);
        inner.inherit_unset_from(&outer);
        assert_eq!(
            class_and_lifetime(&inner, "acme_a"),
            Some((LifetimeClass::Unfinalized, 3_000))
        );
        assert_eq!(class_and_lifetime(&inner, "eth_getBalance"), None);
        let mut inner = directives(&["cache_method acme_b block=p[1]"]);
        inner.inherit_unset_from(&outer);
        assert_eq!(
            class_and_lifetime(&inner, "acme_b"),
            Some((LifetimeClass::Unfinalized, 2_000))
        );
        assert_eq!(class_and_lifetime(&inner, "acme_c"), None);
        assert_eq!(
            class_and_lifetime(&inner, "eth_getBalance"),
            Some((LifetimeClass::Unfinalized, 7_000))
        );
    }

    #[test]
    fn unknown_method_is_set_with_a_warning() {
        let mut directives =
            directives(&["cache_method acme_a block=p[1]", "cache_valid acme_a 1s"]);
        assert_eq!(directives.warning.take(), None);
        set(&mut directives, "cache_valid acme_b 1s").unwrap();
        let warning = directives.warning.take().unwrap();
        assert!(warning.starts_with("names the unknown method \"acme_b\"; its responses"));
        set(&mut directives, "cache_valid eth_coinbase 1s").unwrap();
        let warning = directives.warning.take().unwrap();
        assert!(warning.contains("a method without a caching rule"));
        set(&mut directives, "cache_method eth_getBalanse block=p[1]").unwrap();
        let warning = directives.warning.take().unwrap();
        assert!(warning.ends_with("did you mean \"eth_getBalance\"?"));
    }

    #[test]
    fn invalid_method_rule_is_rejected_with_the_allowed_values() {
        let mut directives = directives(&["cache_method acme_a class=tip"]);
        for (line, error) in [
            ("cache_method", "takes two or three values"),
            ("cache_method acme_b", "takes two or three values"),
            ("cache_method acme_b a b c", "takes two or three values"),
            ("cache_method acme_* class=tip", "\"acme_*\": it must be a method name"),
            ("cache_method acme_a class=none", "\"acme_a\": it must be a method that this block"),
            ("cache_method eth_sign class=tip", "\"eth_sign\": it must be a method without"),
            (
                "cache_method acme_b block=p1",
                "has an invalid value \"block=p1\": it must be \"block=p[N]\", \"block=p[N].MEMBER\", \
                 \"block=result.MEMBER\", \"block=result\", \"range=p[N]\", \"transaction=p[0]\", \
                 \"class=immutable\", \"class=tip\", \"class=config\" or \"class=none\", where N is a \
                 number from 0 to 15",
            ),
            ("cache_method acme_b class=tip block=p[0]", "\"block=p[0]\": it must be omitted"),
        ] {
            let message = set(&mut directives, line).unwrap_err();
            assert!(message.contains(error), "{line}: {message}");
        }
        assert_eq!(class_and_lifetime(&directives, "acme_b"), None);
    }

    #[test]
    fn credentials_are_not_inherited_into_a_block_that_sets_its_own() {
        let outer = directives(&["cache_credentials key X-Api-Key"]);
        let mut inner = directives(&[]);
        inner.inherit_unset_from(&outer);
        assert_eq!(bypassed_and_keyed(&inner), bypassed_and_keyed(&outer));
        let mut inner = directives(&["cache_credentials ignore Cookie"]);
        inner.inherit_unset_from(&outer);
        assert_eq!(bypassed_and_keyed(&inner), (vec!["Authorization"], vec![]));
    }
}
