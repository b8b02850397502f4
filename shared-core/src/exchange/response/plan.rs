//! The plan for a response, made from its head.

use std::sync::Arc;

use crate::config::RouteConfig;
use crate::exchange::machine::actions::{HostMisuse, ResponseHeadAction};
use crate::exchange::machine::message_head::{
    HeadEdit, Header, ResponseContentCoding, ResponseHead, ResponseProperties,
};
use crate::exchange::machine::phase::ExchangePhase;
use crate::exchange::machine::transitions::ExchangeEvent;
use crate::exchange::machine::Exchange;
use crate::exchange::response::body_stages::{BodyStages, CompressionRequirement};
use crate::exchange::response::pipeline::{BufferedBody, BufferedBodyPipeline};
use crate::exchange::response::stream_encoder::CompressedBodyStream;
use crate::faults::{panic_if_injected, InjectedTestFault};
use crate::memory;
use crate::negotiate::media_type;
use crate::request_coding::BodyContentCoding;
use crate::response_mode::ResponseMode;

/// The treatment of a response that is not passed unchanged, decided from its head: buffer, stream
/// or merge.
pub(in crate::exchange) enum ResponsePlan {
    /// The body is buffered and processed when it is complete.
    Buffer(Box<BufferedBodyPipeline>),
    /// The body is compressed while it arrives.
    Stream(Box<CompressedBodyStream>),
    /// The body is merged with the stored part of the batch.
    Merge,
}

impl Exchange {
    /// Decides from the final response head (not 1xx other than 101) how the body is handled.
    ///
    /// # Errors
    /// [`HostMisuse`] unless it follows the request head.
    pub fn evaluate_response_head<'a, I>(
        &mut self,
        head: ResponseHead<I>,
    ) -> Result<ResponseHeadAction, HostMisuse>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        self.stop_waiting();
        if !self.awaits_response_head() {
            return Err(self.misuse_for_event(ExchangeEvent::HeadToPass));
        }
        panic_if_injected(InjectedTestFault::PanicHead);
        let switches = matches!(
            self.phase,
            ExchangePhase::AwaitingHead | ExchangePhase::AwaitingPart(_)
        ) && head.status == 101
            && !self.may_upstream_switch_protocol(&head);
        if switches {
            self.discard_fill();
            self.apply_transition(ExchangeEvent::Fail, |_| ExchangePhase::Aborted)?;
            return Ok(ResponseHeadAction::Fail);
        }
        self.record_rejected_formats(head.status, head.fields.clone());
        self.record_unrequested_coding(head.fields.clone());
        self.record_upstream_status(head.status);
        self.stop_observing_error_response(head.status);
        if let ExchangePhase::AwaitingUpdate = self.phase {
            return self.plan_background_response(head);
        }
        if !self.storing.is_judged {
            self.invalidate_targets(&head);
            self.decide_storage(&head);
        }
        if let ExchangePhase::DiscardingUpstream(_) = self.phase {
            self.checked_state_after_event(ExchangeEvent::HeadToBuffer)?;
            return Ok(ResponseHeadAction::Buffer);
        }
        self.set_cache_status_header(&head);
        let is_cache_control = |(name, _): Header<'_>| name.eq_ignore_ascii_case(b"cache-control");
        // the node knows the freshness of its part of a batch only
        let is_part = matches!(self.phase, ExchangePhase::AwaitingPart(_));
        self.complete_query_head(!is_part && head.fields.clone().any(is_cache_control));
        let bound = self.single_call_response_limit(&head);
        let coding = match bound {
            Some(_) => BodyContentCoding::from_response_headers(head.fields.clone()),
            None => BodyContentCoding::None,
        };
        if bound.is_some_and(|most| Self::head_shows_limit_exceeded(&head, coding, most)) {
            self.discard_overlong_upstream_body()?;
            return Ok(ResponseHeadAction::Buffer);
        }
        let is_measured = head.content_length.is_some() && coding == BodyContentCoding::None;
        let bound = bound.filter(|_| !is_measured);
        let mut judged = self.plan_response(&head, bound.is_some());
        if let Some(most) = bound {
            let Some(bounded) = self.plan_limited_response(judged, &head, coding, most) else {
                self.discard_overlong_upstream_body()?;
                return Ok(ResponseHeadAction::Buffer);
            };
            judged = Ok(bounded);
        }
        self.add_vary_accept(&head);
        match judged {
            Ok(ResponsePlan::Stream(stream)) => {
                self.apply_transition(ExchangeEvent::HeadToStream, |_| {
                    ExchangePhase::Streaming(stream)
                })?;
                Ok(ResponseHeadAction::Stream)
            }
            Ok(ResponsePlan::Buffer(whole)) => {
                self.apply_transition(ExchangeEvent::HeadToBuffer, |_| {
                    ExchangePhase::Buffering(whole)
                })?;
                Ok(ResponseHeadAction::Buffer)
            }
            Ok(ResponsePlan::Merge) => {
                self.apply_transition(
                    ExchangeEvent::HeadToMerge,
                    ExchangePhase::into_buffering_part,
                )?;
                Ok(ResponseHeadAction::Buffer)
            }
            Err(reason) => {
                self.pass_response(
                    ExchangeEvent::HeadToPass,
                    BufferedBody::for_response_head(&head),
                    reason,
                )?;
                Ok(self.decide_tee_or_pass())
            }
        }
    }

    /// Sets `Vary` of a partial response or a 304 as the complete response would have it (RFC
    /// 9110, 15.3.7 and 15.4.5). A 304 may have no `Content-Type`.
    fn set_bodyless_or_partial_vary<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let response = ResponseProperties::from_response_headers(head.fields.clone());
        let types = &self.route_config.types;
        let is_left_alone = response.coding == ResponseContentCoding::Other
            || response.no_transform
            || self.request.no_transform
            || response
                .content_type
                .is_some_and(|it| !types.contains_media_type(it));
        if !is_left_alone {
            self.varies = true;
            response.add_vary_edits(head.host_writes_vary, &mut self.head_edits);
        }
    }

    /// Whether the exchange accepts the head of an upstream response in its present phase.
    pub(in crate::exchange) fn awaits_response_head(&self) -> bool {
        use ExchangePhase::{AwaitingHead, AwaitingPart, AwaitingUpdate, DiscardingUpstream};
        matches!(
            self.phase,
            AwaitingHead | AwaitingPart(_) | AwaitingUpdate | DiscardingUpstream(_)
        )
    }

    /// Passes the rest of the response unchanged.
    pub(in crate::exchange) fn pass_response(
        &mut self,
        event: ExchangeEvent,
        buffered: BufferedBody,
        reason: ResponseMode,
    ) -> Result<(), HostMisuse> {
        self.apply_transition(event, |_| ExchangePhase::Passing(Box::new(buffered)))?;
        self.response_mode = reason;
        Ok(())
    }

    /// Returns the plan for a response, or the reason to pass it unchanged. Sets the head edits.
    /// A response with a limit is not streamed.
    pub(in crate::exchange) fn plan_response<'a, I>(
        &mut self,
        head: &ResponseHead<I>,
        is_bounded: bool,
    ) -> Result<ResponsePlan, ResponseMode>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        if !self.route_config.enable {
            return Err(ResponseMode::Off);
        }
        if head.subrequest {
            return Err(ResponseMode::Subrequest);
        }
        let response = ResponseProperties::from_response_headers(head.fields.clone());
        if self.can_merge_response(head.status) {
            self.read_upstream_part_head(&response, head);
            return Ok(ResponsePlan::Merge);
        }
        let conversion = self.negotiated_conversion(&response, head);
        self.check_processable_status(head, conversion.is_some())?;
        if let Some((negotiated, format)) = conversion {
            match self.plan_conversion(negotiated, format, &response, head) {
                Ok(plan) => return plan,
                // the response keeps its own format
                Err(why) => self.not_ssz = Some(why.error_response_mode()),
            }
        }
        self.check_compressible(&response)?;
        self.varies = true;
        response.add_vary_edits(head.host_writes_vary, &mut self.head_edits);
        let mut whole = self.compression_pipeline(&response, head)?;
        if self.request.head {
            self.set_headers_for_head_method(&mut whole);
            return Err(ResponseMode::Head);
        }
        if memory::is_memory_short() {
            return Err(ResponseMode::Memory);
        }
        self.plan_buffer_or_stream(&response, head, whole, is_bounded)
    }

    /// Returns an error with the reason if a response of this status is sent unchanged. A partial
    /// response may be converted.
    fn check_processable_status<'a, I>(
        &mut self,
        head: &ResponseHead<I>,
        is_convertible: bool,
    ) -> Result<(), ResponseMode>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        match head.status {
            101 => Err(ResponseMode::Upgrade),
            206 if is_convertible => Ok(()),
            206 | 304 => {
                self.set_bodyless_or_partial_vary(head);
                Err(ResponseMode::Status)
            }
            0..=199 | 204 | 205 => Err(ResponseMode::Status),
            _ => Ok(()),
        }
    }

    /// Returns an error with the reason if coding, media type or `no-transform` forbid compression,
    /// for any client that accepts it.
    fn check_compressible(&self, response: &ResponseProperties<'_>) -> Result<(), ResponseMode> {
        if response.coding == ResponseContentCoding::Other {
            return Err(ResponseMode::Encoded);
        }
        let content_type = response.content_type;
        if !content_type
            .is_some_and(|content_type| self.route_config.types.contains_media_type(content_type))
        {
            return Err(match response.coding {
                ResponseContentCoding::Identity => ResponseMode::Type,
                _ => ResponseMode::Encoded,
            });
        }
        if response.no_transform || self.request.no_transform {
            return Err(ResponseMode::NoTransform);
        }
        Ok(())
    }

    /// Returns the pipeline that compresses or decompresses a body for this client, or the reason
    /// to send the body unchanged.
    fn compression_pipeline<'a, I>(
        &self,
        response: &ResponseProperties<'_>,
        head: &ResponseHead<I>,
    ) -> Result<Box<BufferedBodyPipeline>, ResponseMode>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let mut buffered = BufferedBody::for_response_head(head);
        response.add_reencoded_body_edits(&mut buffered.recoded_edits);
        let accept = self.request.accept_encoding;
        let inflates = response.coding.supported_coding();
        if inflates.is_some_and(|coding| accept.allows_coding(coding)) {
            return Err(ResponseMode::Encoded);
        }
        let preferred = match inflates {
            Some(_) => None,
            None => self.route_config.preferred_coding(&accept),
        };
        let stages = BodyStages {
            inflates,
            transcoding: None,
            compression: preferred.map(|coding| CompressionRequirement {
                coding,
                at_any_length: accept.refuses_identity(),
            }),
        };
        let whole = Box::new(BufferedBodyPipeline::new(stages, buffered));
        whole.check_compressible_length(&self.route_config)?;
        if inflates.is_none() {
            if preferred.is_none() {
                return Err(ResponseMode::AcceptEncoding);
            }
            if !head.coding_allowed {
                return Err(ResponseMode::HostPolicy);
            }
        }
        Ok(whole)
    }

    /// Sets the headers of the response to HEAD: a GET would be sent with another length and coding
    /// (RFC 9110, 9.3.2 and 8.6).
    fn set_headers_for_head_method(&mut self, whole: &mut BufferedBodyPipeline) {
        self.head_edits
            .push(HeadEdit::remove_header("Content-Length"));
        if whole.stages.inflates.is_some() {
            self.head_edits
                .push(HeadEdit::remove_header("Content-Encoding"));
        }
        self.head_edits.append(&mut whole.buffered.recoded_edits);
    }

    /// Returns the plan for a body that is compressed or decompressed: buffered, or as a stream.
    fn plan_buffer_or_stream<'a, I>(
        &mut self,
        response: &ResponseProperties<'_>,
        head: &ResponseHead<I>,
        mut whole: Box<BufferedBodyPipeline>,
        is_bounded: bool,
    ) -> Result<ResponsePlan, ResponseMode>
    where
        I: Iterator<Item = Header<'a>> + Clone,
    {
        let config = Arc::clone(&self.route_config);
        let inflates = whole.stages.inflates.is_some();
        let declared = whole.buffered.declared;
        let is_streamed = head.unbuffered
            || config.hold == 0 && declared.is_none()
            || whole.exceeds_oneshot_limit(&config)
            // a response with a Content-Length can't have trailers
            || response.announces_trailers && head.delimited && declared.is_none()
            || response
                .content_type
                .is_some_and(media_type::is_event_stream);
        if is_streamed && !inflates && !is_bounded {
            return self.plan_streaming_compression(&mut whole);
        }
        match declared.map(|length| whole.buffered.reserve_for_length(&config, length)) {
            None | Some(Ok(())) => Ok(ResponsePlan::Buffer(whole)),
            Some(Err(_)) if !inflates => {
                whole.buffered.reservation = None;
                self.plan_streaming_compression(&mut whole)
            }
            Some(Err(reason)) => Err(reason),
        }
    }

    /// Returns the plan for a body that is compressed while it arrives; sets the head edits.
    fn plan_streaming_compression(
        &mut self,
        whole: &mut BufferedBodyPipeline,
    ) -> Result<ResponsePlan, ResponseMode> {
        let config = &self.route_config;
        let compressor = whole.stages.body_compressor(config);
        let mut stream =
            CompressedBodyStream::start_encoding(config, compressor, &mut whole.buffered)?;
        self.set_streamed_response_headers(&mut stream);
        Ok(ResponsePlan::Stream(stream))
    }
}

impl BufferedBodyPipeline {
    /// Whether the declared length is beyond the maximum for one-shot compression.
    fn exceeds_oneshot_limit(&self, config: &RouteConfig) -> bool {
        let declared = self.buffered.declared;
        declared.is_some_and(|length| length as u64 > config.max_oneshot)
    }

    /// Returns an error with the reason if a body of the declared length is sent unchanged.
    fn check_compressible_length(&self, config: &RouteConfig) -> Result<(), ResponseMode> {
        let Some(length) = self.buffered.declared else {
            return Ok(());
        };
        if length == 0 || self.is_below_compression_gate(config, length) {
            return Err(ResponseMode::TooSmall);
        }
        if self.stages.inflates.is_some() && self.exceeds_oneshot_limit(config) {
            // a body that can't be buffered keeps its coding
            return Err(ResponseMode::Encoded);
        }
        Ok(())
    }
}
