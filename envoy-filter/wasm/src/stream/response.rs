//! Response hooks of a stream.

use proxy_wasm::types::MapType;
use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{Driver, Step};
use sszip_envoy_carrier::head::MessageHead;
use sszip_envoy_carrier::response::{self, Now, ReceivedHead};

use super::{Exchange, State, StreamAction, RESPONSE};
use crate::abi::{self, ContextHeaders, Side};

const HEAD: ContextHeaders = ContextHeaders(MapType::HttpResponseHeaders);

/// Property with the origin of the response: the upstream, or a reason of the
/// proxy.
const DETAILS: &str = "response\0code_details";
const BY_THE_NODE: &[u8] = b"via_upstream";

impl Exchange {
    /// Handles the response head.
    pub fn response_head(&mut self, is_all: bool) -> StreamAction {
        self.is_whole = is_all;
        let received = ReceivedHead::read(&HEAD, is_all);
        match self.state {
            State::Forwarded => {}
            State::Responding => return self.correct_response_head(&received.head),
            _ => return self.drop_driver(),
        }
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        let now = Now {
            monotonic: abi::monotonic(),
            wall: abi::wall(),
        };
        while let Some(question) = driver.take_probe(None, now.monotonic) {
            // a probe is sent when the upstream request is final
            self.questions.push(question);
        }
        let status = received.head.status();
        let details = abi::property(DETAILS);
        let failure = match details == BY_THE_NODE {
            true => UpstreamFailure::Status(status),
            false => UpstreamFailure::from_envoy(status.into(), &details),
        };
        let is_own = !matches!(failure, UpstreamFailure::Status(_));
        if is_own && response::passes_failure(driver, failure, now.monotonic) {
            if failure != UpstreamFailure::Local {
                self.count();
            }
            return self.drop_driver();
        }
        let Ok(step) = received.process(driver, &HEAD, failure, now) else {
            return self.drop_driver();
        };
        match step {
            step @ (Step::Pass | Step::Observe) => {
                self.is_shown = matches!(step, Step::Observe);
                self.edit_head();
                self.set_state(State::Showing);
                self.complete_response(is_all);
                StreamAction::Continue
            }
            Step::Stream => {
                self.edit_head();
                self.set_state(State::Streaming);
                StreamAction::Continue
            }
            // a body is added to a response without one
            Step::Buffer if is_all => self.end(),
            Step::Buffer => {
                self.state = State::Holding;
                StreamAction::Stop
            }
            step => self.fail(&step),
        }
    }

    pub(super) fn edit_head(&self) {
        response::edit_head(self.driver.as_ref(), &HEAD);
    }

    /// Handles a piece of the response body: `length` bytes, buffered bytes
    /// included.
    pub fn response_body(&mut self, length: usize, is_last: bool) -> StreamAction {
        self.has_body = true;
        self.is_whole = is_last;
        match self.state {
            State::Passing if self.is_paced => match whole(length) {
                Some(piece) => self.pace(&piece),
                None => StreamAction::Reset,
            },
            State::Passing | State::Reading | State::Waiting => StreamAction::Continue,
            State::Purging | State::Forwarded | State::Responding => StreamAction::Continue,
            State::Showing if !self.is_shown && !self.is_paced => {
                self.complete_response(is_last);
                StreamAction::Continue
            }
            State::Showing => {
                let Some(piece) = abi::buffer(RESPONSE, length) else {
                    return self.pass_unobserved();
                };
                self.observe_piece(&piece);
                if let Some(driver) = &mut self.driver {
                    // a driver that returned `Pass` does not need the piece
                    let _ = driver.piece(&piece);
                }
                self.complete_response(is_last);
                match self.is_paced {
                    true => self.pace(&piece),
                    false => StreamAction::Continue,
                }
            }
            State::Holding => {
                let Some(piece) = whole(length) else {
                    return StreamAction::Reset;
                };
                // the driver has the bytes that the proxy would buffer
                abi::replace_buffer(RESPONSE, b"");
                self.buffer_piece(&piece, is_last)
            }
            State::Streaming => {
                let Some(piece) = whole(length) else {
                    return StreamAction::Reset;
                };
                self.observe_piece(&piece);
                self.stream(&piece, is_last)
            }
        }
    }

    /// Handles exhausted memory for a piece: a body that is sent unchanged is
    /// no longer observed.
    fn pass_unobserved(&mut self) -> StreamAction {
        match self.is_paced {
            true => StreamAction::Reset,
            false => self.drop_driver(),
        }
    }

    /// Passes a piece of the upstream's body to the driver.
    fn observe_piece(&mut self, piece: &[u8]) {
        if let Some(driver) = &mut self.driver {
            let length = piece.len() as u64;
            let job = driver.upstream_piece(Some(piece), length, false, abi::monotonic());
            self.root.run(job);
        }
    }

    fn buffer_piece(&mut self, piece: &[u8], is_last: bool) -> StreamAction {
        self.observe_piece(piece);
        let Some(driver) = &mut self.driver else {
            return StreamAction::Reset;
        };
        // the end of a body may arrive without bytes
        let step = match piece {
            [] => Ok(Step::Await),
            _ => driver.piece(piece),
        };
        match step {
            Ok(Step::Await) if is_last => self.end(),
            Ok(Step::Await) => {
                self.is_buffered = true;
                self.set_timer();
                StreamAction::Stop
            }
            Ok(Step::SendThenPass) => {
                self.edit_head();
                let mut all = self.body();
                all.extend_from_slice(piece);
                let act = self.send(&all);
                self.set_state(State::Showing);
                self.complete_response(is_last);
                act
            }
            Ok(Step::Stream) => {
                self.edit_head();
                self.set_state(State::Streaming);
                self.stream(piece, is_last)
            }
            Ok(step) => self.fail(&step),
            Err(_) => StreamAction::Reset,
        }
    }

    /// Returns the driver's body in one piece.
    pub(super) fn body(&self) -> Vec<u8> {
        let exchange = self.driver.as_ref().and_then(Driver::exchange);
        let mut all = Vec::new();
        for piece in exchange.into_iter().flat_map(|it| it.body()) {
            all.extend_from_slice(piece);
        }
        all
    }

    /// Ends a body whose head is withheld.
    fn end(&mut self) -> StreamAction {
        match self.driver.as_mut().map(Driver::end) {
            Some(Ok(step)) => self.ended(step),
            _ => StreamAction::Reset,
        }
    }

    /// Sends the response of a body that has ended.
    fn ended(&mut self, step: Step) -> StreamAction {
        match step {
            Step::RunJob(mut job) => {
                job.run();
                match self.driver.as_mut().map(|driver| driver.job_done(job)) {
                    Some(step) => self.ended(step),
                    None => StreamAction::Reset,
                }
            }
            Step::Send => {
                self.edit_head();
                let body = self.body();
                let act = self.send(&body);
                self.complete_response(true);
                act
            }
            Step::Stream => {
                self.edit_head();
                self.set_state(State::Streaming);
                self.stream(b"", true)
            }
            step => self.fail(&step),
        }
    }

    /// Ends the buffering window.
    pub(super) fn release(&mut self) {
        let act = match self.driver.as_mut().map(Driver::end_buffering) {
            Some(Ok(Step::Await)) => return,
            Some(Ok(Step::SendThenPass)) => {
                self.edit_head();
                let body = self.body();
                self.set_state(State::Showing);
                self.is_paced = true;
                self.pace(&body)
            }
            Some(Ok(Step::Stream)) => {
                self.edit_head();
                self.set_state(State::Streaming);
                self.is_paced = true;
                self.stream(b"", false)
            }
            Some(Ok(step)) => self.fail(&step),
            _ => StreamAction::Reset,
        };
        match act {
            // sent now, not at the next deadline
            StreamAction::Stop => self.send_paced(),
            act => self.perform_later(Side::Response, act),
        }
    }

    /// Handles the response trailers, which end the body.
    pub fn response_trailers(&mut self) -> StreamAction {
        self.is_whole = true;
        match self.state {
            State::Holding => self.end(),
            State::Streaming => self.stream(b"", true),
            State::Showing => {
                self.complete_response(true);
                self.pace_trailers()
            }
            State::Passing => self.pace_trailers(),
            _ => StreamAction::Continue,
        }
    }
}

/// Returns the bytes of the body that have arrived, if all of them can be
/// copied.
fn whole(length: usize) -> Option<Vec<u8>> {
    abi::buffer(RESPONSE, length).filter(|piece| piece.len() == length)
}
