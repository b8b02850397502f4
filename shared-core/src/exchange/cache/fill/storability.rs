//! Decision whether a response may be stored, by its head.

use super::target::FillTarget;
use super::{CacheFill, FillSnapshot};
use crate::beacon::{is_beacon_route, BeaconRouteLifetimeKind};
use crate::cache::process::vary_table::VaryTableUpdateOutcome;
use crate::cache::reason::Reason;
use crate::cache::response_directives;
use crate::cache::vary_key::RetainedRequestHeaders;
use crate::exchange::machine::message_head::{
    is_byte_dependent_header, Header, ResponseContentCoding, ResponseHead,
};
use crate::negotiate::etag::weaken_entity_tag;
use crate::negotiate::list_header::list_header_members;
use crate::negotiate::media_type;
use crate::negotiate::media_type::MediaTypeSet;
use crate::ssz::{Schema, TypeId};
use crate::transcode::transcoder::response_types_by_fork;
use crate::transcode::{BodyFormat, TranscodeRequest, Transcoder, CONSENSUS_VERSION_HEADER};

impl CacheFill {
    /// Checks whether a response with this head may be stored, and records the properties of its
    /// entry. `request` is the head of the request; bodies of the media types `types` are
    /// compressed.
    pub(in crate::exchange) fn check_storability<'a, I>(
        &mut self,
        head: &ResponseHead<I>,
        request: &RetainedRequestHeaders,
        types: &MediaTypeSet,
    ) -> Result<(), Reason>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        if let Some(request) = &self.piece_request {
            request.record_response(head.status);
        }
        if self.dispatch_mark().is_some_and(|mark| mark.is_wrong) {
            return Err(Reason::WrongChain);
        }
        let most = self.settings.max_entry as u64;
        let is_to_be_ssz = match &self.target {
            FillTarget::Resource(resource) => {
                resource.ssz.and_then(TranscodeRequest::client_format)
            }
            FillTarget::Call(_) | FillTarget::Batch(_) => None,
        };
        // the length of a conversion to SSZ is known when it is complete
        let is_long = head.content_length.is_some_and(|length| length > most);
        if is_long && is_to_be_ssz != Some(BodyFormat::Ssz) {
            return Err(Reason::Length);
        }
        let (directives, varies, content_type) = self.read_storability_headers(head)?;
        self.stale = directives.stale;
        if directives.forbidden || directives.lifetime == Some(0) {
            return Err(Reason::CacheControl);
        }
        match self.coding {
            ResponseContentCoding::Identity => {}
            // the entry is stored as if the response had not been compressed
            ResponseContentCoding::Gzip | ResponseContentCoding::Zstd => {
                self.drop_byte_dependent_headers();
            }
            // a coding that was not requested is the same for all clients
            ResponseContentCoding::Other
                if self.settings.requests_identity && !varies.varies_by_encoding() => {}
            ResponseContentCoding::Other => return Err(Reason::Coding),
        }
        let is_coded = self.coding == ResponseContentCoding::Other;
        let is_json = media_type::is_json_type(content_type);
        match &mut self.target {
            FillTarget::Resource(resource) => {
                resource.directives = directives;
                resource.status = head.status;
                resource.undelimited =
                    !head.delimited && head.content_length.is_none() && head.status != 204;
                resource.compresses = !is_coded && types.contains_media_type(content_type);
                let is_negotiated = resource
                    .ssz
                    .and_then(TranscodeRequest::client_format)
                    .is_some();
                let is_another_success = matches!(head.status, 201..=203 | 205..=299);
                if !response_directives::is_storable_status(head.status)
                    || is_negotiated && is_another_success
                {
                    return Err(Reason::Status);
                }
                let is_route = is_beacon_route(&resource.name);
                if directives.lifetime.is_none()
                    && resource.route == BeaconRouteLifetimeKind::Other
                    && is_route
                {
                    return Err(Reason::Route);
                }
                let by_route = !is_coded && head.status == 200 && is_json;
                if directives.lifetime.is_none() && !by_route {
                    return Err(Reason::Lifetime);
                }
                if let (Some(negotiated), 200) = (resource.ssz, head.status) {
                    let settings = &self.settings;
                    let (root, transcoder) = (
                        resource.root,
                        storage_transcoder(negotiated, settings, head, content_type)?,
                    );
                    resource.of = possible_ssz_types(
                        negotiated,
                        settings,
                        head,
                        content_type,
                        root.is_some(),
                    );
                    resource.transcoder = transcoder.map(|transcoder| {
                        Box::new(transcoder.with_requested_root(*negotiated.gives, root))
                    });
                }
            }
            FillTarget::Call(_) | FillTarget::Batch(_) if is_coded => return Err(Reason::Coding),
            FillTarget::Call(_) | FillTarget::Batch(_) if head.status != 200 => {
                return Err(Reason::Status)
            }
            FillTarget::Call(_) | FillTarget::Batch(_) if !is_json => return Err(Reason::Type),
            FillTarget::Call(_) | FillTarget::Batch(_) => {}
        }
        match varies.into_vary_header_names() {
            Some(names) if self.update_key_for_vary(&names, request) => Ok(()),
            _ => Err(Reason::Vary),
        }
    }

    /// Returns the cache directives, vary headers and media type of a head, and records the
    /// headers that hits carry.
    pub(in crate::exchange) fn read_storability_headers<'a, I>(
        &mut self,
        head: &ResponseHead<I>,
    ) -> Result<
        (
            response_directives::CacheDirectives,
            response_directives::ResponseVaryHeaders,
            &'a [u8],
        ),
        Reason,
    >
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let is_call = !matches!(self.target, FillTarget::Resource(_));
        let mut reader = response_directives::CacheDirectivesReader::default();
        let mut varies = response_directives::ResponseVaryHeaders::default();
        let mut content_type: &[u8] = b"";
        for (name, value) in head.fields.clone() {
            let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
            reader.read_caching_header(name, value);
            varies.read_vary_header(name, value);
            if is("set-cookie") {
                return Err(Reason::SetCookie);
            } else if is("cache-control") {
                // an entry may be sent compressed, with other bytes
                if list_header_members(value).any(|one| one.eq_ignore_ascii_case(b"no-transform")) {
                    return Err(Reason::NoTransform);
                }
            } else if is("content-type") {
                content_type = value;
            } else if is("content-encoding") {
                self.coding.update_from_content_encoding(value);
            }
            if is_call && is_stored_call_header(name)
                || !is_call
                    && response_directives::is_stored_header(name)
                    && response_directives::is_stored_value(name, value)
            {
                self.record_stored_header(name, value);
            }
        }
        if !is_call {
            response_directives::complete_date(&mut self.fields, head.now);
        }
        Ok((reader.evaluate_directives(head.now), varies, content_type))
    }

    /// Adapts the headers to an entry whose bytes are not those that the node sent.
    fn drop_byte_dependent_headers(&mut self) {
        self.fields.retain(|(name, _)| {
            !is_byte_dependent_header(name) && !name.eq_ignore_ascii_case(b"content-encoding")
        });
        for (name, value) in &mut self.fields {
            if name.eq_ignore_ascii_case(b"etag") {
                if let Some(weak) = weaken_entity_tag(value) {
                    *value = weak;
                }
            }
        }
    }

    /// Sets the request headers (in lower case) on which the response varies. Returns whether the
    /// response can be stored.
    pub(in crate::exchange) fn update_key_for_vary(
        &mut self,
        varies: &[String],
        request: &RetainedRequestHeaders,
    ) -> bool {
        match self
            .shared
            .vary_table
            .record_vary_names(&self.scope, varies)
        {
            VaryTableUpdateOutcome::Covered => true,
            VaryTableUpdateOutcome::New(names) => {
                self.scope.encode_vary_header_values(request, Some(names));
                let has_keys = self.target.recompute_keys_after_vary(&self.scope);
                self.move_to_rekeyed_flights(has_keys);
                has_keys
            }
            VaryTableUpdateOutcome::TooMany => false,
        }
    }

    /// Records a header; several lines of a header are joined (RFC 9110, 5.3). The first `Date`
    /// counts.
    fn record_stored_header(&mut self, name: &[u8], value: &[u8]) {
        let mut known = self.fields.iter_mut();
        match known.find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((known, _)) if known.eq_ignore_ascii_case(b"date") => {}
            Some((_, line)) => {
                line.extend_from_slice(b", ");
                line.extend_from_slice(value);
            }
            None => self.fields.push((name.to_vec(), value.to_vec())),
        }
    }
}

/// Returns the transcoder that converts the response to the stored format; `None` if it has
/// that format. Only the format that the client requested is stored.
fn storage_transcoder<'a, I>(
    negotiated: TranscodeRequest,
    settings: &FillSnapshot,
    head: &ResponseHead<I>,
    content_type: &[u8],
) -> Result<Option<Transcoder>, Reason>
where
    I: Iterator<Item = Header<'a>> + Clone,
{
    let Some(wanted) = negotiated.client_format() else {
        return Ok(None);
    };
    match BodyFormat::from_content_type(content_type) {
        Some(actual) if actual == wanted => Ok(None),
        Some(_) => {
            let (chain, max_size) = (&settings.chain, settings.max_ssz);
            let fields = head.fields.clone();
            Transcoder::new(*negotiated.gives, wanted, chain, max_size, fields)
                .map(Some)
                .map_err(|why| why.not_cached_reason())
        }
        None => Err(Reason::Type),
    }
}

/// Returns the type of a response that is SSZ and is stored as SSZ; where its head does not
/// name the type, the possible types, for a client that requests by a root.
fn possible_ssz_types<'a, I>(
    negotiated: TranscodeRequest,
    settings: &FillSnapshot,
    head: &ResponseHead<I>,
    content_type: &[u8],
    by_root: bool,
) -> Vec<(&'static Schema, TypeId)>
where
    I: Iterator<Item = Header<'a>> + Clone,
{
    let is_stored = negotiated.client_format() != Some(BodyFormat::Json);
    if !is_stored || BodyFormat::from_content_type(content_type) != Some(BodyFormat::Ssz) {
        return Vec::new();
    }
    let (chain, max_size) = (&settings.chain, settings.max_ssz);
    let fields = head.fields.clone();
    let reader = Transcoder::new(*negotiated.gives, BodyFormat::Ssz, chain, max_size, fields);
    if let Some(named) = reader.ok().and_then(|reader| reader.ssz_type_from_head()) {
        return vec![named];
    }
    let mut names = head.fields.clone().map(|(name, _)| name);
    let names_fork =
        names.any(|name| name.eq_ignore_ascii_case(CONSENSUS_VERSION_HEADER.as_bytes()));
    match by_root && !names_fork {
        true => response_types_by_fork(*negotiated.gives, chain.preset),
        false => Vec::new(),
    }
}

/// Whether hits carry this header of the response to a call.
fn is_stored_call_header(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 2] = [b"access-control-", b"eth-"];
    const NAMES: [&[u8]; 2] = [b"content-type", b"vary"];
    PREFIXES.iter().any(|prefix| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    }) || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
}
