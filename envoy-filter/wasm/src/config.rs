//! Configuration of the filter: JSON with the names of docs/directives.md
//! without their prefix. A route overrides it in its metadata, under `sszip`.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use sszip_core::cache::process::Process;
use sszip_core::config::head_sources::NamespaceSource;
use sszip_core::config::json;
use sszip_core::config::node_capabilities::NodeCapabilities;
use sszip_core::config::sandbox::SandboxConfig;
use sszip_core::config::setting_error::describe;
use sszip_core::config::validated::{RouteDeclaration, ValidatedConfig};
use sszip_core::config::{ConfigBlock, DirectiveLocation, RouteConfig};

use crate::abi::{self, Level};

/// Property of a route's settings: the string `config` of the object `sszip`.
const OF_ROUTE: &str = "xds\0route_metadata\0filter_metadata\0sszip\0config";

/// Name of the configuration in errors; only this type is passed to the filter
/// unchanged.
const AS_TEXT: &str = "configuration (a google.protobuf.StringValue)";

/// Maximum number of different route settings that are cached; above it, the
/// cache is cleared.
const MOST: usize = 1000;

/// The effective settings of one request, from its route and the filter.
#[derive(Debug)]
pub struct RequestSettings {
    /// Settings of the core.
    pub core: Arc<RouteConfig>,
    /// Requests are purges.
    pub purges: bool,
}

#[derive(Clone, Debug, Default)]
struct ParsedSettings {
    directives: ConfigBlock,
    purges: Option<bool>,
    /// Warnings for the operator about accepted settings.
    warnings: Vec<String>,
}

/// The configuration of the filter in this sandbox, with the settings and nodes of its routes.
#[derive(Debug)]
pub struct FilterSettings {
    parsed: ParsedSettings,
    sandbox: SandboxConfig,
    process: Process,
    /// Settings of requests whose route has none of its own.
    settings: Arc<RequestSettings>,
    /// Settings of routes by their text; `None`: the text is invalid.
    routes: RefCell<HashMap<Vec<u8>, Option<Arc<RequestSettings>>>>,
    /// Node capabilities of each cluster.
    learnt: RefCell<HashMap<Vec<u8>, NodeCapabilities>>,
}

impl FilterSettings {
    /// Parses and validates the configuration, and returns warnings for the
    /// operator.
    ///
    /// # Errors
    /// Text of the error, with the accepted values.
    pub fn new(json: &[u8], process: &Process) -> Result<(Self, Vec<String>), String> {
        let mut sandbox = SandboxConfig::default();
        let mut parsed = ParsedSettings::read(AS_TEXT, json, Some(&mut sandbox))?;
        // a configured filter is enabled by default
        let mut on = ParsedSettings::default();
        on.set("enable", &["on".into()], None)?;
        parsed.inherit(&on);
        let settings = parsed.settings(&sandbox, process);
        let mut warnings = std::mem::take(&mut parsed.warnings);
        let mut plan = ValidatedConfig::default();
        let added = plan.add(
            &settings.core,
            RouteDeclaration {
                name: "the filter",
                named: settings.named(),
                answers: true,
                purges: settings.purges,
                body_buffer: None,
                is_http_1_0: false,
            },
        )?;
        warnings.extend(added);
        let has_no_store = settings.core.caches() && sandbox.owner().is_none();
        if has_no_store {
            return Err(NO_STORE.into());
        }
        let filter = Self {
            parsed,
            sandbox,
            process: process.clone(),
            settings,
            routes: RefCell::default(),
            learnt: RefCell::default(),
        };
        Ok((filter, warnings))
    }

    /// Returns the cluster through which the filter reaches the owner.
    pub fn owner(&self) -> Option<&str> {
        self.sandbox.owner()
    }

    /// Returns the time for which a lookup waits for the owner, in milliseconds.
    pub fn lookup_timeout(&self) -> u64 {
        self.sandbox.lookup_timeout()
    }

    /// Returns the proxy's buffer limit for a body, in bytes.
    pub fn buffer_limit(&self) -> u64 {
        self.sandbox.buffer_limit()
    }

    /// Returns the node capabilities of a cluster.
    pub fn node_capabilities(&self, cluster: Vec<u8>) -> NodeCapabilities {
        self.learnt.borrow_mut().entry(cluster).or_default().clone()
    }

    /// Returns the settings of the request of the present context; `None`: its
    /// route's settings are invalid.
    pub fn for_request(&self) -> Option<Arc<RequestSettings>> {
        let json = abi::property(OF_ROUTE);
        if json.is_empty() {
            return Some(Arc::clone(&self.settings));
        }
        if let Some(known) = self.routes.borrow().get(&json) {
            return known.clone();
        }
        let settings = self.for_route(&json);
        if let Err(error) = &settings {
            abi::log(Level::Error, &format!("sszip is off for a route: {error}"));
        }
        let settings = settings.ok();
        let mut routes = self.routes.borrow_mut();
        if routes.len() >= MOST {
            routes.clear();
        }
        routes.insert(json, settings.clone());
        settings
    }

    fn for_route(&self, json: &[u8]) -> Result<Arc<RequestSettings>, String> {
        let mut parsed = ParsedSettings::read("config", json, None)?;
        for warning in std::mem::take(&mut parsed.warnings) {
            abi::log(Level::Warn, &format!("sszip: of a route: {warning}"));
        }
        parsed.inherit(&self.parsed);
        let settings = parsed.settings(&self.sandbox, &self.process);
        match settings.core.caches() && self.owner().is_none() {
            true => Err(NO_STORE.into()),
            false => Ok(settings),
        }
    }
}

/// Error of a configuration that caches without a store.
const NO_STORE: &str = "\"cache\" needs a \"cache_owner\": \"cluster:NAME\" in the filter's \
    configuration: answers are stored by sszip-cached";

impl RequestSettings {
    fn named(&self) -> NamespaceSource<'_> {
        let namespace = self.core.cache.namespace.as_deref();
        namespace.map_or(NamespaceSource::Derived, NamespaceSource::Fixed)
    }
}

impl ParsedSettings {
    /// Parses settings. Settings of the filter are added to `sandbox`, or
    /// rejected without one.
    fn read(
        source: &str,
        json: &[u8],
        mut sandbox: Option<&mut SandboxConfig>,
    ) -> Result<Self, String> {
        let mut parsed = Self::default();
        for (name, values) in json::settings(source, json)? {
            parsed.set(&name, &values, sandbox.as_deref_mut())?;
        }
        Ok(parsed)
    }

    fn set(
        &mut self,
        name: &str,
        values: &[String],
        sandbox: Option<&mut SandboxConfig>,
    ) -> Result<(), String> {
        let wrong = |error: &dyn Display| format!("\"{name}\" {error}");
        let bytes: Vec<_> = values.iter().map(String::as_bytes).collect();
        if name == "cache_purge" {
            self.purges = Some(json::is_on(name, values)?);
            return Ok(());
        }
        let is_of_route = sandbox.is_none();
        let set = sandbox
            .unwrap_or(&mut SandboxConfig::default())
            .set(name, &bytes);
        match set {
            Some(Ok(())) if is_of_route => {
                Err(wrong(&"is of the filter: it goes into its configuration"))
            }
            Some(set) => set.map_err(|error| wrong(&error)),
            None => {
                let at = "configuration";
                let set = self
                    .directives
                    .set_at(name, &bytes, DirectiveLocation { at });
                set.map_err(|error| describe(name, &error))?;
                let warning = self.directives.take_warning();
                self.warnings.extend(warning.map(|text| wrong(&text)));
                Ok(())
            }
        }
    }

    /// Inherits missing settings from the filter.
    fn inherit(&mut self, outer: &Self) {
        self.directives.inherit(&outer.directives);
        self.purges = self.purges.or(outer.purges);
    }

    fn settings(&self, sandbox: &SandboxConfig, process: &Process) -> Arc<RequestSettings> {
        let mut core = self.directives.resolve(process.clone());
        sandbox.clamp_to_sandbox(&mut core);
        Arc::new(RequestSettings {
            core: Arc::new(core),
            purges: self.purges.unwrap_or(false),
        })
    }
}
