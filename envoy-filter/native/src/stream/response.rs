//! Response hooks of a stream.

use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::gzip::stream::Flush;
use sszip_envoy_carrier::head::MessageHead;
use sszip_envoy_carrier::response::{self, ReceivedHead};

use super::{StreamAction, StreamExchange, StreamState, TRAILERS_EVENT};
use crate::abi::{BodyType, HeaderType};
use crate::envoy::EnvoyStream;
use crate::{clock, thread_pool};

impl StreamExchange {
    /// Handles the response head.
    pub fn response_head(&mut self, stream: EnvoyStream, is_all: bool) -> StreamAction {
        if let (None, StreamState::Forwarded) = (self.local_reply, self.state) {
            self.observe_upstream_head(stream);
        }
        // the upstream has the request: its headers only serve access logs from
        // here on
        let own = std::mem::take(&mut self.own_fields);
        stream.edit_head(HeaderType::Request, &own);
        let headers = stream.headers(HeaderType::Response);
        let received = ReceivedHead::read(&headers, is_all);
        if self.state != StreamState::Forwarded {
            return self.drop_driver();
        }
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        let now = clock::now();
        let is_own = self
            .local_reply
            .is_some_and(|failure| response::passes_failure(driver, failure, now.monotonic));
        if is_own {
            if self.local_reply != Some(UpstreamFailure::Local) {
                self.count_tally(stream);
            }
            return self.drop_driver();
        }
        if let Some(elapsed) = self.since.map(|since| since.elapsed().as_micros()) {
            driver.record_upstream_latency(u64::try_from(elapsed).unwrap_or(u64::MAX));
        }
        let failure = self
            .local_reply
            .unwrap_or(UpstreamFailure::Status(received.head.status()));
        let Ok(step) = received.process(driver, &headers, failure, now) else {
            return self.drop_driver();
        };
        match step {
            // the driver does not need the rest, and each piece of it would
            // cost time
            HostStep::Pass => {
                self.edit_head(stream);
                self.report_exchange(stream);
                self.drop_driver()
            }
            HostStep::Observe => {
                self.edit_head(stream);
                self.set_state(StreamState::Observing);
                self.complete_response(stream, is_all);
                StreamAction::Continue
            }
            HostStep::Stream => {
                self.edit_head(stream);
                self.set_state(StreamState::Streaming);
                StreamAction::Continue
            }
            // a body is added to a response without one
            HostStep::Buffer if is_all => {
                self.end_withheld_body(stream, BodyType::BufferedResponse)
            }
            HostStep::Buffer => {
                self.state = StreamState::Buffering;
                StreamAction::Stop
            }
            step => self.fail_exchange(stream, &step),
        }
    }

    /// Starts probes of the node, and records the router's changes to the head,
    /// after the node responded to the request.
    fn observe_upstream_head(&mut self, stream: EnvoyStream) {
        let (Some(background), Some(driver)) = (&self.background, &mut self.driver) else {
            return;
        };
        let now = clock::monotonic_ms();
        while let Some(inquiry) = driver.take_probe(None, now) {
            let head = stream.copy_head(HeaderType::Request);
            background.start_probe(inquiry, stream.cluster_name(), &head);
        }
        if let Some(sent) = self.on_its_way.take() {
            background.record_rewrite(stream, sent, now);
        }
    }

    pub(super) fn edit_head(&self, stream: EnvoyStream) {
        let headers = stream.headers(HeaderType::Response);
        response::edit_head(self.driver.as_ref(), &headers);
    }

    /// Handles a piece of the response body.
    pub fn response_body(&mut self, stream: EnvoyStream, is_last: bool) -> StreamAction {
        let is_last = is_last || self.driver.is_some() && is_last_decompressed(stream);
        match self.state {
            StreamState::Observing => {
                let pieces = stream.body_slices(BodyType::ReceivedResponse);
                if let Some(driver) = &mut self.driver {
                    for piece in pieces.iter() {
                        observe_piece(driver, piece);
                        // the step of an observed piece does not matter
                        let _ = driver.handle_body_piece(piece);
                    }
                }
                self.complete_response(stream, is_last);
                StreamAction::Continue
            }
            StreamState::Buffering => self.buffer_piece(stream, is_last),
            StreamState::Streaming => self.compress_received(stream, is_last),
            StreamState::Coding => StreamAction::Stop,
            _ => StreamAction::Continue,
        }
    }

    pub(super) fn buffer_piece(&mut self, stream: EnvoyStream, is_last: bool) -> StreamAction {
        let pieces = stream.body_slices(BodyType::ReceivedResponse);
        if let Some(driver) = &mut self.driver {
            pieces.iter().for_each(|piece| observe_piece(driver, piece));
        }
        let mut iter = pieces.iter();
        let mut taken = 0;
        while let Some(piece) = iter.next() {
            let Some(driver) = &mut self.driver else {
                return StreamAction::Continue;
            };
            match driver.handle_body_piece(piece) {
                Ok(HostStep::Await) => taken += piece.len(),
                Ok(HostStep::SendThenPass) => {
                    return self.send_then_pass(stream, taken, pieces.len() - taken, is_last);
                }
                Ok(HostStep::Stream) => {
                    self.edit_head(stream);
                    self.set_state(StreamState::Streaming);
                    let rest = [piece].into_iter().chain(iter);
                    return self.stream_pieces(stream, rest, pieces.len(), is_last);
                }
                Ok(step) => return self.fail_exchange(stream, &step),
                Err(_) => {
                    return StreamAction::Reset(
                        "sszip: a piece of a buffered body was not accepted",
                    )
                }
            }
        }
        stream.drain_body(BodyType::ReceivedResponse, pieces.len());
        if is_last {
            return self.end_withheld_body(stream, BodyType::ReceivedResponse);
        }
        self.set_timer(stream);
        StreamAction::Stop
    }

    /// Sends the head, the buffered body and the pieces that were not accepted, and passes the rest
    /// of the body unchanged.
    pub(super) fn send_then_pass(
        &mut self,
        stream: EnvoyStream,
        taken: usize,
        rest: usize,
        is_last: bool,
    ) -> StreamAction {
        self.edit_head(stream);
        stream.drain_body(BodyType::ReceivedResponse, taken);
        self.append_body(stream, BodyType::ReceivedResponse);
        stream.rotate_buffer(BodyType::ReceivedResponse, rest);
        self.set_state(StreamState::Observing);
        self.complete_response(stream, is_last);
        StreamAction::Continue
    }

    /// Appends the driver's body to a buffer of Envoy, which copies it.
    pub(super) fn append_body(&mut self, stream: EnvoyStream, into: BodyType) {
        if let Some(driver) = &mut self.driver {
            driver.drain_body(|piece| stream.append_to_body(into, piece));
        }
    }

    /// Ends a body whose head is withheld, within the hook for its end.
    pub(super) fn end_withheld_body(
        &mut self,
        stream: EnvoyStream,
        into: BodyType,
    ) -> StreamAction {
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        match driver.handle_body_end() {
            Ok(HostStep::RunJob(job)) => {
                self.set_state(StreamState::Coding);
                self.run_job(stream, job);
                StreamAction::Stop
            }
            Ok(step) => self.send_ended_body(stream, step, into),
            Err(_) => StreamAction::Reset("sszip: a buffered body could not be ended"),
        }
    }

    /// Sends the response whose body has ended, with its head.
    pub(super) fn send_ended_body(
        &mut self,
        stream: EnvoyStream,
        step: HostStep,
        into: BodyType,
    ) -> StreamAction {
        match step {
            HostStep::Send => {
                self.edit_head(stream);
                self.append_body(stream, into);
                self.complete_response(stream, true);
                StreamAction::Continue
            }
            HostStep::Stream => {
                self.edit_head(stream);
                self.set_state(StreamState::Streaming);
                if !self.compress_piece(b"", Flush::Finish) {
                    return StreamAction::Reset("sszip: the encoder failed");
                }
                stream.append_to_body(into, &std::mem::take(&mut self.written));
                self.complete_response(stream, true);
                StreamAction::Continue
            }
            step => self.fail_exchange(stream, &step),
        }
    }

    /// Handles the response trailers, which end the body.
    pub fn response_trailers(&mut self, stream: EnvoyStream) -> StreamAction {
        match self.state {
            StreamState::Buffering | StreamState::Streaming => {
                // the head has to be sent before bytes are added here
                self.has_trailers = true;
                // a deadline must not send it without them
                self.is_timed = false;
                self.stream_scheduler(stream).schedule_event(TRAILERS_EVENT);
                StreamAction::Stop
            }
            StreamState::Coding => StreamAction::Stop,
            StreamState::Observing => {
                self.complete_response(stream, true);
                StreamAction::Continue
            }
            _ => StreamAction::Continue,
        }
    }

    /// Ends a response whose trailers have arrived, in an event after their hook.
    pub(super) fn ends_by_trailers(&mut self, stream: EnvoyStream) -> StreamAction {
        match self.state {
            StreamState::Buffering => self.end_withheld_body(stream, BodyType::BufferedResponse),
            StreamState::Streaming => {
                if !self.compress_piece(b"", Flush::Finish) {
                    return StreamAction::Reset("sszip: the encoder failed");
                }
                stream.append_to_body(
                    BodyType::BufferedResponse,
                    &std::mem::take(&mut self.written),
                );
                self.complete_response(stream, true);
                StreamAction::Continue
            }
            _ => StreamAction::Continue,
        }
    }
}

/// Whether a piece ends a body from Envoy's decompressor, which adds trailers to the last piece.
/// That piece is not marked as the last, and a filter that waits for more of the body is not called
/// again.
fn is_last_decompressed(stream: EnvoyStream) -> bool {
    let trailers = stream.copy_head(HeaderType::ResponseTrailers);
    let is_its = |name: &[u8]| {
        let name = name.to_ascii_lowercase();
        let name = String::from_utf8_lossy(&name);
        name.contains("-decompressor-") && name.ends_with("-uncompressed-bytes")
    };
    let found = trailers.plain().any(|(name, _)| is_its(name));
    found
}

/// Passes a piece of the upstream's body to the driver.
pub(super) fn observe_piece(driver: &mut ExchangeDriver, piece: &[u8]) {
    let job = driver.upstream_piece(
        Some(piece),
        piece.len() as u64,
        false,
        clock::monotonic_ms(),
    );
    if let Some(job) = job {
        thread_pool::run_detached(job);
    }
}
