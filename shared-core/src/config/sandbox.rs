//! Configuration of a filter in a sandbox (proxy-wasm), which opens no files, has no threads and no
//! shared memory, and reaches a store through its proxy: settings that exist besides
//! [`super::RouteConfigBlock`], and settings that are not available.

use super::cache::LOOKUP_TIMEOUT_RANGE;
use super::values::{
    invalid_value_error, parse_flag, set_once, single_directive_value, DirectiveError,
    DirectiveValueRange, DirectiveValueUnit, GIB, KIB, MIB,
};
use super::RouteConfig;
use crate::time_constants::lookup_timeout;

/// Default limit of bytes that a proxy's listener buffers of a body: Envoy's
/// `per_connection_buffer_limit_bytes`.
const DEFAULT_BUFFER_LIMIT: u64 = MIB;

const BUFFER_LIMIT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 64 * KIB,
    most: GIB,
    unit: DirectiveValueUnit::Bytes,
};

/// Maximum length of an entry: Envoy's limit for responses to a filter's own requests
/// (`http.async_response_buffer_limit`), less room for the head.
pub const MAX_SANDBOX_ENTRY: u64 = 31 * MIB;

/// Limits of the memory for entries: a sandbox has at most one GiB for everything.
const MEMORY_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: MIB,
    most: 512 * MIB,
    unit: DirectiveValueUnit::Bytes,
};

/// Default of the memory for entries in bytes.
const DEFAULT_MEMORY: u64 = 128 * MIB;

/// The settings that the proxy-wasm filter has in addition to the settings of routes: the owner's cluster, the
/// limit of buffered bytes, the lookup timeout, the memory for entries, and whether values are set for
/// access logs.
#[derive(Clone, Debug, Default)]
pub struct WasmFilterConfig {
    owner_cluster: Option<String>,
    buffer_limit: Option<u64>,
    lookup_timeout: Option<u64>,
    cache_memory: Option<u64>,
    log_variables: Option<bool>,
}

impl WasmFilterConfig {
    /// Sets a setting of the filter, or returns the reason why it is not available. `None`: the
    /// setting is one of [`super::RouteConfigBlock`].
    pub fn set_wasm_filter_setting(
        &mut self,
        name: &str,
        values: &[&[u8]],
    ) -> Option<Result<(), DirectiveError>> {
        let why = match name {
            "cache_owner" => {
                return Some(set_once(&mut self.owner_cluster, || {
                    parse_owner_cluster(single_directive_value(values)?)
                }))
            }
            "buffer_limit" => {
                let read = || BUFFER_LIMIT_RANGE.parse_in_range(single_directive_value(values)?);
                return Some(set_once(&mut self.buffer_limit, read));
            }
            "cache_lookup_timeout" => {
                let read = || LOOKUP_TIMEOUT_RANGE.parse_in_range(single_directive_value(values)?);
                return Some(set_once(&mut self.lookup_timeout, read));
            }
            "cache_memory" => {
                let read = || MEMORY_RANGE.parse_in_range(single_directive_value(values)?);
                return Some(set_once(&mut self.cache_memory, read));
            }
            "log_variables" => {
                let read = || parse_flag(single_directive_value(values)?);
                return Some(set_once(&mut self.log_variables, read));
            }
            "cache_path" => "sszip-cached owns the store; set \"cache_owner\": \"cluster:NAME\"",
            "cache_head" => "sszip-cached follows the chain; add a [[head]] to its cached.toml",
            "cache_fleet" => "sszip-cached connects to the fleet; add a [fleet] to its cached.toml",
            "status" => "sandboxes share no memory; Envoy's /stats has the counters",
            "cache_background_update" => "a request for a stale entry waits for the new response",
            "verify" => "hits cannot be compared with the node from there",
            "logs_split" => "pieces cannot be fetched from the node from there",
            _ => return None,
        };
        Some(Err(DirectiveError::Sandboxed { why }))
    }

    /// Returns the cluster of the proxy through which the store's owner is reached, if one is set.
    pub fn owner_cluster(&self) -> Option<&str> {
        self.owner_cluster.as_deref()
    }

    /// Returns the time in milliseconds for which a request waits for the owner.
    pub fn lookup_timeout(&self) -> u64 {
        self.lookup_timeout.unwrap_or_else(lookup_timeout)
    }

    /// Returns the number of bytes of entries that all sandboxes of the proxy keep in memory.
    pub fn cache_memory(&self) -> u64 {
        self.cache_memory.unwrap_or(DEFAULT_MEMORY)
    }

    /// Whether the values of each request are set for access logs.
    pub fn has_log_variables(&self) -> bool {
        self.log_variables.unwrap_or(true)
    }

    /// Returns the number of bytes of a body that the proxy buffers.
    pub fn buffer_limit(&self) -> u64 {
        self.buffer_limit.unwrap_or(DEFAULT_BUFFER_LIMIT)
    }

    /// Reduces the settings of a route to those that are possible in the sandbox.
    pub fn clamp_to_sandbox_limits(&self, config: &mut RouteConfig) {
        let limit = self.buffer_limit();
        let most = |setting: &mut u64, limit: u64| *setting = (*setting).min(limit);
        most(&mut config.max_oneshot, limit);
        most(&mut config.hold, limit / 2);
        most(&mut config.ssz.max_size, limit);
        most(&mut config.cache.max_entry, MAX_SANDBOX_ENTRY);
        most(&mut config.cache.max_request, limit);
        config.cache.background_update = false;
        config.cache.logs_split = None;
    }
}

/// Parses `cluster:NAME`.
fn parse_owner_cluster(value: &[u8]) -> Result<String, DirectiveError> {
    let name = value.strip_prefix(b"cluster:").unwrap_or_default();
    match std::str::from_utf8(name) {
        Ok(name) if !name.is_empty() => Ok(name.to_owned()),
        _ => Err(invalid_value_error(
            value,
            "\"cluster:NAME\", a cluster of one endpoint whose address is the pipe of sszip-cached",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::WasmFilterConfig;
    use crate::cache::process::ProcessResources;
    use crate::config::RouteConfigBlock;

    fn set(sandbox: &mut WasmFilterConfig, name: &str, value: &str) -> Option<Result<(), String>> {
        let set = sandbox.set_wasm_filter_setting(name, &[value.as_bytes()])?;
        Some(set.map_err(|error| error.to_string()))
    }

    #[test]
    fn sandbox_settings_are_set_once() {
        let mut sandbox = WasmFilterConfig::default();
        assert_eq!(
            (sandbox.owner_cluster(), sandbox.buffer_limit()),
            (None, 1 << 20)
        );
        assert_eq!(
            set(&mut sandbox, "cache_owner", "cluster:cached"),
            Some(Ok(()))
        );
        assert_eq!(set(&mut sandbox, "buffer_limit", "4m"), Some(Ok(())));
        assert_eq!(
            (sandbox.owner_cluster(), sandbox.buffer_limit()),
            (Some("cached"), 4 << 20)
        );
        let again = set(&mut sandbox, "cache_owner", "cluster:cached");
        assert_eq!(again, Some(Err("is duplicate".into())));
        assert_eq!(set(&mut sandbox, "min_length", "1k"), None);
        assert_eq!(sandbox.lookup_timeout(), 20);
        assert_eq!(sandbox.cache_memory(), 128 << 20);
        let memory = set(&mut sandbox, "cache_memory", "64m");
        assert_eq!((memory, sandbox.cache_memory()), (Some(Ok(())), 64 << 20));
        assert!(sandbox.has_log_variables());
        let variables = set(&mut sandbox, "log_variables", "off");
        assert_eq!(
            (variables, sandbox.has_log_variables()),
            (Some(Ok(())), false)
        );
        let longer = set(&mut sandbox, "cache_lookup_timeout", "1s");
        assert_eq!((longer, sandbox.lookup_timeout()), (Some(Ok(())), 1_000));
    }

    #[test]
    fn unavailable_settings_are_rejected_with_their_replacement() {
        for (name, value, error) in [
            (
                "cache_owner",
                "unix:/run/sszip/owner.sock",
                "has an invalid value \"unix:/run/sszip/owner.sock\": it must be \
                 \"cluster:NAME\", a cluster of one endpoint whose address is the pipe of \
                 sszip-cached",
            ),
            (
                "buffer_limit",
                "1k",
                "has an invalid value \"1k\": it must be a size from 64k to 1g",
            ),
            (
                "cache_lookup_timeout",
                "0ms",
                "has an invalid value \"0ms\": it must be a time with its unit (ms, s, m, h or d), from 1ms to 1s",
            ),
            (
                "log_variables",
                "mode",
                "has an invalid value \"mode\": it must be \"on\" or \"off\"",
            ),
            (
                "cache_path",
                "/var/cache/sszip",
                "is not available in the sandbox: sszip-cached owns the store; set \
                 \"cache_owner\": \"cluster:NAME\"",
            ),
            (
                "cache_memory",
                "1g",
                "has an invalid value \"1g\": it must be a size from 1m to 512m",
            ),
            (
                "cache_head",
                "http://127.0.0.1:8545",
                "is not available in the sandbox: sszip-cached follows the chain; add a \
                 [[head]] to its cached.toml",
            ),
            (
                "cache_fleet",
                "redis://127.0.0.1",
                "is not available in the sandbox: sszip-cached connects to the fleet; add a \
                 [fleet] to its cached.toml",
            ),
            (
                "cache_background_update",
                "on",
                "is not available in the sandbox: a request for a stale entry waits for the new response",
            ),
            (
                "verify",
                "1%",
                "is not available in the sandbox: hits cannot be compared with the node from there",
            ),
            (
                "logs_split",
                "1000",
                "is not available in the sandbox: pieces cannot be fetched from the node from there",
            ),
        ] {
            let set = set(&mut WasmFilterConfig::default(), name, value);
            assert_eq!(set, Some(Err(error.to_owned())), "{name}");
        }
    }

    #[test]
    fn body_limits_are_clamped_to_the_buffer_limit() {
        let mut config =
            RouteConfigBlock::default().resolve_route_config(ProcessResources::default());
        let mut sandbox = WasmFilterConfig::default();
        sandbox.clamp_to_sandbox_limits(&mut config);
        let lengths = [
            config.max_oneshot,
            config.ssz.max_size,
            config.cache.max_request,
        ];
        assert!(
            lengths.iter().all(|length| *length <= 1 << 20),
            "{lengths:?}"
        );
        assert_eq!(set(&mut sandbox, "buffer_limit", "64m"), Some(Ok(())));
        let mut config =
            RouteConfigBlock::default().resolve_route_config(ProcessResources::default());
        sandbox.clamp_to_sandbox_limits(&mut config);
        assert_eq!(
            (config.max_oneshot, config.ssz.max_size),
            (16 << 20, 64 << 20)
        );
        assert!(config.cache.max_entry <= 31 << 20);
    }
}
