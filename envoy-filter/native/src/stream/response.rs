//! The response's side of a stream.

use sszip_core::cache::stale::Failure;
use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::exchange::{Field, ResponseHead};
use sszip_core::gzip::stream::Flush;

use super::{length, number, Act, Exchange, State, TRAILERS};
use crate::abi::{BodyType, HeaderType};
use crate::envoy::{Head, Stream};
use crate::{clock, pool};

/// What a route may add, with the value `%UPSTREAM_PROTOCOL%`: of what the node speaks
/// Envoy tells filters nothing by itself. It is not sent on.
const PROTOCOL: &str = "sszip-upstream-protocol";

impl Exchange {
    /// The response's head.
    pub fn response_head(&mut self, stream: Stream, is_all: bool) -> Act {
        if let (None, State::Forwarded) = (self.local_reply, self.state) {
            self.ask_of_node(stream);
        }
        // the node has the request: from here on it is for logs
        let own = std::mem::take(&mut self.own_fields);
        stream.edit(HeaderType::Request, &own);
        let mut head = stream.head(HeaderType::Response);
        let is_delimited = is_delimited(&head, is_all);
        if head.get(PROTOCOL).is_some() {
            stream.set(HeaderType::Response, PROTOCOL, None);
            head = stream.head(HeaderType::Response);
        }
        if self.state != State::Forwarded {
            return self.give_up();
        }
        let Some(driver) = &mut self.driver else {
            return Act::Continue;
        };
        let now = clock::monotonic();
        let is_own = self.local_reply.is_some_and(|failure| {
            !driver.fails(failure, now) && !driver.answers_without_node(failure)
        });
        if is_own {
            if self.local_reply != Some(Failure::Local) {
                self.count(stream);
            }
            return self.give_up();
        }
        if let Some(elapsed) = self.since.map(|since| since.elapsed().as_micros()) {
            driver.node_answered_after(u64::try_from(elapsed).unwrap_or(u64::MAX));
        }
        let response = read(&head, is_delimited);
        let failure = self.local_reply.unwrap_or(Failure::Status(response.status));
        let step = match driver.node_head(response.clone(), failure, now) {
            Ok(false) => driver.response_head(response),
            // a stored answer takes the place of the node's
            Ok(true) => {
                replace_head(stream, &head, driver);
                let head = stream.head(HeaderType::Response);
                driver.response_head(read(&head, is_delimited))
            }
            Err(misuse) => Err(misuse),
        };
        let Ok(step) = step else {
            return self.give_up();
        };
        match step {
            // nothing is asked of the rest, and each piece of it would cost
            Step::Pass => {
                self.edit_head(stream);
                self.report(stream);
                self.give_up()
            }
            Step::Show => {
                self.edit_head(stream);
                self.becomes(State::Showing);
                self.ends(stream, is_all);
                Act::Continue
            }
            Step::Stream => {
                self.edit_head(stream);
                self.becomes(State::Streaming);
                Act::Continue
            }
            // a body is added to what had none
            Step::Hold if is_all => self.end(stream, BodyType::BufferedResponse),
            Step::Hold => {
                self.state = State::Holding;
                Act::Stop
            }
            step => self.fail(stream, &step),
        }
    }

    /// The node has answered the request, and its head is what the router has made of it:
    /// what there is to be asked of the node beside, and to be learnt of the router.
    fn ask_of_node(&mut self, stream: Stream) {
        let (Some(background), Some(driver)) = (&self.background, &mut self.driver) else {
            return;
        };
        let now = clock::monotonic();
        while let Some(inquiry) = driver.take_inquiry(None, now) {
            let head = stream.head(HeaderType::Request);
            background.inquire(inquiry, stream.cluster(), &head);
        }
        if let Some(sent) = self.on_its_way.take() {
            background.forwarded(stream, sent, now);
        }
    }

    pub(super) fn edit_head(&self, stream: Stream) {
        if let Some(exchange) = self.driver.as_ref().and_then(Driver::exchange) {
            stream.edit(HeaderType::Response, exchange.head_edits());
            if exchange.status() != 0 {
                let status = exchange.status().to_string();
                stream.set(HeaderType::Response, ":status", Some(status.as_bytes()));
            }
        }
    }

    /// A piece of the response's body.
    pub fn response_body(&mut self, stream: Stream, is_last: bool) -> Act {
        let is_last = is_last || self.driver.is_some() && is_last_decompressed(stream);
        match self.state {
            State::Showing => {
                let pieces = stream.pieces(BodyType::ReceivedResponse);
                if let Some(driver) = &mut self.driver {
                    for piece in pieces.iter() {
                        see(driver, piece);
                        // what it makes of that is its own
                        let _ = driver.piece(piece);
                    }
                }
                self.ends(stream, is_last);
                Act::Continue
            }
            State::Holding => self.hold(stream, is_last),
            State::Streaming => self.send(stream, is_last),
            State::Coding => Act::Stop,
            _ => Act::Continue,
        }
    }

    pub(super) fn hold(&mut self, stream: Stream, is_last: bool) -> Act {
        let pieces = stream.pieces(BodyType::ReceivedResponse);
        if let Some(driver) = &mut self.driver {
            pieces.iter().for_each(|piece| see(driver, piece));
        }
        let mut iter = pieces.iter();
        let mut taken = 0;
        while let Some(piece) = iter.next() {
            let Some(driver) = &mut self.driver else {
                return Act::Continue;
            };
            match driver.piece(piece) {
                Ok(Step::Await) => taken += piece.len(),
                Ok(Step::SendThenPass) => {
                    return self.send_then_pass(stream, taken, pieces.len() - taken, is_last);
                }
                Ok(Step::Stream) => {
                    self.edit_head(stream);
                    self.becomes(State::Streaming);
                    let rest = [piece].into_iter().chain(iter);
                    return self.stream_pieces(stream, rest, pieces.len(), is_last);
                }
                Ok(step) => return self.fail(stream, &step),
                Err(_) => return Act::Reset("sszip: a piece of a held body was not taken"),
            }
        }
        stream.drain(BodyType::ReceivedResponse, pieces.len());
        if is_last {
            return self.end(stream, BodyType::ReceivedResponse);
        }
        self.set_timer(stream);
        Act::Stop
    }

    /// What was held, what came and was not taken, and from here on all as it comes.
    pub(super) fn send_then_pass(
        &mut self,
        stream: Stream,
        taken: usize,
        rest: usize,
        is_last: bool,
    ) -> Act {
        self.edit_head(stream);
        stream.drain(BodyType::ReceivedResponse, taken);
        self.append_body(stream, BodyType::ReceivedResponse);
        stream.turn(BodyType::ReceivedResponse, rest);
        self.becomes(State::Showing);
        self.ends(stream, is_last);
        Act::Continue
    }

    /// Envoy copies it.
    pub(super) fn append_body(&mut self, stream: Stream, into: BodyType) {
        if let Some(driver) = &mut self.driver {
            driver.give_out(|piece| stream.append(into, piece));
        }
    }

    /// The body has ended while its head is held, within the hook that says so.
    pub(super) fn end(&mut self, stream: Stream, into: BodyType) -> Act {
        let Some(driver) = &mut self.driver else {
            return Act::Continue;
        };
        match driver.end() {
            Ok(Step::OffLoop(job)) => {
                self.becomes(State::Coding);
                self.run(stream, job);
                Act::Stop
            }
            Ok(step) => self.ended(stream, step, into),
            Err(_) => Act::Reset("sszip: a held body could not be ended"),
        }
    }

    /// What is to be sent of a body that has ended.
    pub(super) fn ended(&mut self, stream: Stream, step: Step, into: BodyType) -> Act {
        match step {
            Step::Send => {
                self.edit_head(stream);
                self.append_body(stream, into);
                self.ends(stream, true);
                Act::Continue
            }
            Step::Stream => {
                self.edit_head(stream);
                self.becomes(State::Streaming);
                if !self.encode(b"", Flush::Finish) {
                    return Act::Reset("sszip: the encoder failed");
                }
                stream.append(into, &std::mem::take(&mut self.written));
                self.ends(stream, true);
                Act::Continue
            }
            step => self.fail(stream, &step),
        }
    }

    /// The response's trailers: its body has ended without saying so.
    pub fn response_trailers(&mut self, stream: Stream) -> Act {
        match self.state {
            State::Holding | State::Streaming => {
                // the head has to go before what is added here
                self.has_trailers = true;
                // and must not go by a deadline, without that
                self.is_timed = false;
                self.scheduler(stream).commit(TRAILERS);
                Act::Stop
            }
            State::Coding => Act::Stop,
            State::Showing => {
                self.ends(stream, true);
                Act::Continue
            }
            _ => Act::Continue,
        }
    }

    pub(super) fn ends_by_trailers(&mut self, stream: Stream) -> Act {
        match self.state {
            State::Holding => self.end(stream, BodyType::BufferedResponse),
            State::Streaming => {
                if !self.encode(b"", Flush::Finish) {
                    return Act::Reset("sszip: the encoder failed");
                }
                stream.append(
                    BodyType::BufferedResponse,
                    &std::mem::take(&mut self.written),
                );
                self.ends(stream, true);
                Act::Continue
            }
            _ => Act::Continue,
        }
    }
}

/// A response's head as the driver reads it.
pub fn read(head: &Head, delimited: bool) -> ResponseHead<impl Iterator<Item = Field<'_>> + Clone> {
    let status = head.get(":status").and_then(number).unwrap_or_default();
    ResponseHead {
        status: status as u16,
        content_length: length(head),
        fields: head.plain(),
        delimited,
        now: clock::wall(),
        unbuffered: false,
        subrequest: false,
        coding_allowed: true,
        host_writes_vary: false,
    }
}

/// Envoy's decompressor adds trailers of its own to the last piece. With them that is not
/// the last one any more, and a filter that waits for more of it is never told of them.
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

/// The driver's whole head in place of the one that there is.
fn replace_head(stream: Stream, head: &Head, driver: &Driver) {
    let names: Vec<_> = head.plain().map(|(name, _)| name.to_vec()).collect();
    for name in names {
        let name = String::from_utf8_lossy(&name);
        stream.set(HeaderType::Response, &name, None);
    }
    if let Some(exchange) = driver.exchange() {
        stream.edit(HeaderType::Response, exchange.head_edits());
        let status = exchange.status().to_string();
        stream.set(HeaderType::Response, ":status", Some(status.as_bytes()));
    }
}

/// A piece as the node sent it.
pub(super) fn see(driver: &mut Driver, piece: &[u8]) {
    let job = driver.node_piece(Some(piece), piece.len() as u64, false, clock::monotonic());
    if let Some(job) = job {
        pool::run_alone(job);
    }
}

/// The body's end can be told from a break: always but with HTTP/1, where that may be the
/// connection's end.
pub fn is_delimited(head: &Head, is_all: bool) -> bool {
    let codings = head.get("transfer-encoding").unwrap_or_default();
    is_all
        || length(head).is_some()
        || codings.to_ascii_lowercase().ends_with(b"chunked")
        || matches!(head.get(PROTOCOL), Some(b"HTTP/2" | b"HTTP/3"))
}
