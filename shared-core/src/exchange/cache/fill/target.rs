//! Target of a fill: one call, the calls of a batch, or a resource.

use std::sync::Arc;

use crate::beacon::BeaconRouteLifetimeKind;
use crate::cache::freshness::{CacheLifetimes, CallLifetimeRules};
use crate::cache::reason::Reason;
use crate::cache::response_directives::CacheDirectives;
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::exchange::cache::format_pair::key_for_negotiated_format;
use crate::jsonrpc::request::JsonRpcCall;
use crate::ssz::{check_ssz, EnvelopeFlags, Schema, TypeId};
use crate::transcode::requested_root::{self, HashTreeRoot};
use crate::transcode::{BodyFormat, TranscodeRequest, TranscodedBody, Transcoder};

/// A call whose response a fill stores, with its key and its lifetime rules.
#[derive(Debug)]
pub(in crate::exchange) struct FillCall {
    pub(in crate::exchange) key: CacheKey,
    /// Id, as it is written in the request.
    pub(in crate::exchange) id: Vec<u8>,
    pub(in crate::exchange) method: Vec<u8>,
    pub(in crate::exchange) params: Option<Vec<u8>>,
    pub(in crate::exchange) prospect: CallLifetimeRules,
}

impl FillCall {
    pub(in crate::exchange) fn new(
        call: &JsonRpcCall<'_>,
        id: &[u8],
        key: CacheKey,
        prospect: CallLifetimeRules,
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

/// The target of a fill: the call, the calls of a batch, or the resource whose responses it stores,
/// with their keys.
#[derive(Debug)]
pub(in crate::exchange) enum FillTarget {
    Call(FillCall),
    /// The calls of a batch whose responses may be stored; no two have the same id.
    Batch(Vec<FillCall>),
    Resource(ResourceFillTarget),
}

impl FillTarget {
    /// Returns the key, if there is only one.
    pub(in crate::exchange) fn single_cache_key(&self) -> Option<CacheKey> {
        match self {
            FillTarget::Call(wanted) => Some(wanted.key),
            FillTarget::Resource(resource) => Some(resource.key),
            FillTarget::Batch(_) => None,
        }
    }

    /// Computes the keys again after the vary headers have changed. Returns whether it succeeded.
    pub(in crate::exchange) fn recompute_keys_after_vary(&mut self, scope: &VaryKey) -> bool {
        let calls = match self {
            FillTarget::Resource(resource) => {
                resource.key = key_for_negotiated_format(scope, &resource.name, resource.ssz);
                return true;
            }
            FillTarget::Call(wanted) => std::slice::from_mut(wanted),
            FillTarget::Batch(wanted) => &mut wanted[..],
        };
        let keys = scope.call_key_builder();
        calls.iter_mut().all(|wanted| {
            keys.build_key(&wanted.method, wanted.params.as_deref())
                .map(|key| wanted.key = key.0)
                .is_ok()
        })
    }
}

/// A resource whose response to a GET a fill stores, with the properties that the response's head
/// declares.
#[derive(Debug)]
pub(in crate::exchange) struct ResourceFillTarget {
    pub(in crate::exchange) key: CacheKey,
    /// Name, as it is hashed into the key.
    pub(in crate::exchange) name: Vec<u8>,
    pub(in crate::exchange) route: BeaconRouteLifetimeKind,
    pub(in crate::exchange) valid: Arc<CacheLifetimes>,
    /// The response has no delimiter that distinguishes its end from a truncation (RFC 9112, 8):
    /// it is complete if it is JSON that closes.
    pub(in crate::exchange) undelimited: bool,
    /// Cache directives of the response's head.
    pub(in crate::exchange) directives: CacheDirectives,
    pub(in crate::exchange) status: u16,
    /// Bodies of this media type are compressed.
    pub(in crate::exchange) compresses: bool,
    /// Negotiated format; `None` if any format is stored.
    pub(in crate::exchange) ssz: Option<TranscodeRequest>,
    /// Type of an SSZ response, where its head names it; where it does not, and the client
    /// requested a root, the possible types.
    pub(in crate::exchange) of: Vec<(&'static Schema, TypeId)>,
    /// Root that the value must have.
    pub(in crate::exchange) root: Option<HashTreeRoot>,
    /// Transcoder that converts the response to the other format.
    pub(in crate::exchange) transcoder: Option<Box<Transcoder>>,
    /// Flags of the converted value's envelope, and whether the value is empty. An entry of a
    /// converted response has no validator for a conditional request.
    pub(in crate::exchange) transcoded: Option<(EnvelopeFlags, bool)>,
}

impl ResourceFillTarget {
    /// Reason why SSZ of the node is not stored, if its type is known.
    pub(in crate::exchange) fn ssz_rejection_reason(&self, ssz: &[u8]) -> Option<Reason> {
        if self.of.is_empty() {
            return None;
        }
        let types = self.of.iter();
        let mut valid = types.filter(|(schema, ty)| check_ssz(schema, *ty, ssz).is_ok());
        let Some(first) = valid.next() else {
            return Some(Reason::SszInvalid);
        };
        let (root, negotiated) = self.root.as_ref().zip(self.ssz)?;
        let is_it =
            |of: &(_, _)| requested_root::matches_hash_tree_root(*of, ssz, *negotiated.gives, root);
        (!is_it(first) && !valid.any(is_it)).then_some(Reason::SszRoot)
    }

    /// Whether the converted value has the root that the client requested.
    pub(in crate::exchange) fn has_requested_root(&self, made: &mut TranscodedBody) -> bool {
        match (&self.root, self.ssz) {
            (Some(root), Some(ssz)) if made.format == BodyFormat::Ssz => {
                requested_root::verify_requested_root(made, *ssz.gives, root)
            }
            _ => made.has_requested_root,
        }
    }
}
