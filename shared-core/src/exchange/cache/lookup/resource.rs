//! Lookup of GET and HEAD: storage by RFC 9111, by the routes of the Beacon API where the node
//! sends no directives, and conditional requests (RFC 9110, section 13).

use std::sync::Arc;

use crate::beacon;
use crate::beacon::BeaconRouteLifetimeKind;
use crate::cache::entry::CacheEntry;
use crate::cache::reason::Reason;
use crate::cache::resource::resource_cache_key;
use crate::cache::response_directives;
use crate::cache::response_directives::CacheDirectives;
use crate::cache::status::CacheStatus;
use crate::cache::vary_key::VaryKey;
use crate::exchange::cache::fill::target::{FillTarget, ResourceFillTarget};
use crate::exchange::cache::format_pair::key_for_negotiated_format;
use crate::exchange::cache::lookup::request::{LookupRequest, LookupTarget};
use crate::exchange::cache::lookup::result::LookupResult;
use crate::exchange::cache::waiting::WaitingRequest;
use crate::exchange::machine::message_head::{CacheRequestKind, HeadEdit, Header, ResponseHead};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::Exchange;
use crate::exchange::response::ready_response::ReadyResponse;
use crate::gzip::splice::SlicedBody;
use crate::negotiate::etag::names_entity_tag;
use crate::negotiate::media_type::is_event_stream;
use crate::request_coding::SupportedContentCoding;
use crate::transcode::{requested_root, TranscodeRequest};

impl Exchange {
    /// Looks up the stored response to a GET or HEAD, and makes a request for a stale one
    /// conditional.
    pub(in crate::exchange) fn lookup_resource(
        &mut self,
        lookup: &LookupRequest<'_>,
        waited: Option<Box<WaitingRequest>>,
    ) -> LookupResult {
        let request = &self.request.cache;
        let has = |name| request.fields.header_values(name).next().is_some();
        if has("if-match") || has("if-unmodified-since") {
            // RFC 9111, 4.3.2: these conditions are evaluated by the origin server alone
            self.cache_reason = Reason::Condition;
            return LookupResult::Miss;
        }
        // If-Range without Range has no meaning, but not every server knows that
        let partial = has("range") || has("if-range");
        let route = BeaconRouteLifetimeKind::classify_beacon_target(&request.target);
        let known = route != BeaconRouteLifetimeKind::Other;
        let ssz = self.request.ssz;
        // the negotiated format is a part of the key
        let accept = || {
            let has_format = ssz.and_then(TranscodeRequest::client_format).is_some();
            request
                .fields
                .header_values("accept")
                .filter(move |_| !has_format)
        };
        let name = canonical_resource_target(&request.target, accept);
        let mut scope = self.request_vary_key(lookup);
        if !beacon::is_beacon_target(&request.target) {
            // the GETs of a host do not all vary on the same headers
            scope = self.vary_key_for_target(lookup, Some(&name));
        }
        let target = LookupTarget {
            key: key_for_negotiated_format(&scope, &name, ssz),
            id: None,
            is_whole: !self.request.head && !partial,
            coalesces: known || self.may_coalesce_unknown_route(&scope, &name),
            may_be_immutable: route.requested_slot().is_some(),
            slot: route.requested_slot(),
            method: None,
        };
        let valid = Arc::clone(&self.route_config.cache.valid);
        let root =
            ssz.and_then(|ssz| requested_root::parse_requested_root(*ssz.gives, &request.target));
        let found = self.lookup_single_response(&target, &scope, lookup, waited, || {
            FillTarget::Resource(ResourceFillTarget {
                key: target.key,
                name,
                route,
                valid,
                undelimited: false,
                directives: CacheDirectives::default(),
                status: 0,
                compresses: false,
                ssz,
                of: Vec::new(),
                root,
                transcoder: None,
                transcoded: None,
            })
        });
        if let LookupResult::Miss = found {
            self.record_other_api_miss(&found);
            if partial {
                self.cache_reason = Reason::Range;
            }
            self.make_request_conditional(known);
        }
        found
    }

    /// Whether the request may wait for another request's response, where only the response shows
    /// whether it may be stored: not for an event stream, nor for a 304 to the other client's own
    /// condition. Uncacheable responses are recorded in the negative cache, so that the next
    /// requests do not wait for them.
    fn may_coalesce_unknown_route(&self, scope: &VaryKey, name: &[u8]) -> bool {
        let request = &self.request.cache;
        let has = |name| request.fields.header_values(name).next().is_some();
        if beacon::is_beacon_target(&request.target)
            || request.fields.header_values("accept").any(is_event_stream)
        {
            return false;
        }
        let revalidates = || {
            let hot = self.route_config.process.shared.hot_tier();
            hot.and_then(|hot| hot.get_fresh_or_stale(&resource_cache_key(scope, name)))
                .is_some_and(|entry| entry.response_metadata().revalidates)
        };
        !has("if-none-match") && !has("if-modified-since") || revalidates()
    }

    /// Sets the conditions of the entry on the upstream request, and removes the client's
    /// conditions.
    pub(in crate::exchange) fn make_request_conditional(&mut self, known: bool) {
        if self.storing.fill.is_none() {
            return;
        }
        let stale = match &mut self.lookup_findings.stale_entry {
            Some(stale_entry) if stale_entry.entry.response_metadata().revalidates => {
                stale_entry.is_conditional = true;
                Some(Arc::clone(&stale_entry.entry))
            }
            _ => None,
        };
        if !known && stale.is_none() {
            return;
        }
        for (condition, validator) in [
            ("If-None-Match", "etag"),
            ("If-Modified-Since", "last-modified"),
        ] {
            let value = stale
                .as_ref()
                .and_then(|entry| stored_header(entry, validator));
            self.upstream_edits.push(match value {
                Some(value) => HeadEdit::set_header(condition, value.to_vec()),
                None => HeadEdit::remove_header(condition),
            });
        }
    }

    /// Updates a stale entry after the node's 304. Returns whether the client receives it.
    pub(in crate::exchange) fn apply_revalidation<'a, I>(
        &mut self,
        stale: &CacheEntry,
        head: &ResponseHead<I>,
    ) -> bool
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        // RFC 9111, 3.2: headers of the 304 replace the stored ones
        let mut meta = stale.response_metadata().clone();
        let is_replaced = |name: &[u8]| {
            let mut fields = head.fields.clone();
            name.eq_ignore_ascii_case(b"date")
                || response_directives::is_updated_by_304(name)
                    && fields.any(|(other, _)| other.eq_ignore_ascii_case(name))
        };
        meta.fields.retain(|(name, _)| !is_replaced(name));
        for (name, value) in head.fields.clone() {
            if response_directives::is_updated_by_304(name)
                && !value.is_empty()
                && response_directives::is_stored_value(name, value)
            {
                meta.fields.push((name.to_vec(), value.to_vec()));
            }
        }
        response_directives::complete_date(&mut meta.fields, head.now);
        let mut reader = response_directives::CacheDirectivesReader::default();
        let mut varies = response_directives::ResponseVaryHeaders::default();
        for (name, value) in &meta.fields {
            reader.read_caching_header(name, value);
            varies.read_vary_header(name, value);
        }
        for (name, value) in head.fields.clone() {
            if response_directives::CacheDirectivesReader::is_unstored_304_header(name) {
                reader.read_caching_header(name, value);
            }
        }
        let directives = reader.evaluate_directives(head.now);
        meta.age = directives.age;
        meta.stale = directives.stale;
        let entry = stale
            .copy_with_metadata(meta)
            .with_lifetime(self.lookup_findings.at, directives.lifetime.unwrap_or(0));
        let is_update = matches!(self.phase, ExchangePhase::AwaitingUpdate);
        let served =
            is_update || self.send_stored_replacement(&entry, None, CacheStatus::Revalidated);
        let request_headers = &self.request.cache.fields;
        // the 304 may name further vary headers
        let depends = varies
            .into_vary_header_names()
            .filter(|_| !directives.forbidden);
        let keeps = match (depends, &mut self.storing.fill) {
            (Some(names), Some(fill)) => fill.update_key_for_vary(&names, request_headers),
            _ => false,
        };
        match (directives.lifetime, &mut self.storing.fill) {
            (Some(lifetime), Some(fill)) if keeps => fill.set_built_entry(entry, lifetime),
            _ => self.discard_fill(),
        }
        served
    }

    fn is_resource_request(&self) -> bool {
        self.request.cache.kind == CacheRequestKind::Resource
    }

    /// Whether the response contains the entry's body: not for HEAD, and not for a 304.
    pub(in crate::exchange) fn needs_entry_body(&self, entry: &CacheEntry) -> bool {
        !self.request.head && !self.is_entry_not_modified(entry)
    }

    /// Whether `If-None-Match` or, where there is none, `If-Modified-Since` matches the entry.
    fn is_entry_not_modified(&self, entry: &CacheEntry) -> bool {
        let meta = entry.response_metadata();
        if meta.status != 200 {
            return false;
        }
        let field = |name| stored_header(entry, name);
        let fields = &self.request.cache.fields;
        let mut tags = fields.header_values("if-none-match").peekable();
        if tags.peek().is_some() {
            let Some(own) = field("etag") else {
                return false;
            };
            return tags.any(|line| names_entity_tag(line, own));
        }
        let since = fields.header_values("if-modified-since").next();
        let since = since.and_then(response_directives::parse_header_date);
        let modified = field("last-modified").and_then(response_directives::parse_header_date);
        matches!((modified, since), (Some(modified), Some(since)) if modified <= since)
    }

    /// Adds `Age` and `Date` to a stored response, and replaces its body where GET is conditional or
    /// the method is HEAD.
    pub(in crate::exchange) fn adapt_resource_response(
        &mut self,
        answer: &mut ReadyResponse,
        entry: &CacheEntry,
        lookup: &LookupRequest<'_>,
    ) {
        if !self.is_resource_request() {
            return;
        }
        let meta = entry.response_metadata();
        let resident = lookup.now.saturating_sub(meta.requested_at) / 1000;
        let age = resident + meta.age;
        self.head_edits
            .push(HeadEdit::set_header("Age", age.to_string().into_bytes()));
        // REDbot relates a Date to the Age before it
        if let Some(date) = stored_header(entry, "date") {
            if !self.hides_response_header(b"date") {
                self.head_edits
                    .push(HeadEdit::set_header("Date", date.to_vec()));
            }
        }
        if self.is_entry_not_modified(entry) {
            self.respond_not_modified(answer);
        } else if self.request.head {
            let length = match self.coding_of_absent_body(entry, lookup) {
                // nothing is compressed for a response without a body
                Some(SupportedContentCoding::Zstd) if entry.zstd_bytes_to_make() > 0 => None,
                Some(coding) => entry
                    .response_for_coding(b"", coding, self.route_config.zstd_level, false)
                    .map(|body| body.byte_length()),
                None => Some(entry.response_length(b"")),
            };
            // RFC 9110, 8.6: Content-Length may be left out
            if let Some(length) = length {
                self.set_content_length(usize::try_from(length).unwrap_or(usize::MAX));
            }
        }
        if self.request.head {
            answer.stored = Some(SlicedBody::default());
        }
    }

    /// Replaces a stored response by a 304, without the headers that describe the body (RFC 9110,
    /// 15.4.5).
    pub(in crate::exchange) fn respond_not_modified(&mut self, answer: &mut ReadyResponse) {
        answer.status = 304;
        answer.stored = Some(SlicedBody::default());
        self.head_edits.retain(|edit| {
            let is = |name: &str| edit.name.eq_ignore_ascii_case(name);
            !is("content-type") && !is("content-encoding") && !is("content-length")
        });
    }
}

/// Returns the value of the header that an entry stores under this name.
fn stored_header<'a>(entry: &'a CacheEntry, name: &str) -> Option<&'a [u8]> {
    let mut fields = entry.response_metadata().fields.iter();
    fields
        .find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()))
        .map(|(_, value)| &value[..])
}

/// Returns the name that identifies a target in its scope. The parameters of the Beacon API
/// have no order, and its responses depend on `Accept`.
fn canonical_resource_target<'a, I>(target: &[u8], accept: impl Fn() -> I) -> Vec<u8>
where
    I: Iterator<Item = &'a [u8]>,
{
    if !beacon::is_beacon_target(target) {
        return target.to_vec();
    }
    let mut halves = target.splitn(2, |byte| *byte == b'?');
    let mut name = halves.next().unwrap_or_default().to_vec();
    if let Some(query) = halves.next() {
        let mut parameters: Vec<&[u8]> = query.split(|byte| *byte == b'&').collect();
        // sorted by name alone: the order of a repeated parameter may matter. An encoded name may
        // equal another one
        if parameters
            .iter()
            .all(|one| has_no_percent_encoding(query_parameter_name(one)))
        {
            parameters.sort_by_key(|one| query_parameter_name(one));
        }
        name.push(b'?');
        name.extend_from_slice(&parameters.join(&b'&'));
    }
    for line in accept() {
        // no target contains a line feed
        name.push(b'\n');
        name.extend_from_slice(line);
    }
    name
}

/// Returns the name of a query parameter, without its value.
fn query_parameter_name(parameter: &[u8]) -> &[u8] {
    let end = parameter.iter().position(|byte| *byte == b'=');
    &parameter[..end.unwrap_or(parameter.len())]
}

/// Whether the name contains neither percent-encoding (RFC 3986, 2.1) nor the encoding of HTML
/// forms.
fn has_no_percent_encoding(name: &[u8]) -> bool {
    !name.iter().any(|byte| matches!(byte, b'%' | b'+'))
}

#[cfg(test)]
mod tests {
    use super::canonical_resource_target;

    fn name(target: &str, accept: &[&str]) -> Vec<u8> {
        canonical_resource_target(target.as_bytes(), || {
            accept.iter().map(|line| line.as_bytes())
        })
    }

    #[test]
    fn beacon_parameters_in_another_order_have_the_same_name() {
        let target = "/eth/v1/beacon/states/1/validators";
        let with_query = |query: &str| name(&format!("{target}?{query}"), &[]);
        assert_eq!(with_query("status=a&id=1"), with_query("id=1&status=a"));
        assert_ne!(with_query("id=1&id=2"), with_query("id=2&id=1"));
        // an encoded name may equal another one
        assert_ne!(with_query("id=1&%69d=2"), with_query("%69d=2&id=1"));
        assert_eq!(with_query("a=%31&b"), with_query("b&a=%31"));
        assert_ne!(with_query(""), name(target, &[]));
        assert_ne!(name("/x?b&a", &[]), name("/x?a&b", &[]));
    }

    #[test]
    fn name_contains_accept_for_the_beacon_api_only() {
        let target = "/eth/v2/beacon/blocks/1";
        assert_ne!(name(target, &["application/json"]), name(target, &[]));
        assert_eq!(name("/x", &["a/b"]), name("/x", &[]));
    }
}
