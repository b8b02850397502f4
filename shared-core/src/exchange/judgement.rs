//! The plan for a response, made from its head.

use std::sync::Arc;

use super::actions::{HeadAction, Misuse};
use super::head::{Coding, Field, HeadEdit, Response, ResponseHead};
use super::held::{Gzip, Held, Stages, Whole};
use super::machine::Exchange;
use super::phase::Phase;
use super::stream::Stream;
use super::transitions::Event;
use crate::coded::BodyCoding;
use crate::config::Config;
use crate::faults::{panic_if, Fault};
use crate::memory;
use crate::mode::Mode;
use crate::negotiate::media_type;

/// The plan for a response that is not passed unchanged.
pub(super) enum Judged {
    /// The body is buffered and processed when it is complete.
    Hold(Box<Whole>),
    /// The body is compressed while it arrives.
    Stream(Box<Stream>),
    /// The body is merged with the stored part of the batch.
    Merge,
}

impl Exchange {
    /// Handles the final response head (not 1xx other than 101).
    ///
    /// # Errors
    /// [`Misuse`] unless it follows the request head.
    pub fn response_head<'a, I>(&mut self, head: ResponseHead<I>) -> Result<HeadAction, Misuse>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        self.stop_waiting();
        if !self.awaits_head() {
            return Err(self.misuse(Event::HeadToPass));
        }
        panic_if(Fault::PanicHead);
        let switches = matches!(self.phase, Phase::AwaitingHead | Phase::AwaitingPart(_))
            && head.status == 101
            && !self.may_switch(&head);
        if switches {
            self.refuse_fill();
            self.move_on(Event::Fail, |_| Phase::Cut)?;
            return Ok(HeadAction::Fail);
        }
        self.learn_of_status(head.status, head.fields.clone());
        self.learn_of_coding(head.fields.clone());
        self.record_status(head.status);
        self.watch_status(head.status);
        if let Phase::AwaitingUpdate = self.phase {
            return self.judge_update(head);
        }
        if !self.storing.is_judged {
            self.has_changed(&head);
            self.judge_storing(&head);
        }
        if let Phase::Replacing(_) = self.phase {
            self.allows(Event::HeadToHold)?;
            return Ok(HeadAction::Hold);
        }
        self.cache_status_edit(&head);
        let bound = self.bound_of(&head);
        let coding = match bound {
            Some(_) => BodyCoding::of_response(head.fields.clone()),
            None => BodyCoding::None,
        };
        if bound.is_some_and(|most| Self::is_too_long_by_head(&head, coding, most)) {
            self.is_too_long_to_send()?;
            return Ok(HeadAction::Hold);
        }
        let is_measured = head.content_length.is_some() && coding == BodyCoding::None;
        let bound = bound.filter(|_| !is_measured);
        let mut judged = self.judge(&head, bound.is_some());
        if let Some(most) = bound {
            let Some(bounded) = self.judge_bounded(judged, &head, coding, most) else {
                self.is_too_long_to_send()?;
                return Ok(HeadAction::Hold);
            };
            judged = Ok(bounded);
        }
        self.say_that_it_varies(&head);
        match judged {
            Ok(Judged::Stream(stream)) => {
                self.move_on(Event::HeadToStream, |_| Phase::Streaming(stream))?;
                Ok(HeadAction::Stream)
            }
            Ok(Judged::Hold(whole)) => {
                self.move_on(Event::HeadToHold, |_| Phase::Collecting(whole))?;
                Ok(HeadAction::Hold)
            }
            Ok(Judged::Merge) => {
                self.move_on(Event::HeadToMerge, Phase::collecting_part)?;
                Ok(HeadAction::Hold)
            }
            Err(reason) => {
                self.pass(Event::HeadToPass, Held::of(&head), reason)?;
                Ok(self.tee_or_pass())
            }
        }
    }

    /// Sets `Vary` of a partial response or a 304 as the complete response would have it (RFC
    /// 9110, 15.3.7 and 15.4.5). A 304 may have no `Content-Type`.
    fn varies_as_all_of_it<'a, I>(&mut self, head: &ResponseHead<I>)
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let response = Response::read(head.fields.clone());
        let types = &self.config.types;
        let is_left_alone = response.coding == Coding::Other
            || response.no_transform
            || self.request.no_transform
            || response.content_type.is_some_and(|it| !types.contains(it));
        if !is_left_alone {
            self.varies = true;
            response.vary_edits(head.host_writes_vary, &mut self.head_edits);
        }
    }

    /// Whether a response head is expected.
    pub(super) fn awaits_head(&self) -> bool {
        use Phase::{AwaitingHead, AwaitingPart, AwaitingUpdate, Replacing};
        matches!(
            self.phase,
            AwaitingHead | AwaitingPart(_) | AwaitingUpdate | Replacing(_)
        )
    }

    /// Passes the rest of the response unchanged.
    pub(super) fn pass(&mut self, event: Event, held: Held, reason: Mode) -> Result<(), Misuse> {
        self.move_on(event, |_| Phase::Passing(Box::new(held)))?;
        self.mode = reason;
        Ok(())
    }

    /// Returns the plan for a response, or the reason to pass it unchanged. Sets the head edits.
    /// A response with a limit is not streamed.
    pub(super) fn judge<'a, I>(
        &mut self,
        head: &ResponseHead<I>,
        is_bounded: bool,
    ) -> Result<Judged, Mode>
    where
        I: Iterator<Item = Field<'a>> + Clone,
    {
        let config = Arc::clone(&self.config);
        if !config.enable {
            return Err(Mode::Off);
        }
        if head.subrequest {
            return Err(Mode::Subrequest);
        }
        if self.is_to_be_merged(head.status) {
            self.judge_part(&Response::read(head.fields.clone()), head);
            return Ok(Judged::Merge);
        }
        let response = Response::read(head.fields.clone());
        let to_be_made = self.is_to_be_made(&response, head);
        match head.status {
            101 => return Err(Mode::Upgrade),
            206 if to_be_made.is_some() => {}
            206 | 304 => {
                self.varies_as_all_of_it(head);
                return Err(Mode::Status);
            }
            0..=199 | 204 | 205 => return Err(Mode::Status),
            _ => {}
        }
        if let Some((negotiated, format)) = to_be_made {
            match self.judge_transcoding(negotiated, format, &response, head) {
                Ok(judged) => return judged,
                // the response keeps its own format
                Err(why) => self.not_ssz = Some(why.mode()),
            }
        }
        if response.coding == Coding::Other {
            return Err(Mode::Encoded);
        }
        if !response
            .content_type
            .is_some_and(|content_type| config.types.contains(content_type))
        {
            return Err(match response.coding {
                Coding::Identity => Mode::Type,
                _ => Mode::Encoded,
            });
        }
        if response.no_transform || self.request.no_transform {
            return Err(Mode::NoTransform);
        }
        self.varies = true;
        response.vary_edits(head.host_writes_vary, &mut self.head_edits);
        let mut held = Held::of(head);
        response.recoded_edits(&mut held.recoded_edits);

        let accept = self.request.accept_encoding;
        let inflates = response.coding == Coding::Gzip;
        if inflates && accept.allows_gzip() {
            return Err(Mode::Encoded);
        }
        let stages = Stages {
            inflates,
            transcoding: None,
            gzip: (!inflates).then_some(Gzip {
                at_any_length: accept.refuses_identity() && accept.prefers_gzip(),
            }),
        };
        let mut whole = Box::new(Whole::new(stages, held));
        whole.judge_length(&config)?;
        if !inflates {
            if !accept.prefers_gzip() {
                return Err(Mode::AcceptEncoding);
            }
            if !head.coding_allowed {
                return Err(Mode::HostPolicy);
            }
        }
        if self.request.head {
            // a GET would be sent with another length (RFC 9110, 9.3.2 and 8.6)
            self.head_edits.push(HeadEdit::remove("Content-Length"));
            if inflates {
                self.head_edits.push(HeadEdit::remove("Content-Encoding"));
            }
            self.head_edits.append(&mut whole.held.recoded_edits);
            return Err(Mode::Head);
        }
        if memory::is_short() {
            return Err(Mode::Memory);
        }
        let declared = whole.held.declared;
        let at_once = head.unbuffered
            || config.hold == 0 && declared.is_none()
            || whole.is_beyond_oneshot(&config)
            // a response with a Content-Length can't have trailers
            || response.announces_trailers && head.delimited && declared.is_none()
            || response
                .content_type
                .is_some_and(media_type::is_event_stream);
        if at_once && !inflates && !is_bounded {
            return self.judged_to_stream(&mut whole.held);
        }
        match declared.map(|length| whole.held.begin(&config, length)) {
            None | Some(Ok(())) => Ok(Judged::Hold(whole)),
            Some(Err(_)) if !inflates => {
                whole.held.reservation = None;
                self.judged_to_stream(&mut whole.held)
            }
            Some(Err(reason)) => Err(reason),
        }
    }

    fn judged_to_stream(&mut self, held: &mut Held) -> Result<Judged, Mode> {
        let mut stream = Stream::open(&self.config, held)?;
        self.head_of_stream(&mut stream);
        Ok(Judged::Stream(stream))
    }
}

impl Whole {
    fn is_beyond_oneshot(&self, config: &Config) -> bool {
        let declared = self.held.declared;
        declared.is_some_and(|length| length as u64 > config.max_oneshot)
    }

    fn judge_length(&self, config: &Config) -> Result<(), Mode> {
        let Some(length) = self.held.declared else {
            return Ok(());
        };
        if length == 0 || self.is_below_gate(config, length) {
            return Err(Mode::TooSmall);
        }
        if self.stages.inflates && self.is_beyond_oneshot(config) {
            // a body that can't be buffered keeps its coding
            return Err(Mode::Encoded);
        }
        Ok(())
    }
}
