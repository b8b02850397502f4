//! Request hooks of a stream.

use std::sync::Arc;

use sszip_core::exchange::drive::{ExchangeDriver, HostStep, RequestBody};
use sszip_core::exchange::LookupRequest;
use sszip_envoy_carrier::head::MessageHead;
use sszip_envoy_carrier::lookup::RouteIdentity;
use sszip_envoy_carrier::request::{self, RequestAction, REDIRECTED_FROM};
use sszip_envoy_carrier::settings::RequestSettings;

use super::{set_dynamic_metadata, StreamAction, StreamExchange, StreamState};
use crate::abi::{BodyType, HeaderType, LogLevel};
use crate::background::StreamBackground;
use crate::clock;
use crate::config::FilterSettings;
use crate::envoy::{write_envoy_log, EnvoyHead, EnvoyStream};
use crate::wakeups::StreamWaiter;

impl StreamExchange {
    /// Handles the request head.
    pub fn request_head(
        &mut self,
        stream: EnvoyStream,
        settings: &RequestSettings,
        filter: &FilterSettings,
        is_all: bool,
    ) -> StreamAction {
        self.request_arrived(stream);
        let head = stream.copy_head(HeaderType::Request);
        if self.is_redirected(&head) {
            self.set_state(StreamState::Forwarded);
            return StreamAction::Continue;
        }
        if !settings.is_active() {
            set_dynamic_metadata(stream, None);
            return StreamAction::Continue;
        }
        let config = &settings.core;
        let has_ssz = config.ssz.enable;
        let updates = config.is_cache_enabled() && config.cache.has_background_requests();
        let Some(mut driver) = request::start_exchange(config, &head) else {
            return StreamAction::Continue;
        };
        if settings.purges || settings.reports_status {
            self.driver = Some(driver);
            return match settings.purges {
                true => self.handle_purge_request(stream),
                false => self.report_status(stream),
            };
        }
        if has_ssz {
            driver.load_node_capabilities(&filter.node_capabilities(stream.cluster_name()));
        }
        if has_ssz || updates {
            self.background = Some(StreamBackground::new(&filter.background));
        }
        let length = request::body_length(&head, is_all);
        let action = request::action(&mut driver, length, is_all);
        self.driver = Some(driver);
        match action {
            RequestAction::Forward => self.forward_request(stream),
            RequestAction::LookUp(body) => self.look_up_body(stream, body),
            RequestAction::BufferBody => {
                self.state = StreamState::Reading;
                self.announced = length;
                match self.buffer_request(stream, 0) {
                    StreamAction::Buffer => StreamAction::Stop,
                    act => act,
                }
            }
        }
    }

    /// Whether the request continues a redirected one, whose driver it then has.
    fn is_redirected(&mut self, head: &EnvoyHead) -> bool {
        self.redirected_from = head.get(REDIRECTED_FROM).map(<[u8]>::to_vec);
        if self.redirected_from.is_none() {
            self.clear_request_state();
            self.own_fields.clear();
        }
        self.driver.is_some()
    }

    /// Handles a piece of the request body, after the pieces that Envoy
    /// buffers.
    pub fn request_body(&mut self, stream: EnvoyStream, is_last: bool) -> StreamAction {
        match self.state {
            StreamState::Reading => {}
            // the piece is forwarded when the request continues
            StreamState::LookingUp | StreamState::Waiting => return StreamAction::Buffer,
            // the rest of the body is not needed
            _ if self.is_answered()
                || matches!(
                    self.state,
                    StreamState::Purging | StreamState::ReportingStatus
                ) =>
            {
                let received = stream.body_slices(BodyType::ReceivedRequest).len();
                stream.drain_body(BodyType::ReceivedRequest, received);
                return StreamAction::Stop;
            }
            _ => return StreamAction::Continue,
        }
        let received = stream.body_slices(BodyType::ReceivedRequest);
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
    fn buffer_request(&mut self, stream: EnvoyStream, received: u64) -> StreamAction {
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
    pub fn request_trailers(&mut self, stream: EnvoyStream) -> StreamAction {
        match self.state {
            StreamState::Reading => {
                let buffered = stream.body_slices(BodyType::BufferedRequest);
                let pieces: Vec<_> = buffered.iter().collect();
                self.look_up_pieces(stream, &pieces)
            }
            StreamState::LookingUp
            | StreamState::Waiting
            | StreamState::Purging
            | StreamState::ReportingStatus => StreamAction::Stop,
            _ if self.is_answered() => StreamAction::Stop,
            _ => StreamAction::Continue,
        }
    }

    /// Joins the slices of the request body, and looks up the request.
    pub(super) fn look_up_pieces(&mut self, stream: EnvoyStream, pieces: &[&[u8]]) -> StreamAction {
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

    /// Looks up the request with its body. `None`: the body could not be buffered.
    pub(super) fn look_up(&mut self, stream: EnvoyStream, body: Option<&[u8]>) -> StreamAction {
        self.look_up_body(stream, body.into())
    }

    fn look_up_body(&mut self, stream: EnvoyStream, body: RequestBody<'_>) -> StreamAction {
        let updates = self.allows_background_update();
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        let mut route = RouteIdentity::default();
        if let Some(exchange) = driver
            .available_exchange()
            .filter(|it| it.route_config().is_cache_enabled())
        {
            self.waiting
                .get_or_insert_with(StreamWaiter::new)
                .begin_lookup();
            let cluster = stream.cluster_name();
            route = RouteIdentity::new(exchange, cluster, || stream.route_name());
            route.warn_if_unnamed(cluster, |line| write_envoy_log(LogLevel::Warn, line));
        }
        let head = stream.copy_head(HeaderType::Request);
        let now = clock::monotonic_ms();
        let can_update = |it: &StreamBackground| it.can_update(stream, &head, now);
        let waiter = self.waiting.as_ref().map(StreamWaiter::core_waiter);
        let lookup = LookupRequest {
            never_anew: updates && !self.background.as_ref().is_some_and(can_update),
            ..route.lookup_request(&head, stream.local_port(), now, waiter)
        };
        match driver.lookup_under_policy(body, lookup) {
            Ok(step) => self.lookup_done(stream, step),
            Err(_) => self.drop_driver(),
        }
    }

    /// Performs the step that follows a lookup.
    pub(super) fn lookup_done(&mut self, stream: EnvoyStream, step: HostStep) -> StreamAction {
        if let HostStep::Wait = step {
            return self.wait_for_wakeup(stream);
        }
        self.waiting = None;
        match step {
            HostStep::Forward => self.forward_request(stream),
            HostStep::ForwardRewritten => {
                self.start_background_update(stream);
                self.rewrite_request(stream);
                self.forward_request(stream)
            }
            HostStep::Respond => {
                self.report_exchange(stream);
                self.start_background_update(stream);
                self.respond_in_turn(stream)
            }
            HostStep::RunJob(job) => {
                self.state = StreamState::LookingUp;
                self.run_job(stream, job);
                StreamAction::Stop
            }
            step @ HostStep::Fail(_) => self.fail_exchange(stream, &step),
            _ => self.drop_driver(),
        }
    }

    /// Whether the route is configured for background updates of its entries.
    fn allows_background_update(&self) -> bool {
        let exchange = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange);
        exchange.is_some_and(|it| {
            it.route_config().is_cache_enabled()
                && it.route_config().cache.has_background_requests()
        })
    }

    /// Starts a background update, if the driver requests one.
    fn start_background_update(&mut self, stream: EnvoyStream) {
        let update = self
            .driver
            .as_mut()
            .and_then(ExchangeDriver::take_background_update);
        if let (Some(update), Some(background)) = (update, &self.background) {
            let received = stream.body_slices(BodyType::ReceivedRequest);
            let buffered = stream.buffered_body(&received);
            let pieces: Vec<_> = buffered.iter().chain(received.iter()).collect();
            background.start_update(update, stream, &pieces);
        }
    }

    /// Stops the stream until it is woken, or until the lookup times out.
    pub(super) fn wait_for_wakeup(&mut self, stream: EnvoyStream) -> StreamAction {
        let scheduler = Arc::clone(self.stream_scheduler(stream));
        if let Some(waiting) = &self.waiting {
            waiting.mark_waiting(&scheduler);
        }
        self.set_state(StreamState::Waiting);
        self.set_timer(stream);
        StreamAction::Buffer
    }

    /// Repeats the lookup, the purge or the status request of a woken stream.
    pub(super) fn repeat_lookup(&mut self, stream: EnvoyStream) -> StreamAction {
        match self.state {
            StreamState::Waiting => {}
            StreamState::Purging => return self.handle_purge_request(stream),
            StreamState::ReportingStatus => return self.report_status(stream),
            _ => return StreamAction::Stop,
        }
        let buffered = stream.body_slices(BodyType::BufferedRequest);
        let pieces: Vec<_> = buffered.iter().collect();
        self.look_up_pieces(stream, &pieces)
    }

    /// Forwards the request to the upstream.
    pub(super) fn forward_request(&mut self, stream: EnvoyStream) -> StreamAction {
        if let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange)
        {
            let edits = exchange.upstream_edits();
            if !edits.is_empty() {
                let head = stream.copy_head(HeaderType::Request);
                self.own_fields = head.inverse_edits(edits);
                stream.edit_head(HeaderType::Request, edits);
            }
            // clients do not send requests for a target that the core chose
            if self.allows_background_update() && exchange.request_target().is_empty() {
                let background = self.background.as_ref();
                self.on_its_way =
                    background.and_then(|it| it.copy_forwarded_head(stream, clock::monotonic_ms()));
            }
        }
        self.set_state(StreamState::Forwarded);
        StreamAction::Continue
    }

    /// Replaces the body of the request by the core's, and its target if the core chose one.
    pub(super) fn rewrite_request(&self, stream: EnvoyStream) {
        let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange)
        else {
            return;
        };
        let target = exchange.request_target();
        if !target.is_empty() {
            stream.set_header(HeaderType::Request, ":path", Some(target));
        }
        let received = stream.body_slices(BodyType::ReceivedRequest);
        let (buffered, received) = (stream.buffered_body(&received).len(), received.len());
        let body = exchange.request_body();
        // in the hook for a body, append to the received bytes, otherwise to
        // the buffered ones
        let into = match received {
            0 => BodyType::BufferedRequest,
            _ => BodyType::ReceivedRequest,
        };
        stream.raise_buffer_limit((buffered + received + body.len()) as u64);
        stream.append_to_body(into, body);
        stream.drain_body(BodyType::BufferedRequest, buffered);
        stream.drain_body(BodyType::ReceivedRequest, received);
        let length = body.len().to_string();
        stream.set_header(
            HeaderType::Request,
            "content-length",
            Some(length.as_bytes()),
        );
    }
}
