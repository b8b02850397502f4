//! Configuration of filters and routes: JSON with the names of
//! docs/directives.md without their prefix.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use sszip_core::config::files;
use sszip_core::config::node_capabilities::RouteNodeCapabilities;
use sszip_core::config::validated::ValidatedConfig;
use sszip_core::config::RouteConfig;
use sszip_envoy_carrier::settings::{
    format_setting_message, ClusterCapabilities, HostSpecificSettings, ParsedSettings,
    RequestSettings,
};

use crate::abi::LogLevel;
use crate::background::BackgroundRequests;
use crate::envoy::{self, FilterConfigHandle};
use crate::metrics::EnvoyMetrics;
use crate::process::PROCESS;
use crate::status;
use crate::store::{self, ConfigLifetimeGuard};

/// Number of workers; `None`: Envoy only validates its configuration. The first
/// access must be on the main thread, where configurations are read.
static WORKERS: LazyLock<Option<usize>> =
    LazyLock::new(|| (!envoy::is_envoy_validation_mode()).then(envoy::envoy_worker_count));

/// The settings that only the dynamic module has: the store of the process, status requests, and
/// file names.
struct DynamicModuleSettings<'p> {
    /// The configuration to which settings of the process are added; without one they are
    /// rejected.
    validated: Option<&'p mut ValidatedConfig>,
}

/// The configuration of one filter in Envoy's configuration: settings, metrics, store and
/// background requests.
#[derive(Debug)]
pub struct FilterSettings {
    parsed: ParsedSettings,
    /// Settings of requests without a route configuration.
    settings: Arc<RequestSettings>,
    /// Owner in use. It is dropped before `lifetime` ends, so that the last filter
    /// does not restart an owner.
    _owner_use: Option<store::OwnerUseGuard>,
    /// Identity by which routes recognize the filter.
    lifetime: Arc<ConfigLifetimeGuard>,
    /// Metrics of the filter's requests.
    pub metrics: Arc<EnvoyMetrics>,
    /// Node capabilities of each cluster, recorded by all workers.
    nodes: ClusterCapabilities,
    /// Background requests of the filter.
    pub background: Arc<BackgroundRequests>,
}

/// The filter's configuration for one route, which inherits missing settings from the filter.
#[derive(Debug)]
pub struct RouteOverrides {
    parsed: ParsedSettings,
    /// Settings merged with each filter: every listener has a filter of its
    /// own, and several listeners may use one route.
    settings: Mutex<Vec<(Weak<ConfigLifetimeGuard>, Arc<RequestSettings>)>>,
    lifetime: ConfigLifetimeGuard,
}

impl FilterSettings {
    /// Parses and validates the configuration of a filter.
    ///
    /// # Errors
    /// Text of the error, with the accepted values.
    pub fn new(json: &[u8], envoy: FilterConfigHandle) -> Result<Self, String> {
        let mut validated = ValidatedConfig::default();
        let mut parsed = parse_module_settings(json, Some(&mut validated))?;
        parsed.enable_filter_by_default();
        let settings = resolve_request_settings(&parsed);
        validate_and_add_route(&mut validated, &settings)?;
        validated.check_across_routes()?;
        // without a namespace of the filter, its routes have their own, with
        // their own head sources
        if settings.core.cache.namespace.is_some() {
            validated
                .cross_route_warnings()
                .iter()
                .for_each(|text| envoy::write_envoy_log(LogLevel::Warn, text));
        }
        for text in validated.fleet_warnings() {
            envoy::write_envoy_log(LogLevel::Warn, &text);
        }
        store::validate_store_settings(&validated)?;
        let lifetime = Arc::<ConfigLifetimeGuard>::default();
        let owner_use = match *WORKERS {
            Some(_) => store::attach_configured_store(&validated, &lifetime)?,
            None => None,
        };
        start_hot_tier(&settings.core);
        Ok(Self {
            metrics: Arc::new(EnvoyMetrics::new(envoy, WORKERS.is_some())),
            parsed,
            settings,
            _owner_use: owner_use,
            lifetime,
            nodes: ClusterCapabilities::default(),
            background: BackgroundRequests::create_replacing_others(
                envoy.create_config_scheduler(),
            ),
        })
    }

    /// Returns the node capabilities of a cluster.
    pub fn node_capabilities(&self, cluster: &[u8]) -> RouteNodeCapabilities {
        self.nodes.capabilities_of_cluster(cluster)
    }

    /// Returns the effective settings of a request of this filter and, if it has a configuration,
    /// its route.
    pub fn settings_for_request(&self, route: Option<&RouteOverrides>) -> Arc<RequestSettings> {
        let Some(route) = route else {
            return Arc::clone(&self.settings);
        };
        let known = &route.settings;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = |lifetime: &Weak<ConfigLifetimeGuard>| {
            Weak::as_ptr(lifetime) == Arc::as_ptr(&self.lifetime)
        };
        if let Some((_, settings)) = known.iter().find(|(lifetime, _)| is_this(lifetime)) {
            return Arc::clone(settings);
        }
        // listeners are removed while their routes remain
        known.retain(|(lifetime, _)| lifetime.strong_count() > 0);
        let mut parsed = route.parsed.clone();
        parsed.inherit_settings(&self.parsed);
        let settings = resolve_request_settings(&parsed);
        claim_head_sources_for_owner(&settings, &[&self.lifetime, &route.lifetime]);
        start_hot_tier(&settings.core);
        known.push((Arc::downgrade(&self.lifetime), Arc::clone(&settings)));
        settings
    }
}

impl RouteOverrides {
    /// Parses the configuration of a route.
    ///
    /// # Errors
    /// Text of the error, with the accepted values.
    pub fn new(json: &[u8]) -> Result<Self, String> {
        let parsed = parse_module_settings(json, None)?;
        let settings = resolve_request_settings(&parsed);
        // Head sources of a namespace that the route sets are followed before
        // the first request; for other routes the namespace depends on a filter
        // that is not known yet.
        let lifetime = ConfigLifetimeGuard::default();
        let mut validated = ValidatedConfig::default();
        let follows = &settings.core.cache.follows;
        if validated
            .follows
            .add_route_head_sources(follows, settings.namespace_source())
            .is_ok()
        {
            store::claim_owner_settings(&validated, &[&lifetime]);
        }
        Ok(Self {
            parsed,
            settings: Mutex::default(),
            lifetime,
        })
    }
}

/// Validates the settings of a filter or route, adds them to the validated configuration, and logs a
/// warning about settings without effect.
///
/// # Errors
/// The text that describes the invalid setting.
fn validate_and_add_route(
    validated: &mut ValidatedConfig,
    settings: &RequestSettings,
) -> Result<(), String> {
    let place = settings.describe_route_for_validation("a filter or route");
    if let Some(warning) = validated.validate_and_add_route(&settings.core, place)? {
        envoy::write_envoy_log(LogLevel::Warn, &warning);
    }
    Ok(())
}

/// Claims the head sources of a route, so that the owner follows them, once the route's filter is
/// known.
fn claim_head_sources_for_owner(settings: &RequestSettings, of: &[&ConfigLifetimeGuard]) {
    let mut validated = ValidatedConfig::default();
    if let Err(error) = validate_and_add_route(&mut validated, settings) {
        envoy::write_envoy_log(LogLevel::Error, &error);
    }
    let has_some = validated.follows.iter().next().is_some();
    if has_some && !store::can_follow_head_sources() {
        let error = "\"cache_head\" has no effect: no filter has a \"cache_path\"; add one, or \
             move it to a [[head]] of cached.toml";
        envoy::write_envoy_log(LogLevel::Error, error);
    }
    store::claim_owner_settings(&validated, of);
}

/// Starts the hot tier of the process with the memory of the first route that caches. Any thread
/// may call it.
fn start_hot_tier(config: &RouteConfig) {
    if let (true, Some(workers)) = (config.is_cache_enabled(), *WORKERS) {
        let bytes = config.cache.memory;
        let longest = config.cache.max_entry.min(bytes);
        PROCESS.shared.start_hot_tier(bytes, longest, workers);
    }
}

/// Parses JSON settings. Settings of the process are added to `validated`, or rejected without one.
fn parse_module_settings(
    json: &[u8],
    validated: Option<&mut ValidatedConfig>,
) -> Result<ParsedSettings, String> {
    ParsedSettings::parse_json_settings(
        "filter_config",
        json,
        &mut DynamicModuleSettings { validated },
    )
}

fn resolve_request_settings(parsed: &ParsedSettings) -> Arc<RequestSettings> {
    parsed.create_request_settings(
        parsed
            .core_directives()
            .resolve_route_config(PROCESS.clone()),
    )
}

impl HostSpecificSettings for DynamicModuleSettings<'_> {
    const LOCATION: &'static str = "filter_config";
    const HAS_STATUS_REQUESTS: bool = true;

    fn set_host_setting(&mut self, name: &str, values: &[&[u8]]) -> Option<Result<(), String>> {
        if !matches!(
            name,
            "cache_path" | "cache_owner" | "cache_lookup_timeout" | "cache_fleet"
        ) {
            return None;
        }
        let Some(validated) = &mut self.validated else {
            let error = "is a setting of the process: move it to the filter_config";
            return Some(Err(format_setting_message(name, &error)));
        };
        let set = validated
            .set_global_directive(name, values, "")
            .unwrap_or(Ok(()));
        Some(set.map_err(|error| format_setting_message(name, &error)))
    }

    fn prepare_status_page(&mut self) {
        status::create_metrics_board();
    }

    fn resolve_setting_files<'v>(
        &self,
        name: &str,
        values: &[&'v [u8]],
    ) -> Result<Vec<Cow<'v, [u8]>>, String> {
        files::resolve_ca_files(name, values, b"")
    }

    fn report_warning(&mut self, text: String) {
        envoy::write_envoy_log(LogLevel::Warn, &text);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{FilterConfigHandle, FilterSettings, RouteOverrides};

    fn create_test_filter(json: &[u8]) -> Result<FilterSettings, String> {
        FilterSettings::new(json, FilterConfigHandle::new(std::ptr::null_mut()))
    }

    #[test]
    fn json_settings_are_parsed_like_directives() {
        let json = br#"{"min_length": 2048.0, "types": ["text/*", "application/json"],
            "hold": "32k 10ms", "comp_level": "9", "ssz": true}"#;
        let config = create_test_filter(json)
            .map(|filter| Arc::clone(&filter.settings_for_request(None).core));
        let config = config.expect("it is right");
        assert!(
            config.enable && config.ssz.enable && config.types.contains_media_type(b"text/css")
        );
        assert_eq!((config.min_length, config.comp_level), (2048, 9));
        assert_eq!((config.hold, config.hold_ms), (32 << 10, 10));
    }

    #[test]
    fn repeated_settings_are_accepted_as_lists() {
        for json in [
            &br#"{"cache_valid": ["tip 3s", "immutable 2h"]}"#[..],
            br#"{"cache_valid": [["tip", "3s"], ["immutable", "2h"]]}"#,
        ] {
            let settings = create_test_filter(json)
                .expect("right")
                .settings_for_request(None);
            let valid = format!("{:?}", settings.core.cache.valid);
            assert!(
                valid.contains("3000") && valid.contains("7200000"),
                "{valid}"
            );
        }
    }

    #[test]
    fn route_settings_override_filter_settings() {
        let filter = create_test_filter(br#"{"min_length": 7, "comp_level": 3}"#).expect("right");
        let route = RouteOverrides::new(br#"{"enable": false, "min_length": 9}"#).expect("right");
        let config = &filter.settings_for_request(Some(&route)).core;
        assert!(!config.enable);
        assert_eq!((config.min_length, config.comp_level), (9, 3));
        assert_eq!(filter.settings_for_request(None).core.min_length, 7);
        assert!(Arc::ptr_eq(
            config,
            &filter.settings_for_request(Some(&route)).core
        ));
    }

    #[test]
    fn route_drops_settings_of_destroyed_filters() {
        let route = RouteOverrides::new(br#"{"comp_level": 9}"#).expect("right");
        let stays = create_test_filter(b"{}").expect("right");
        let merged = stays.settings_for_request(Some(&route));
        for _ in 0..10 {
            let filter = create_test_filter(br#"{"min_length": 7}"#).expect("right");
            assert_eq!(filter.settings_for_request(Some(&route)).core.min_length, 7);
        }
        assert_eq!(route.settings.lock().expect("nobody has panicked").len(), 2);
        assert!(Arc::ptr_eq(
            &merged,
            &stays.settings_for_request(Some(&route))
        ));
    }

    #[test]
    fn rejected_settings_are_reported_with_the_accepted_values() {
        for (json, error) in [
            (
                &b"{\"comp_level\": 13}"[..],
                "\"comp_level\" has an invalid value \"13\": it must be a number from 0 to 12",
            ),
            (
                b"{\"complevel\": 1}",
                "\"complevel\" is an unknown setting; did you mean \"comp_level\"?",
            ),
            (
                b"{\"types\": {\"a\": 1}}",
                "\"types\" must be a string, a number, a boolean or a list of these",
            ),
            (
                b"{\"types\": [[{}]]}",
                "\"types\" must be a string, a number, a boolean or a list of these",
            ),
            (
                b"{\"types\": [[\"a/b\"], [\"c/d\"]]}",
                "\"types\" is duplicate",
            ),
            (
                b"{\"min_length\": 1.5}",
                "\"min_length\" has an invalid value \"1.5\": it must be a size from 0 to 1g",
            ),
            (b"[]", "filter_config must be a JSON object of settings"),
        ] {
            assert_eq!(create_test_filter(json).map(|_| ()), Err(error.to_owned()));
            assert_eq!(RouteOverrides::new(json).map(|_| ()), Err(error.to_owned()));
        }
        assert!(create_test_filter(b"{")
            .is_err_and(|error| error.starts_with("filter_config is not JSON")));
        assert!(create_test_filter(b" ").is_ok());
    }
}
