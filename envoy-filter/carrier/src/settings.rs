//! Settings of filters and routes: JSON with the names of docs/directives.md without their prefix.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, PoisonError, RwLock};

use sszip_core::config::head_sources::NamespaceSource;
use sszip_core::config::json_settings;
use sszip_core::config::node_capabilities::RouteNodeCapabilities;
use sszip_core::config::setting_error::describe_setting_error;
use sszip_core::config::validated::HostRouteDeclaration;
use sszip_core::config::{DirectiveLocation, RouteConfig, RouteConfigBlock};

/// The effective settings of a request, merged from its route and its filter.
#[derive(Debug)]
pub struct RequestSettings {
    /// Settings of the core.
    pub core: Arc<RouteConfig>,
    /// Requests are purges.
    pub purges: bool,
    /// Requests are status requests.
    pub reports_status: bool,
}

/// The settings of a filter or a route as its configuration has them, before inheritance.
#[derive(Clone, Debug, Default)]
pub struct ParsedSettings {
    directives: RouteConfigBlock,
    purges: Option<bool>,
    reports_status: Option<bool>,
}

/// The settings that one host (dynamic module or Wasm filter) has in addition to the core's, and
/// the receiver of warnings.
pub trait HostSpecificSettings {
    /// Location of the settings in messages.
    const LOCATION: &'static str;

    /// Whether the host has status requests, which the setting `status` enables.
    const HAS_STATUS_REQUESTS: bool;

    /// Sets a setting of the host, or returns why it is rejected. `None`: the setting is not one of
    /// the host's.
    fn set_host_setting(&mut self, name: &str, values: &[&[u8]]) -> Option<Result<(), String>>;

    /// Prepares the process for status requests, because a route accepts them.
    fn prepare_status_page(&mut self) {}

    /// Checks the files that a setting names, and resolves their names.
    ///
    /// # Errors
    /// The problem, as the continuation of a sentence that begins with the setting.
    fn resolve_setting_files<'v>(
        &self,
        _name: &str,
        values: &[&'v [u8]],
    ) -> Result<Vec<Cow<'v, [u8]>>, String> {
        Ok(values.iter().map(|value| Cow::Borrowed(*value)).collect())
    }

    /// Receives a warning for the operator about a setting that was accepted.
    fn report_warning(&mut self, text: String);
}

impl RequestSettings {
    /// Whether the filter takes part in the requests.
    pub fn may_handle_requests(&self) -> bool {
        self.core.enable || self.purges || self.reports_status
    }

    /// Returns the source of the cache namespace: the setting, or the route.
    pub fn namespace_source(&self) -> NamespaceSource<'_> {
        let namespace = self.core.cache.namespace.as_deref();
        namespace.map_or(NamespaceSource::Derived, NamespaceSource::Fixed)
    }

    /// Describes a route with these settings for the validation of the configuration; messages call
    /// it `name`.
    pub fn describe_route_for_validation<'a>(&'a self, name: &'a str) -> HostRouteDeclaration<'a> {
        HostRouteDeclaration {
            name,
            named: self.namespace_source(),
            handles_requests: !self.reports_status,
            purges: self.purges,
            body_buffer: None,
            is_http_1_0: false,
        }
    }
}

impl ParsedSettings {
    /// Parses settings, which messages call `source`.
    ///
    /// # Errors
    /// Text of the error, with the accepted values.
    pub fn parse_json_settings(
        source: &str,
        json: &[u8],
        host: &mut impl HostSpecificSettings,
    ) -> Result<Self, String> {
        let mut parsed = Self::default();
        for (name, values) in json_settings::parse_json_settings(source, json)? {
            parsed.set_setting(&name, &values, host)?;
        }
        Ok(parsed)
    }

    /// Sets the filter setting `name` from its words. The error text is complete.
    fn set_setting<Host: HostSpecificSettings>(
        &mut self,
        name: &str,
        values: &[String],
        host: &mut Host,
    ) -> Result<(), String> {
        match name {
            "cache_purge" => {
                self.purges = Some(json_settings::parse_on_off(name, values)?);
                return Ok(());
            }
            "status" if Host::HAS_STATUS_REQUESTS => {
                self.reports_status = Some(json_settings::parse_on_off(name, values)?);
                host.prepare_status_page();
                return Ok(());
            }
            _ => {}
        }
        let bytes: Vec<_> = values.iter().map(String::as_bytes).collect();
        if let Some(set) = host.set_host_setting(name, &bytes) {
            return set;
        }
        let values = host.resolve_setting_files(name, &bytes);
        let values = values.map_err(|error| format_setting_message(name, &error))?;
        let values: Vec<_> = values.iter().map(|value| &**value).collect();
        let location = DirectiveLocation { at: Host::LOCATION };
        let set = self
            .directives
            .set_directive_with_location(name, &values, location);
        set.map_err(|error| describe_setting_error(name, &error))?;
        if let Some(warning) = self.directives.take_directive_warning() {
            host.report_warning(format_setting_message(name, &warning));
        }
        Ok(())
    }

    /// Enables the filter unless the settings disable it: a configured filter is enabled by
    /// default.
    pub fn enable_filter_by_default(&mut self) {
        let mut on = RouteConfigBlock::default();
        // the core has this setting, with this value
        if on.set_directive("enable", &[b"on"]).is_ok() {
            self.directives.inherit_unset_from(&on);
        }
    }

    /// Inherits missing settings, as a route does from its filter.
    pub fn inherit_settings(&mut self, outer: &Self) {
        self.directives.inherit_unset_from(&outer.directives);
        self.purges = self.purges.or(outer.purges);
        self.reports_status = self.reports_status.or(outer.reports_status);
    }

    /// Returns the directives of the core.
    pub fn core_directives(&self) -> &RouteConfigBlock {
        &self.directives
    }

    /// Creates the settings of requests from these and the `core` settings, which are resolved from
    /// [`directives`](Self::directives).
    pub fn create_request_settings(&self, core: RouteConfig) -> Arc<RequestSettings> {
        Arc::new(RequestSettings {
            core: Arc::new(core),
            purges: self.purges.unwrap_or(false),
            reports_status: self.reports_status.unwrap_or(false),
        })
    }
}

/// Formats a message about a setting.
pub fn format_setting_message(name: &str, message: &dyn Display) -> String {
    format!("\"{name}\" {message}")
}

/// The node capabilities of each cluster, recorded by all its requests.
#[derive(Debug, Default)]
pub struct ClusterCapabilities(RwLock<HashMap<Vec<u8>, RouteNodeCapabilities>>);

impl ClusterCapabilities {
    /// Returns the capabilities of a cluster's nodes.
    pub fn capabilities_of_cluster(&self, cluster: &[u8]) -> RouteNodeCapabilities {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(capabilities) = known.get(cluster) {
            return capabilities.clone();
        }
        drop(known);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(cluster.to_vec()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use sszip_core::cache::process::ProcessResources;

    use super::{format_setting_message, HostSpecificSettings, ParsedSettings, RequestSettings};

    /// A host of a test, which has the setting `own`.
    #[derive(Default)]
    struct Host<const STATUS: bool> {
        own: Vec<String>,
        is_prepared: bool,
    }

    impl<const STATUS: bool> HostSpecificSettings for Host<STATUS> {
        const LOCATION: &'static str = "here";
        const HAS_STATUS_REQUESTS: bool = STATUS;

        fn set_host_setting(&mut self, name: &str, values: &[&[u8]]) -> Option<Result<(), String>> {
            let value = String::from_utf8_lossy(values.first()?).into_owned();
            match name {
                "own" if value == "wrong" => Some(Err(format_setting_message(name, &"is wrong"))),
                "own" => {
                    self.own.push(value);
                    Some(Ok(()))
                }
                _ => None,
            }
        }

        fn prepare_status_page(&mut self) {
            self.is_prepared = true;
        }

        fn report_warning(&mut self, text: String) {
            panic!("{text}");
        }
    }

    fn settings(parsed: &ParsedSettings) -> std::sync::Arc<RequestSettings> {
        parsed.create_request_settings(
            parsed
                .core_directives()
                .resolve_route_config(ProcessResources::default()),
        )
    }

    #[test]
    fn settings_of_the_host_are_not_directives() {
        let mut host = Host::<false>::default();
        let json = br#"{"own": "a", "min_length": 7, "cache_purge": true}"#;
        let parsed = ParsedSettings::parse_json_settings("it", json, &mut host).expect("valid");
        assert_eq!(host.own, ["a"]);
        let settings = settings(&parsed);
        assert_eq!(settings.core.min_length, 7);
        assert!(settings.purges && !settings.reports_status);
        for (json, error) in [
            (&br#"{"own": "wrong"}"#[..], "\"own\" is wrong"),
            (b"[]", "it must be a JSON object of settings"),
        ] {
            let read = ParsedSettings::parse_json_settings("it", json, &mut host);
            assert_eq!(read.map(|_| ()), Err(error.to_owned()));
        }
    }

    #[test]
    fn status_is_a_setting_only_of_hosts_that_have_status_requests() {
        let json = br#"{"status": true}"#;
        let mut host = Host::<false>::default();
        assert!(ParsedSettings::parse_json_settings("it", json, &mut host).is_err());
        let mut host = Host::<true>::default();
        let parsed = ParsedSettings::parse_json_settings("it", json, &mut host).expect("valid");
        assert!(host.is_prepared);
        let settings = settings(&parsed);
        assert!(settings.reports_status && settings.may_handle_requests());
        assert!(
            !settings
                .describe_route_for_validation("a route")
                .handles_requests
        );
    }

    #[test]
    fn filter_is_enabled_by_default_and_routes_inherit_its_settings() {
        let host = &mut Host::<false>::default();
        let mut filter = ParsedSettings::parse_json_settings("it", br#"{"min_length": 7}"#, host)
            .expect("valid");
        assert!(!settings(&filter).may_handle_requests());
        filter.enable_filter_by_default();
        assert!(settings(&filter).may_handle_requests());
        let json = br#"{"enable": false, "cache_purge": true}"#;
        let mut route = ParsedSettings::parse_json_settings("it", json, host).expect("valid");
        route.enable_filter_by_default();
        route.inherit_settings(&filter);
        let settings = settings(&route);
        assert!(!settings.core.enable && settings.purges);
        assert_eq!(settings.core.min_length, 7);
    }
}
