//! Response hooks of a stream.

use std::borrow::Cow;

use proxy_wasm::types::MapType;
use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{ExchangeDriver, HostStep};
use sszip_envoy_carrier::head::HostMessageHead;
use sszip_envoy_carrier::response::{self, ReceivedResponseHead};

use super::{
    StreamAction, StreamExchange, StreamPhase, RESPONSE_BUFFER, RESPONSE_DETAILS_PROPERTY,
};
use crate::abi::{self, StreamDirection, WasmContextHeaderMap};

const HEAD: WasmContextHeaderMap = WasmContextHeaderMap(MapType::HttpResponseHeaders);

/// Origin of a response of the upstream.
const UPSTREAM_DETAILS: &[u8] = b"via_upstream";

impl StreamExchange {
    /// Passes the response head to the driver, and performs the step that follows. `count`: the
    /// number of headers; `is_all`: the response has no body.
    pub fn handle_response_head(&mut self, count: usize, is_all: bool) -> StreamAction {
        self.is_complete = is_all;
        if self.phase == StreamPhase::Responding && !is_all && self.is_sent_head_unchanged(count) {
            return self.drop_misused_driver();
        }
        let received = ReceivedResponseHead::read_response_head(&HEAD, is_all);
        match self.phase {
            StreamPhase::Forwarded => {}
            StreamPhase::Responding => return self.correct_response_head(&received.head),
            _ => return self.drop_misused_driver(),
        }
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        let now = abi::read_host_clocks();
        while let Some(probe) = driver.take_node_probe(None, now.monotonic) {
            // a probe is sent when the upstream request is final
            self.probes.push(probe);
        }
        let status = received.head.status();
        let details = abi::proxy_property(RESPONSE_DETAILS_PROPERTY);
        let failure = match details == UPSTREAM_DETAILS {
            true => UpstreamFailure::Status(status),
            false => UpstreamFailure::from_envoy_local_reply(status.into(), &details),
        };
        let is_own = !matches!(failure, UpstreamFailure::Status(_));
        if is_own && response::passes_local_failure_reply(driver, failure, now.monotonic) {
            if failure != UpstreamFailure::Local {
                self.count_exchange_tally();
            }
            return self.drop_misused_driver();
        }
        let Ok(step) = received.pass_response_head_to_driver(driver, &HEAD, failure, now) else {
            return self.drop_misused_driver();
        };
        match step {
            step @ (HostStep::Pass | HostStep::Observe) => {
                self.is_observed = matches!(step, HostStep::Observe);
                self.edit_response_head();
                self.enter_stream_phase(StreamPhase::PassingBody);
                self.finish_sent_response(is_all);
                StreamAction::Continue
            }
            HostStep::Stream => {
                self.edit_response_head();
                self.enter_stream_phase(StreamPhase::Streaming);
                StreamAction::Continue
            }
            // a body is added to a response without one
            HostStep::Buffer if is_all => self.finish_buffered_response(),
            HostStep::Buffer => {
                self.phase = StreamPhase::Buffering;
                StreamAction::Stop
            }
            step => self.fail_exchange(&step),
        }
    }

    pub(super) fn edit_response_head(&self) {
        response::edit_response_head(self.driver.as_ref(), &HEAD);
    }

    /// Handles a piece of the response body: `length` bytes, buffered bytes
    /// included.
    pub fn handle_response_body(&mut self, length: usize, is_last: bool) -> StreamAction {
        self.has_body = true;
        self.is_complete = is_last;
        match self.phase {
            StreamPhase::Passing if self.is_paced => match copy_received_body(length) {
                Some(piece) => self.collect_for_next_deadline(&piece),
                None => StreamAction::Reset,
            },
            StreamPhase::Passing | StreamPhase::Reading | StreamPhase::Waiting => {
                StreamAction::Continue
            }
            StreamPhase::Purging
            | StreamPhase::Delayed
            | StreamPhase::Forwarded
            | StreamPhase::Responding => StreamAction::Continue,
            StreamPhase::PassingBody if !self.is_observed && !self.is_paced => {
                self.finish_sent_response(is_last);
                StreamAction::Continue
            }
            StreamPhase::PassingBody => {
                let Some(piece) = abi::copy_buffer(RESPONSE_BUFFER, length) else {
                    return self.stop_observing_body();
                };
                self.pass_upstream_piece_to_driver(&piece);
                if let Some(driver) = &mut self.driver {
                    // a driver that returned `Pass` does not need the piece
                    let _ = driver.handle_body_piece(&piece);
                }
                self.finish_sent_response(is_last);
                match self.is_paced {
                    true => self.collect_for_next_deadline(&piece),
                    false => StreamAction::Continue,
                }
            }
            // the end of a body may arrive without bytes
            StreamPhase::Buffering if length == 0 => self.buffer_response_piece(b"", is_last),
            StreamPhase::Buffering => {
                let Some(piece) = copy_received_body(length) else {
                    return StreamAction::Reset;
                };
                // the driver has the bytes that the proxy would buffer
                abi::replace_buffer(RESPONSE_BUFFER, b"");
                self.buffer_response_piece(&piece, is_last)
            }
            StreamPhase::Streaming => {
                let Some(piece) = copy_received_body(length) else {
                    return StreamAction::Reset;
                };
                self.pass_upstream_piece_to_driver(&piece);
                self.send_compressed_piece(&piece, is_last)
            }
        }
    }

    /// Continues after a piece that could not be copied, because memory is exhausted: a body that
    /// is sent unchanged is no longer observed.
    fn stop_observing_body(&mut self) -> StreamAction {
        match self.is_paced {
            true => StreamAction::Reset,
            false => self.drop_misused_driver(),
        }
    }

    /// Passes a piece of the upstream's body to the driver.
    fn pass_upstream_piece_to_driver(&mut self, piece: &[u8]) {
        if let Some(driver) = &mut self.driver {
            let length = piece.len() as u64;
            let job = driver.handle_upstream_piece(Some(piece), length, false, abi::monotonic_ms());
            self.root.run_job(job);
        }
    }

    /// Passes a piece of a buffered body to the driver, and performs the step that follows.
    fn buffer_response_piece(&mut self, piece: &[u8], is_last: bool) -> StreamAction {
        self.pass_upstream_piece_to_driver(piece);
        let Some(driver) = &mut self.driver else {
            return StreamAction::Reset;
        };
        let step = match piece {
            [] => Ok(HostStep::Await),
            _ => driver.handle_body_piece(piece),
        };
        match step {
            Ok(HostStep::Await) if is_last => self.finish_buffered_response(),
            Ok(HostStep::Await) => {
                self.is_buffered = true;
                self.arm_driver_deadline();
                StreamAction::Stop
            }
            Ok(HostStep::SendThenPass) => {
                self.edit_response_head();
                let mut all = self.contiguous_driver_body().into_owned();
                all.extend_from_slice(piece);
                let act = self.send_response_body(&all);
                self.enter_stream_phase(StreamPhase::PassingBody);
                self.finish_sent_response(is_last);
                act
            }
            Ok(HostStep::Stream) => {
                self.edit_response_head();
                self.enter_stream_phase(StreamPhase::Streaming);
                self.send_compressed_piece(piece, is_last)
            }
            Ok(step) => self.fail_exchange(&step),
            Err(_) => StreamAction::Reset,
        }
    }

    /// Returns the driver's body in one piece; a body of several slices is copied.
    pub(super) fn contiguous_driver_body(&self) -> Cow<'_, [u8]> {
        let exchange = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange);
        let Some(exchange) = exchange else {
            return Cow::Borrowed(&[]);
        };
        let mut slices = exchange.body_slices();
        let first = slices.next().unwrap_or_default();
        if slices.next().is_none() {
            return Cow::Borrowed(first);
        }
        let length: usize = exchange.body_slices().map(<[u8]>::len).sum();
        let mut all = Vec::with_capacity(length);
        for slice in exchange.body_slices() {
            all.extend_from_slice(slice);
        }
        Cow::Owned(all)
    }

    /// Ends a body whose head is withheld.
    fn finish_buffered_response(&mut self) -> StreamAction {
        match self.driver.as_mut().map(ExchangeDriver::handle_body_end) {
            Some(Ok(step)) => self.send_complete_response(step),
            _ => StreamAction::Reset,
        }
    }

    /// Sends the response whose body has ended, with its head.
    fn send_complete_response(&mut self, step: HostStep) -> StreamAction {
        match step {
            HostStep::RunJob(job) => match self.run_job(job) {
                Some(step) => self.send_complete_response(step),
                None => StreamAction::Reset,
            },
            HostStep::Send => {
                self.edit_response_head();
                let act = self.send_response_body(&self.contiguous_driver_body());
                self.finish_sent_response(true);
                act
            }
            HostStep::Stream => {
                self.edit_response_head();
                self.enter_stream_phase(StreamPhase::Streaming);
                self.send_compressed_piece(b"", true)
            }
            step => self.fail_exchange(&step),
        }
    }

    /// Ends the buffering window: sends the buffered body, or starts the encoder.
    pub(super) fn end_buffering_window(&mut self) {
        let act = match self.driver.as_mut().map(ExchangeDriver::end_buffering) {
            Some(Ok(HostStep::Await)) => return,
            Some(Ok(HostStep::SendThenPass)) => {
                self.edit_response_head();
                let body = self.contiguous_driver_body().into_owned();
                self.enter_stream_phase(StreamPhase::PassingBody);
                self.is_paced = true;
                self.collect_for_next_deadline(&body)
            }
            Some(Ok(HostStep::Stream)) => {
                self.edit_response_head();
                self.enter_stream_phase(StreamPhase::Streaming);
                self.is_paced = true;
                self.send_compressed_piece(b"", false)
            }
            Some(Ok(step)) => self.fail_exchange(&step),
            _ => StreamAction::Reset,
        };
        match act {
            // sent now, not at the next deadline
            StreamAction::Stop => self.send_collected_bytes(),
            act => self.perform_action_for_other_context(StreamDirection::Response, act),
        }
    }

    /// Handles the response trailers, which end the body.
    pub fn handle_response_trailers(&mut self) -> StreamAction {
        self.is_complete = true;
        match self.phase {
            StreamPhase::Buffering => self.finish_buffered_response(),
            StreamPhase::Streaming => self.send_compressed_piece(b"", true),
            StreamPhase::PassingBody => {
                self.finish_sent_response(true);
                self.delay_trailers_until_sent()
            }
            StreamPhase::Passing => self.delay_trailers_until_sent(),
            _ => StreamAction::Continue,
        }
    }
}

/// Returns the bytes of the body that have arrived, if all of them can be
/// copied.
fn copy_received_body(length: usize) -> Option<Vec<u8>> {
    abi::copy_buffer(RESPONSE_BUFFER, length).filter(|piece| piece.len() == length)
}
