//! What a whole configuration comes to, beside what each place of it says.

use super::follows::{Follows, Named};
use super::store::Store;
use super::Config;

/// What all places of a configuration need together.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The nodes that are followed.
    pub follows: Follows,
    /// A store of the host's own.
    pub store: Option<Store>,
    /// Where the first head stands, whether it is followed or not.
    first_head: Option<String>,
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
            let in_vain = config.cache.enable && place.answers;
            return Ok(in_vain.then(|| {
                format!(
                    "\"cache on\" has no effect in location \"{}\": there is no \"sszip on\"",
                    place.name
                )
            }));
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

    /// Whether all of it goes together, once all places are known. `has_owner`:
    /// there is an owner of a store, this one's or another.
    ///
    /// # Errors
    /// As of [`add`](Self::add).
    pub fn check(&self, has_owner: bool) -> Result<(), String> {
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
        assert!(plan
            .check(false)
            .unwrap_err()
            .contains("\"cache_purge\" needs"));
        assert_eq!(plan.check(true), Ok(()));
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
            let error = plan.check(false).unwrap_err();
            assert_eq!(error, "\"cache_head\" needs \"cache_path\" in f:7");
            assert!(plan.check(true).unwrap_err().contains("it is the daemon"));
            plan.store = Some(Store::default());
            assert_eq!(plan.check(true), Ok(()));
        }
    }
}
