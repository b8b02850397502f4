//! The settings of sszip in an nginx configuration, as the core reads them.

use sszip_core::cache::process::ProcessResources;
use sszip_core::config::head_sources::NamespaceSource;
use sszip_core::config::setting_error::{
    describe_setting_error, replace_setting_names_by_directives,
};
use sszip_core::config::validated::{HostRouteDeclaration, ValidatedConfig};
use sszip_core::config::{DirectiveError, DirectiveLocation, RouteConfig, RouteConfigBlock};

use super::findings::Finding;
use super::nginx_scope::{HttpScope, Location};
use super::nginx_syntax::Directive;

/// Settings that nginx's module reads itself, or whose values name files of the machine.
const HOST_SETTINGS: [&str; 6] = [
    "thread_pool",
    "cache_bypass",
    "no_cache",
    "status",
    "cache_purge",
    "cache_fleet",
];

/// A location with its settings of sszip.
#[derive(Debug)]
pub struct Route<'c> {
    /// The location.
    pub location: Location<'c>,
    /// The settings, with their defaults.
    pub config: RouteConfig,
}

impl Route<'_> {
    /// Whether sszip is enabled in a location that handles its requests.
    pub fn is_enabled(&self) -> bool {
        self.config.enable && self.location.handles_requests()
    }

    /// Whether responses of the location are cached.
    pub fn is_cached(&self) -> bool {
        self.config.is_cache_enabled() && self.location.handles_requests()
    }

    /// Whether requests to the location purge.
    pub fn purges(&self) -> bool {
        self.is_on("sszip_cache_purge")
    }

    /// Whether the location is a status page.
    pub fn reports_status(&self) -> bool {
        self.is_on("sszip_status")
    }

    /// Whether the location's own block has a directive with the value `on`.
    fn is_on(&self, name: &str) -> bool {
        let own = self.location.own(name);
        own.is_some_and(|it| it.first_word().eq_ignore_ascii_case("on"))
    }

    /// Describes the location for the validation of the core, without the properties of nginx.
    pub fn declaration(&self) -> HostRouteDeclaration<'_> {
        let namespace = self.location.effective_word("sszip_cache_namespace");
        HostRouteDeclaration {
            name: &self.location.name,
            named: match namespace {
                "" => NamespaceSource::Derived,
                text if text.contains('$') => NamespaceSource::PerRequest,
                text => NamespaceSource::Fixed(text.as_bytes()),
            },
            handles_requests: self.location.handles_requests() && !self.reports_status(),
            purges: self.purges(),
            body_buffer: None,
            is_http_1_0: false,
        }
    }
}

/// Returns the name that the core has for a directive, if it is one of the core's.
fn core_setting(directive: &Directive) -> Option<&str> {
    let setting = match &*directive.name {
        "sszip" => "enable",
        // not a directive of nginx
        "sszip_enable" => "sszip_enable",
        name => name.strip_prefix("sszip_")?,
    };
    (!HOST_SETTINGS.contains(&setting)).then_some(setting)
}

/// Checks the values of all settings, and returns the settings of the whole configuration.
pub fn validate_settings(directives: &[Directive], findings: &mut Vec<Finding>) -> ValidatedConfig {
    let mut validated = ValidatedConfig::default();
    validate_block(directives, &mut validated, findings);
    validated
}

fn validate_block(
    directives: &[Directive],
    validated: &mut ValidatedConfig,
    findings: &mut Vec<Finding>,
) {
    let mut block = RouteConfigBlock::default();
    for directive in directives.iter().filter(|it| !it.has_data()) {
        validate_block(directive.inner(), validated, findings);
        let Some(setting) = core_setting(directive) else {
            continue;
        };
        let values: Vec<_> = directive.words.iter().map(String::as_bytes).collect();
        let at = directive.at.to_string();
        let source = DirectiveLocation { at: &at };
        let set = validated
            .set_global_directive_at(setting, &values, "/", source)
            .unwrap_or_else(|| block.set_directive_with_location(setting, &values, source));
        if let Err(error) = set {
            let text = describe_directive_error(directive, setting, &error);
            findings.push(Finding::error("settings", &directive.at, text, ""));
        }
        if let Some(warning) = block.take_directive_warning() {
            let warning = replace_setting_names_by_directives(&warning);
            let text = format!("\"{}\" {warning}", directive.name);
            findings.push(Finding::warning("settings", &directive.at, text, ""));
        }
    }
}

/// Describes an error with the names of nginx's directives.
fn describe_directive_error(
    directive: &Directive,
    setting: &str,
    error: &DirectiveError,
) -> String {
    let text = describe_setting_error(setting, error);
    let quoted = format!("\"{setting}\"");
    let problem = text.strip_prefix(quoted.as_str()).unwrap_or(&text);
    let problem = problem
        .replace("did you mean \"", "did you mean \"sszip_")
        .replace("\"sszip_enable\"", "\"sszip\"");
    let problem = replace_setting_names_by_directives(&problem);
    format!("\"{}\"{problem}", directive.name)
}

/// Returns the locations with their settings. In a file without `http`, sszip is enabled unless the
/// file disables it.
pub fn routes<'c>(scope: &HttpScope<'c>) -> Vec<Route<'c>> {
    let process = ProcessResources::default();
    let locations = scope.locations().into_iter();
    let routes = locations.map(|location| {
        let mut outer = RouteConfigBlock::default();
        if !scope.is_whole {
            // the core has this setting, with this value
            let _ = outer.set_directive("enable", &[b"on"]);
        }
        for directives in &location.blocks {
            let mut block = RouteConfigBlock::default();
            for directive in *directives {
                if let Some(setting) = core_setting(directive) {
                    let values: Vec<_> = directive.words.iter().map(String::as_bytes).collect();
                    let at = directive.at.to_string();
                    let source = DirectiveLocation { at: &at };
                    // `validate_settings` reports errors; settings of the whole configuration are
                    // unknown here
                    let _ = block.set_directive_with_location(setting, &values, source);
                }
            }
            block.inherit_unset_from(&outer);
            outer = block;
        }
        Route {
            config: outer.resolve_route_config(process.clone()),
            location,
        }
    });
    routes.collect()
}

#[cfg(test)]
mod tests {
    use super::validate_settings;
    use crate::check::nginx_syntax::parse_nginx_text;

    #[test]
    fn errors_have_the_names_of_directives() {
        for (text, expected) in [
            (
                "sszip_cach on;",
                "\"sszip_cach\" is an unknown setting; did you mean \"sszip_cache\"?",
            ),
            ("sszip_enable on;", "\"sszip_enable\" is an unknown setting"),
            (
                "sszip_memory x;",
                "\"sszip_memory\" has an invalid value \"x\"",
            ),
            ("sszip maybe;", "\"sszip\" has an invalid value \"maybe\""),
        ] {
            let directives = parse_nginx_text(&"f".into(), text).unwrap();
            let mut findings = Vec::new();
            validate_settings(&directives, &mut findings);
            assert!(findings[0].text.starts_with(expected), "{findings:?}");
        }
    }

    #[test]
    fn data_of_maps_are_not_settings() {
        let text = "map $x $y { sszip_x 1; default 0; }";
        let directives = parse_nginx_text(&"f".into(), text).unwrap();
        let mut findings = Vec::new();
        validate_settings(&directives, &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
    }
}
