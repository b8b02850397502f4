//! Headers of responses to QUERY (RFC 10008), by which caches in front of the proxy store them.

use crate::cache::class::LifetimeClass;
use crate::cache::entry::{CacheEntry, EntryMetadata};
use crate::exchange::machine::message_head::HeadEdit;
use crate::exchange::machine::Exchange;
use crate::exchange::response::ready_response::ReadyResponse;
use crate::negotiate::etag::names_entity_tag;

const CACHE_CONTROL: &str = "Cache-Control";

impl Exchange {
    /// Adds freshness and entity tag to a stored response to a QUERY of a single call, and replaces
    /// it by a 304 if the client has it already.
    pub(in crate::exchange) fn adapt_query_response(
        &mut self,
        answer: &mut ReadyResponse,
        entry: &CacheEntry,
        now: u64,
    ) {
        if self.request.query.is_none() || self.lookup_findings.batch_size.is_some() {
            return;
        }
        let meta = entry.response_metadata();
        let age = now.saturating_sub(meta.requested_at) / 1_000 + meta.age;
        let lifetime = age + downstream_lifetime_ms(meta, now) / 1_000;
        let scope = match self.has_keyed_credentials() {
            true => "private, ",
            false => "",
        };
        self.head_edits
            .push(HeadEdit::set_header("Age", age.to_string().into_bytes()));
        self.head_edits.push(HeadEdit::set_header(
            CACHE_CONTROL,
            format!("{scope}max-age={lifetime}").into_bytes(),
        ));
        // SSZ is another representation than the stored JSON
        let tag = match self.wants_ssz_result() {
            true => None,
            false => entry.weak_entity_tag(),
        };
        let Some(tag) = tag else {
            return;
        };
        let fields = &self.request.cache.fields;
        let is_known = fields
            .header_values("if-none-match")
            .any(|line| names_entity_tag(line, &tag));
        self.head_edits.push(HeadEdit::set_header("ETag", tag));
        if is_known && answer.status == 200 {
            self.respond_not_modified(answer);
        }
    }

    /// Completes the head of a response to a QUERY: a response whose freshness is not known must
    /// be validated by caches. `has_cache_control`: the node's response has `Cache-Control`.
    pub(in crate::exchange) fn complete_query_head(&mut self, has_cache_control: bool) {
        if self.request.query.is_none() {
            return;
        }
        let is_set = |name: &str| self.head_edits.iter().any(|edit| edit.name == name);
        if !has_cache_control && !is_set(CACHE_CONTROL) {
            self.head_edits
                .push(HeadEdit::set_header(CACHE_CONTROL, &b"no-cache"[..]));
        }
        self.head_edits.push(HeadEdit::set_header(
            "Accept-Query",
            &b"application/json"[..],
        ));
    }

    /// Whether the response depends on a header of the request that identifies the caller.
    fn has_keyed_credentials(&self) -> bool {
        let mut names = self.route_config.cache.credentials.cache_key_headers();
        let fields = &self.request.cache.fields;
        names.any(|name| fields.header_values(name).next().is_some())
    }
}

/// Returns the remaining lifetime of an entry in downstream caches, in milliseconds: no event ends
/// it there when a followed chain has a new head or a reorganisation.
fn downstream_lifetime_ms(meta: &EntryMetadata, now: u64) -> u64 {
    let left = meta.expires_at.saturating_sub(now);
    let ends_by_event = matches!(
        meta.class,
        LifetimeClass::Unfinalized | LifetimeClass::Tip | LifetimeClass::Nothing
    );
    match meta.follows.is_some() && ends_by_event {
        true => left.min(meta.class.default_lifetime_ms()),
        false => left,
    }
}

#[cfg(test)]
mod tests {
    use super::downstream_lifetime_ms;
    use crate::cache::class::LifetimeClass;
    use crate::cache::entry::EntryMetadata;

    #[test]
    fn entry_that_an_event_may_end_has_its_default_lifetime_downstream() {
        for (class, is_followed, left) in [
            (LifetimeClass::Immutable, true, 60_000),
            (LifetimeClass::Config, true, 60_000),
            (LifetimeClass::Unfinalized, true, 2_000),
            (LifetimeClass::Unfinalized, false, 60_000),
            (LifetimeClass::Tip, true, 1_000),
            (LifetimeClass::Tip, false, 60_000),
            (LifetimeClass::Nothing, true, 500),
        ] {
            let meta = EntryMetadata {
                class,
                follows: is_followed.then_some(([1; 16], 5)),
                requested_at: 10_000,
                expires_at: 90_000,
                ..EntryMetadata::default()
            };
            assert_eq!(downstream_lifetime_ms(&meta, 30_000), left, "{class:?}");
            assert_eq!(downstream_lifetime_ms(&meta, 89_900), 100);
            assert_eq!(downstream_lifetime_ms(&meta, 95_000), 0);
        }
    }
}
