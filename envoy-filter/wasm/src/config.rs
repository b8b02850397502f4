//! Configuration of the filter: JSON with the names of docs/directives.md
//! without their prefix. A route overrides it in its metadata, under `sszip`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use sszip_core::cache::process::ProcessResources;
use sszip_core::config::node_capabilities::RouteNodeCapabilities;
use sszip_core::config::sandbox::WasmFilterConfig;
use sszip_core::config::validated::ValidatedConfig;
use sszip_envoy_carrier::settings::{
    format_setting_message, ClusterCapabilities, HostSpecificSettings, ParsedSettings,
    RequestSettings,
};

use crate::abi::{self, LogLevel};

/// Property of a route's settings: the string `config` of the object `sszip`.
const ROUTE_CONFIG_PROPERTY: &str = "xds\0route_metadata\0filter_metadata\0sszip\0config";

/// Name of the configuration in errors; only this type is passed to the filter
/// unchanged.
const CONFIG_ERROR_NAME: &str = "configuration (a google.protobuf.StringValue)";

/// Maximum number of different route settings that are cached; above it, the
/// cache is cleared.
const MAX_ROUTE_SETTINGS: usize = 1000;

/// The settings that only the Wasm filter has, and the warnings about accepted settings.
#[derive(Default)]
struct WasmFilterSettings<'s> {
    /// The settings of the filter; a route has none of these.
    sandbox: Option<&'s mut WasmFilterConfig>,
    warnings: Vec<String>,
}

/// The configuration of the Wasm filter, with the merged settings of its routes and the node
/// capabilities of its clusters.
#[derive(Debug)]
pub struct FilterSettings {
    parsed: ParsedSettings,
    sandbox: WasmFilterConfig,
    process: ProcessResources,
    /// Settings of requests whose route has none of its own.
    settings: Arc<RequestSettings>,
    /// Settings of routes by their text; `None`: the text is invalid.
    routes: RefCell<HashMap<Vec<u8>, Option<Arc<RequestSettings>>>>,
    /// Node capabilities of each cluster.
    nodes: ClusterCapabilities,
}

impl FilterSettings {
    /// Parses and validates the configuration, and returns warnings for the
    /// operator.
    ///
    /// # Errors
    /// Text of the error, with the accepted values.
    pub fn new(json: &[u8], process: &ProcessResources) -> Result<(Self, Vec<String>), String> {
        let mut sandbox = WasmFilterConfig::default();
        let mut host = WasmFilterSettings {
            sandbox: Some(&mut sandbox),
            warnings: Vec::new(),
        };
        let mut parsed = ParsedSettings::parse_json_settings(CONFIG_ERROR_NAME, json, &mut host)?;
        let mut warnings = host.warnings;
        parsed.enable_filter_by_default();
        let settings = resolve_request_settings(&parsed, &sandbox, process);
        let mut validated = ValidatedConfig::default();
        let added = validated.validate_and_add_route(
            &settings.core,
            settings.describe_route_for_validation("the filter"),
        )?;
        warnings.extend(added);
        let has_no_store = settings.core.is_cache_enabled() && sandbox.owner_cluster().is_none();
        if has_no_store {
            return Err(NO_STORE.into());
        }
        let filter = Self {
            parsed,
            sandbox,
            process: process.clone(),
            settings,
            routes: RefCell::default(),
            nodes: ClusterCapabilities::default(),
        };
        Ok((filter, warnings))
    }

    /// Returns the cluster through which the filter reaches the owner.
    pub fn owner_cluster(&self) -> Option<&str> {
        self.sandbox.owner_cluster()
    }

    /// Returns the time for which a lookup waits for the owner, in milliseconds.
    pub fn lookup_timeout(&self) -> u64 {
        self.sandbox.lookup_timeout()
    }

    /// Returns the memory for entries of all sandboxes, in bytes.
    pub fn cache_memory(&self) -> u64 {
        self.sandbox.cache_memory()
    }

    /// Returns the maximum length of an entry, in bytes.
    pub fn max_entry(&self) -> u64 {
        self.settings.core.cache.max_entry
    }

    /// Returns the proxy's buffer limit for a body, in bytes.
    pub fn buffer_limit(&self) -> u64 {
        self.sandbox.buffer_limit()
    }

    /// Whether the values of each request are set for access logs.
    pub fn has_log_variables(&self) -> bool {
        self.sandbox.has_log_variables()
    }

    /// Returns the node capabilities of a cluster.
    pub fn node_capabilities(&self, cluster: &[u8]) -> RouteNodeCapabilities {
        self.nodes.capabilities_of_cluster(cluster)
    }

    /// Returns the effective settings of the effective context's request; `None`: its route's
    /// settings are invalid.
    pub fn settings_for_request(&self) -> Option<Arc<RequestSettings>> {
        let json = abi::proxy_property(ROUTE_CONFIG_PROPERTY);
        if json.is_empty() {
            return Some(Arc::clone(&self.settings));
        }
        if let Some(known) = self.routes.borrow().get(&json) {
            return known.clone();
        }
        let settings = self.settings_for_route(&json);
        if let Err(error) = &settings {
            abi::write_proxy_log(
                LogLevel::Error,
                &format!(
                    "sszip: disabled for a route, because its configuration is invalid: {error}"
                ),
            );
        }
        let settings = settings.ok();
        let mut routes = self.routes.borrow_mut();
        if routes.len() >= MAX_ROUTE_SETTINGS {
            routes.clear();
        }
        routes.insert(json, settings.clone());
        settings
    }

    /// Parses the settings of a route, which inherit the unset ones from the filter. Warnings are
    /// logged.
    fn settings_for_route(&self, json: &[u8]) -> Result<Arc<RequestSettings>, String> {
        let mut host = WasmFilterSettings::default();
        let mut parsed = ParsedSettings::parse_json_settings("config", json, &mut host)?;
        for warning in host.warnings {
            abi::write_proxy_log(
                LogLevel::Warn,
                &format!("sszip: configuration of a route: {warning}"),
            );
        }
        parsed.inherit_settings(&self.parsed);
        let settings = resolve_request_settings(&parsed, &self.sandbox, &self.process);
        match settings.core.is_cache_enabled() && self.owner_cluster().is_none() {
            true => Err(NO_STORE.into()),
            false => Ok(settings),
        }
    }
}

/// Error of a configuration that caches without a store.
const NO_STORE: &str = "\"cache\" needs \"cache_owner\": \"cluster:NAME\" in the filter's \
     configuration, because sszip-cached stores the entries";

/// Returns the settings for requests, within the limits of a sandbox.
fn resolve_request_settings(
    parsed: &ParsedSettings,
    sandbox: &WasmFilterConfig,
    process: &ProcessResources,
) -> Arc<RequestSettings> {
    let mut core = parsed
        .core_directives()
        .resolve_route_config(process.clone());
    sandbox.clamp_to_sandbox_limits(&mut core);
    parsed.create_request_settings(core)
}

impl HostSpecificSettings for WasmFilterSettings<'_> {
    const LOCATION: &'static str = "configuration";
    const HAS_STATUS_REQUESTS: bool = false;

    fn set_host_setting(&mut self, name: &str, values: &[&[u8]]) -> Option<Result<(), String>> {
        let set = match &mut self.sandbox {
            Some(sandbox) => sandbox.set_wasm_filter_setting(name, values)?,
            None => match WasmFilterConfig::default().set_wasm_filter_setting(name, values)? {
                Ok(()) => {
                    let error = "is a setting of the filter: move it to the filter's configuration";
                    return Some(Err(format_setting_message(name, &error)));
                }
                rejected => rejected,
            },
        };
        Some(set.map_err(|error| format_setting_message(name, &error)))
    }

    fn report_warning(&mut self, text: String) {
        self.warnings.push(text);
    }
}
