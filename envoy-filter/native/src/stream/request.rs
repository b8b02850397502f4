//! Request hooks of a stream.

use std::sync::Arc;

use sszip_core::exchange::drive::{ExchangeDriver, HostStep, RequestBody};
use sszip_core::exchange::LookupRequest;
use sszip_envoy_carrier::head::MessageHead;
use sszip_envoy_carrier::lookup::RouteIdentity;
use sszip_envoy_carrier::request::{self, RequestAction, REDIRECTED_FROM};
use sszip_envoy_carrier::settings::RequestSettings;

use super::{set_dynamic_metadata, HookAction, StreamExchange, StreamPhase};
use crate::abi::{BodyType, HeaderType, LogLevel};
use crate::background::StreamBackgroundRequests;
use crate::clock;
use crate::config::FilterSettings;
use crate::envoy::{write_envoy_log, EnvoyHead, EnvoyStream};
use crate::wakeups::StreamWaiter;

impl StreamExchange {
    /// Handles the request head.
    pub fn handle_request_head(
        &mut self,
        stream: EnvoyStream,
        settings: &RequestSettings,
        filter: &FilterSettings,
        is_all: bool,
    ) -> HookAction {
        self.mark_connection_unsent(stream);
        let head = stream.copy_head(HeaderType::Request);
        if self.is_redirected_request(&head) {
            self.enter_stream_phase(StreamPhase::Forwarded);
            return HookAction::Continue;
        }
        if !settings.is_filter_active() {
            set_dynamic_metadata(stream, None);
            return HookAction::Continue;
        }
        let config = &settings.core;
        let has_ssz = config.ssz.enable;
        let updates = config.is_cache_enabled() && config.cache.may_send_background_requests();
        let Some(mut driver) = request::start_exchange(config, &head) else {
            return HookAction::Continue;
        };
        if settings.purges || settings.reports_status {
            self.driver = Some(driver);
            return match settings.purges {
                true => self.handle_purge_request(stream),
                false => self.handle_status_request(stream),
            };
        }
        if has_ssz {
            driver.load_node_capabilities(&filter.node_capabilities(stream.cluster_name()));
        }
        if has_ssz || updates {
            self.background = Some(StreamBackgroundRequests::new(&filter.background));
        }
        let length = request::announced_body_length(&head, is_all);
        let action = request::next_request_action(&mut driver, length, is_all);
        self.driver = Some(driver);
        match action {
            RequestAction::Forward => self.forward_request(stream),
            RequestAction::LookUp(body) => self.look_up_with_body(stream, body),
            RequestAction::BufferBody => {
                self.state = StreamPhase::Reading;
                self.announced = length;
                match self.buffer_request_body(stream, 0) {
                    HookAction::Buffer => HookAction::Stop,
                    act => act,
                }
            }
        }
    }

    /// Whether the request continues a redirected one, whose driver it then has.
    fn is_redirected_request(&mut self, head: &EnvoyHead) -> bool {
        self.redirected_from = head.header_value(REDIRECTED_FROM).map(<[u8]>::to_vec);
        if self.redirected_from.is_none() {
            self.release_driver();
            self.own_fields.clear();
        }
        self.driver.is_some()
    }

    /// Handles a piece of the request body, after the pieces that Envoy
    /// buffers.
    pub fn handle_request_body(&mut self, stream: EnvoyStream, is_last: bool) -> HookAction {
        match self.state {
            StreamPhase::Reading => {}
            // the piece is forwarded when the request continues
            StreamPhase::LookingUp | StreamPhase::Waiting => return HookAction::Buffer,
            // the rest of the body is not needed
            _ if self.is_response_complete()
                || matches!(
                    self.state,
                    StreamPhase::Purging | StreamPhase::ReportingStatus
                ) =>
            {
                let received = stream.body_slices(BodyType::ReceivedRequest).len();
                stream.drain_body(BodyType::ReceivedRequest, received);
                return HookAction::Stop;
            }
            _ => return HookAction::Continue,
        }
        let received = stream.body_slices(BodyType::ReceivedRequest);
        let buffered = stream.buffered_request_body(&received);
        let length = (buffered.len() + received.len()) as u64;
        // Envoy joins both parts if the stream continues now, and would reject
        // them
        stream.raise_buffer_limit(length);
        if is_last {
            let pieces: Vec<_> = buffered.iter().chain(received.iter()).collect();
            return self.look_up_joined_pieces(stream, &pieces);
        }
        self.buffer_request_body(stream, length)
    }

    /// Lets Envoy buffer the `received` bytes of the body, if the driver can
    /// reserve memory for them; otherwise the request is looked up without its
    /// body.
    fn buffer_request_body(&mut self, stream: EnvoyStream, received: u64) -> HookAction {
        let announced = self.announced;
        let driver = self.driver.as_mut();
        match driver.and_then(|driver| driver.request_buffer_allowance(received, announced)) {
            Some(bytes) => {
                stream.raise_buffer_limit(bytes);
                HookAction::Buffer
            }
            None => self.look_up_request(stream, None),
        }
    }

    /// Handles the request trailers, which end the body.
    pub fn handle_request_trailers(&mut self, stream: EnvoyStream) -> HookAction {
        match self.state {
            StreamPhase::Reading => {
                let buffered = stream.body_slices(BodyType::BufferedRequest);
                let pieces: Vec<_> = buffered.iter().collect();
                self.look_up_joined_pieces(stream, &pieces)
            }
            StreamPhase::LookingUp
            | StreamPhase::Waiting
            | StreamPhase::Purging
            | StreamPhase::ReportingStatus => HookAction::Stop,
            _ if self.is_response_complete() => HookAction::Stop,
            _ => HookAction::Continue,
        }
    }

    /// Joins the slices of the request body, and looks up the request.
    pub(super) fn look_up_joined_pieces(
        &mut self,
        stream: EnvoyStream,
        pieces: &[&[u8]],
    ) -> HookAction {
        match *pieces {
            [] => self.look_up_request(stream, Some(b"")),
            [one] => self.look_up_request(stream, Some(one)),
            _ => {
                let driver = self.driver.as_mut();
                let all = driver.and_then(|driver| driver.copy_request_body(pieces));
                self.look_up_request(stream, all.as_deref())
            }
        }
    }

    /// Looks up the request with its body. `None`: the body could not be buffered.
    pub(super) fn look_up_request(
        &mut self,
        stream: EnvoyStream,
        body: Option<&[u8]>,
    ) -> HookAction {
        self.look_up_with_body(stream, body.into())
    }

    fn look_up_with_body(&mut self, stream: EnvoyStream, body: RequestBody<'_>) -> HookAction {
        let updates = self.allows_background_update();
        let Some(driver) = &mut self.driver else {
            return HookAction::Continue;
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
            route.warn_unnamed_route(cluster, |line| write_envoy_log(LogLevel::Warn, line));
        }
        let head = stream.copy_head(HeaderType::Request);
        let now = clock::monotonic_ms();
        let can_update =
            |it: &StreamBackgroundRequests| it.can_update_in_background(stream, &head, now);
        let waiter = self.waiting.as_ref().map(StreamWaiter::core_waiter);
        let lookup = LookupRequest {
            never_anew: updates && !self.background.as_ref().is_some_and(can_update),
            ..route.lookup_request(&head, stream.local_port(), now, waiter)
        };
        match driver.lookup_under_policy(body, lookup) {
            Ok(step) => self.handle_lookup_step(stream, step),
            Err(_) => self.drop_misused_driver(),
        }
    }

    /// Performs the step that follows a lookup.
    pub(super) fn handle_lookup_step(&mut self, stream: EnvoyStream, step: HostStep) -> HookAction {
        if let HostStep::Wait = step {
            return self.wait_for_wakeup(stream);
        }
        self.waiting = None;
        match step {
            HostStep::Forward => self.forward_request(stream),
            HostStep::ForwardRewritten => {
                self.start_background_update(stream);
                self.replace_request_body(stream);
                self.forward_request(stream)
            }
            HostStep::Respond => {
                self.report_exchange(stream);
                self.start_background_update(stream);
                self.respond_in_request_order(stream)
            }
            HostStep::RunJob(job) => {
                self.state = StreamPhase::LookingUp;
                self.run_job(stream, job);
                HookAction::Stop
            }
            step @ HostStep::Fail(_) => self.fail_exchange(stream, &step),
            _ => self.drop_misused_driver(),
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
                && it.route_config().cache.may_send_background_requests()
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
            let buffered = stream.buffered_request_body(&received);
            let pieces: Vec<_> = buffered.iter().chain(received.iter()).collect();
            background.enqueue_background_update(update, stream, &pieces);
        }
    }

    /// Stops the stream until it is woken, or until the lookup times out.
    pub(super) fn wait_for_wakeup(&mut self, stream: EnvoyStream) -> HookAction {
        let scheduler = Arc::clone(self.stream_scheduler(stream));
        if let Some(waiting) = &self.waiting {
            waiting.mark_waiting(&scheduler);
        }
        self.enter_stream_phase(StreamPhase::Waiting);
        self.arm_driver_timer(stream);
        HookAction::Buffer
    }

    /// Repeats the lookup, the purge or the status request of a woken stream.
    pub(super) fn repeat_lookup(&mut self, stream: EnvoyStream) -> HookAction {
        match self.state {
            StreamPhase::Waiting => {}
            StreamPhase::Purging => return self.handle_purge_request(stream),
            StreamPhase::ReportingStatus => return self.handle_status_request(stream),
            _ => return HookAction::Stop,
        }
        let buffered = stream.body_slices(BodyType::BufferedRequest);
        let pieces: Vec<_> = buffered.iter().collect();
        self.look_up_joined_pieces(stream, &pieces)
    }

    /// Forwards the request to the upstream.
    pub(super) fn forward_request(&mut self, stream: EnvoyStream) -> HookAction {
        if let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange)
        {
            let edits = exchange.upstream_edits();
            if !edits.is_empty() {
                let head = stream.copy_head(HeaderType::Request);
                self.own_fields = head.restoring_edits(edits);
                stream.apply_head_edits(HeaderType::Request, edits);
            }
            // clients do not send requests for a target that the core chose
            if self.allows_background_update() && exchange.upstream_request_target().is_empty() {
                let background = self.background.as_ref();
                self.on_its_way =
                    background.and_then(|it| it.copy_forwarded_head(stream, clock::monotonic_ms()));
            }
        }
        self.enter_stream_phase(StreamPhase::Forwarded);
        HookAction::Continue
    }

    /// Replaces the body of the request by the core's, and its target if the core chose one.
    pub(super) fn replace_request_body(&self, stream: EnvoyStream) {
        let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange)
        else {
            return;
        };
        let target = exchange.upstream_request_target();
        if !target.is_empty() {
            stream.set_header(HeaderType::Request, ":path", Some(target));
        }
        let received = stream.body_slices(BodyType::ReceivedRequest);
        let (buffered, received) = (
            stream.buffered_request_body(&received).len(),
            received.len(),
        );
        let body = exchange.upstream_request_body();
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
