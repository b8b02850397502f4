//! What tells answers apart beside what they are to.

use super::asked::Asked;
use super::waits::Since;
use crate::cache::chain::Mark;
use crate::cache::scope::{name_of, Scope};
use crate::cache::Namespace;
use crate::exchange::head::CacheKind;
use crate::exchange::machine::Exchange;

impl Exchange {
    /// All that tells answers to the same call apart.
    pub(in crate::exchange) fn scope(&self, asked: &Asked<'_>) -> Scope {
        self.scope_of(asked, None)
    }

    /// The same, of one thing in a place.
    pub(in crate::exchange) fn scope_of(&self, asked: &Asked<'_>, name: Option<&[u8]>) -> Scope {
        let request = &self.request.cache;
        let mut base = Scope::new();
        self.push_namespace(&mut base, asked);
        base.end_namespace();
        if let Some(name) = name {
            base.push(name);
        }
        // nodes have fields for browsers only, and don't always say so in Vary
        let from_browser = request.fields.values("origin").next().is_some();
        base.push(if from_browser { b"origin" } else { b"" });
        let mut keyed = self.config.cache.credentials.keyed().peekable();
        if keyed.peek().is_some() {
            base.push_hashed(&request.fields, keyed);
        }
        let names = self.config.process.shared.varying.names(&base);
        base.vary(&request.fields, names);
        base
    }

    fn push_namespace(&self, base: &mut Scope, asked: &Asked<'_>) {
        let request = &self.request.cache;
        self.push_place(base, asked);
        if self.namespace(asked).is_none() && request.kind == CacheKind::Call {
            base.push(&request.target);
        }
    }

    /// What the operator has named.
    pub(super) fn namespace<'a>(&'a self, asked: &Asked<'a>) -> Option<&'a [u8]> {
        let of_place = || self.config.cache.namespace.as_deref();
        asked.namespace.or_else(of_place)
    }

    /// Whether answers of other places could be under what this is looked up by.
    pub(in crate::exchange) fn is_nowhere(&self, asked: &Asked<'_>) -> bool {
        asked.unnamed && self.namespace(asked).is_none()
    }

    /// The namespace, but for what only calls have in it.
    pub(in crate::exchange) fn push_place(&self, base: &mut Scope, asked: &Asked<'_>) {
        match self.namespace(asked) {
            Some(namespace) => base.push(namespace),
            None => {
                base.push(asked.place);
                base.push(&asked.port.to_be_bytes());
                base.push(&asked.host.to_ascii_lowercase());
            }
        }
    }

    /// What the owner knows a namespace by, and what it has said of the chain
    /// behind it.
    pub(in crate::exchange) fn mark_of(
        &self,
        scope: &Scope,
        now: u64,
    ) -> (Namespace, Option<Mark>) {
        let Some(owner) = self.config.process.shared.owner() else {
            // nobody asks for it
            return Default::default();
        };
        let namespace = name_of(scope.namespace());
        (namespace, owner.mark(&namespace, now))
    }

    /// What is known now.
    pub(in crate::exchange) fn since(&self, scope: &Scope, now: u64) -> (Namespace, Since) {
        let (namespace, mark) = self.mark_of(scope, now);
        let since = Since {
            generation: self.config.process.shared.generation(),
            mark,
        };
        (namespace, since)
    }
}
