//! The filters and routes of sszip in an Envoy configuration.

use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value};
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::sandbox::WasmFilterConfig;
use sszip_core::config::validated::ValidatedConfig;
use sszip_envoy_carrier::settings::{
    format_setting_message, HostSpecificSettings, ParsedSettings, RequestSettings,
};

use super::envoy_document::Node;
use super::findings::{Finding, Position};

/// The path of the connection manager in a listener without a socket, whose client is the program
/// that embeds Envoy.
pub const API_LISTENER: &str = "api_listener/api_listener";

/// The forms of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// The dynamic module.
    Module,
    /// The proxy-wasm filter.
    Wasm,
}

/// A filter of sszip with its listener.
pub struct HttpFilter<'n> {
    /// The listener.
    pub listener: &'n Node,
    /// The HTTP connection manager.
    pub manager: &'n Node,
    /// The filter's entry in `http_filters`.
    pub filter: &'n Node,
    /// The form of the filter.
    pub kind: FilterKind,
    /// The settings of the filter.
    pub settings: FilterSettings,
    /// The routes of the connection manager.
    pub routes: Vec<Route<'n>>,
}

/// A route with the settings of sszip in effect.
pub struct Route<'n> {
    /// The route.
    pub node: &'n Node,
    /// The route, its virtual host and its route configuration.
    pub levels: [&'n Node; 3],
    /// The settings without invalid ones, or `None` where the filter is disabled.
    pub settings: Option<Arc<RequestSettings>>,
}

/// The settings of a filter, as the core reads them.
pub struct FilterSettings {
    parsed: ParsedSettings,
    /// The settings of requests without a route.
    pub requests: Arc<RequestSettings>,
    /// The settings of the process.
    pub validated: ValidatedConfig,
    /// The settings of the proxy-wasm filter.
    pub sandbox: WasmFilterConfig,
}

/// The settings that one form of the filter has in addition to the core's. With `IS_MODULE` it is the
/// dynamic module, which alone has status requests.
#[derive(Default)]
struct HostSettings<const IS_MODULE: bool> {
    /// Whether the settings are a filter's, not a route's.
    is_filter: bool,
    validated: ValidatedConfig,
    sandbox: WasmFilterConfig,
    warnings: Vec<String>,
}

/// Settings that have been read, of a filter or a route.
#[derive(Default)]
struct ReadSettings {
    parsed: ParsedSettings,
    validated: ValidatedConfig,
    sandbox: WasmFilterConfig,
}

/// Reads the settings of a file, and collects findings about them.
struct SettingsReader<'f> {
    file: &'f Rc<str>,
    findings: &'f mut Vec<Finding>,
}

impl<'n> Route<'n> {
    /// Returns the configuration that the route, or a level around it, has for a filter.
    pub fn filter_config(&self, filter: &str) -> Option<&'n Node> {
        config_of_filter(self.levels, filter)
    }
}

impl<const IS_MODULE: bool> HostSpecificSettings for HostSettings<IS_MODULE> {
    const LOCATION: &'static str = "this file";
    const HAS_STATUS_REQUESTS: bool = IS_MODULE;

    fn set_host_setting(&mut self, name: &str, values: &[&[u8]]) -> Option<Result<(), String>> {
        let set = match (IS_MODULE, name) {
            // it names files of the proxy's machine
            (true, "cache_fleet") => Some(Ok(())),
            (true, _) => self.validated.set_global_directive(name, values, "/"),
            (false, _) => self.sandbox.set_wasm_filter_setting(name, values),
        };
        Some(match set? {
            Ok(()) if !self.is_filter => {
                let error = "is a setting of the filter: move it there from the route";
                Err(format_setting_message(name, &error))
            }
            set => set.map_err(|error| format_setting_message(name, &error)),
        })
    }

    fn report_warning(&mut self, text: String) {
        self.warnings.push(text);
    }
}

/// Returns the filters of sszip in a document, and adds findings about their settings.
pub fn find_filters<'n>(
    file: &Rc<str>,
    document: &'n Node,
    findings: &mut Vec<Finding>,
) -> Vec<HttpFilter<'n>> {
    let mut reader = SettingsReader { file, findings };
    let mut found = Vec::new();
    for listener in nodes_where(document, is_listener) {
        for manager in nodes_where(listener, |node| node.is_of_type("HttpConnectionManager")) {
            for filter in manager.items("http_filters") {
                let Some(kind) = filter_kind(filter) else {
                    continue;
                };
                let settings = reader.read_filter(filter, kind);
                found.push(HttpFilter {
                    listener,
                    manager,
                    filter,
                    kind,
                    routes: reader.read_routes(manager, filter, kind, &settings),
                    settings,
                });
            }
        }
    }
    found
}

/// Returns the configuration of a filter in the innermost level that has one.
fn config_of_filter<'n>(levels: [&'n Node; 3], filter: &str) -> Option<&'n Node> {
    levels.into_iter().find_map(|level| {
        let mut members = level.get("typed_per_filter_config")?.members().iter();
        let (_, config) = members.find(|(name, _)| name == filter)?;
        Some(config)
    })
}

/// Returns the wanted nodes in a node, the outer ones first.
pub fn nodes_where(outer: &Node, is_wanted: impl Fn(&Node) -> bool) -> Vec<&Node> {
    let mut found = Vec::new();
    outer.visit(&mut |node| {
        if is_wanted(node) {
            found.push(node);
        }
    });
    found
}

/// Whether a node is a listener: it has filter chains, or is the API listener.
fn is_listener(node: &Node) -> bool {
    let paths = ["filter_chains", "default_filter_chain", API_LISTENER];
    paths.iter().any(|path| node.get(path).is_some())
}

/// Returns the form of the filter if it is sszip.
fn filter_kind(filter: &Node) -> Option<FilterKind> {
    let config = filter.get("typed_config")?;
    let module = config.text("dynamic_module_config/name");
    if config.is_of_type("DynamicModuleFilter") && module.contains("sszip") {
        return Some(FilterKind::Module);
    }
    let code = config.text("config/vm_config/code/local/filename");
    let is_sszip = config.text("config/name") == "sszip" || code.contains("sszip");
    (config.is_of_type("Wasm") && is_sszip).then_some(FilterKind::Wasm)
}

impl SettingsReader<'_> {
    fn read_filter(&mut self, filter: &Node, kind: FilterKind) -> FilterSettings {
        let value = filter.get(match kind {
            FilterKind::Module => "typed_config/filter_config/value",
            FilterKind::Wasm => "typed_config/config/configuration/value",
        });
        let read = value.map(|value| self.read_settings(value, kind, true));
        let mut read = read.unwrap_or_default();
        read.parsed.enable_filter_by_default();
        FilterSettings {
            requests: resolve_settings(&read.parsed, kind, &read.sandbox),
            parsed: read.parsed,
            validated: read.validated,
            sandbox: read.sandbox,
        }
    }

    fn read_routes<'n>(
        &mut self,
        manager: &'n Node,
        filter: &Node,
        kind: FilterKind,
        settings: &FilterSettings,
    ) -> Vec<Route<'n>> {
        let mut routes = Vec::new();
        let Some(config) = manager.get("route_config") else {
            return routes;
        };
        for host in config.items("virtual_hosts") {
            for node in host.items("routes") {
                let levels = [node, host, config];
                routes.push(Route {
                    node,
                    levels,
                    settings: self.read_route(levels, filter, kind, settings),
                });
            }
        }
        routes
    }

    /// Returns the settings of a route, which inherit the filter's settings.
    fn read_route(
        &mut self,
        levels: [&Node; 3],
        filter: &Node,
        kind: FilterKind,
        settings: &FilterSettings,
    ) -> Option<Arc<RequestSettings>> {
        let own = config_of_filter(levels, filter.text("name"));
        if own.unwrap_or(filter).is_true("disabled") {
            return None;
        }
        let value = match kind {
            FilterKind::Module => own.and_then(|own| {
                let value = own.get("filter_config/value");
                value.or_else(|| own.get("config/filter_config/value"))
            }),
            FilterKind::Wasm => levels[0].get("metadata/filter_metadata/sszip/config"),
        };
        let Some(value) = value else {
            return Some(Arc::clone(&settings.requests));
        };
        let mut parsed = self.read_settings(value, kind, false).parsed;
        parsed.inherit_settings(&settings.parsed);
        Some(resolve_settings(&parsed, kind, &settings.sandbox))
    }

    /// Reads settings, a mapping or a text with JSON. Invalid ones become findings, and are left
    /// out.
    fn read_settings(&mut self, value: &Node, kind: FilterKind, is_filter: bool) -> ReadSettings {
        let json = match value.to_json() {
            Value::String(text) if text.trim().is_empty() => Ok(Value::Object(Map::new())),
            Value::String(text) => serde_json::from_str(&text),
            json => Ok(json),
        };
        let mut settings = match json {
            Ok(Value::Object(settings)) => settings,
            Ok(_) => {
                self.add_error(value.line, "the settings must be a JSON object".into());
                return ReadSettings::default();
            }
            Err(error) => {
                self.add_error(value.line, format!("the settings are not JSON: {error}"));
                return ReadSettings::default();
            }
        };
        loop {
            let text = Value::Object(settings.clone()).to_string();
            let (read, warnings) = match kind {
                FilterKind::Module => parse_settings::<true>(&text, is_filter),
                FilterKind::Wasm => parse_settings::<false>(&text, is_filter),
            };
            for text in warnings {
                let at = self.position_of_setting(value, &text);
                self.findings
                    .push(Finding::warning("settings", &at, text, ""));
            }
            let error = match read {
                Ok(read) => return read,
                Err(error) => error,
            };
            let name = quoted_name(&error).to_owned();
            let at = self.position_of_setting(value, &error);
            self.findings
                .push(Finding::error("settings", &at, error, ""));
            if settings.remove(&name).is_none() {
                return ReadSettings::default();
            }
        }
    }

    /// Returns the position of the setting that a message begins with.
    fn position_of_setting(&self, value: &Node, message: &str) -> Position {
        let setting = value.get(quoted_name(message));
        self.position(setting.unwrap_or(value).line)
    }

    fn position(&self, line: u32) -> Position {
        Position {
            file: Rc::clone(self.file),
            line,
        }
    }

    fn add_error(&mut self, line: u32, text: String) {
        let at = self.position(line);
        self.findings
            .push(Finding::error("settings", &at, text, ""));
    }
}

/// Parses settings as the filter does. Returns the warnings too.
fn parse_settings<const IS_MODULE: bool>(
    json: &str,
    is_filter: bool,
) -> (Result<ReadSettings, String>, Vec<String>) {
    let mut host = HostSettings::<IS_MODULE> {
        is_filter,
        ..HostSettings::default()
    };
    let parsed = ParsedSettings::parse_json_settings("the settings", json.as_bytes(), &mut host);
    let HostSettings {
        validated,
        sandbox,
        warnings,
        ..
    } = host;
    match parsed {
        Ok(parsed) => {
            let read = ReadSettings {
                parsed,
                validated,
                sandbox,
            };
            (Ok(read), warnings)
        }
        // the settings are read again without the invalid one
        Err(error) => (Err(error), Vec::new()),
    }
}

/// Returns the name of the setting that a message begins with.
fn quoted_name(message: &str) -> &str {
    let mut parts = message.split('"');
    match (parts.next(), parts.next()) {
        (Some(""), Some(name)) => name,
        _ => "",
    }
}

fn resolve_settings(
    parsed: &ParsedSettings,
    kind: FilterKind,
    sandbox: &WasmFilterConfig,
) -> Arc<RequestSettings> {
    let directives = parsed.core_directives();
    let mut core = directives.resolve_route_config(ProcessResources::default());
    if kind == FilterKind::Wasm {
        sandbox.clamp_to_sandbox_limits(&mut core);
    }
    parsed.create_request_settings(core)
}
