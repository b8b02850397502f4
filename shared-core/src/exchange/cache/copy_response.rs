//! Copies of responses for the cache, and the `Cache-Status` header of forwarded requests.

use super::fill::CacheFill;
use crate::cache::reason::Reason;
use crate::cache::status::CacheStatus;
use crate::exchange::machine::actions::{HostMisuse, ResponseHeadAction};
use crate::exchange::machine::message_head::{CacheRequestKind, HeadEdit, Header, ResponseHead};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::response_mode::ResponseMode;

const CACHE_STATUS: &str = "Cache-Status";

impl Exchange {
    /// Decides whether a response with this head may be stored, and sets the client's
    /// `Cache-Status`.
    pub(in crate::exchange) fn decide_storage<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        if head.subrequest || !(self.route_config.enable && self.route_config.cache.enable) {
            self.reject_storage(Reason::Subrequest);
            return;
        }
        if self.cache_status == CacheStatus::None {
            // the request was not looked up
            self.cache_status = CacheStatus::Bypass;
            if self.cache_reason == Reason::None {
                self.cache_reason = self.bypass_reason();
            }
        }
        if self.try_replace_with_stored(head) {
            self.set_cache_status_header(head);
            return;
        }
        let request_headers = &self.request.cache.fields;
        let types = &self.route_config.types;
        let Some(fill) = &mut self.storing.fill else {
            return;
        };
        if let Err(reason) = fill.check_storability(head, request_headers, types) {
            match head.status {
                // the node is expected to respond equally to the next request
                ..500 => self.reject_as_uncacheable(reason),
                _ => self.reject_storage(reason),
            }
        }
    }

    /// Reason why the request was not looked up.
    pub(in crate::exchange) fn bypass_reason(&self) -> Reason {
        let request = &self.request.cache;
        if matches!(
            request.kind,
            CacheRequestKind::None | CacheRequestKind::Change
        ) {
            request.why
        } else if request.credentials {
            Reason::Credentials
        } else if !self.route_config.process.shared.has_response_storage() {
            Reason::NoMemoryCache
        } else {
            Reason::Local
        }
    }

    /// Sets the `Cache-Status` of a response that came from the node (RFC 9211), after the lines
    /// of caches nearer to the node.
    pub(in crate::exchange) fn set_cache_status_header<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        if head.subrequest {
            return;
        }
        // a forwarded request is no hit, whatever was sent then (2.1)
        let mut ours = match (self.cache_status, self.lookup_findings.forward_status) {
            (CacheStatus::Miss, _) => "sszip; fwd=miss".to_owned(),
            (CacheStatus::Bypass, _) => "sszip; fwd=bypass".to_owned(),
            (CacheStatus::Revalidated, _) => "sszip; fwd=stale; fwd-status=304".to_owned(),
            (CacheStatus::Stale, None) => "sszip; fwd=stale".to_owned(),
            (CacheStatus::Stale, Some(status)) => {
                format!("sszip; fwd=stale; fwd-status={status}")
            }
            _ => return,
        };
        if self.cache_reason != Reason::None {
            ours.push_str("; detail=");
            ours.push_str(self.cache_reason.name());
        }
        let mut value: Vec<u8> = Vec::new();
        for (name, before) in head.fields.clone() {
            if name.eq_ignore_ascii_case(b"cache-status") && !before.is_empty() {
                value.extend_from_slice(before);
                value.extend_from_slice(b", ");
            }
        }
        value.extend_from_slice(ours.as_bytes());
        self.head_edits
            .push(HeadEdit::set_header(CACHE_STATUS, value));
    }

    /// Adds the reason why the response is not stored to a `Cache-Status` that is not sent yet.
    pub(in crate::exchange) fn add_cache_status_detail(&mut self) {
        const DETAIL: &[u8] = b"; detail=";
        let mut edits = self.head_edits.iter_mut();
        let edit = edits.rfind(|edit| edit.name == CACHE_STATUS);
        let value = edit.and_then(|edit| edit.value.as_mut());
        let Some(value) = value.filter(|_| self.cache_reason != Reason::None) else {
            return;
        };
        let ours = value.rsplit(|byte| *byte == b',').next();
        if !ours.is_some_and(|ours| ours.windows(DETAIL.len()).any(|part| part == DETAIL)) {
            value.to_mut().extend_from_slice(DETAIL);
            value
                .to_mut()
                .extend_from_slice(self.cache_reason.name().as_bytes());
        }
    }

    /// Decides whether a response that is sent unchanged is copied.
    pub(in crate::exchange) fn decide_tee_or_pass(&mut self) -> ResponseHeadAction {
        if self.storing.is_apart {
            // the fill is fed from the node's own body
            return ResponseHeadAction::Pass;
        }
        // the bytes of an encoded response are not the body itself
        let fill = self.storing.fill.as_ref();
        let is_coded = fill.is_some_and(|fill| fill.has_encoded_response());
        if self.response_mode == ResponseMode::Upgrade
            || self.response_mode == ResponseMode::Encoded && !is_coded
        {
            self.reject_as_uncacheable(Reason::Coding);
        }
        match self.storing.fill.is_some()
            || self.start_watching_rpc_errors()
            || self.is_observing_blocks()
        {
            true => ResponseHeadAction::Tee,
            false => ResponseHeadAction::Pass,
        }
    }

    /// Copies a piece of a body that is sent unchanged, within the limits.
    ///
    /// # Errors
    /// [`HostMisuse`] unless the response is sent unchanged.
    pub fn observe_passed_piece(&mut self, piece: &[u8]) -> Result<(), HostMisuse> {
        self.checked_state_after_event(ExchangeEvent::Observe)?;
        self.received += piece.len() as u64;
        if let Some(probe) = &mut self.probe {
            probe.append_probe_response_piece(piece);
        }
        self.upstream.append_watched_piece(piece);
        self.storing
            .copy_sent_bytes(&self.route_config, &mut self.cache_reason, piece);
        Ok(())
    }

    /// Returns the fill once the host has received the whole response; the fill outlives the
    /// exchange.
    pub fn take_complete_fill(&mut self) -> Option<Box<CacheFill>> {
        self.record_passed_errors();
        let whole = match &self.phase {
            ExchangePhase::Ready(_) | ExchangePhase::Finished => true,
            ExchangePhase::Passing(buffered) => {
                let declared = buffered.declared.map(|declared| declared as u64);
                declared.is_none_or(|declared| declared == self.received)
            }
            _ => return None,
        };
        if self.storing.is_apart {
            // the fill ends by itself
            return None;
        }
        if !whole {
            self.reject_storage(Reason::Cut);
        }
        let mut fill = self.storing.fill.take()?;
        if !fill.needs_build_job() {
            fill.build_collected_entries();
        }
        if let Some(reason) = fill.storage_rejection_reason() {
            self.cache_reason = reason;
        }
        Some(fill)
    }

    /// Drops the fill, so that no part of this response is stored.
    pub fn discard_fill(&mut self) {
        if let Some(fill) = self.storing.fill.take() {
            fill.finish_unstored();
        }
    }

    /// Drops the fill, if there is one, and records the reason why the response is not stored.
    pub fn reject_storage(&mut self, reason: Reason) {
        if let Some(fill) = &self.storing.fill {
            fill.record_piece_rejection(reason);
            self.cache_reason = reason;
            self.discard_fill();
        }
    }

    /// Drops the fill, records the reason, and adds the key to the negative cache.
    pub(in crate::exchange) fn reject_as_uncacheable(&mut self, reason: Reason) {
        if let Some(fill) = self.storing.fill.take() {
            fill.record_piece_rejection(reason);
            self.cache_reason = reason;
            fill.finish_uncacheable();
        }
    }
}
