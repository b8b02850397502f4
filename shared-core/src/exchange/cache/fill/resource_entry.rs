//! Creation of entries of resources.

use super::target::ResourceFillTarget;
use super::{BuiltEntry, CacheFill};
use crate::beacon::BeaconRouteLifetimeKind;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::{CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes};
use crate::cache::freshness::ResponseClassification;
use crate::cache::resource::strong_etag;
use crate::jsonrpc::scan;

impl CacheFill {
    /// Returns the class and lifetime of a resource's body, by its route and content; `None` if it
    /// is not cached.
    pub(super) fn classify_resource_body(
        &self,
        resource: &ResourceFillTarget,
        body: &[u8],
    ) -> Option<ResponseClassification> {
        let (route, valid) = (resource.route, &resource.valid);
        match resource.transcoded {
            Some((flags, is_empty)) => {
                route.classify_beacon_value(flags, is_empty, valid, self.dispatch_mark())
            }
            None => route.classify_beacon_response(body, valid, self.dispatch_mark()),
        }
    }

    /// Creates the entry of a resource from its body; `None` if the body is not stored.
    pub(super) fn build_resource_entry(
        &self,
        resource: &ResourceFillTarget,
        body: &[u8],
        room: &mut Vec<u8>,
    ) -> Option<BuiltEntry> {
        if resource.undelimited && scan::check_json(body).is_err() {
            return None;
        }
        let (judged, valid) = match resource.directives.lifetime {
            Some(lifetime) => (None, lifetime),
            None => {
                let judged = self.classify_resource_body(resource, body);
                let judged = judged.or_else(|| self.classify_for_followers_only(resource))?;
                (Some(judged), judged.valid)
            }
        };
        if resource.route == BeaconRouteLifetimeKind::Constant && resource.status == 200 {
            self.compare_genesis_with_chain(body);
        }
        let mut fields = self.fields.clone();
        let has = |validator: &str| {
            let mut names = self.fields.iter().map(|(name, _)| name);
            names.any(|name| name.eq_ignore_ascii_case(validator.as_bytes()))
        };
        if !has("etag") && resource.status == 200 {
            fields.push((b"ETag".to_vec(), strong_etag(body)));
        }
        let meta = EntryMetadata {
            status: resource.status,
            fields,
            age: resource.directives.age,
            revalidates: resource.status == 200
                && resource.transcoded.is_none()
                && (has("etag") || has("last-modified")),
            ..self.entry_metadata(judged)
        };
        let gate = CompressionGate {
            min_length: if resource.compresses {
                self.settings.gate.min_length
            } else {
                u64::MAX
            },
            ..self.settings.gate
        };
        let entry = CacheEntry::from_fetched_result_reusing(
            EnvelopeBytes::envelope_without_bytes(),
            body,
            gate,
            meta,
            room,
        )?;
        Some(BuiltEntry::new(resource.key, entry, valid))
    }

    /// Returns the class of a complete response that is not stored, for its followers.
    fn classify_for_followers_only(
        &self,
        resource: &ResourceFillTarget,
    ) -> Option<ResponseClassification> {
        let is_known = resource.route != BeaconRouteLifetimeKind::Other;
        (is_known && self.has_waiting_followers()).then_some(ResponseClassification {
            class: LifetimeClass::Nothing,
            valid: 0,
            block: None,
            height: self.dispatch_mark().map(|mark| mark.seen),
            ..ResponseClassification::new(LifetimeClass::Nothing, 0, None)
        })
    }
}
