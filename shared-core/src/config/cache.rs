//! What is cached, for how long, and for whom.

use std::sync::Arc;

use super::follow::Follow;
use super::follows::Declared;
use super::values::{fill, flag, invalid, once, one, DirectiveError, Range, Source, Unit};
use super::values::{GIB, KIB, MIB};
use crate::cache::class::Class;
use crate::cache::freshness::Valid;
use crate::cache::stale::UseStale;
use crate::jsonrpc::methods;
use crate::jsonrpc::stateful::is_stateful;

/// What a request's credentials (`Authorization`, `Cookie`) mean to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// Such a request goes to the node and its answer is not stored.
    Bypass,
    /// They don't matter to the answer.
    Ignore,
    /// Answers are kept for each of their values.
    Key,
}

/// The cache's settings at a place.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// Whether answers are stored and looked up here.
    pub enable: bool,
    /// What keeps answers apart from those of other chains, where it is the same for
    /// all requests here.
    pub namespace: Option<Arc<[u8]>>,
    /// How long answers stay fresh.
    pub valid: Arc<Valid>,
    /// Longer answers are not stored. Bytes, before compression.
    pub max_entry: u64,
    /// Longer requests are not looked up. Bytes.
    pub max_request: u64,
    /// What credentials mean.
    pub credentials: Credentials,
    /// Longer batches are not looked up. Calls.
    pub batch_max: usize,
    /// What the hot tier may take, over all processes of the host. Bytes.
    pub memory: u64,
    /// Whether one request at a time asks the node for the same thing.
    pub lock: bool,
    /// For how long the others wait for it. Milliseconds.
    pub lock_timeout: u64,
    /// When expired answers may be sent.
    pub use_stale: UseStale,
    /// Whether the one that fetches a new one gets the expired one, too.
    pub background_update: bool,
    /// The nodes that the cache's owner follows.
    pub follows: Arc<Vec<Declared>>,
}

/// What one block says of the cache; `None` where it says nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct CacheDirectives {
    enable: Option<bool>,
    namespace: Option<Arc<[u8]>>,
    valid: Option<Arc<Valid>>,
    max_entry: Option<u64>,
    max_request: Option<u64>,
    credentials: Option<Credentials>,
    batch_max: Option<u64>,
    memory: Option<u64>,
    lock: Option<bool>,
    lock_timeout: Option<u64>,
    use_stale: Option<UseStale>,
    background_update: Option<bool>,
    /// Empty: `off`.
    follows: Option<Arc<Vec<Declared>>>,
    /// What is odd about the last directive.
    pub(super) warning: Option<String>,
}

pub(super) const TIMES: Range = Range {
    least: 0,
    most: 365 * 24 * 3600 * 1000,
    unit: Unit::Time,
};
pub(super) const WAITS: Range = Range {
    least: 1,
    most: 3600 * 1000,
    unit: Unit::Time,
};
pub(super) const MAX_ENTRIES: Range = Range {
    least: KIB,
    most: GIB,
    unit: Unit::Bytes,
};
/// A request is scanned before it goes on: the limit bounds that work.
pub(super) const MAX_REQUESTS: Range = Range {
    least: KIB,
    most: 64 * MIB,
    unit: Unit::Bytes,
};
pub(super) const BATCHES: Range = Range {
    least: 0,
    most: 10_000,
    unit: Unit::Number,
};
pub(super) const MEMORIES: Range = Range {
    least: MIB,
    most: 1 << 40,
    unit: Unit::Bytes,
};

impl CacheDirectives {
    /// As [`super::Directives::set`], for names that start with `cache` and
    /// for `batch_max`.
    pub(super) fn set(
        &mut self,
        name: &str,
        values: &[&[u8]],
        source: Source<'_>,
    ) -> Result<(), DirectiveError> {
        match name {
            "cache" => once(&mut self.enable, || flag(one(values)?)),
            "cache_namespace" => once(&mut self.namespace, || namespace(one(values)?)),
            "cache_valid" => self.set_valid(values),
            "cache_max_entry" => once(&mut self.max_entry, || MAX_ENTRIES.read(one(values)?)),
            "cache_max_request" => once(&mut self.max_request, || MAX_REQUESTS.read(one(values)?)),
            "cache_credentials" => once(&mut self.credentials, || credentials(one(values)?)),
            "cache_memory" => once(&mut self.memory, || MEMORIES.read(one(values)?)),
            "cache_lock" => once(&mut self.lock, || flag(one(values)?)),
            "cache_lock_timeout" => once(&mut self.lock_timeout, || WAITS.read(one(values)?)),
            "cache_use_stale" => once(&mut self.use_stale, || use_stale(values)),
            "cache_background_update" => once(&mut self.background_update, || flag(one(values)?)),
            "cache_head" => self.set_follow(values, source),
            "batch_max" => once(&mut self.batch_max, || BATCHES.read(one(values)?)),
            _ => Err(DirectiveError::Unknown),
        }
    }

    fn set_valid(&mut self, values: &[&[u8]]) -> Result<(), DirectiveError> {
        let [what, time] = values else {
            return Err(DirectiveError::TwoValues);
        };
        let milliseconds = TIMES.read(time)?;
        let valid = Arc::make_mut(self.valid.get_or_insert_default());
        // a resource says its own
        let class = Class::named(what).filter(|class| *class != Class::Resource);
        if let Some(class) = class {
            return valid
                .set_class(class, milliseconds)
                .map_err(|_| DirectiveError::Duplicate);
        }
        if !what.contains(&b'_') {
            return Err(invalid(
                what,
                "\"immutable\", \"unfinalized\", \"tip\", \"nothing\", \"config\" or the name of a method",
            ));
        }
        if is_stateful(what) {
            return Err(invalid(
                what,
                "a method that changes nothing and keeps no state at the node",
            ));
        }
        valid
            .set_method(what, milliseconds)
            .map_err(|_| DirectiveError::Duplicate)?;
        if methods::method(what).name.is_empty() {
            self.warning = Some(format!(
                "names \"{}\", a method that sszip does not know: its answers are kept until \
                 there is a new head, whatever block they are about",
                String::from_utf8_lossy(what)
            ));
        }
        Ok(())
    }

    fn set_follow(&mut self, values: &[&[u8]], source: Source<'_>) -> Result<(), DirectiveError> {
        let off = matches!(values, [b"off"]);
        if self
            .follows
            .as_ref()
            .is_some_and(|follows| off || follows.is_empty())
        {
            return Err(DirectiveError::Duplicate);
        }
        if off {
            self.follows = Some(Arc::default());
            return Ok(());
        }
        let (follow, namespace) = Follow::parse(values)?;
        let follows = self.follows.iter().flat_map(|follows| follows.iter());
        if follows
            .map(|declared| &declared.namespace)
            .any(|other| *other == namespace)
        {
            return Err(DirectiveError::Duplicate);
        }
        let declared = Declared {
            follow,
            namespace,
            at: source.at.to_owned(),
        };
        Arc::make_mut(self.follows.get_or_insert_default()).push(declared);
        Ok(())
    }

    /// As [`super::Directives::inherit`].
    pub(super) fn inherit(&mut self, outer: &Self) {
        fill(&mut self.enable, &outer.enable);
        fill(&mut self.namespace, &outer.namespace);
        fill(&mut self.valid, &outer.valid);
        fill(&mut self.max_entry, &outer.max_entry);
        fill(&mut self.max_request, &outer.max_request);
        fill(&mut self.credentials, &outer.credentials);
        fill(&mut self.batch_max, &outer.batch_max);
        fill(&mut self.memory, &outer.memory);
        fill(&mut self.lock, &outer.lock);
        fill(&mut self.lock_timeout, &outer.lock_timeout);
        fill(&mut self.use_stale, &outer.use_stale);
        fill(&mut self.background_update, &outer.background_update);
        fill(&mut self.follows, &outer.follows);
    }

    /// As [`super::Directives::resolve`].
    pub(super) fn resolve(&self) -> CacheConfig {
        CacheConfig {
            enable: self.enable.unwrap_or(false),
            namespace: self.namespace.clone(),
            valid: self.valid.clone().unwrap_or_default(),
            max_entry: self.max_entry.unwrap_or(16 * MIB),
            max_request: self.max_request.unwrap_or(64 * KIB),
            credentials: self.credentials.unwrap_or(Credentials::Bypass),
            batch_max: self.batch_max.unwrap_or(100) as usize,
            memory: self.memory.unwrap_or(128 * MIB),
            lock: self.lock.unwrap_or(true),
            lock_timeout: self.lock_timeout.unwrap_or(5_000),
            use_stale: self.use_stale.unwrap_or_default(),
            background_update: self.background_update.unwrap_or(false),
            follows: self.follows.clone().unwrap_or_default(),
        }
    }
}

fn use_stale(values: &[&[u8]]) -> Result<UseStale, DirectiveError> {
    const ALLOWED: &str = "\"error\", \"timeout\", \"invalid_header\", \"updating\", \
                           \"http_500\", \"http_502\", \"http_503\", \"http_504\", \
                           \"http_403\", \"http_404\", \"http_429\" or \"off\"";
    if values.is_empty() {
        return Err(invalid(b"", ALLOWED));
    }
    UseStale::parse(values.iter().copied()).map_err(|word| invalid(word, ALLOWED))
}

fn namespace(value: &[u8]) -> Result<Arc<[u8]>, DirectiveError> {
    match value {
        b"" => Err(invalid(value, "a name")),
        name => Ok(name.into()),
    }
}

pub(super) const CREDENTIALS: &[&str] = &["bypass", "ignore", "key"];

fn credentials(value: &[u8]) -> Result<Credentials, DirectiveError> {
    match value {
        b"bypass" => Ok(Credentials::Bypass),
        b"ignore" => Ok(Credentials::Ignore),
        b"key" => Ok(Credentials::Key),
        _ => Err(invalid(value, "\"bypass\", \"ignore\" or \"key\"")),
    }
}
