//! Request hooks of a stream.

use std::sync::Arc;

use sszip_core::exchange::drive::{Driver, RequestBody, Step};
use sszip_core::exchange::LookupRequest;
use sszip_envoy_carrier::head::MessageHead;
use sszip_envoy_carrier::lookup::RouteIdentity;
use sszip_envoy_carrier::request::{self, RequestAction, REDIRECTED_FROM};
use sszip_envoy_carrier::settings::RequestSettings;

use super::{set_dynamic_metadata, Exchange, State, StreamAction};
use crate::abi::{BodyType, HeaderType, LogLevel};
use crate::background::StreamBackground;
use crate::clock;
use crate::config::FilterSettings;
use crate::envoy::{log, Head, Stream};
use crate::wakeups::Waiting;

impl Exchange {
    /// Handles the request head.
    pub fn request_head(
        &mut self,
        stream: Stream,
        settings: &RequestSettings,
        filter: &FilterSettings,
        is_all: bool,
    ) -> StreamAction {
        self.request_arrived(stream);
        let head = stream.head(HeaderType::Request);
        if self.is_redirected(&head) {
            self.set_state(State::Forwarded);
            return StreamAction::Continue;
        }
        if !settings.is_active() {
            set_dynamic_metadata(stream, None);
            return StreamAction::Continue;
        }
        let config = &settings.core;
        let has_ssz = config.ssz.enable;
        let updates = config.caches() && config.cache.has_background_requests();
        let Some(mut driver) = request::start_exchange(config, &head) else {
            return StreamAction::Continue;
        };
        if settings.purges || settings.reports_status {
            self.driver = Some(driver);
            return match settings.purges {
                true => self.purge(stream),
                false => self.report_status(stream),
            };
        }
        if has_ssz {
            driver.load_node_capabilities(&filter.node_capabilities(stream.cluster()));
        }
        if has_ssz || updates {
            self.background = Some(StreamBackground::new(&filter.background));
        }
        let length = request::body_length(&head, is_all);
        let action = request::action(&mut driver, length, is_all);
        self.driver = Some(driver);
        match action {
            RequestAction::Forward => self.forward(stream),
            RequestAction::LookUp(body) => self.look_up_body(stream, body),
            RequestAction::BufferBody => {
                self.state = State::Reading;
                self.announced = length;
                match self.buffer_request(stream, 0) {
                    StreamAction::Buffer => StreamAction::Stop,
                    act => act,
                }
            }
        }
    }

    /// Whether the request continues one that was redirected.
    fn is_redirected(&mut self, head: &Head) -> bool {
        self.redirected_from = head.get(REDIRECTED_FROM).map(<[u8]>::to_vec);
        if self.redirected_from.is_none() {
            self.forget();
            self.own_fields.clear();
        }
        self.driver.is_some()
    }

    /// Handles a piece of the request body, after the pieces that Envoy
    /// buffers.
    pub fn request_body(&mut self, stream: Stream, is_last: bool) -> StreamAction {
        match self.state {
            State::Reading => {}
            // the piece is forwarded when the request continues
            State::LookingUp | State::Waiting => return StreamAction::Buffer,
            // the rest of the body is not needed
            _ if self.is_answered()
                || matches!(self.state, State::Purging | State::ReportingStatus) =>
            {
                let received = stream.pieces(BodyType::ReceivedRequest).len();
                stream.drain(BodyType::ReceivedRequest, received);
                return StreamAction::Stop;
            }
            _ => return StreamAction::Continue,
        }
        let received = stream.pieces(BodyType::ReceivedRequest);
        let buffered = stream.buffered_body(&received);
        let length = (buffered.len() + received.len()) as u64;
        // Envoy joins both parts if the stream continues now, and would reject
        // them
        stream.raise_buffer_limit(length);
        if is_last {
            let pieces: Vec<_> = buffered.iter().chain(received.iter()).collect();
            return self.look_up_pieces(stream, &pieces);
        }
        self.buffer_request(stream, length)
    }

    /// Lets Envoy buffer the `received` bytes of the body, if the driver can
    /// reserve memory for them; otherwise the request is looked up without its
    /// body.
    fn buffer_request(&mut self, stream: Stream, received: u64) -> StreamAction {
        let announced = self.announced;
        let driver = self.driver.as_mut();
        match driver.and_then(|driver| driver.buffer_allowance(received, announced)) {
            Some(bytes) => {
                stream.raise_buffer_limit(bytes);
                StreamAction::Buffer
            }
            None => self.look_up(stream, None),
        }
    }

    /// Handles the request trailers, which end the body.
    pub fn request_trailers(&mut self, stream: Stream) -> StreamAction {
        match self.state {
            State::Reading => {
                let buffered = stream.pieces(BodyType::BufferedRequest);
                let pieces: Vec<_> = buffered.iter().collect();
                self.look_up_pieces(stream, &pieces)
            }
            State::LookingUp | State::Waiting | State::Purging | State::ReportingStatus => {
                StreamAction::Stop
            }
            _ if self.is_answered() => StreamAction::Stop,
            _ => StreamAction::Continue,
        }
    }

    /// Looks up a request whose body is in several slices, as one piece.
    pub(super) fn look_up_pieces(&mut self, stream: Stream, pieces: &[&[u8]]) -> StreamAction {
        match *pieces {
            [] => self.look_up(stream, Some(b"")),
            [one] => self.look_up(stream, Some(one)),
            _ => {
                let driver = self.driver.as_mut();
                let all = driver.and_then(|driver| driver.copy_body(pieces));
                self.look_up(stream, all.as_deref())
            }
        }
    }

    /// Looks up a request. `None`: the body could not be buffered.
    pub(super) fn look_up(&mut self, stream: Stream, body: Option<&[u8]>) -> StreamAction {
        self.look_up_body(stream, body.into())
    }

    fn look_up_body(&mut self, stream: Stream, body: RequestBody<'_>) -> StreamAction {
        let updates = self.updates();
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        let mut route = RouteIdentity::default();
        if let Some(exchange) = driver.exchange().filter(|it| it.config().caches()) {
            self.waiting.get_or_insert_with(Waiting::new).begin_lookup();
            let cluster = stream.cluster();
            route = RouteIdentity::new(exchange, cluster, || stream.route());
            route.warn_if_unnamed(cluster, |line| log(LogLevel::Warn, line));
        }
        let head = stream.head(HeaderType::Request);
        let now = clock::monotonic();
        let can_update = |it: &StreamBackground| it.can_update(stream, &head, now);
        let waiter = self.waiting.as_ref().map(Waiting::waiter);
        let lookup = LookupRequest {
            never_anew: updates && !self.background.as_ref().is_some_and(can_update),
            ..route.lookup_request(&head, stream.port(), now, waiter)
        };
        match driver.lookup(body, lookup) {
            Ok(step) => self.lookup_done(stream, step),
            Err(_) => self.drop_driver(),
        }
    }

    pub(super) fn lookup_done(&mut self, stream: Stream, step: Step) -> StreamAction {
        if let Step::Wait = step {
            return self.wait(stream);
        }
        self.waiting = None;
        match step {
            Step::Forward => self.forward(stream),
            Step::ForwardRewritten => {
                self.update(stream);
                self.rewrite(stream);
                self.forward(stream)
            }
            Step::Respond => {
                self.report(stream);
                self.update(stream);
                self.answer(stream)
            }
            Step::RunJob(job) => {
                self.state = State::LookingUp;
                self.run(stream, job);
                StreamAction::Stop
            }
            step @ Step::Fail(_) => self.fail(stream, &step),
            _ => self.drop_driver(),
        }
    }

    /// Whether entries of the route may be updated in the background.
    fn updates(&self) -> bool {
        let exchange = self.driver.as_ref().and_then(Driver::exchange);
        exchange
            .is_some_and(|it| it.config().caches() && it.config().cache.has_background_requests())
    }

    /// Starts a background update, if the driver requests one.
    fn update(&mut self, stream: Stream) {
        let update = self
            .driver
            .as_mut()
            .and_then(Driver::take_background_update);
        if let (Some(update), Some(background)) = (update, &self.background) {
            let received = stream.pieces(BodyType::ReceivedRequest);
            let buffered = stream.buffered_body(&received);
            let pieces: Vec<_> = buffered.iter().chain(received.iter()).collect();
            background.update(update, stream, &pieces);
        }
    }

    /// Stops the stream until it is woken, or until the driver's timeout.
    pub(super) fn wait(&mut self, stream: Stream) -> StreamAction {
        let scheduler = Arc::clone(self.scheduler(stream));
        if let Some(waiting) = &self.waiting {
            waiting.wait(&scheduler);
        }
        self.set_state(State::Waiting);
        self.set_timer(stream);
        StreamAction::Buffer
    }

    /// Repeats the lookup of a woken stream.
    pub(super) fn repeat_lookup(&mut self, stream: Stream) -> StreamAction {
        match self.state {
            State::Waiting => {}
            State::Purging => return self.purge(stream),
            State::ReportingStatus => return self.report_status(stream),
            _ => return StreamAction::Stop,
        }
        let buffered = stream.pieces(BodyType::BufferedRequest);
        let pieces: Vec<_> = buffered.iter().collect();
        self.look_up_pieces(stream, &pieces)
    }

    /// Forwards the request to the upstream.
    pub(super) fn forward(&mut self, stream: Stream) -> StreamAction {
        if let Some(exchange) = self.driver.as_ref().and_then(Driver::exchange) {
            let edits = exchange.upstream_edits();
            if !edits.is_empty() {
                let head = stream.head(HeaderType::Request);
                self.own_fields = head.inverse_edits(edits);
                stream.edit(HeaderType::Request, edits);
            }
            // clients do not send requests for a target that the core chose
            if self.updates() && exchange.request_target().is_empty() {
                let background = self.background.as_ref();
                self.on_its_way = background.and_then(|it| it.forwards(stream, clock::monotonic()));
            }
        }
        self.set_state(State::Forwarded);
        StreamAction::Continue
    }

    /// Replaces the body of the request, and its target if the core chose one.
    pub(super) fn rewrite(&self, stream: Stream) {
        let Some(exchange) = self.driver.as_ref().and_then(Driver::exchange) else {
            return;
        };
        let target = exchange.request_target();
        if !target.is_empty() {
            stream.set(HeaderType::Request, ":path", Some(target));
        }
        let received = stream.pieces(BodyType::ReceivedRequest);
        let (buffered, received) = (stream.buffered_body(&received).len(), received.len());
        let body = exchange.request_body();
        // in the hook for a body, append to the received bytes, otherwise to
        // the buffered ones
        let into = match received {
            0 => BodyType::BufferedRequest,
            _ => BodyType::ReceivedRequest,
        };
        stream.raise_buffer_limit((buffered + received + body.len()) as u64);
        stream.append(into, body);
        stream.drain(BodyType::BufferedRequest, buffered);
        stream.drain(BodyType::ReceivedRequest, received);
        let length = body.len().to_string();
        stream.set(
            HeaderType::Request,
            "content-length",
            Some(length.as_bytes()),
        );
    }
}
