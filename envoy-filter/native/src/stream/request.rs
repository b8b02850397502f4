//! Request hooks of a stream.

use std::sync::{Arc, Once};

use sszip_core::config::upstreams::route_destination;
use sszip_core::exchange::drive::{BodyLength, Driver, RequestBody, RequiredBody, Step};
use sszip_core::exchange::{LookupRequest, RequestHead};

use super::{length, set_dynamic_metadata, Exchange, State, StreamAction};
use crate::abi::{BodyType, HeaderType, LogLevel};
use crate::background::StreamBackground;
use crate::clock;
use crate::config::{FilterSettings, RequestSettings};
use crate::envoy::{log, Stream};
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
        if !settings.core.enable && !settings.purges && !settings.reports_status {
            set_dynamic_metadata(stream, None);
            return StreamAction::Continue;
        }
        let host = head.get(":authority").map(|host| (&b"host"[..], host));
        let config = &settings.core;
        let has_ssz = config.ssz.enable;
        let updates = config.caches() && config.cache.has_background_requests();
        let mut driver = Driver::new(Arc::clone(config));
        let result = driver.request_head(RequestHead {
            method: head.get(":method").unwrap_or_default(),
            target: head.get(":path").unwrap_or_default(),
            fields: host.into_iter().chain(head.plain()),
        });
        if result.is_err() {
            return StreamAction::Continue;
        }
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
        let length = match (is_all, length(&head)) {
            (true, _) => BodyLength::Known(0),
            (_, Some(length)) => BodyLength::Known(length),
            _ => BodyLength::Unknown,
        };
        let need = driver.required_body(length);
        let expects_continue = driver.expects_continue();
        self.driver = Some(driver);
        match need {
            RequiredBody::Nothing => self.forward(stream),
            RequiredBody::LookUp => self.look_up(stream, Some(b"")),
            RequiredBody::Body | RequiredBody::WholeBody if is_all => {
                self.look_up(stream, Some(b""))
            }
            // the upstream must first accept the body (`proxy_100_continue`)
            RequiredBody::Body | RequiredBody::WholeBody if expects_continue => {
                self.look_up_body(stream, RequestBody::AwaitsContinue)
            }
            RequiredBody::Body | RequiredBody::WholeBody => {
                self.state = State::Reading;
                self.announced = length;
                match self.buffer_request(stream, 0) {
                    StreamAction::Buffer => StreamAction::Stop,
                    act => act,
                }
            }
        }
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
        let (mut place, mut unnamed, mut local) = (Vec::new(), false, false);
        if let Some(exchange) = driver.exchange().filter(|it| it.config().caches()) {
            self.waiting.get_or_insert_with(Waiting::new).begin_lookup();
            let cluster = stream.cluster();
            local = cluster.is_empty();
            if !local && exchange.config().cache.namespace.is_none() {
                let route = stream.route();
                unnamed = route.is_empty();
                place = route_destination(route, cluster);
            }
        }
        if unnamed {
            warn_unnamed_route(stream.cluster());
        }
        let head = stream.head(HeaderType::Request);
        let now = clock::monotonic();
        let can_update = |it: &StreamBackground| it.can_update(stream, &head, now);
        let lookup = LookupRequest {
            place: &place,
            unnamed,
            local,
            never_anew: updates && !self.background.as_ref().is_some_and(can_update),
            host: head.get(":authority").unwrap_or_default(),
            port: stream.port(),
            now,
            coding_allowed: true,
            waiter: self.waiting.as_ref().map(Waiting::waiter),
            ..LookupRequest::default()
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

/// Logs a warning once: it is the same for all requests of a route.
fn warn_unnamed_route(cluster: &[u8]) {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        let cluster = String::from_utf8_lossy(cluster);
        let text = format!(
            "a route to the cluster \"{cluster}\" has no name, and its requests are not looked up: \
             routes with \"cache\" need a \"name\", or a \"cache_namespace\""
        );
        log(LogLevel::Warn, &text);
    });
}
