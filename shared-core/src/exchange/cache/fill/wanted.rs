//! What an answer is to.

use std::sync::Arc;

use crate::beacon::Route;
use crate::cache::freshness::{Prospect, Valid};
use crate::cache::http::Said;
use crate::cache::reason::Reason;
use crate::cache::scope::Scope;
use crate::cache::Key;
use crate::exchange::cache::forms::key_in;
use crate::jsonrpc::request::Call;
use crate::ssz::{check, Flags, Schema, TypeId};
use crate::transcode::root::{self, Root};
use crate::transcode::{Format, Made, Negotiated, Transcoder};

/// An answer to a call that is to be stored.
#[derive(Debug)]
pub(in crate::exchange) struct Wanted {
    pub(in crate::exchange) key: Key,
    /// As it stood in the request.
    pub(in crate::exchange) id: Vec<u8>,
    pub(in crate::exchange) method: Vec<u8>,
    pub(in crate::exchange) params: Option<Vec<u8>>,
    pub(in crate::exchange) prospect: Prospect,
}

impl Wanted {
    pub(in crate::exchange) fn new(
        call: &Call<'_>,
        id: &[u8],
        key: Key,
        prospect: Prospect,
    ) -> Self {
        Self {
            key,
            id: id.to_vec(),
            method: call.method.to_vec(),
            params: call.params.map(<[u8]>::to_vec),
            prospect,
        }
    }
}

/// What an answer is to.
#[derive(Debug)]
pub(in crate::exchange) enum What {
    Call(Wanted),
    /// Those of a batch that may be stored; no two have the same id.
    Batch(Vec<Wanted>),
    Resource(Resource),
}

impl What {
    /// The key, if there is only one.
    pub(in crate::exchange) fn key(&self) -> Option<Key> {
        match self {
            What::Call(wanted) => Some(wanted.key),
            What::Resource(resource) => Some(resource.key),
            What::Batch(_) => None,
        }
    }

    /// Keys for what answers turned out to depend on.
    pub(in crate::exchange) fn rekey(&mut self, scope: &Scope) -> bool {
        let calls = match self {
            What::Resource(resource) => {
                resource.key = key_in(scope, &resource.name, resource.ssz);
                return true;
            }
            What::Call(wanted) => std::slice::from_mut(wanted),
            What::Batch(wanted) => &mut wanted[..],
        };
        let keys = scope.keys();
        calls.iter_mut().all(|wanted| {
            keys.key(&wanted.method, wanted.params.as_deref())
                .map(|key| wanted.key = key.0)
                .is_ok()
        })
    }
}

/// What a GET is for.
#[derive(Debug)]
pub(in crate::exchange) struct Resource {
    pub(in crate::exchange) key: Key,
    /// As the key has it.
    pub(in crate::exchange) name: Vec<u8>,
    pub(in crate::exchange) route: Route,
    pub(in crate::exchange) valid: Arc<Valid>,
    /// Its end can't be told from a cut (RFC 9112, 8): it is whole if it is
    /// JSON that closes.
    pub(in crate::exchange) undelimited: bool,
    /// What the response's head says.
    pub(in crate::exchange) said: Said,
    pub(in crate::exchange) status: u16,
    /// The media type is to be compressed.
    pub(in crate::exchange) compresses: bool,
    /// Which of two formats it is to have; `None`: whichever comes.
    pub(in crate::exchange) ssz: Option<Negotiated>,
    /// The type of what comes, where that is SSZ and its head says it; where it does not,
    /// and a root was asked for, all that it may be.
    pub(in crate::exchange) of: Vec<(&'static Schema, TypeId)>,
    /// The root that the value has to have.
    pub(in crate::exchange) root: Option<Root>,
    /// What makes another format of it.
    pub(in crate::exchange) transcoder: Option<Box<Transcoder>>,
    /// It was made: what the envelope has said of the value, and whether that is
    /// empty. Then what is stored has nothing to ask the node by.
    pub(in crate::exchange) transcoded: Option<(Flags, bool)>,
}

impl Resource {
    /// What speaks against storing SSZ that the node sent, if its type is known.
    pub(in crate::exchange) fn refuses(&self, ssz: &[u8]) -> Option<Reason> {
        if self.of.is_empty() {
            return None;
        }
        let types = self.of.iter();
        let mut valid = types.filter(|(schema, ty)| check(schema, *ty, ssz).is_ok());
        let Some(first) = valid.next() else {
            return Some(Reason::SszInvalid);
        };
        let (root, negotiated) = self.root.as_ref().zip(self.ssz)?;
        let is_it = |of: &(_, _)| root::has(*of, ssz, *negotiated.gives, root);
        (!is_it(first) && !valid.any(is_it)).then_some(Reason::SszRoot)
    }

    /// Whether what was made has the root that was asked for.
    pub(in crate::exchange) fn is_asked_for(&self, made: &mut Made) -> bool {
        match (&self.root, self.ssz) {
            (Some(root), Some(ssz)) if made.format == Format::Ssz => {
                root::is_of(made, *ssz.gives, root)
            }
            _ => made.is_asked_for,
        }
    }
}
