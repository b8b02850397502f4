//! The upstream's response before the host's other modules change it.
//!
//! Modules of a proxy add headers and may change a body before it reaches the exchange. Whether
//! and how a response is stored depends on the upstream's head alone, so a host that can report
//! it does so before other modules have changed it. The response to the client depends on the
//! head as it is then.
//!
//! A body that other filters change between the upstream and the exchange is stored from the
//! pieces that the upstream sent, apart from those that the client gets.

use crate::cache::reason::Reason;
use crate::exchange::cache::fill::CacheFill;
use crate::exchange::machine::actions::HostMisuse;
use crate::exchange::machine::message_head::{HeadEdit, Header, ResponseHead};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::pipeline::SentEntryReservation;
use crate::gzip::splice::SlicedBody;
use crate::memory::MemoryReservation;
use crate::negotiate::vary;
use crate::transcode::{BodyFormat, TranscodeRequest};

impl Exchange {
    /// Evaluates the head as the upstream sent it, before [`Exchange::evaluate_response_head`], with
    /// the headers that the host is configured to hide. Returns whether a stored response replaces
    /// the upstream's: its head is [`Exchange::stored_response_status`] and
    /// [`Exchange::head_edits`] then, and `evaluate_response_head` returns `ResponseHeadAction::Buffer`.
    ///
    /// A host that can't distinguish this head from the one that it sends does not call this.
    ///
    /// # Errors
    /// [`HostMisuse`] unless a response head is awaited.
    pub fn evaluate_upstream_head<'a, I>(
        &mut self,
        mut head: ResponseHead<I>,
    ) -> Result<bool, HostMisuse>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        self.stop_waiting();
        if !self.awaits_response_head() {
            return Err(self.misuse_for_event(ExchangeEvent::HeadToPass));
        }
        self.record_rejected_formats(head.status, head.fields.clone());
        self.record_upstream_status(head.status);
        self.storing.node_length = head.content_length.filter(|_| head.status != 304);
        match self.phase {
            // the response to a background update is part of no other response
            ExchangePhase::AwaitingUpdate => head.subrequest = false,
            _ => self.invalidate_targets(&head),
        }
        self.decide_storage(&head);
        self.storing.is_judged = true;
        Ok(self.stored_response_status() != 0)
    }

    /// Feeds the fill from the pieces of [`Exchange::copy_upstream_piece_into_fill`], because other
    /// filters change the body on its way here.
    pub fn switch_fill_to_upstream(&mut self) {
        let fill = self.storing.fill.as_ref();
        let coded = fill.is_some_and(|fill| fill.has_encoded_response());
        self.storing.is_apart = fill.is_some();
        let format = self.request.ssz.and_then(TranscodeRequest::client_format);
        if coded || format == Some(BodyFormat::Ssz) || self.pending_split_batch().is_some() {
            self.reject_storage(Reason::Filtered);
        }
    }

    /// Whether a copy of the upstream's body is needed.
    pub fn is_fill_from_upstream(&self) -> bool {
        self.storing.is_apart && self.storing.fill.is_some()
    }

    /// Copies a piece of the body as the upstream sent it, if the entry is built from such pieces.
    pub fn copy_upstream_piece_into_fill(&mut self, piece: &[u8]) {
        if self.is_fill_from_upstream() {
            self.storing.node_sent += piece.len() as u64;
            self.storing
                .copy_into_fill(&self.route_config, &mut self.cache_reason, piece);
        }
    }

    /// Returns the fill at the end of the body as the upstream sent it.
    pub fn take_upstream_fill(&mut self) -> Option<Box<CacheFill>> {
        if !self.is_fill_from_upstream() {
            return None;
        }
        let sent = self.storing.node_sent;
        if self
            .storing
            .node_length
            .is_some_and(|length| length != sent)
        {
            self.reject_storage(Reason::Cut);
        }
        self.storing.fill.take()
    }

    /// Compares `bytes`, the length of the body that the upstream sent and that is not kept
    /// apart, with the bytes received here. Returns whether they differ: an undetected filter
    /// has changed the body.
    pub fn compare_upstream_with_received(&mut self, bytes: u64) -> bool {
        // a part that can't be read has no count
        let counts = self
            .pending_split_batch()
            .is_none_or(|it| it.lost.is_none() && !it.is_unjudged);
        let is_changed =
            counts && self.storing.client_fed_fill().is_some() && bytes != self.received;
        if is_changed {
            self.reject_storage(Reason::Filtered);
        }
        is_changed
    }

    /// Applies the headers of a stored response as the host's filters have left them: `Vary`
    /// becomes one line, as in a response of the upstream.
    pub fn apply_filtered_hit_head<'a>(
        &mut self,
        fields: impl Iterator<Item = Header<'a>> + Clone,
    ) {
        const NAME: &str = "Vary";
        if !self.varies {
            return;
        }
        let lines = || {
            let fields = fields.clone();
            fields
                .filter(|(name, _)| name.eq_ignore_ascii_case(NAME.as_bytes()))
                .map(|(_, value)| value)
        };
        // the order of a response of the upstream: our member is the last
        let others = vary::remove_vary_name(lines(), "Accept-Encoding");
        let vary = match self.lookup_findings.host_writes_vary {
            true => others,
            false => vary::add_vary_name(std::iter::once(&others[..]), "Accept-Encoding"),
        };
        self.head_edits.retain(|edit| edit.name != NAME);
        self.head_edits.push(match vary.is_empty() {
            true => HeadEdit::remove_header(NAME),
            false => HeadEdit::set_header(NAME, vary),
        });
    }

    /// Decompresses the body that is to be sent, for a host whose filters change it. `false` if
    /// there is no memory for it.
    pub fn replace_body_by_identity_for_filters(&mut self) -> bool {
        let answer = self.response_body_mut();
        let is_coded = |body: &mut SlicedBody| body.content_coding().is_some();
        let Some(coded) = answer.and_then(|it| it.stored.take_if(is_coded)) else {
            return true;
        };
        let decoded = self.decompress_stored_body(&coded);
        drop(coded);
        let mut body = SlicedBody::empty_identity_body();
        let Some((plain, memory)) = decoded else {
            return false;
        };
        if body.append_owned(plain).is_none() {
            return false;
        }
        self.head_edits.retain(|edit| {
            let is = |name: &str| edit.name.eq_ignore_ascii_case(name);
            !is("content-encoding") && !is("content-length")
        });
        let length = body.byte_length().to_string().into_bytes();
        self.head_edits
            .push(HeadEdit::set_header("Content-Length", length));
        if let Some(answer) = self.response_body_mut() {
            answer.stored = Some(body);
            answer
                .borrowed
                .push(SentEntryReservation::Assembled { _memory: memory });
        }
        true
    }

    /// Decompresses a compressed body into memory that counts against `memory`; `None` if there is
    /// not enough.
    fn decompress_stored_body(&self, body: &SlicedBody) -> Option<(Vec<u8>, MemoryReservation)> {
        let coding = body.content_coding()?;
        let limit = usize::try_from(self.route_config.memory).unwrap_or(usize::MAX);
        let length = usize::try_from(body.byte_length()).ok()?;
        let mut memory = self
            .route_config
            .process
            .budget
            .reserve_bytes(length, limit)?;
        let coded = body.try_to_vec()?;
        let plain = coding.decompress_body(&coded, limit, |decoded| {
            memory.grow_reservation_to(length.saturating_add(decoded), limit)
        });
        let plain = plain.ok()?;
        memory.shrink_reservation_to(plain.capacity());
        Some((plain, memory))
    }

    /// Whether a response of this media type and length (`None` if unknown) would be compressed,
    /// is a stored compressed one, or is a part of a batch that is to be merged with stored
    /// responses. Other compressors must not compress it before.
    pub fn would_compress(&self, content_type: &[u8], length: Option<u64>) -> bool {
        if let Some(answer) = self.ready_response().filter(|answer| answer.status != 0) {
            let stored = answer.stored.as_ref();
            return stored.is_some_and(|body| body.content_coding().is_some());
        }
        if self.pending_split_batch().is_some() || self.lookup_findings.response_limit.is_some() {
            // a part of a batch is read, whatever the client accepts and however short it is; a
            // response with a limit is measured
            return true;
        }
        let makes = |ssz: TranscodeRequest| ssz.target_format(Some(content_type));
        let negotiated = self.request.ssz.or(self.request.untyped);
        if negotiated.and_then(makes).is_some() {
            return true;
        }
        self.route_config.enable
            && !self.request.untouched
            && !self.request.no_transform
            && self
                .route_config
                .preferred_coding(&self.request.accept_encoding)
                .is_some()
            && self.route_config.types.contains_media_type(content_type)
            && length.is_none_or(|length| length >= self.route_config.min_length)
    }

    /// Whether the response is being cached, and is needed even if the client has disconnected.
    pub fn has_active_fill(&self) -> bool {
        self.storing.fill.is_some()
    }

    /// Ends the exchange because the client's request continues at another route (an error page,
    /// a redirect). Borrowed bodies stay valid.
    pub fn abandon_client_request(&mut self) {
        self.stop_waiting();
        self.storing.fill = None;
        self.lookup_findings.background_updates.clear();
        self.end_logs_searches();
        self.release_permits();
    }
}
