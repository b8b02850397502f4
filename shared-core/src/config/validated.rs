//! The validated config: settings of a configuration as a whole, and checks across its routes.

use super::cache::LOOKUP_TIMEOUT_RANGE;
use super::endpoint::MAX_SOCKET_PATH;
use super::fleet::FleetSettings;
use super::head_source::NodeApi;
use super::head_sources::{HeadSourcesByNamespace, NamespaceSource};
use super::store::StoreSettings;
use super::values::{
    invalid_value_error, set_once, single_directive_value, DirectiveError, DirectiveLocation,
    DisplayMilliseconds, DisplaySize,
};
use super::RouteConfig;
use crate::cache::class::LifetimeClass;
use crate::time_constants::lookup_timeout;

/// The parts of a host's configuration that are checked across its routes: the store or owner, the
/// head sources, and the cached routes.
#[derive(Clone, Debug, Default)]
pub struct ValidatedConfig {
    /// Head sources, one per namespace.
    pub follows: HeadSourcesByNamespace,
    /// The store that a process of the host owns.
    pub store: Option<StoreSettings>,
    /// The fleet through which the owner of the store shares entries with other machines.
    pub fleet: Option<FleetSettings>,
    /// Position of the directive that sets the fleet.
    fleet_at: String,
    /// Socket of an owner that another process runs.
    foreign_owner: Option<String>,
    /// Position of the directive that sets the owner.
    owner_at: String,
    /// Position of the first `cache_head`, on any route.
    first_head: Option<String>,
    /// Lookup timeout in milliseconds.
    lookup_timeout: Option<u64>,
    purges: bool,
    largest_max_entry: u64,
    caches: Vec<DeferredRouteCheck>,
}

/// The properties of a route with a cache that are checked when all routes are known.
#[derive(Clone, Debug)]
struct DeferredRouteCheck {
    name: String,
    namespace: Option<String>,
    /// Whether the namespace depends on the request.
    is_per_request: bool,
    /// A class with a lifetime in milliseconds that is longer than its default.
    long: Option<(LifetimeClass, u64)>,
}

/// A route as the host declares it for validation: its name, its namespace, and the properties that
/// the host itself configures.
#[derive(Clone, Copy, Debug)]
pub struct HostRouteDeclaration<'a> {
    /// Name of the route in messages, with the host's word for it: `location "/"`.
    pub name: &'a str,
    /// The source of the route's namespace.
    pub named: NamespaceSource<'a>,
    /// Whether the host handles requests on this route itself; it is no status page, and not only a
    /// container of inner routes.
    pub handles_requests: bool,
    /// Whether requests to this route purge.
    pub purges: bool,
    /// Maximum length of a request body that the host keeps in memory, in bytes. `None`: only its
    /// other limits apply.
    pub body_buffer: Option<u64>,
    /// Whether upstream requests use HTTP/1.0, where the end of a connection may end a response.
    pub is_http_1_0: bool,
}

impl ValidatedConfig {
    /// Sets a directive of the whole configuration, and reads the files that it names. Returns
    /// `None` if the directive is not one. A relative path is resolved against `base`.
    pub fn set_global_directive(
        &mut self,
        name: &str,
        values: &[&[u8]],
        base: &str,
    ) -> Option<Result<(), DirectiveError>> {
        self.set_global_directive_at(name, values, base, DirectiveLocation::default())
    }

    /// Sets a directive as [`set_global_directive`](Self::set_global_directive) does, with its
    /// position in the configuration.
    pub fn set_global_directive_at(
        &mut self,
        name: &str,
        values: &[&[u8]],
        base: &str,
        source: DirectiveLocation<'_>,
    ) -> Option<Result<(), DirectiveError>> {
        let had_owner = self.owner_socket().is_some();
        let read = match name {
            "cache_owner" | "cache_path" if had_owner => Err(DirectiveError::AlreadySet {
                name: match self.store {
                    Some(_) => "cache_path",
                    None => "cache_owner",
                },
                at: self.owner_at.clone(),
            }),
            "cache_owner" => parse_owner_socket(values).map(|path| self.foreign_owner = Some(path)),
            "cache_path" => StoreSettings::parse_store_settings(values, base)
                .map(|store| self.store = Some(store)),
            // only owners outside of sandboxes have a fleet, and files
            #[cfg(unix)]
            "cache_fleet" if self.fleet.is_some() => Err(DirectiveError::AlreadySet {
                name: "cache_fleet",
                at: self.fleet_at.clone(),
            }),
            #[cfg(unix)]
            "cache_fleet" => FleetSettings::read_fleet_directive(values, base).map(|fleet| {
                source.at.clone_into(&mut self.fleet_at);
                self.fleet = Some(fleet);
            }),
            "cache_lookup_timeout" => {
                let read = || LOOKUP_TIMEOUT_RANGE.parse_in_range(single_directive_value(values)?);
                set_once(&mut self.lookup_timeout, read)
            }
            _ => return None,
        };
        if !had_owner && self.owner_socket().is_some() {
            source.at.clone_into(&mut self.owner_at);
        }
        Some(read)
    }

    /// Returns the time in milliseconds for which a request waits for the owner.
    pub fn lookup_timeout(&self) -> u64 {
        self.lookup_timeout.unwrap_or_else(lookup_timeout)
    }

    /// Returns the socket of the store's owner, if one is configured.
    pub fn owner_socket(&self) -> Option<String> {
        let own = self.store.as_ref().map(StoreSettings::owner_socket_path);
        own.or_else(|| self.foreign_owner.clone())
    }

    /// Adds a route with its settings. Returns a warning for the operator, if there is one.
    ///
    /// # Errors
    /// The text describes the invalid setting, and names it as [`super::RouteConfigBlock`] does.
    pub fn validate_and_add_route(
        &mut self,
        config: &RouteConfig,
        place: HostRouteDeclaration<'_>,
    ) -> Result<Option<String>, String> {
        self.purges |= place.purges;
        if let (None, Some(first)) = (&self.first_head, config.cache.follows.first()) {
            self.first_head = Some(first.at.clone());
        }
        if !config.is_cache_enabled() {
            let has_no_effect = !config.enable && place.handles_requests;
            let name = place.name;
            return Ok(
                match (config.active_policy.is_some(), config.cache.enable) {
                    _ if !has_no_effect => None,
                    (true, _) => Some(format!(
                    "\"method\" and the other settings of the policy have no effect in {name}: \
                     \"enable on\" is missing"
                )),
                    (_, true) => Some(format!(
                        "\"cache on\" has no effect in {name}: \"enable on\" is missing"
                    )),
                    _ => None,
                },
            );
        }
        self.largest_max_entry = self.largest_max_entry.max(config.cache.max_entry);
        if place.handles_requests && !place.purges {
            self.caches.push(DeferredRouteCheck::new(config, place));
        }
        if place.handles_requests && !place.purges {
            let added = self
                .follows
                .add_route_head_sources(&config.cache.follows, place.named);
            added.map_err(|(error, at)| {
                let name = place.name;
                format!("\"cache_head\" in {name} {error} in {at}")
            })?;
            return Ok(cached_route_warning(config, place));
        }
        Ok(None)
    }

    /// Returns the warnings that need the settings of all routes.
    pub fn cross_route_warnings(&self) -> Vec<String> {
        let places = self.caches.iter();
        let texts = places.filter_map(|place| {
            let name = &place.name;
            let head = place.namespace.as_deref().and_then(|own| {
                let mut heads = self.follows.iter();
                heads.find(|(namespace, _)| *namespace == own)
            });
            // the owner in another process may follow the chain
            let may_follow = self.foreign_owner.is_some()
                || place.is_per_request && self.follows.iter().next().is_some();
            match (head, place.long) {
                (Some((namespace, follow)), _)
                    if follow.api == NodeApi::Execution && name.contains("/eth/v") =>
                {
                    Some(format!(
                        "{name} serves the Beacon API, but its namespace \"{namespace}\" follows \
                         an execution node: responses that depend on the head are not cached \
                         (reason other-api); set a \"cache_namespace\" of its own, and a \
                         \"cache_head\" with api=beacon"
                    ))
                }
                (None, Some((class, time))) if !may_follow => Some(format!(
                    "{name} caches class {} for {}, but no \"cache_head\" follows its namespace: \
                     clients may receive a block that old, or one that was replaced; add a \
                     \"cache_head\", or shorten \"cache_valid\"",
                    class.name(),
                    DisplayMilliseconds(time)
                )),
                _ => None,
            }
        });
        let mut texts: Vec<_> = texts.collect();
        texts.dedup();
        if self.fleet.is_some() && self.follows.iter().next().is_none() {
            texts.push(
                "\"cache_fleet\" shares no entries: no namespace has a \"cache_head\"; add one"
                    .into(),
            );
        }
        texts
    }

    /// Returns the warnings about the fleet that do not depend on routes.
    pub fn fleet_warnings(&self) -> Vec<String> {
        let Some(fleet) = &self.fleet else {
            return Vec::new();
        };
        let mut texts = fleet.transport_warnings();
        let lookup = self.lookup_timeout();
        if fleet.timeout_ms > lookup / 2 {
            texts.push(format!(
                "has a timeout of {}, above half of \"cache_lookup_timeout\" ({}): lookups may end \
                 before the fleet responds; raise \"cache_lookup_timeout\", or shorten \"timeout=\"",
                DisplayMilliseconds(fleet.timeout_ms),
                DisplayMilliseconds(lookup)
            ));
        }
        let texts = texts.into_iter();
        texts
            .map(|text| format!("\"cache_fleet\" {text}"))
            .collect()
    }

    /// Checks the configuration when all routes are known.
    ///
    /// # Errors
    /// The text describes the problem, as in [`validate_and_add_route`](Self::validate_and_add_route).
    pub fn check_across_routes(&self) -> Result<(), String> {
        let has_owner = self.owner_socket().is_some();
        if self.purges && !has_owner {
            return Err(
                "\"cache_purge\" needs a store: set \"cache_path\" or \"cache_owner\"".into(),
            );
        }
        if self.store.is_some() {
            return Ok(());
        }
        let store_is_missing = |name: &str, at: &str, remedy: &str| {
            let remedy = match has_owner {
                true => format!(": with \"cache_owner\" the daemon {remedy} of cached.toml"),
                false => String::new(),
            };
            let at = match at {
                "" => String::new(),
                at => format!(" in {at}"),
            };
            Err(format!("\"{name}\" needs \"cache_path\"{remedy}{at}"))
        };
        match (&self.first_head, &self.fleet) {
            (Some(at), _) => {
                store_is_missing("cache_head", at, "follows the chain; move it to a [[head]]")
            }
            (None, Some(_)) => store_is_missing(
                "cache_fleet",
                &self.fleet_at,
                "connects to the fleet; move it to the table [fleet]",
            ),
            (None, None) => Ok(()),
        }
    }

    /// Returns the largest maximum length of an entry on any route, in bytes.
    pub fn largest_entry_limit(&self) -> u64 {
        self.largest_max_entry
    }
}

impl DeferredRouteCheck {
    /// Records the properties of a route that are checked once the whole configuration is read.
    fn new(config: &RouteConfig, place: HostRouteDeclaration<'_>) -> Self {
        let namespace = match place.named {
            NamespaceSource::Fixed(name) => Some(String::from_utf8_lossy(name).into_owned()),
            NamespaceSource::Derived | NamespaceSource::PerRequest => None,
        };
        let classes = [LifetimeClass::Tip, LifetimeClass::Unfinalized].into_iter();
        let mut long = classes.map(|class| (class, config.cache.valid.lifetime_for_class(class)));
        Self {
            name: place.name.to_owned(),
            namespace,
            is_per_request: place.named == NamespaceSource::PerRequest,
            long: long.find(|(class, time)| *time > class.default_lifetime_ms()),
        }
    }
}

/// Returns the warning about a route with a cache, if longer requests can't be looked up, or
/// truncated responses can't be detected.
fn cached_route_warning(config: &RouteConfig, place: HostRouteDeclaration<'_>) -> Option<String> {
    let (most, name) = (config.cache.max_request, place.name);
    let short = place.body_buffer.filter(|buffer| *buffer < most);
    let buffer = short.map(|buffer| {
        format!(
            "\"client_body_buffer_size\" {} is below \"cache_max_request\" {}: longer requests, \
             batches among them, are not looked up (reason body-on-disk); set it to 128k or more",
            DisplaySize(buffer),
            DisplaySize(most)
        )
    });
    let version = place.is_http_1_0.then(|| {
        "HTTP/1.0 to the node: truncated responses can't be detected; set \"proxy_http_version\" 1.1"
            .to_owned()
    });
    let texts: Vec<_> = buffer.into_iter().chain(version).collect();
    (!texts.is_empty()).then(|| format!("{name}: {}", texts.join("; ")))
}

/// Parses `unix:PATH`, and returns the path.
fn parse_owner_socket(values: &[&[u8]]) -> Result<String, DirectiveError> {
    let value = single_directive_value(values)?;
    let path = value.split_at_checked(5);
    let path = path.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"unix:"));
    match path.and_then(|(_, path)| std::str::from_utf8(path).ok()) {
        Some(path) if (1..=MAX_SOCKET_PATH).contains(&path.len()) => Ok(path.into()),
        _ => Err(invalid_value_error(
            value,
            format!("\"unix:PATH\" with a socket's path of at most {MAX_SOCKET_PATH} bytes"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{HostRouteDeclaration, ValidatedConfig};
    use crate::config::head_sources::NamespaceSource;
    use crate::config::store::StoreSettings;
    use crate::config::{DirectiveLocation, RouteConfig, RouteConfigBlock};
    use crate::memory::MemoryBudget;

    fn config(lines: &[&str]) -> RouteConfig {
        let mut directives = RouteConfigBlock::default();
        for line in lines {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
            let source = DirectiveLocation { at: "f:7" };
            directives
                .set_directive_with_location(name, &values, source)
                .unwrap();
        }
        directives.resolve_route_config(MemoryBudget::new())
    }

    const PLACE: HostRouteDeclaration<'_> = HostRouteDeclaration {
        name: "location \"/p\"",
        named: NamespaceSource::Derived,
        handles_requests: true,
        purges: false,
        body_buffer: None,
        is_http_1_0: false,
    };

    #[test]
    fn warning_is_returned_for_small_body_buffers_and_http_1_0() {
        let (mut plan, caches) = (
            ValidatedConfig::default(),
            config(&["enable on", "cache on"]),
        );
        let place = |body_buffer, is_http_1_0| HostRouteDeclaration {
            body_buffer,
            is_http_1_0,
            ..PLACE
        };
        for (place, texts) in [
            (place(None, false), &[][..]),
            (place(Some(64 << 10), false), &[]),
            (
                place(Some(16 << 10), false),
                &["\"client_body_buffer_size\" 16k is below \"cache_max_request\" 64k"],
            ),
            (
                place(Some(1000), true),
                &["1000 is below", "HTTP/1.0 to the node"],
            ),
            (
                place(None, true),
                &["truncated responses can't be detected"],
            ),
        ] {
            let warning = plan.validate_and_add_route(&caches, place).unwrap();
            assert_eq!(warning.is_some(), !texts.is_empty());
            for text in texts {
                assert!(warning.as_ref().unwrap().contains(text), "{warning:?}");
            }
            let idle = config(&["enable on"]);
            assert_eq!(plan.validate_and_add_route(&idle, place), Ok(None));
        }
    }

    #[test]
    fn warning_is_returned_for_long_lifetimes_without_a_head_source() {
        let own = NamespaceSource::Fixed(b"main");
        let head = "cache_head http://n";
        for (lines, named, owner, text) in [
            (&["cache_valid tip 1s"][..], own, None, None),
            (
                &["cache_valid tip 12s"],
                own,
                None,
                Some("class tip for 12s"),
            ),
            (
                &["cache_valid tip 12s"],
                NamespaceSource::Derived,
                None,
                Some("class tip for 12s"),
            ),
            (
                &["cache_valid unfinalized 1m"],
                own,
                None,
                Some("class unfinalized for 1m"),
            ),
            (&["cache_valid tip 12s", head], own, None, None),
            (&["cache_valid tip 12s"], own, Some("unix:/s"), None),
            (
                &["cache_valid tip 12s", "cache_head http://n namespace=x"],
                own,
                None,
                Some("tip"),
            ),
            (
                &["cache_valid tip 12s", "cache_head http://n namespace=x"],
                NamespaceSource::PerRequest,
                None,
                None,
            ),
        ] {
            let mut plan = ValidatedConfig::default();
            if let Some(owner) = owner {
                plan.set_global_directive("cache_owner", &[owner.as_bytes()], "")
                    .unwrap()
                    .unwrap();
            }
            let lines = [&["enable on", "cache on"], lines].concat();
            plan.validate_and_add_route(&config(&lines), HostRouteDeclaration { named, ..PLACE })
                .unwrap();
            let warnings = plan.cross_route_warnings();
            assert_eq!(
                warnings.len(),
                usize::from(text.is_some()),
                "{lines:?}: {warnings:?}"
            );
            assert!(
                text.is_none_or(|text| warnings[0].contains(text)),
                "{warnings:?}"
            );
        }
    }

    #[test]
    fn warning_is_returned_for_beacon_api_with_an_execution_head_source() {
        for (name, head, is_odd) in [
            ("/eth/v1/", "cache_head http://n", true),
            ("/eth/v1/", "cache_head http://n api=beacon", false),
            ("/", "cache_head http://n", false),
        ] {
            let mut plan = ValidatedConfig::default();
            let named = NamespaceSource::Fixed(b"main");
            plan.validate_and_add_route(
                &config(&["enable on", "cache on", head]),
                HostRouteDeclaration { named, ..PLACE },
            )
            .unwrap();
            let caches = config(&["enable on", "cache on"]);
            plan.validate_and_add_route(
                &caches,
                HostRouteDeclaration {
                    name,
                    named,
                    ..PLACE
                },
            )
            .unwrap();
            let warnings = plan.cross_route_warnings();
            assert_eq!(!warnings.is_empty(), is_odd, "{name} {head}: {warnings:?}");
            assert!(warnings.iter().all(|text| text.contains("other-api")));
        }
    }

    #[test]
    fn warning_is_returned_for_a_cache_without_enable() {
        let mut plan = ValidatedConfig::default();
        let vain = config(&["cache on"]);
        let warning = plan.validate_and_add_route(&vain, PLACE).unwrap().unwrap();
        assert!(warning.starts_with("\"cache on\" has no effect in location \"/p\""));
        let between = HostRouteDeclaration {
            handles_requests: false,
            ..PLACE
        };
        assert_eq!(plan.validate_and_add_route(&vain, between), Ok(None));
        assert_eq!(plan.largest_entry_limit(), 0);
    }

    #[test]
    fn max_entry_is_the_largest_of_all_cached_routes() {
        let mut plan = ValidatedConfig::default();
        for lines in [
            &["enable on", "cache on", "cache_max_entry 2m"][..],
            &["enable on", "cache on", "cache_max_entry 1m"],
            &["enable on", "cache_max_entry 9m"],
        ] {
            assert_eq!(plan.validate_and_add_route(&config(lines), PLACE), Ok(None));
        }
        assert_eq!(plan.largest_entry_limit(), 2 << 20);
    }

    #[test]
    fn purge_without_an_owner_is_rejected() {
        let mut plan = ValidatedConfig::default();
        let purges = HostRouteDeclaration {
            purges: true,
            ..PLACE
        };
        plan.validate_and_add_route(&config(&[]), purges).unwrap();
        assert!(plan
            .check_across_routes()
            .unwrap_err()
            .contains("\"cache_purge\" needs"));
        plan.set_global_directive("cache_owner", &[b"unix:/s"], "")
            .unwrap()
            .unwrap();
        assert_eq!(plan.check_across_routes(), Ok(()));
    }

    #[test]
    fn second_owner_is_refused_with_the_name_and_line_of_the_first() {
        for (first, second, text) in [
            (
                "cache_path",
                "cache_path",
                "is duplicate: \"cache_path\" is already set at f:7",
            ),
            (
                "cache_path",
                "cache_owner",
                "is duplicate: \"cache_path\" is already set at f:7",
            ),
            (
                "cache_owner",
                "cache_path",
                "is duplicate: \"cache_owner\" is already set at f:7",
            ),
        ] {
            let mut plan = ValidatedConfig::default();
            let mut set = |name, at| {
                let values: [&[u8]; 1] = [b"unix:/s"];
                plan.set_global_directive_at(name, &values, "/", DirectiveLocation { at })
                    .unwrap()
            };
            assert_eq!(set(first, "f:7"), Ok(()));
            for at in ["f:9", "f:10"] {
                assert_eq!(set(second, at).unwrap_err().to_string(), text);
            }
        }
    }

    fn set_fleet(plan: &mut ValidatedConfig, line: &str, at: &str) -> Result<(), String> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let set =
            plan.set_global_directive_at("cache_fleet", &words, "/base/", DirectiveLocation { at });
        set.unwrap().map_err(|error| error.to_string())
    }

    #[test]
    fn second_fleet_is_refused_with_the_line_of_the_first() {
        let mut plan = ValidatedConfig::default();
        assert!(set_fleet(&mut plan, "redis://", "f:2").is_err());
        assert_eq!(plan.fleet, None);
        assert_eq!(set_fleet(&mut plan, "redis://a", "f:3"), Ok(()));
        for line in ["redis://a", "redis://b", "redis+cluster://b"] {
            let error = set_fleet(&mut plan, line, "f:9").unwrap_err();
            assert_eq!(error, "is duplicate: \"cache_fleet\" is already set at f:3");
        }
        assert_eq!(plan.fleet.unwrap().endpoint.nodes[0].host, "a");
    }

    #[test]
    fn fleet_without_a_local_store_is_rejected() {
        let mut plan = ValidatedConfig::default();
        set_fleet(&mut plan, "redis://a", "f:3").unwrap();
        let missing = plan.check_across_routes().unwrap_err();
        assert_eq!(missing, "\"cache_fleet\" needs \"cache_path\" in f:3");
        plan.foreign_owner = Some("/s".into());
        assert_eq!(
            plan.check_across_routes().unwrap_err(),
            "\"cache_fleet\" needs \"cache_path\": with \"cache_owner\" the daemon connects to the \
             fleet; move it to the table [fleet] of cached.toml in f:3"
        );
        plan.foreign_owner = None;
        plan.store = Some(StoreSettings::default());
        assert_eq!(plan.check_across_routes(), Ok(()));
        let mut unplaced = ValidatedConfig::default();
        set_fleet(&mut unplaced, "redis://a", "").unwrap();
        let missing = unplaced.check_across_routes().unwrap_err();
        assert_eq!(missing, "\"cache_fleet\" needs \"cache_path\"");
    }

    #[test]
    fn warning_is_returned_for_a_fleet_that_shares_no_entries() {
        let lines = ["enable on", "cache on", "cache_head http://node"];
        for (lines, is_warned) in [(&lines[..2], true), (&lines[..], false)] {
            let mut plan = ValidatedConfig::default();
            set_fleet(&mut plan, "redis://localhost", "f:3").unwrap();
            let named = HostRouteDeclaration {
                named: NamespaceSource::Fixed(b"main"),
                ..PLACE
            };
            plan.validate_and_add_route(&config(lines), named).unwrap();
            let text =
                "\"cache_fleet\" shares no entries: no namespace has a \"cache_head\"; add one";
            let expected: &[&str] = if is_warned { &[text] } else { &[] };
            assert_eq!(plan.cross_route_warnings(), expected);
            assert!(plan.fleet_warnings().is_empty());
        }
        assert!(ValidatedConfig::default().fleet_warnings().is_empty());
    }

    #[test]
    fn warning_is_returned_for_a_fleet_timeout_above_half_of_the_lookup_timeout() {
        for (fleet, lookup, text) in [
            ("redis://[::1]", None, None),
            ("redis://[::1] timeout=11ms", None, Some("(20ms)")),
            ("redis://[::1] timeout=1s", Some("1s"), Some("1s, above")),
            ("redis://[::1] timeout=500ms", Some("1s"), None),
            ("redis://[::1]", Some("19ms"), Some("(19ms)")),
        ] {
            let mut plan = ValidatedConfig::default();
            set_fleet(&mut plan, fleet, "f:3").unwrap();
            if let Some(lookup) = lookup {
                let values = [lookup.as_bytes()];
                let set = plan.set_global_directive("cache_lookup_timeout", &values, "");
                set.unwrap().unwrap();
            }
            let warnings = plan.fleet_warnings();
            assert_eq!(warnings.len(), usize::from(text.is_some()), "{warnings:?}");
            if let Some(text) = text {
                assert!(warnings[0].starts_with("\"cache_fleet\" has a timeout of "));
                assert!(warnings[0].contains(text), "{warnings:?}");
            }
        }
    }

    #[test]
    fn second_owner_is_rejected_and_the_first_kept() {
        for (first, second, socket) in [
            (("cache_owner", "unix:/s"), ("cache_owner", "unix:/s"), "/s"),
            (("cache_owner", "UNIX:s"), ("cache_path", "/p"), "s"),
            (
                ("cache_path", "p"),
                ("cache_owner", "unix:/s"),
                "/b/p/owner.sock",
            ),
            (("cache_path", "/p"), ("cache_path", "/p"), "/p/owner.sock"),
        ] {
            let mut plan = ValidatedConfig::default();
            let mut set = |(name, value): (&str, &str)| {
                plan.set_global_directive(name, &[value.as_bytes()], "/b/")
            };
            assert_eq!(set(first), Some(Ok(())));
            let error = set(second).unwrap().unwrap_err().to_string();
            assert!(error.starts_with("is duplicate"), "{error}");
            assert_eq!(plan.owner_socket().as_deref(), Some(socket));
        }
        assert_eq!(ValidatedConfig::default().owner_socket(), None);
        assert_eq!(
            ValidatedConfig::default().set_global_directive("cache", &[b"on"], ""),
            None
        );
    }

    #[test]
    fn lookup_timeout_is_set_once_and_within_its_range() {
        let mut plan = ValidatedConfig::default();
        assert_eq!(plan.lookup_timeout(), 20);
        let mut set = |value: &str| {
            plan.set_global_directive("cache_lookup_timeout", &[value.as_bytes()], "")
        };
        assert!(matches!(set("1001ms"), Some(Err(_))));
        assert_eq!(set("150ms"), Some(Ok(())));
        assert!(matches!(set("150ms"), Some(Err(_))));
        assert_eq!(plan.lookup_timeout(), 150);
    }

    #[test]
    fn owner_that_is_no_socket_is_rejected() {
        let long = format!("unix:/{}", "s".repeat(107));
        for value in ["/run/owner", "unix:", "127.0.0.1:80", "unix", "", &long] {
            let mut plan = ValidatedConfig::default();
            let error = plan.set_global_directive("cache_owner", &[value.as_bytes()], "");
            let error = error.unwrap().unwrap_err().to_string();
            assert!(error.contains("must be \"unix:PATH\" with"), "{error}");
            assert_eq!(plan.owner_socket(), None);
        }
    }

    #[test]
    fn head_source_without_a_local_store_or_a_name_is_rejected() {
        let lines = ["enable on", "cache on", "cache_head http://node"];
        let mut plan = ValidatedConfig::default();
        let error = plan
            .validate_and_add_route(&config(&lines), PLACE)
            .unwrap_err();
        assert!(error.starts_with("\"cache_head\" in location \"/p\" needs a name"));
        assert!(error.ends_with(" in f:7"));
        // without a cache the head source is not polled, and must be valid nevertheless
        for lines in [&lines[..], &["cache_head http://node"]] {
            let mut plan = ValidatedConfig::default();
            let named = HostRouteDeclaration {
                named: NamespaceSource::Fixed(b"main"),
                ..PLACE
            };
            plan.validate_and_add_route(&config(lines), named).unwrap();
            let error = plan.check_across_routes().unwrap_err();
            assert_eq!(error, "\"cache_head\" needs \"cache_path\" in f:7");
            plan.foreign_owner = Some("/s".into());
            assert!(plan
                .check_across_routes()
                .unwrap_err()
                .contains("the daemon follows the chain"));
            plan.foreign_owner = None;
            plan.store = Some(StoreSettings::default());
            assert_eq!(plan.check_across_routes(), Ok(()));
        }
    }
}
