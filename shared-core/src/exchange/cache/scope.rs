//! Vary keys of requests.

use super::asked::Asked;
use super::waits::Since;
use crate::cache::chain::Mark;
use crate::cache::scope::{name_of, Scope};
use crate::cache::Namespace;
use crate::exchange::head::CacheKind;
use crate::exchange::machine::Exchange;

impl Exchange {
    /// Returns the scope of the request, which separates the variants of a call.
    pub(in crate::exchange) fn scope(&self, asked: &Asked<'_>) -> Scope {
        self.scope_of(asked, None)
    }

    /// Returns the scope of the request, or of one target (`name`) of its route.
    pub(in crate::exchange) fn scope_of(&self, asked: &Asked<'_>, name: Option<&[u8]>) -> Scope {
        let request = &self.request.cache;
        let mut base = Scope::new();
        self.push_namespace(&mut base, asked);
        base.end_namespace();
        if let Some(name) = name {
            base.push(name);
        }
        // nodes send some headers to browsers only, and do not always name Origin in Vary
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

    /// Name of the namespace that the operator has set.
    pub(super) fn namespace<'a>(&'a self, asked: &Asked<'a>) -> Option<&'a [u8]> {
        let of_place = || self.config.cache.namespace.as_deref();
        asked.namespace.or_else(of_place)
    }

    /// Whether the namespace could contain responses of other routes.
    pub(in crate::exchange) fn is_nowhere(&self, asked: &Asked<'_>) -> bool {
        asked.unnamed && self.namespace(asked).is_none()
    }

    /// Pushes the namespace, without the target that only calls have in it.
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

    /// Returns the identifier of the namespace at the owner, and the dispatch mark of its chain.
    pub(in crate::exchange) fn mark_of(
        &self,
        scope: &Scope,
        now: u64,
    ) -> (Namespace, Option<Mark>) {
        let Some(owner) = self.config.process.shared.owner() else {
            // without an owner the namespace is not used
            return Default::default();
        };
        let namespace = name_of(scope.namespace());
        (namespace, owner.mark(&namespace, now))
    }

    /// Returns the identifier of the namespace, and the state that is known now.
    pub(in crate::exchange) fn since(&self, scope: &Scope, now: u64) -> (Namespace, Since) {
        let (namespace, mark) = self.mark_of(scope, now);
        let since = Since {
            generation: self.config.process.shared.generation(),
            mark,
        };
        (namespace, since)
    }
}
