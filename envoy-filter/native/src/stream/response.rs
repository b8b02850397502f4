//! Response hooks of a stream.

use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_core::gzip::stream::FlushMode;
use sszip_envoy_carrier::head::HostMessageHead;
use sszip_envoy_carrier::response::{self, ReceivedResponseHead};

use super::{StreamAction, StreamExchange, StreamPhase, TRAILERS_EVENT};
use crate::abi::{BodyType, HeaderType};
use crate::envoy::{EnvoyBodySlices, EnvoyStreamHandle};
use crate::{clock, thread_pool};

impl StreamExchange {
    /// Passes the response head to the driver, and performs the step that follows. `is_all`: the
    /// response has no body.
    pub fn handle_response_head(
        &mut self,
        stream: EnvoyStreamHandle,
        is_all: bool,
    ) -> StreamAction {
        if let (None, StreamPhase::Forwarded) = (self.local_reply_failure, self.phase) {
            self.start_probes_and_record_rewrite(stream);
        }
        // the upstream has the request: its headers only serve access logs from
        // here on
        let own = std::mem::take(&mut self.restoring_edits);
        stream.apply_head_edits(HeaderType::Request, &own);
        let headers = stream.access_headers(HeaderType::Response);
        let received = ReceivedResponseHead::read_response_head(&headers, is_all);
        if self.phase != StreamPhase::Forwarded {
            return self.drop_misused_driver();
        }
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        let now = clock::read_host_clocks();
        let is_own = self.local_reply_failure.is_some_and(|failure| {
            response::passes_local_failure_reply(driver, failure, now.monotonic)
        });
        if is_own {
            if self.local_reply_failure != Some(UpstreamFailure::Local) {
                self.count_exchange_tally(stream);
            }
            return self.drop_misused_driver();
        }
        if let Some(elapsed) = self.started_at.map(|since| since.elapsed().as_micros()) {
            driver.record_upstream_latency(u64::try_from(elapsed).unwrap_or(u64::MAX));
        }
        let failure = self
            .local_reply_failure
            .unwrap_or(UpstreamFailure::Status(received.head.status()));
        let Ok(step) = received.pass_response_head_to_driver(driver, &headers, failure, now) else {
            return self.drop_misused_driver();
        };
        match step {
            // the driver does not need the rest, and each piece of it would
            // cost time
            HostStep::Pass => {
                self.edit_response_head(stream);
                self.report_exchange(stream);
                self.drop_misused_driver()
            }
            HostStep::Observe => {
                self.edit_response_head(stream);
                self.enter_stream_phase(StreamPhase::Observing);
                self.finish_sent_response(stream, is_all);
                StreamAction::Continue
            }
            HostStep::Stream => {
                self.edit_response_head(stream);
                self.enter_stream_phase(StreamPhase::Streaming);
                StreamAction::Continue
            }
            // a body is added to a response without one
            HostStep::Buffer if is_all => {
                self.finish_buffered_response(stream, BodyType::BufferedResponse)
            }
            HostStep::Buffer => {
                self.phase = StreamPhase::Buffering;
                StreamAction::Stop
            }
            step => self.fail_exchange(stream, &step),
        }
    }

    /// Starts probes of the node, and records the router's changes to the head,
    /// after the node responded to the request.
    fn start_probes_and_record_rewrite(&mut self, stream: EnvoyStreamHandle) {
        let (Some(background), Some(driver)) = (&self.background, &mut self.driver) else {
            return;
        };
        let now = clock::monotonic_ms();
        while let Some(probe) = driver.take_node_probe(None, now) {
            let head = stream.copy_message_head(HeaderType::Request);
            background.enqueue_probe(probe, stream.cluster_name(), &head);
        }
        if let Some(sent) = self.head_before_router.take() {
            background.record_router_rewrite(stream, sent, now);
        }
    }

    pub(super) fn edit_response_head(&self, stream: EnvoyStreamHandle) {
        let headers = stream.access_headers(HeaderType::Response);
        response::edit_response_head(self.driver.as_ref(), &headers);
    }

    /// Handles a piece of the response body.
    pub fn handle_response_body(
        &mut self,
        stream: EnvoyStreamHandle,
        is_last: bool,
    ) -> StreamAction {
        let is_last = is_last || self.driver.is_some() && is_last_decompressed_piece(stream);
        match self.phase {
            StreamPhase::Observing => {
                let pieces = stream.body_slices(BodyType::ReceivedResponse);
                if let Some(driver) = &mut self.driver {
                    for piece in pieces.iter() {
                        pass_upstream_piece_to_driver(driver, piece);
                        // the step of an observed piece does not matter
                        let _ = driver.handle_body_piece(piece);
                    }
                }
                self.finish_sent_response(stream, is_last);
                StreamAction::Continue
            }
            StreamPhase::Buffering => self.buffer_response_piece(stream, is_last),
            StreamPhase::Streaming => self.compress_received_pieces(stream, is_last),
            StreamPhase::Encoding => StreamAction::Stop,
            _ => StreamAction::Continue,
        }
    }

    /// Returns the pieces of the response that the present hook received, after the driver has
    /// observed them.
    pub(super) fn observe_received_pieces(&mut self, stream: EnvoyStreamHandle) -> EnvoyBodySlices {
        let pieces = stream.body_slices(BodyType::ReceivedResponse);
        if let Some(driver) = &mut self.driver {
            pieces
                .iter()
                .for_each(|piece| pass_upstream_piece_to_driver(driver, piece));
        }
        pieces
    }

    /// Passes the received pieces of a buffered body to the driver. When the driver begins to
    /// stream or to pass the body, the head and the rest are sent.
    pub(super) fn buffer_response_piece(
        &mut self,
        stream: EnvoyStreamHandle,
        is_last: bool,
    ) -> StreamAction {
        let pieces = self.observe_received_pieces(stream);
        let mut iter = pieces.iter();
        let mut taken = 0;
        while let Some(piece) = iter.next() {
            let Some(driver) = &mut self.driver else {
                return StreamAction::Continue;
            };
            match driver.handle_body_piece(piece) {
                Ok(HostStep::Await) => taken += piece.len(),
                Ok(HostStep::SendThenPass) => {
                    return self.send_buffered_then_pass(
                        stream,
                        taken,
                        pieces.len() - taken,
                        is_last,
                    );
                }
                Ok(HostStep::Stream) => {
                    self.edit_response_head(stream);
                    self.enter_stream_phase(StreamPhase::Streaming);
                    let rest = [piece].into_iter().chain(iter);
                    return self.compress_and_send_pieces(stream, rest, pieces.len(), is_last);
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
            return self.finish_buffered_response(stream, BodyType::ReceivedResponse);
        }
        self.arm_driver_deadline(stream);
        StreamAction::Stop
    }

    /// Sends the head, the buffered body and the pieces that were not accepted, and passes the rest
    /// of the body unchanged.
    pub(super) fn send_buffered_then_pass(
        &mut self,
        stream: EnvoyStreamHandle,
        taken: usize,
        rest: usize,
        is_last: bool,
    ) -> StreamAction {
        self.edit_response_head(stream);
        stream.drain_body(BodyType::ReceivedResponse, taken);
        self.copy_driver_body_to_envoy(stream, BodyType::ReceivedResponse);
        stream.move_buffer_start_to_end(BodyType::ReceivedResponse, rest);
        self.enter_stream_phase(StreamPhase::Observing);
        self.finish_sent_response(stream, is_last);
        StreamAction::Continue
    }

    /// Appends the driver's body to a buffer of Envoy, which copies it.
    pub(super) fn copy_driver_body_to_envoy(&mut self, stream: EnvoyStreamHandle, into: BodyType) {
        if let Some(driver) = &mut self.driver {
            driver.drain_body(|piece| stream.append_to_body_buffer(into, piece));
        }
    }

    /// Ends a body whose head is withheld, within the hook for its end.
    pub(super) fn finish_buffered_response(
        &mut self,
        stream: EnvoyStreamHandle,
        into: BodyType,
    ) -> StreamAction {
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        match driver.handle_body_end() {
            Ok(HostStep::RunJob(job)) => {
                self.enter_stream_phase(StreamPhase::Encoding);
                self.run_job(stream, job);
                StreamAction::Stop
            }
            Ok(step) => self.send_complete_response(stream, step, into),
            Err(_) => StreamAction::Reset("sszip: a buffered body could not be ended"),
        }
    }

    /// Sends the response whose body has ended, with its head.
    pub(super) fn send_complete_response(
        &mut self,
        stream: EnvoyStreamHandle,
        step: HostStep,
        into: BodyType,
    ) -> StreamAction {
        match step {
            HostStep::Send => {
                self.edit_response_head(stream);
                self.copy_driver_body_to_envoy(stream, into);
                self.finish_sent_response(stream, true);
                StreamAction::Continue
            }
            HostStep::Stream => {
                self.edit_response_head(stream);
                self.enter_stream_phase(StreamPhase::Streaming);
                if !self.compress_piece(b"", FlushMode::Finish) {
                    return StreamAction::Reset("sszip: the encoder failed");
                }
                stream.append_to_body_buffer(into, &std::mem::take(&mut self.encoder_output));
                self.finish_sent_response(stream, true);
                StreamAction::Continue
            }
            step => self.fail_exchange(stream, &step),
        }
    }

    /// Handles the response trailers, which end the body.
    pub fn handle_response_trailers(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        match self.phase {
            StreamPhase::Buffering | StreamPhase::Streaming => {
                // the head has to be sent before bytes are added here
                self.has_trailers = true;
                // a deadline must not send it without them
                self.is_timed = false;
                self.stream_scheduler(stream).schedule_event(TRAILERS_EVENT);
                StreamAction::Stop
            }
            StreamPhase::Encoding => StreamAction::Stop,
            StreamPhase::Observing => {
                self.finish_sent_response(stream, true);
                StreamAction::Continue
            }
            _ => StreamAction::Continue,
        }
    }

    /// Ends a response whose trailers have arrived, in an event after their hook.
    pub(super) fn end_response_after_trailers(
        &mut self,
        stream: EnvoyStreamHandle,
    ) -> StreamAction {
        match self.phase {
            StreamPhase::Buffering => {
                self.finish_buffered_response(stream, BodyType::BufferedResponse)
            }
            StreamPhase::Streaming => {
                if !self.compress_piece(b"", FlushMode::Finish) {
                    return StreamAction::Reset("sszip: the encoder failed");
                }
                stream.append_to_body_buffer(
                    BodyType::BufferedResponse,
                    &std::mem::take(&mut self.encoder_output),
                );
                self.finish_sent_response(stream, true);
                StreamAction::Continue
            }
            _ => StreamAction::Continue,
        }
    }
}

/// Whether a piece ends a body from Envoy's decompressor, which adds trailers to the last piece.
/// That piece is not marked as the last, and a filter that waits for more of the body is not called
/// again.
fn is_last_decompressed_piece(stream: EnvoyStreamHandle) -> bool {
    let trailers = stream.copy_message_head(HeaderType::ResponseTrailers);
    let is_its = |name: &[u8]| {
        let name = name.to_ascii_lowercase();
        let name = String::from_utf8_lossy(&name);
        name.contains("-decompressor-") && name.ends_with("-uncompressed-bytes")
    };
    let found = trailers.regular_headers().any(|(name, _)| is_its(name));
    found
}

/// Passes a piece of the upstream's body to the driver.
fn pass_upstream_piece_to_driver(driver: &mut ExchangeDriver, piece: &[u8]) {
    let job = driver.handle_upstream_piece(
        Some(piece),
        piece.len() as u64,
        false,
        clock::monotonic_ms(),
    );
    if let Some(job) = job {
        thread_pool::run_detached_job(job);
    }
}
