//! Response hooks of a stream.

use proxy_wasm::types::MapType;
use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::exchange::{Header, ResponseHead};

use super::{Exchange, State, StreamAction, RESPONSE};
use crate::abi::{self, digits, Head, Side};

const HEAD: MapType = MapType::HttpResponseHeaders;

/// Property with the origin of the response: the upstream, or a reason of the
/// proxy.
const DETAILS: &str = "response\0code_details";
const BY_THE_NODE: &[u8] = b"via_upstream";

/// Header that a route may add with the value `%UPSTREAM_PROTOCOL%`, since the
/// proxy does not report the upstream's protocol to filters. The filter removes
/// it.
const PROTOCOL: &str = "sszip-upstream-protocol";

impl Exchange {
    /// Handles the response head.
    pub fn response_head(&mut self, is_all: bool) -> StreamAction {
        self.is_whole = is_all;
        let mut head = Head::from_proxy(HEAD);
        let is_delimited = is_delimited(&head, is_all);
        if head.get(PROTOCOL).is_some() {
            abi::set(HEAD, PROTOCOL, None);
            head = Head::from_proxy(HEAD);
        }
        match self.state {
            State::Forwarded => {}
            State::Responding => return self.correct_response_head(&head),
            _ => return self.drop_driver(),
        }
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        let now = abi::monotonic();
        while let Some(question) = driver.take_probe(None, now) {
            // a probe is sent when the upstream request is final
            self.questions.push(question);
        }
        let response = read(&head, is_delimited);
        let details = abi::property(DETAILS);
        let failure = match details == BY_THE_NODE {
            true => UpstreamFailure::Status(response.status),
            false => UpstreamFailure::from_envoy(response.status.into(), &details),
        };
        let is_own = !matches!(failure, UpstreamFailure::Status(_));
        if is_own
            && !driver.upstream_failed(failure, now)
            && !driver.has_response_without_upstream(failure)
        {
            if failure != UpstreamFailure::Local {
                self.count();
            }
            return self.drop_driver();
        }
        let step = match driver.upstream_head(response.clone(), failure, now) {
            Ok(false) => driver.response_head(response),
            // a stored response replaces the upstream's
            Ok(true) => {
                replace_head(&head, driver);
                let head = Head::from_proxy(HEAD);
                driver.response_head(read(&head, is_delimited))
            }
            Err(misuse) => Err(misuse),
        };
        let Ok(step) = step else {
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
        if let Some(exchange) = self.driver.as_ref().and_then(Driver::exchange) {
            abi::edit(HEAD, exchange.head_edits());
            if exchange.status() != 0 {
                let status = exchange.status().to_string();
                abi::set(HEAD, ":status", Some(status.as_bytes()));
            }
        }
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

/// Converts the proxy's response head to the core's, for the driver.
pub fn read(
    head: &Head,
    delimited: bool,
) -> ResponseHead<impl Iterator<Item = Header<'_>> + Clone> {
    let status = head.get(":status").and_then(digits).unwrap_or_default();
    ResponseHead {
        status: status as u16,
        content_length: head.length(),
        fields: head.plain(),
        delimited,
        now: abi::wall(),
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
    }
}

/// Replaces the response head by the driver's head.
fn replace_head(head: &Head, driver: &Driver) {
    for (name, _) in head.plain() {
        abi::set(HEAD, &String::from_utf8_lossy(name), None);
    }
    if let Some(exchange) = driver.exchange() {
        abi::edit(HEAD, exchange.head_edits());
        let status = exchange.status().to_string();
        abi::set(HEAD, ":status", Some(status.as_bytes()));
    }
}

/// Whether the end of the body is distinguishable from an abort. It is not in
/// HTTP/1, if the body ends with the connection.
fn is_delimited(head: &Head, is_all: bool) -> bool {
    let codings = head.get("transfer-encoding").unwrap_or_default();
    is_all
        || head.length().is_some()
        || codings.to_ascii_lowercase().ends_with(b"chunked")
        || matches!(head.get(PROTOCOL), Some(b"HTTP/2" | b"HTTP/3"))
}
