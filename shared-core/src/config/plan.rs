//! What a whole configuration comes to, beside what each place of it says.

use super::cache::LOOKUPS;
use super::endpoint::LONGEST_SOCKET;
use super::follows::{Follows, Named};
use super::store::Store;
use super::values::{invalid, once, one, DirectiveError};
use super::Config;
use crate::cache::link::DEADLINE;

/// What all places of a configuration need together.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The nodes that are followed.
    pub follows: Follows,
    /// A store of the host's own.
    pub store: Option<Store>,
    /// The socket of an owner that is another process's affair.
    foreign_owner: Option<String>,
    /// Where the first head stands, whether it is followed or not.
    first_head: Option<String>,
    /// For how long a look-up is waited for. Milliseconds.
    lookup_timeout: Option<u64>,
    purges: bool,
    max_entry: u64,
}

/// A place, once it has inherited.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// What people know it by.
    pub name: &'a str,
    /// Its `cache_namespace`.
    pub named: Named<'a>,
    /// Requests end there.
    pub answers: bool,
    /// It purges.
    pub purges: bool,
}

impl Plan {
    /// Takes a directive that is of no place; `None`: it is none of those. A path
    /// that is not absolute is one in `base`.
    pub fn set(
        &mut self,
        name: &str,
        values: &[&[u8]],
        base: &str,
    ) -> Option<Result<(), DirectiveError>> {
        let read = match name {
            "cache_owner" | "cache_path" if self.owner().is_some() => Err(DirectiveError::OneOwner),
            "cache_owner" => socket(values).map(|path| self.foreign_owner = Some(path)),
            "cache_path" => Store::parse(values, base).map(|store| self.store = Some(store)),
            "cache_lookup_timeout" => {
                let read = || LOOKUPS.read(one(values)?);
                once(&mut self.lookup_timeout, read)
            }
            _ => return None,
        };
        Some(read)
    }

    /// For how long a look-up in a store is waited for, in milliseconds.
    pub fn lookup_timeout(&self) -> u64 {
        self.lookup_timeout.unwrap_or(DEADLINE)
    }

    /// The socket of the owner of a store, if there is one.
    pub fn owner(&self) -> Option<String> {
        let own = self.store.as_ref().map(Store::socket);
        own.or_else(|| self.foreign_owner.clone())
    }

    /// Adds a place with its settings. What the operator should know of it all
    /// the same is returned.
    ///
    /// # Errors
    /// The text says what is wrong with it, in the words of [`super::Directives`].
    pub fn add(&mut self, config: &Config, place: Place<'_>) -> Result<Option<String>, String> {
        self.purges |= place.purges;
        if let (None, Some(first)) = (&self.first_head, config.cache.follows.first()) {
            self.first_head = Some(first.at.clone());
        }
        if !config.caches() {
            let is_in_vain = !config.enable && place.answers;
            let name = place.name;
            return Ok(match (config.policy.is_some(), config.cache.enable) {
                _ if !is_in_vain => None,
                (true, _) => Some(format!(
                    "what is called in location \"{name}\" is not judged: there is no \"sszip on\""
                )),
                (_, true) => Some(format!(
                    "\"cache on\" has no effect in location \"{name}\": there is no \"sszip on\""
                )),
                _ => None,
            });
        }
        self.max_entry = self.max_entry.max(config.cache.max_entry);
        if place.answers && !place.purges {
            let added = self.follows.add(&config.cache.follows, place.named);
            added.map_err(|(error, at)| {
                let name = place.name;
                format!("\"cache_head\" directive, in location \"{name}\", {error} in {at}")
            })?;
        }
        Ok(None)
    }

    /// Whether all of it goes together, once all places are known.
    ///
    /// # Errors
    /// As of [`add`](Self::add).
    pub fn check(&self) -> Result<(), String> {
        let has_owner = self.owner().is_some();
        if self.purges && !has_owner {
            return Err("\"cache_purge\" needs an \"cache_path\" or an \"cache_owner\"".into());
        }
        match &self.first_head {
            Some(at) if self.store.is_none() => Err(format!(
                "\"cache_head\" needs \"cache_path\"{} in {at}",
                match has_owner {
                    true =>
                        ": with \"cache_owner\" it is the daemon that follows nodes, those of \
                         [[head]] in its cached.toml",
                    false => "",
                }
            )),
            _ => Ok(()),
        }
    }

    /// The longest entry that is kept anywhere, in bytes.
    pub fn max_entry(&self) -> u64 {
        self.max_entry
    }
}

fn socket(values: &[&[u8]]) -> Result<String, DirectiveError> {
    let value = one(values)?;
    let path = value.split_at_checked(5);
    let path = path.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"unix:"));
    match path.and_then(|(_, path)| std::str::from_utf8(path).ok()) {
        Some(path) if (1..=LONGEST_SOCKET).contains(&path.len()) => Ok(path.into()),
        _ => Err(invalid(
            value,
            format!("\"unix:\" and the path of a socket, of at most {LONGEST_SOCKET} bytes"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Plan};
    use crate::config::follows::Named;
    use crate::config::store::Store;
    use crate::config::{Config, Directives, Source};
    use crate::memory::Budget;

    fn config(lines: &[&str]) -> Config {
        let mut directives = Directives::default();
        for line in lines {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
            let source = Source { at: "f:7" };
            directives.set_at(name, &values, source).unwrap();
        }
        directives.resolve(Budget::new())
    }

    const PLACE: Place<'_> = Place {
        name: "/p",
        named: Named::No,
        answers: true,
        purges: false,
    };

    #[test]
    fn a_cache_without_sszip_is_worth_a_word_where_requests_end() {
        let mut plan = Plan::default();
        let vain = config(&["cache on"]);
        let said = plan.add(&vain, PLACE).unwrap().unwrap();
        assert!(said.starts_with("\"cache on\" has no effect in location \"/p\""));
        let between = Place {
            answers: false,
            ..PLACE
        };
        assert_eq!(plan.add(&vain, between), Ok(None));
        assert_eq!(plan.max_entry(), 0);
    }

    #[test]
    fn the_longest_entry_of_all_caches_counts() {
        let mut plan = Plan::default();
        for lines in [
            &["enable on", "cache on", "cache_max_entry 2m"][..],
            &["enable on", "cache on", "cache_max_entry 1m"],
            &["enable on", "cache_max_entry 9m"],
        ] {
            assert_eq!(plan.add(&config(lines), PLACE), Ok(None));
        }
        assert_eq!(plan.max_entry(), 2 << 20);
    }

    #[test]
    fn a_purge_needs_an_owner() {
        let mut plan = Plan::default();
        let purges = Place {
            purges: true,
            ..PLACE
        };
        plan.add(&config(&[]), purges).unwrap();
        assert!(plan.check().unwrap_err().contains("\"cache_purge\" needs"));
        plan.set("cache_owner", &[b"unix:/s"], "").unwrap().unwrap();
        assert_eq!(plan.check(), Ok(()));
    }

    #[test]
    fn there_is_one_owner_of_a_store() {
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
            let mut plan = Plan::default();
            let mut set = |(name, value): (&str, &str)| plan.set(name, &[value.as_bytes()], "/b/");
            assert_eq!(set(first), Some(Ok(())));
            let error = set(second).unwrap().unwrap_err().to_string();
            assert!(error.starts_with("is duplicate"), "{error}");
            assert_eq!(plan.owner().as_deref(), Some(socket));
        }
        assert_eq!(Plan::default().owner(), None);
        assert_eq!(Plan::default().set("cache", &[b"on"], ""), None);
    }

    #[test]
    fn look_ups_are_waited_for_as_long_as_is_said() {
        let mut plan = Plan::default();
        assert_eq!(plan.lookup_timeout(), 20);
        let mut set = |value: &str| plan.set("cache_lookup_timeout", &[value.as_bytes()], "");
        assert!(matches!(set("1001ms"), Some(Err(_))));
        assert_eq!(set("150ms"), Some(Ok(())));
        assert!(matches!(set("150ms"), Some(Err(_))));
        assert_eq!(plan.lookup_timeout(), 150);
    }

    #[test]
    fn an_owner_is_a_socket() {
        let long = format!("unix:/{}", "s".repeat(107));
        for value in ["/run/owner", "unix:", "127.0.0.1:80", "unix", "", &long] {
            let mut plan = Plan::default();
            let error = plan.set("cache_owner", &[value.as_bytes()], "");
            let error = error.unwrap().unwrap_err().to_string();
            assert!(error.contains("must be \"unix:\" and the path"), "{error}");
            assert_eq!(plan.owner(), None);
        }
    }

    #[test]
    fn a_head_needs_a_store_of_this_process_and_a_name() {
        let lines = ["enable on", "cache on", "cache_head http://node"];
        let mut plan = Plan::default();
        let error = plan.add(&config(&lines), PLACE).unwrap_err();
        assert!(error.starts_with("\"cache_head\" directive, in location \"/p\", needs a name"));
        assert!(error.ends_with(" in f:7"));
        // where nothing is cached it is not followed, and has to be possible
        for lines in [&lines[..], &["cache_head http://node"]] {
            let mut plan = Plan::default();
            let named = Place {
                named: Named::Always(b"main"),
                ..PLACE
            };
            plan.add(&config(lines), named).unwrap();
            let error = plan.check().unwrap_err();
            assert_eq!(error, "\"cache_head\" needs \"cache_path\" in f:7");
            plan.foreign_owner = Some("/s".into());
            assert!(plan.check().unwrap_err().contains("it is the daemon"));
            plan.foreign_owner = None;
            plan.store = Some(Store::default());
            assert_eq!(plan.check(), Ok(()));
        }
    }
}
