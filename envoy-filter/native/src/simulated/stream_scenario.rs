//! One stream with the events of its client and its node.

use std::sync::Arc;
#[cfg(test)]
use std::sync::{Mutex, Weak};

use sszip_core::gzip::inflate::gunzip_reserved;

use super::config::SimulatedMainThread;
use super::event_choices::EventChoices;
use super::node::{self, NodeCondition, SimulatedRequest};
use super::primitives::{first_header_value, make_header_lines, take_events, EventQueue};
use super::stream;
use super::stream_state::{borrow_stream, is_stream_over, stream_cell, SimulatedStreamState};
use crate::abi::FilterPtr;

/// The script of a simulated stream: the remaining events of its client and its node.
pub struct StreamScenario {
    stream: FilterPtr,
    request: SimulatedRequest,
    /// Pieces of the request, and whether another filter has buffered them.
    request_pieces: Vec<Vec<u8>>,
    is_same: bool,
    with_trailers: bool,
    sent_head: bool,
    sent_all: bool,
    /// Remaining pieces of the response, in reverse, and the number of pieces
    /// after which it is truncated.
    answer: Option<Vec<Vec<u8>>>,
    cut_after: Option<usize>,
    answered: usize,
    with_length: bool,
    /// The node responds before it has the whole request.
    is_early: bool,
    /// The node redirects the client, and the router follows.
    redirects: bool,
    leaves: bool,
}

impl StreamScenario {
    pub fn new(chance: &mut EventChoices<'_>, main: &SimulatedMainThread) -> Self {
        let request = main.choose_request(chance);
        let (method, path) = request.method_and_path();
        let body = request.request_body();
        let length = body.len().to_string();
        let mut head = vec![(":method", method), (":path", &path), (":authority", "a")];
        if !body.is_empty() {
            head.push(("content-type", "application/json"));
            if chance.choose_below(2) == 0 {
                head.push(("content-length", &length));
            }
        }
        if chance.choose_below(3) > 0 {
            head.push(("accept-encoding", "gzip"));
        }
        if let (SimulatedRequest::State(_), 0..=1) = (&request, chance.choose_below(3)) {
            head.push(("accept", "application/octet-stream, application/json;q=0.9"));
        }
        let route = match request {
            SimulatedRequest::Purge(_) => Some(main.purging_route()),
            SimulatedRequest::Logs { .. } | SimulatedRequest::LogsBatch { .. } => {
                Some(main.log_route())
            }
            _ => main.choose_random_route(chance),
        };
        let stream = stream::start_simulated_stream(SimulatedStreamState {
            config: Some(main.filter_for_new_streams()),
            route,
            request: make_header_lines(head),
            limit: chance.choose_from(&[100, 1 << 20]),
            is_slow: chance.choose_below(2) == 0,
            ..SimulatedStreamState::default()
        });
        Self {
            stream,
            request_pieces: chance.split_into_random_pieces(body.as_bytes()),
            request,
            is_same: chance.choose_below(4) == 0,
            with_trailers: chance.choose_below(4) == 0,
            sent_head: false,
            sent_all: false,
            answer: None,
            cut_after: (chance.choose_below(5) == 0).then(|| chance.choose_below(8)),
            answered: 0,
            with_length: chance.choose_below(2) == 0,
            is_early: chance.choose_below(2) == 0,
            redirects: chance.draw_one_in(8),
            leaves: chance.choose_below(4) == 0,
        }
    }

    pub fn is_over(&self) -> bool {
        is_stream_over(self.stream)
    }

    /// Performs the next possible event. Returns whether there was one.
    pub fn run_next_event(&mut self, chance: &mut EventChoices<'_>) -> bool {
        let stream = self.stream;
        // events wait while more of the stream arrives
        let events = match chance.draw_one_in(4) {
            true => Vec::new(),
            false => take_events(&self.event_queue()),
        };
        for event in &events {
            stream::deliver_scheduled_event(stream, *event);
            if self.is_over() {
                return true;
            }
        }
        if stream::deliver_low_watermark(stream) {
            return true;
        }
        if self.leaves && chance.choose_below(12) == 0 {
            borrow_stream(stream).was_broken = true;
            stream::end_stream(stream);
            return true;
        }
        match chance.choose_below(2) {
            0 => {
                self.run_request_event(chance)
                    || self.run_response_event(chance)
                    || !events.is_empty()
            }
            _ => {
                self.run_response_event(chance)
                    || self.run_request_event(chance)
                    || !events.is_empty()
            }
        }
    }

    fn event_queue(&self) -> EventQueue {
        Arc::clone(&stream_cell(self.stream).borrow().events)
    }

    fn run_request_event(&mut self, chance: &mut EventChoices<'_>) -> bool {
        let stream = self.stream;
        if !self.sent_head {
            self.sent_head = true;
            self.sent_all = self.request_pieces.is_empty();
            stream::deliver_request_head(stream, self.sent_all);
            return true;
        }
        if self.sent_all {
            return false;
        }
        if self.request_pieces.is_empty() {
            self.sent_all = true;
            match chance.choose_below(2) {
                0 => stream::deliver_request_data(stream, Vec::new(), true, false),
                _ => stream::deliver_request_trailers(stream),
            }
            return true;
        }
        // another filter has buffered the whole body
        let is_same = std::mem::take(&mut self.is_same);
        let piece = match is_same {
            true => std::mem::take(&mut self.request_pieces).concat(),
            false => self.request_pieces.remove(0),
        };
        self.sent_all = self.request_pieces.is_empty() && !self.with_trailers;
        stream::deliver_request_data(stream, piece, self.sent_all, is_same);
        true
    }

    fn run_response_event(&mut self, chance: &mut EventChoices<'_>) -> bool {
        let stream = self.stream;
        let upstream_ended = {
            let world = borrow_stream(stream);
            if world.upstream_request.is_none()
                || !(world.upstream_ended || self.is_early)
                || world.response_ended
            {
                return false;
            }
            world.upstream_ended
        };
        if upstream_ended && self.answered == 0 && std::mem::take(&mut self.redirects) {
            stream::follow_internal_redirect(stream);
            return true;
        }
        let at = self.answered;
        self.answered += 1;
        if self.cut_after == Some(at) {
            match at {
                0 => {
                    let text = chance.choose_from(&["", "no healthy upstream"]);
                    stream::respond_for_failed_node(stream, 503, text.into());
                }
                _ => stream::send_local_reply(stream, 503),
            }
            return true;
        }
        let Some(left) = &mut self.answer else {
            let answer = {
                let world = borrow_stream(stream);
                let head = world.upstream_request.as_ref().expect("it was asked");
                let own = self.request.request_body();
                let body = match upstream_ended {
                    true => &world.upstream_body[..],
                    false => own.as_bytes(),
                };
                node::node_response(head, body, NodeCondition::Healthy)
            };
            let mut pieces = chance.split_into_random_pieces(&answer.body);
            pieces.reverse();
            self.answer = Some(pieces);
            stream::deliver_response_head(stream, answer.response_headers(self.with_length), false);
            return true;
        };
        match left.pop() {
            Some(piece) => stream::deliver_response_data(stream, piece, false),
            None if self.with_trailers && !self.with_length => {
                stream::deliver_response_trailers(stream);
            }
            None => stream::deliver_response_data(stream, Vec::new(), true),
        }
        true
    }

    /// Asserts that the client received the right response.
    pub fn check_response(&self) {
        let world = stream_cell(self.stream).borrow();
        assert!(world.is_destroyed);
        let is_cut = self.cut_after.is_some();
        if world.was_broken {
            assert!(self.leaves || is_cut, "broken off");
            return;
        }
        assert!(world.has_ended);
        let head = world.head.as_ref().expect("it has one");
        let status = first_header_value(head, ":status").unwrap_or_default();
        if status != b"200" {
            let is_right = match self.request {
                // there is no owner
                SimulatedRequest::Purge(_) => status == b"503",
                _ => is_cut && matches!(status, b"502" | b"503"),
            };
            let body = world.body.escape_ascii();
            assert!(is_right, "{} {body}", status.escape_ascii());
            return;
        }
        let length = world.body.len().to_string();
        let content_length = first_header_value(head, "content-length");
        assert!(content_length.is_none_or(|value| value == length.as_bytes()));
        let plain = match first_header_value(head, "content-encoding") {
            Some(_) => gunzip_reserved(&world.body, 1 << 24).expect("it is gzip"),
            None => world.body.clone(),
        };
        self.request.assert_response_matches(head, &plain);
        let cached =
            String::from_utf8_lossy(first_header_value(head, "cache-status").unwrap_or_default());
        assert!(
            !cached.contains("malformed"),
            "the request was not what it is"
        );
    }

    /// Whether the client received a response that was assembled from pieces, some fetched for it.
    #[cfg(test)]
    pub fn has_assembled_response(&self) -> bool {
        let world = stream_cell(self.stream).borrow();
        let head = world.head.as_ref().filter(|_| world.has_ended);
        let status = head.and_then(|head| first_header_value(head, "cache-status"));
        world.upstream_request.is_none() && status == Some(&b"sszip; fwd=miss"[..])
    }

    /// Whether the request is a batch of calls for logs.
    #[cfg(test)]
    pub fn is_log_batch(&self) -> bool {
        matches!(self.request, SimulatedRequest::LogsBatch { .. })
    }

    /// Events of the stream's schedulers, as long as there are any.
    #[cfg(test)]
    pub fn remaining_events(&self) -> Weak<Mutex<Vec<u64>>> {
        Arc::downgrade(&self.event_queue())
    }
}

impl Drop for StreamScenario {
    fn drop(&mut self) {
        if !self.is_over() {
            // the worker has panicked
            return;
        }
        stream::free_simulated_stream(self.stream);
    }
}
