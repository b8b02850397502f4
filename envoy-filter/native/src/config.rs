//! What a filter, or a route, is configured to do: JSON, with the names of
//! docs/directives.md without their prefix.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, Weak};

use serde_json::Value;
use sszip_core::cache::process::Process;
use sszip_core::config::follows::Named;
use sszip_core::config::learnt::Learnt;
use sszip_core::config::plan::{Place, Plan};
use sszip_core::config::{Config, Directives};

use crate::background::Background;
use crate::envoy::{self, FilterConfig};
use crate::metrics::Metrics;

/// What all filters of the process share.
pub static PROCESS: LazyLock<Process> = LazyLock::new(Process::default);

/// How many workers there are; `None`: Envoy only checks its configuration. To be
/// asked on the main thread first, where configurations are read.
static WORKERS: LazyLock<Option<usize>> =
    LazyLock::new(|| (!envoy::only_validates()).then(envoy::workers));

/// Of a filter.
#[derive(Debug)]
pub struct Filter {
    /// By which routes know it.
    name: Arc<()>,
    directives: Directives,
    /// Where no route says anything.
    config: Arc<Config>,
    /// Of what its requests come to.
    pub metrics: Arc<Metrics>,
    /// Of the nodes of each cluster, by all workers.
    learnt: RwLock<HashMap<Vec<u8>, Learnt>>,
    /// Its requests of its own.
    pub background: Arc<Background>,
}

/// Of a route. What it does not say the filter says.
#[derive(Debug)]
pub struct Route {
    directives: Directives,
    /// With what each filter says: a listener has a filter of its own, and routes may be
    /// of several.
    configs: Mutex<Vec<(Weak<()>, Arc<Config>)>>,
}

impl Filter {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn new(json: &[u8], envoy: FilterConfig) -> Result<Self, String> {
        let mut directives = read(json)?;
        // who has configured a filter wants it
        let mut on = Directives::default();
        set(&mut on, "enable", &["on".into()])?;
        directives.inherit(&on);
        let config = prepared(&directives)?;
        LazyLock::force(&WORKERS);
        start(&config);
        Ok(Self {
            metrics: Arc::new(Metrics::new(envoy, WORKERS.is_some())),
            name: Arc::default(),
            config,
            directives,
            learnt: RwLock::default(),
            background: Arc::new(Background::new(envoy.scheduler())),
        })
    }

    /// What was learnt of the nodes of a cluster.
    pub fn learnt(&self, cluster: &[u8]) -> Learnt {
        let known = self.learnt.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(learnt) = known.get(cluster) {
            return learnt.clone();
        }
        drop(known);
        let mut known = self.learnt.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(cluster.to_vec()).or_default().clone()
    }

    /// The settings of a request.
    pub fn of(&self, route: Option<&Route>) -> Arc<Config> {
        let Some(route) = route else {
            return Arc::clone(&self.config);
        };
        let mut configs = route.configs.lock().unwrap_or_else(PoisonError::into_inner);
        let is_this = |name: &Weak<()>| Weak::as_ptr(name) == Arc::as_ptr(&self.name);
        if let Some((_, config)) = configs.iter().find(|(name, _)| is_this(name)) {
            return Arc::clone(config);
        }
        // listeners come and go while their routes stay
        configs.retain(|(name, _)| name.strong_count() > 0);
        let mut directives = route.directives.clone();
        directives.inherit(&self.directives);
        // what is not allowed was refused when each of them was read
        let config = prepared(&directives).unwrap_or_else(|_| Arc::clone(&self.config));
        start(&config);
        configs.push((Arc::downgrade(&self.name), Arc::clone(&config)));
        config
    }
}

impl Route {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, and what is allowed.
    pub fn new(json: &[u8]) -> Result<Self, String> {
        let directives = read(json)?;
        prepared(&directives)?;
        Ok(Self {
            directives,
            configs: Mutex::default(),
        })
    }
}

/// The settings, and what they need of the process.
fn prepared(directives: &Directives) -> Result<Arc<Config>, String> {
    let config = Arc::new(directives.resolve(PROCESS.clone()));
    let mut plan = Plan::default();
    let namespace = config.cache.namespace.as_deref();
    let place = Place {
        name: "filter_config",
        named: namespace.map_or(Named::No, Named::Always),
        answers: true,
        purges: false,
    };
    plan.add(&config, place)?;
    plan.check()?;
    Ok(config)
}

/// What the first place that caches says of the memory for it holds for all of the
/// process. On any thread.
fn start(config: &Config) {
    if let (true, Some(workers)) = (config.caches(), *WORKERS) {
        let bytes = config.cache.memory;
        let longest = config.cache.max_entry.min(bytes);
        PROCESS.shared.start(bytes, longest, workers);
    }
}

/// An empty text is an empty object: Envoy has no other for a missing one.
fn read(json: &[u8]) -> Result<Directives, String> {
    let mut directives = Directives::default();
    if json.trim_ascii().is_empty() {
        return Ok(directives);
    }
    let value: Value = serde_json::from_slice(json)
        .map_err(|error| format!("filter_config is not JSON: {error}"))?;
    let Value::Object(settings) = value else {
        return Err("filter_config must be an object of settings".into());
    };
    for (name, value) in &settings {
        for values in uses(name, value)? {
            set(&mut directives, name, &values)?;
        }
    }
    Ok(directives)
}

fn set(directives: &mut Directives, name: &str, values: &[String]) -> Result<(), String> {
    let bytes: Vec<_> = values.iter().map(String::as_bytes).collect();
    directives
        .set(name, &bytes)
        .map_err(|error| format!("\"{name}\" {error}"))
}

/// The values of a setting, of each time that it is used: a file of nginx says some
/// several times, and here there is a list of what it says each time.
fn uses(name: &str, value: &Value) -> Result<Vec<Vec<String>>, String> {
    match value {
        Value::Array(list) if list.iter().any(has_several) => {
            list.iter().map(|one| values(name, one)).collect()
        }
        other => Ok(vec![values(name, other)?]),
    }
}

fn has_several(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::String(text) => words(text).count() > 1,
        _ => false,
    }
}

/// Of a list each of its values, of a text each of its words, as in a file of nginx.
fn values(name: &str, value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(list) => list.iter().map(|one| scalar(name, one)).collect(),
        Value::String(text) => Ok(words(text).map(str::to_owned).collect()),
        other => Ok(vec![scalar(name, other)?]),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace()
}

fn scalar(name: &str, value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::Bool(is_on) => if *is_on { "on" } else { "off" }.to_owned(),
        // of a Struct all numbers are doubles
        Value::Number(number) => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 && whole.abs() < 9e15 => format!("{whole:.0}"),
            _ => number.to_string(),
        },
        Value::String(text) => text.clone(),
        _ => return Err(not_a_setting(name)),
    })
}

fn not_a_setting(name: &str) -> String {
    format!("\"{name}\" must be a text, a number, true or false, or a list of these")
}

#[cfg(test)]
mod tests {
    use super::{Filter, FilterConfig, Route};

    fn filter(json: &[u8]) -> Result<Filter, String> {
        Filter::new(json, FilterConfig::new(std::ptr::null_mut()))
    }

    #[test]
    fn settings_are_those_of_the_directives() {
        let json = br#"{"min_length": 2048.0, "types": ["text/*", "application/json"],
            "hold": "32k 10ms", "comp_level": "9", "ssz": true}"#;
        let config = filter(json).map(|filter| filter.of(None));
        let config = config.expect("it is right");
        assert!(config.enable && config.ssz.enable && config.types.contains(b"text/css"));
        assert_eq!((config.min_length, config.comp_level), (2048, 9));
        assert_eq!((config.hold, config.hold_ms), (32 << 10, 10));
    }

    #[test]
    fn what_is_said_several_times_is_a_list() {
        for json in [
            &br#"{"cache_valid": ["tip 3s", "immutable 2h"]}"#[..],
            br#"{"cache_valid": [["tip", "3s"], ["immutable", "2h"]]}"#,
        ] {
            let config = filter(json).expect("right").of(None);
            let valid = format!("{:?}", config.cache.valid);
            assert!(
                valid.contains("3000") && valid.contains("7200000"),
                "{valid}"
            );
        }
    }

    #[test]
    fn a_route_says_what_is_different() {
        let filter = filter(br#"{"min_length": 7, "comp_level": 3}"#).expect("right");
        let route = Route::new(br#"{"enable": false, "min_length": 9}"#).expect("right");
        let config = filter.of(Some(&route));
        assert!(!config.enable);
        assert_eq!((config.min_length, config.comp_level), (9, 3));
        assert_eq!(filter.of(None).min_length, 7);
        assert!(std::ptr::eq(&*config, &*filter.of(Some(&route))));
    }

    #[test]
    fn a_route_forgets_filters_that_are_gone() {
        let route = Route::new(br#"{"comp_level": 9}"#).expect("right");
        let stays = filter(b"{}").expect("right");
        let kept = stays.of(Some(&route));
        for _ in 0..10 {
            let filter = filter(br#"{"min_length": 7}"#).expect("right");
            assert_eq!(filter.of(Some(&route)).min_length, 7);
        }
        assert_eq!(route.configs.lock().expect("nobody has panicked").len(), 2);
        assert!(std::ptr::eq(&*kept, &*stays.of(Some(&route))));
    }

    #[test]
    fn what_is_not_allowed_is_answered_with_what_is() {
        for (json, error) in [
            (
                &b"{\"comp_level\": 13}"[..],
                "\"comp_level\" has an invalid value \"13\": it must be a number from 0 to 12",
            ),
            (
                b"{\"complevel\": 1}",
                "\"complevel\" there is no such directive",
            ),
            (
                b"{\"types\": {\"a\": 1}}",
                "\"types\" must be a text, a number, true or false, or a list of these",
            ),
            (
                b"{\"types\": [[{}]]}",
                "\"types\" must be a text, a number, true or false, or a list of these",
            ),
            (
                b"{\"types\": [[\"a/b\"], [\"c/d\"]]}",
                "\"types\" is duplicate",
            ),
            (
                b"{\"min_length\": 1.5}",
                "\"min_length\" has an invalid value \"1.5\": it must be a size from 0 to 1g",
            ),
            (b"[]", "filter_config must be an object of settings"),
        ] {
            assert_eq!(filter(json).map(|_| ()), Err(error.to_owned()));
            assert_eq!(Route::new(json).map(|_| ()), Err(error.to_owned()));
        }
        assert!(filter(b"{").is_err_and(|error| error.starts_with("filter_config is not JSON")));
        assert!(filter(b" ").is_ok());
    }
}
