//! The store that all filters of the process share: its choice, the link to its
//! owner, and the owner itself, if it runs in this process.

mod direct_owner;
mod link;
mod owner;
mod owner_library;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use sszip_core::cache::link::OwnerLink;
use sszip_core::config::files;
use sszip_core::config::fleet::FleetSettings;
use sszip_core::config::head_sources::HeadSourcesByNamespace;
use sszip_core::config::store::StoreSettings;
use sszip_core::config::validated::ValidatedConfig;

use self::owner_library::{OwnerLibrary, OwnerStartSettings};

static STORE_STATE: Mutex<StoreUsageRegistry> = Mutex::new(StoreUsageRegistry::new());

/// The store settings of all filters and routes, the link to the owner and the claims on the owner.
/// A process has one store, which never changes.
struct StoreUsageRegistry {
    /// Socket of the owner and the link to it, after a filter has named one.
    link: Option<(String, Arc<OwnerLink>)>,
    /// Store that the owner in this process opens.
    desired_owner: Option<StoreSettings>,
    /// Maximum length of an entry, in bytes.
    max_entry: u64,
    /// Head sources and fleets that filters and routes claim, from the lowest
    /// to the highest priority.
    claims: Vec<OwnerSettingsClaim>,
    /// Head sources that are followed: the result of all claims.
    follows: Option<HeadSourcesByNamespace>,
    library: Option<OwnerLibrary>,
    /// Number of filters that use the store of this process.
    users: usize,
}

/// A filter's use of the owner in this process. The owner stops when the last guard is dropped.
#[derive(Debug)]
pub struct OwnerUseGuard(ThreadId);

/// The identity of one loaded configuration of a filter or a route, whose drop ends the claims that
/// name it.
#[derive(Debug)]
pub struct ConfigLifetimeGuard(u64);

/// Settings that the owner must have while all configurations in `of` exist: a filter, a route, or a
/// route in a filter.
#[derive(Debug)]
struct OwnerSettingsClaim {
    /// Their lifetimes, the latest first. Claims have priority in this order,
    /// so that it does not depend on the order of requests.
    of: Vec<u64>,
    follows: HeadSourcesByNamespace,
    /// Fleet of a filter; the last one is used.
    fleet: Option<FleetSettings>,
}

/// Validates the store settings, also if Envoy only validates its
/// configuration.
///
/// # Errors
/// Text of the error, with the accepted values.
pub fn validate_store_settings(validated: &ValidatedConfig) -> Result<(), String> {
    match &validated.store {
        Some(store) if !store.folder.starts_with('/') => Err(format!(
            "\"cache_path\" has an invalid value \"{}\": it must begin with an absolute path",
            store.folder
        )),
        _ => Ok(()),
    }
}

/// Sets the store that a filter's configuration names, and starts its owner if that runs in this
/// process.
///
/// # Errors
/// The store is not available, or the process has another one.
pub fn attach_configured_store(
    validated: &ValidatedConfig,
    filter: &ConfigLifetimeGuard,
) -> Result<Option<OwnerUseGuard>, String> {
    let mut state = lock_store_state();
    state.check_fleet(validated)?;
    if let Some(socket) = validated.owner_socket() {
        state.set_process_store(socket, validated)?;
    }
    // a rejected configuration changes nothing
    state.add_claim(validated, &[filter]);
    let (Some(_), Some(library)) = (&validated.store, state.library) else {
        return Ok(None);
    };
    state.users += 1;
    let is_first = state.users == 1;
    drop(state);
    let used = OwnerUseGuard(thread::current().id());
    if is_first {
        owner::start_owner_thread(library)
            .map_err(|error| format!("cannot start the owner of the store: {error}"))?;
        lock_store_state().pass_settings_to_owner();
    }
    Ok(Some(used))
}

/// Claims the head sources and the maximum entry length of a configuration while all `of` these
/// exist.
pub fn claim_owner_settings(validated: &ValidatedConfig, of: &[&ConfigLifetimeGuard]) {
    lock_store_state().add_claim(validated, of);
}

/// Whether an owner in this process can follow head sources.
pub fn can_follow_head_sources() -> bool {
    lock_store_state().desired_owner.is_some()
}

impl StoreUsageRegistry {
    const fn new() -> Self {
        Self {
            link: None,
            desired_owner: None,
            max_entry: 0,
            claims: Vec::new(),
            follows: None,
            library: None,
            users: 0,
        }
    }

    /// Sets the store of the process, loads the owner's library if needed, and links the process to
    /// the owner.
    fn set_process_store(
        &mut self,
        socket: String,
        validated: &ValidatedConfig,
    ) -> Result<(), String> {
        let store = validated.store.as_ref();
        if let Some((known, link)) = &self.link {
            return match *known == socket && self.desired_owner.as_ref() == store {
                true => {
                    link.set_lookup_timeout(validated.lookup_timeout());
                    Ok(())
                }
                false => Err(format!(
                    "a process has one store, and its owner is at unix:{known}: \"cache_path\" and \
                     \"cache_owner\" can't be changed while Envoy runs; restart it (a hot restart \
                     is enough), or restore the previous value"
                )),
            };
        }
        if let Some(store) = store {
            files::validate_store_folder(&store.folder)
                .map_err(|error| format!("\"cache_path\" {error}"))?;
            self.library = Some(OwnerLibrary::load_owner_library()?);
        }
        let direct = self.library.as_ref().map(OwnerLibrary::direct_functions);
        let link = link::start_owner_link(&socket, direct);
        let link = link
            .map_err(|error| format!("cannot start the link to the owner of the store: {error}"))?;
        link.set_lookup_timeout(validated.lookup_timeout());
        self.link = Some((socket, link));
        self.desired_owner = store.cloned();
        Ok(())
    }

    /// Checks that no other filter has another fleet. A filter that replaces another one, while both
    /// exist, may change all but the server and the keys' prefix.
    fn check_fleet(&self, validated: &ValidatedConfig) -> Result<(), String> {
        let Some(fleet) = &validated.fleet else {
            return Ok(());
        };
        let mut others = self.claims.iter().filter_map(|claim| claim.fleet.as_ref());
        match others.find(|other| !other.has_same_values(fleet)) {
            None => Ok(()),
            Some(other) => Err(format!(
                "a process has one fleet, {} with the prefix \"{}\": \"cache_fleet\" can't set \
                 another one while a filter uses it; remove it from all filters first, or restart \
                 Envoy (a hot restart is enough)",
                other.endpoint, other.prefix
            )),
        }
    }

    /// Adds the head sources, the fleet and the entry limit of a configuration, for as long as all
    /// of `of` live.
    fn add_claim(&mut self, validated: &ValidatedConfig, of: &[&ConfigLifetimeGuard]) {
        let former = self.used_fleet().cloned();
        let follows = validated.follows.clone();
        let fleet = validated.fleet.clone().filter(|_| of.len() == 1);
        if follows.iter().next().is_some() || fleet.is_some() {
            let mut of: Vec<_> = of.iter().map(|lifetime| lifetime.0).collect();
            of.sort_unstable_by(|one, other| other.cmp(one));
            let at = self.claims.partition_point(|claim| claim.of <= of);
            let claim = OwnerSettingsClaim { of, follows, fleet };
            self.claims.insert(at, claim);
        }
        let is_longer = validated.largest_entry_limit() > self.max_entry;
        self.max_entry = self.max_entry.max(validated.largest_entry_limit());
        self.update_owner_settings(is_longer || self.used_fleet() != former.as_ref());
    }

    /// Drops the head sources and the fleet of a configuration that has ended; the entry limit
    /// never sinks.
    fn drop_claims(&mut self, lifetime: u64) {
        let former = self.used_fleet().cloned();
        self.claims.retain(|claim| !claim.of.contains(&lifetime));
        self.update_owner_settings(self.used_fleet() != former.as_ref());
    }

    /// Returns the fleet of the latest filter that has one.
    fn used_fleet(&self) -> Option<&FleetSettings> {
        let mut claims = self.claims.iter().rev();
        claims.find_map(|claim| claim.fleet.as_ref())
    }

    /// Merges the claims, and passes the settings to the owner if the head sources changed or
    /// `is_changed`.
    fn update_owner_settings(&mut self, is_changed: bool) {
        let mut follows = HeadSourcesByNamespace::default();
        for claim in &self.claims {
            follows.merge_later_head_sources(&claim.follows);
        }
        let known = self.follows.get_or_insert_default();
        let is_changed = is_changed || !known.has_same_head_sources(&follows);
        *known = follows;
        if is_changed && self.users > 0 {
            self.pass_settings_to_owner();
        }
    }

    /// Passes the desired settings to the owner, if a filter stores on disk.
    fn pass_settings_to_owner(&self) {
        let Some(store) = &self.desired_owner else {
            return;
        };
        let (follows, fleet) = (self.follows.as_ref(), self.used_fleet());
        owner::queue_owner_settings(OwnerStartSettings {
            socket: store.owner_socket_path(),
            path: store.store_data_folder(),
            max_size: store.max_size.unwrap_or(0),
            memory: store.memory.unwrap_or(0),
            max_entry: self.max_entry,
            inactive: store.inactive.unwrap_or(0),
            no_recompress: store.recompress == Some(false),
            heads: follows.map_or_else(String::new, HeadSourcesByNamespace::to_json),
            fleet: fleet.map_or_else(String::new, FleetSettings::to_json),
        });
    }
}

impl Default for ConfigLifetimeGuard {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for ConfigLifetimeGuard {
    fn drop(&mut self) {
        lock_store_state().drop_claims(self.0);
    }
}

impl Drop for OwnerUseGuard {
    fn drop(&mut self) {
        let mut state = lock_store_state();
        state.users -= 1;
        let is_last = state.users == 0;
        drop(state);
        if !is_last {
            return;
        }
        if thread::current().id() == self.0 {
            stop_unused_owner();
        } else {
            // A worker has other streams to serve. Without a thread the owner ends
            // with the process.
            let _ = thread::Builder::new().spawn(stop_unused_owner);
        }
    }
}

/// Stops the owner if no filter uses it. That takes time, during which workers must not wait for
/// the lock of [`StoreUsageRegistry`].
fn stop_unused_owner() {
    owner::stop_owner(false, || lock_store_state().users > 0);
}

fn lock_store_state() -> MutexGuard<'static, StoreUsageRegistry> {
    STORE_STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use sszip_core::config::head_sources::NamespaceSource;
    use sszip_core::config::validated::ValidatedConfig;
    use sszip_core::config::{DirectiveLocation, RouteConfigBlock};

    use super::{ConfigLifetimeGuard, StoreUsageRegistry};
    use crate::process::PROCESS;

    fn validated(node: &str) -> ValidatedConfig {
        let mut directives = RouteConfigBlock::default();
        let at = "here";
        let set = directives.set_directive_with_location(
            "cache_head",
            &[node.as_bytes()],
            DirectiveLocation { at },
        );
        set.expect("it is right");
        let follows = directives
            .resolve_route_config(PROCESS.clone())
            .cache
            .follows;
        let mut validated = ValidatedConfig::default();
        let added = validated
            .follows
            .add_route_head_sources(&follows, NamespaceSource::Fixed(b"main"));
        added.expect("it has a name");
        validated
    }

    fn validated_fleet(line: &str) -> ValidatedConfig {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut validated = ValidatedConfig::default();
        let set = validated.set_global_directive("cache_fleet", &words, "");
        set.expect("it is known").expect("it is right");
        validated
    }

    fn followed(state: &StoreUsageRegistry) -> Vec<&str> {
        let follows = state.follows.iter().flat_map(|follows| follows.iter());
        follows.map(|(_, follow)| follow.url_origin()).collect()
    }

    #[test]
    fn head_source_of_the_latest_configuration_is_followed() {
        let mut state = StoreUsageRegistry::new();
        let [filter, one, other, later] = [(); 4].map(|()| ConfigLifetimeGuard::default());
        state.add_claim(&validated("http://filter"), &[&filter]);
        state.add_claim(&validated("http://other"), &[&filter, &other]);
        // the order of the claims is not the order of the requests
        state.add_claim(&validated("http://one"), &[&filter, &one]);
        assert_eq!(followed(&state), ["http://other"]);
        state.add_claim(&validated("http://later"), &[&later]);
        assert_eq!(followed(&state), ["http://later"]);
        for (lifetime, left) in [(later, "http://other"), (other, "http://one")] {
            state.drop_claims(lifetime.0);
            assert_eq!(followed(&state), [left]);
        }
        state.drop_claims(filter.0);
        assert!(followed(&state).is_empty());
    }

    #[test]
    fn fleet_of_the_latest_filter_is_used() {
        let mut state = StoreUsageRegistry::new();
        let timeout = |state: &StoreUsageRegistry| state.used_fleet().map(|used| used.timeout_ms);
        let [first, second, plain] = [(); 3].map(|()| ConfigLifetimeGuard::default());
        state.add_claim(&validated_fleet("redis://a timeout=2ms"), &[&second]);
        state.add_claim(&validated_fleet("redis://a timeout=1ms"), &[&first]);
        state.add_claim(&ValidatedConfig::default(), &[&plain]);
        assert_eq!(timeout(&state), Some(2));
        for (ended, used) in [(&plain, Some(2)), (&second, Some(1)), (&first, None)] {
            state.drop_claims(ended.0);
            assert_eq!(timeout(&state), used);
        }
    }

    #[test]
    fn second_fleet_is_rejected_while_a_filter_uses_the_first() {
        let mut state = StoreUsageRegistry::new();
        let filter = ConfigLifetimeGuard::default();
        let first = validated_fleet("rediss://a/1 prefix=p");
        assert_eq!(state.check_fleet(&first), Ok(()));
        state.add_claim(&first, &[&filter]);
        for (line, is_rejected) in [
            ("rediss://a/1 prefix=p timeout=5ms", false),
            ("rediss://b/1 prefix=p", true),
            ("rediss://a/1", true),
            ("redis://a/1 prefix=p", true),
        ] {
            let checked = state.check_fleet(&validated_fleet(line));
            assert_eq!(checked.is_err(), is_rejected, "{line}");
            let text = "a process has one fleet, rediss://a:6379/1 with the prefix \"p\": ";
            assert!(checked.map_or_else(|error| error.starts_with(text), |()| true));
        }
        assert_eq!(state.check_fleet(&ValidatedConfig::default()), Ok(()));
        state.drop_claims(filter.0);
        assert_eq!(state.check_fleet(&validated_fleet("redis://b")), Ok(()));
    }
}
