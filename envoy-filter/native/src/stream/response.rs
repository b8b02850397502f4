//! Response hooks of a stream.

use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::gzip::stream::Flush;
use sszip_envoy_carrier::head::MessageHead;
use sszip_envoy_carrier::response::{self, ReceivedHead};

use super::{Exchange, State, StreamAction, TRAILERS};
use crate::abi::{BodyType, HeaderType};
use crate::envoy::Stream;
use crate::{clock, thread_pool};

impl Exchange {
    /// Handles the response head.
    pub fn response_head(&mut self, stream: Stream, is_all: bool) -> StreamAction {
        if let (None, State::Forwarded) = (self.local_reply, self.state) {
            self.observe_upstream_head(stream);
        }
        // the upstream has the request: its headers only serve access logs from
        // here on
        let own = std::mem::take(&mut self.own_fields);
        stream.edit(HeaderType::Request, &own);
        let headers = stream.headers(HeaderType::Response);
        let received = ReceivedHead::read(&headers, is_all);
        if self.state != State::Forwarded {
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
                self.count(stream);
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
            Step::Pass => {
                self.edit_head(stream);
                self.report(stream);
                self.drop_driver()
            }
            Step::Observe => {
                self.edit_head(stream);
                self.set_state(State::Observing);
                self.complete_response(stream, is_all);
                StreamAction::Continue
            }
            Step::Stream => {
                self.edit_head(stream);
                self.set_state(State::Streaming);
                StreamAction::Continue
            }
            // a body is added to a response without one
            Step::Buffer if is_all => self.end(stream, BodyType::BufferedResponse),
            Step::Buffer => {
                self.state = State::Buffering;
                StreamAction::Stop
            }
            step => self.fail(stream, &step),
        }
    }

    /// Starts probes of the node, and records the router's changes to the head,
    /// after the node responded to the request.
    fn observe_upstream_head(&mut self, stream: Stream) {
        let (Some(background), Some(driver)) = (&self.background, &mut self.driver) else {
            return;
        };
        let now = clock::monotonic();
        while let Some(inquiry) = driver.take_probe(None, now) {
            let head = stream.head(HeaderType::Request);
            background.start_probe(inquiry, stream.cluster(), &head);
        }
        if let Some(sent) = self.on_its_way.take() {
            background.forwarded(stream, sent, now);
        }
    }

    pub(super) fn edit_head(&self, stream: Stream) {
        let headers = stream.headers(HeaderType::Response);
        response::edit_head(self.driver.as_ref(), &headers);
    }

    /// Handles a piece of the response body.
    pub fn response_body(&mut self, stream: Stream, is_last: bool) -> StreamAction {
        let is_last = is_last || self.driver.is_some() && is_last_decompressed(stream);
        match self.state {
            State::Observing => {
                let pieces = stream.pieces(BodyType::ReceivedResponse);
                if let Some(driver) = &mut self.driver {
                    for piece in pieces.iter() {
                        observe_piece(driver, piece);
                        // the step of an observed piece does not matter
                        let _ = driver.piece(piece);
                    }
                }
                self.complete_response(stream, is_last);
                StreamAction::Continue
            }
            State::Buffering => self.buffer_piece(stream, is_last),
            State::Streaming => self.send(stream, is_last),
            State::Coding => StreamAction::Stop,
            _ => StreamAction::Continue,
        }
    }

    pub(super) fn buffer_piece(&mut self, stream: Stream, is_last: bool) -> StreamAction {
        let pieces = stream.pieces(BodyType::ReceivedResponse);
        if let Some(driver) = &mut self.driver {
            pieces.iter().for_each(|piece| observe_piece(driver, piece));
        }
        let mut iter = pieces.iter();
        let mut taken = 0;
        while let Some(piece) = iter.next() {
            let Some(driver) = &mut self.driver else {
                return StreamAction::Continue;
            };
            match driver.piece(piece) {
                Ok(Step::Await) => taken += piece.len(),
                Ok(Step::SendThenPass) => {
                    return self.send_then_pass(stream, taken, pieces.len() - taken, is_last);
                }
                Ok(Step::Stream) => {
                    self.edit_head(stream);
                    self.set_state(State::Streaming);
                    let rest = [piece].into_iter().chain(iter);
                    return self.stream_pieces(stream, rest, pieces.len(), is_last);
                }
                Ok(step) => return self.fail(stream, &step),
                Err(_) => {
                    return StreamAction::Reset(
                        "sszip: a piece of a buffered body was not accepted",
                    )
                }
            }
        }
        stream.drain(BodyType::ReceivedResponse, pieces.len());
        if is_last {
            return self.end(stream, BodyType::ReceivedResponse);
        }
        self.set_timer(stream);
        StreamAction::Stop
    }

    /// Sends the buffered body and the pieces that were not accepted, and
    /// passes the rest of the body unchanged.
    pub(super) fn send_then_pass(
        &mut self,
        stream: Stream,
        taken: usize,
        rest: usize,
        is_last: bool,
    ) -> StreamAction {
        self.edit_head(stream);
        stream.drain(BodyType::ReceivedResponse, taken);
        self.append_body(stream, BodyType::ReceivedResponse);
        stream.rotate_buffer(BodyType::ReceivedResponse, rest);
        self.set_state(State::Observing);
        self.complete_response(stream, is_last);
        StreamAction::Continue
    }

    /// Appends the driver's body to a buffer of Envoy, which copies it.
    pub(super) fn append_body(&mut self, stream: Stream, into: BodyType) {
        if let Some(driver) = &mut self.driver {
            driver.drain_body(|piece| stream.append(into, piece));
        }
    }

    /// Ends a body whose head is withheld, within the hook for its end.
    pub(super) fn end(&mut self, stream: Stream, into: BodyType) -> StreamAction {
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        match driver.end() {
            Ok(Step::RunJob(job)) => {
                self.set_state(State::Coding);
                self.run(stream, job);
                StreamAction::Stop
            }
            Ok(step) => self.ended(stream, step, into),
            Err(_) => StreamAction::Reset("sszip: a buffered body could not be ended"),
        }
    }

    /// Sends the response of a body that has ended.
    pub(super) fn ended(&mut self, stream: Stream, step: Step, into: BodyType) -> StreamAction {
        match step {
            Step::Send => {
                self.edit_head(stream);
                self.append_body(stream, into);
                self.complete_response(stream, true);
                StreamAction::Continue
            }
            Step::Stream => {
                self.edit_head(stream);
                self.set_state(State::Streaming);
                if !self.encode(b"", Flush::Finish) {
                    return StreamAction::Reset("sszip: the encoder failed");
                }
                stream.append(into, &std::mem::take(&mut self.written));
                self.complete_response(stream, true);
                StreamAction::Continue
            }
            step => self.fail(stream, &step),
        }
    }

    /// Handles the response trailers, which end the body.
    pub fn response_trailers(&mut self, stream: Stream) -> StreamAction {
        match self.state {
            State::Buffering | State::Streaming => {
                // the head has to be sent before bytes are added here
                self.has_trailers = true;
                // a deadline must not send it without them
                self.is_timed = false;
                self.scheduler(stream).commit(TRAILERS);
                StreamAction::Stop
            }
            State::Coding => StreamAction::Stop,
            State::Observing => {
                self.complete_response(stream, true);
                StreamAction::Continue
            }
            _ => StreamAction::Continue,
        }
    }

    pub(super) fn ends_by_trailers(&mut self, stream: Stream) -> StreamAction {
        match self.state {
            State::Buffering => self.end(stream, BodyType::BufferedResponse),
            State::Streaming => {
                if !self.encode(b"", Flush::Finish) {
                    return StreamAction::Reset("sszip: the encoder failed");
                }
                stream.append(
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

/// Whether a piece is the last one, followed only by trailers of Envoy's
/// decompressor. The decompressor adds them to the last piece, which is then
/// not marked as the last; a filter that waits for more of the body is not
/// called again.
fn is_last_decompressed(stream: Stream) -> bool {
    let trailers = stream.head(HeaderType::ResponseTrailers);
    let is_its = |name: &[u8]| {
        let name = name.to_ascii_lowercase();
        let name = String::from_utf8_lossy(&name);
        name.contains("-decompressor-") && name.ends_with("-uncompressed-bytes")
    };
    let found = trailers.plain().any(|(name, _)| is_its(name));
    found
}

/// Passes a piece of the upstream's body to the driver.
pub(super) fn observe_piece(driver: &mut Driver, piece: &[u8]) {
    let job = driver.upstream_piece(Some(piece), piece.len() as u64, false, clock::monotonic());
    if let Some(job) = job {
        thread_pool::run_detached(job);
    }
}
