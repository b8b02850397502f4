//! Request hooks of a stream.

use std::sync::Arc;

use sszip_core::exchange::drive::{ExchangeDriver, HostStep, RequestBodyAvailability};
use sszip_core::exchange::LookupRequest;
use sszip_envoy_carrier::head::HostMessageHead;
use sszip_envoy_carrier::lookup::RouteIdentity;
use sszip_envoy_carrier::pipelining::PipelinePosition;
use sszip_envoy_carrier::request::{self, RequestAction, REDIRECTED_FROM};
use sszip_envoy_carrier::settings::RequestSettings;

use super::{set_log_variables_as_metadata, StreamAction, StreamExchange, StreamPhase};
use crate::abi::{BodyType, HeaderType, LogLevel};
use crate::background::StreamBackgroundSender;
use crate::clock;
use crate::config::FilterSettings;
use crate::envoy::{write_envoy_log, EnvoyMessageHead, EnvoyStreamHandle};
use crate::wakeups::StreamWaitGuard;

impl StreamExchange {
    /// Starts the exchange of a request, and looks it up or reads its body first. `is_all`: the
    /// request has no body.
    pub fn handle_request_head(
        &mut self,
        stream: EnvoyStreamHandle,
        settings: &RequestSettings,
        filter: &FilterSettings,
        is_all: bool,
    ) -> StreamAction {
        self.position = PipelinePosition::record_request(stream.client_connection_id());
        let head = stream.copy_message_head(HeaderType::Request);
        if self.adopt_redirected_driver(&head) {
            self.enter_stream_phase(StreamPhase::Forwarded);
            return StreamAction::Continue;
        }
        if !settings.may_handle_requests() {
            set_log_variables_as_metadata(stream, None);
            return StreamAction::Continue;
        }
        let config = &settings.core;
        let has_ssz = config.ssz.enable;
        let updates = config.is_cache_enabled() && config.cache.may_send_background_requests();
        let Some(mut driver) = request::start_exchange(config, &head) else {
            return StreamAction::Continue;
        };
        if settings.purges || settings.reports_status {
            self.driver = Some(driver);
            return match settings.purges {
                true => self.handle_purge_request(stream),
                false => self.handle_status_page_request(stream),
            };
        }
        if has_ssz {
            driver.load_node_capabilities(&filter.node_capabilities(stream.cluster_name()));
        }
        if has_ssz || updates {
            self.background = Some(StreamBackgroundSender::new(&filter.background));
        }
        let length = request::announced_body_length(&head, is_all);
        let action = request::decide_request_head_action(&mut driver, length, is_all);
        self.driver = Some(driver);
        match action {
            RequestAction::Forward => self.forward_request(stream),
            RequestAction::LookUp(body) => self.look_up_with_body(stream, body),
            RequestAction::BufferBody => {
                self.phase = StreamPhase::Reading;
                self.announced_length = length;
                match self.buffer_request_body(stream, 0) {
                    StreamAction::Buffer => StreamAction::Stop,
                    act => act,
                }
            }
        }
    }

    /// Whether the request continues a redirected one, whose driver it then has.
    fn adopt_redirected_driver(&mut self, head: &EnvoyMessageHead) -> bool {
        self.redirected_from = head.header_value(REDIRECTED_FROM).map(<[u8]>::to_vec);
        if self.redirected_from.is_none() {
            self.release_driver();
            self.restoring_edits.clear();
        }
        self.driver.is_some()
    }

    /// Handles a piece of the request body, after the pieces that Envoy
    /// buffers.
    pub fn handle_request_body(
        &mut self,
        stream: EnvoyStreamHandle,
        is_last: bool,
    ) -> StreamAction {
        match self.phase {
            StreamPhase::Reading => {}
            // the piece is forwarded when the request continues
            StreamPhase::LookingUp | StreamPhase::Waiting => return StreamAction::Buffer,
            // the rest of the body is not needed
            _ if self.has_complete_response_to_send()
                || matches!(
                    self.phase,
                    StreamPhase::Purging | StreamPhase::ReportingStatus
                ) =>
            {
                let received = stream.body_slices(BodyType::ReceivedRequest).len();
                stream.drain_body(BodyType::ReceivedRequest, received);
                return StreamAction::Stop;
            }
            _ => return StreamAction::Continue,
        }
        let received = stream.body_slices(BodyType::ReceivedRequest);
        let buffered = stream.earlier_buffered_request_body(&received);
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
    fn buffer_request_body(&mut self, stream: EnvoyStreamHandle, received: u64) -> StreamAction {
        let announced = self.announced_length;
        let driver = self.driver.as_mut();
        match driver.and_then(|driver| driver.request_buffer_allowance(received, announced)) {
            Some(bytes) => {
                stream.raise_buffer_limit(bytes);
                StreamAction::Buffer
            }
            None => self.look_up_request(stream, None),
        }
    }

    /// Handles the request trailers, which end the body.
    pub fn handle_request_trailers(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        match self.phase {
            StreamPhase::Reading => {
                let buffered = stream.body_slices(BodyType::BufferedRequest);
                let pieces: Vec<_> = buffered.iter().collect();
                self.look_up_joined_pieces(stream, &pieces)
            }
            StreamPhase::LookingUp
            | StreamPhase::Waiting
            | StreamPhase::Purging
            | StreamPhase::ReportingStatus => StreamAction::Stop,
            _ if self.has_complete_response_to_send() => StreamAction::Stop,
            _ => StreamAction::Continue,
        }
    }

    /// Joins the slices of the request body, and looks up the request.
    pub(super) fn look_up_joined_pieces(
        &mut self,
        stream: EnvoyStreamHandle,
        pieces: &[&[u8]],
    ) -> StreamAction {
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
        stream: EnvoyStreamHandle,
        body: Option<&[u8]>,
    ) -> StreamAction {
        self.look_up_with_body(stream, body.into())
    }

    /// Looks up the request under the policy of its route, and performs the step that follows.
    fn look_up_with_body(
        &mut self,
        stream: EnvoyStreamHandle,
        body: RequestBodyAvailability<'_>,
    ) -> StreamAction {
        let updates = self.allows_background_update();
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        let mut route = RouteIdentity::default();
        if let Some(exchange) = driver
            .available_exchange()
            .filter(|it| it.route_config().is_cache_enabled())
        {
            self.wait_guard
                .get_or_insert_with(StreamWaitGuard::new)
                .mark_lookup_start();
            let cluster = stream.cluster_name();
            route = RouteIdentity::new(exchange, cluster, || stream.xds_route_name());
            route.warn_unnamed_route(cluster, |line| write_envoy_log(LogLevel::Warn, line));
        }
        let head = stream.copy_message_head(HeaderType::Request);
        let now = clock::monotonic_ms();
        let can_update =
            |it: &StreamBackgroundSender| it.can_update_in_background(stream, &head, now);
        let waiter = self.wait_guard.as_ref().map(StreamWaitGuard::core_waiter);
        let lookup = LookupRequest {
            no_background_update: updates && !self.background.as_ref().is_some_and(can_update),
            ..route.stream_lookup_request(&head, stream.destination_port(), now, waiter)
        };
        match driver.lookup_under_policy(body, lookup) {
            Ok(step) => {
                self.start_background_updates(stream);
                self.handle_lookup_step(stream, step)
            }
            Err(_) => self.drop_misused_driver(),
        }
    }

    /// Performs the step that follows a lookup.
    pub(super) fn handle_lookup_step(
        &mut self,
        stream: EnvoyStreamHandle,
        step: HostStep,
    ) -> StreamAction {
        if let HostStep::Wait = step {
            return self.suspend_until_wakeup(stream);
        }
        self.wait_guard = None;
        match step {
            HostStep::Forward => self.forward_request(stream),
            HostStep::ForwardRewritten => {
                self.replace_request_body(stream);
                self.forward_request(stream)
            }
            HostStep::Respond => {
                self.report_exchange(stream);
                self.respond_in_pipeline_order(stream)
            }
            HostStep::RunJob(job) => {
                self.phase = StreamPhase::LookingUp;
                self.run_job(stream, job);
                StreamAction::Stop
            }
            step @ HostStep::Fail(_) => self.fail_exchange(stream, &step),
            _ => self.drop_misused_driver(),
        }
    }

    /// Whether the route is configured for background updates of its entries, or of parts of its
    /// responses.
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

    /// Starts the background updates that the driver requests after a lookup. Updates that can't be
    /// sent are dropped, which wakes the streams that wait for them.
    fn start_background_updates(&mut self, stream: EnvoyStreamHandle) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        while let Some(update) = driver.take_background_update() {
            let Some(background) = &self.background else {
                continue;
            };
            let received = stream.body_slices(BodyType::ReceivedRequest);
            let buffered = stream.earlier_buffered_request_body(&received);
            let pieces: Vec<_> = buffered.iter().chain(received.iter()).collect();
            background.enqueue_background_update(update, stream, &pieces);
        }
    }

    /// Stops the stream until it is woken, or until the lookup times out.
    pub(super) fn suspend_until_wakeup(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        self.begin_wait(stream, StreamPhase::Waiting);
        StreamAction::Buffer
    }

    /// Enters a phase in which the stream waits for a wakeup, or for the driver's timeout.
    pub(super) fn begin_wait(&mut self, stream: EnvoyStreamHandle, phase: StreamPhase) {
        let scheduler = Arc::clone(self.stream_scheduler(stream));
        if let Some(guard) = &self.wait_guard {
            guard.mark_waiting(&scheduler);
        }
        self.enter_stream_phase(phase);
        self.arm_driver_deadline(stream);
    }

    /// Repeats the lookup, the purge or the status request of a woken stream.
    pub(super) fn resume_woken_operation(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        match self.phase {
            StreamPhase::Waiting => {}
            StreamPhase::Purging => return self.handle_purge_request(stream),
            StreamPhase::ReportingStatus => return self.handle_status_page_request(stream),
            _ => return StreamAction::Stop,
        }
        let buffered = stream.body_slices(BodyType::BufferedRequest);
        let pieces: Vec<_> = buffered.iter().collect();
        self.look_up_joined_pieces(stream, &pieces)
    }

    /// Applies the upstream edits to the request head, and lets Envoy forward the request.
    pub(super) fn forward_request(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        if let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange)
        {
            let edits = exchange.upstream_edits();
            if !edits.is_empty() {
                let head = stream.copy_message_head(HeaderType::Request);
                self.restoring_edits = head.restoring_edits(edits);
                stream.apply_head_edits(HeaderType::Request, edits);
            }
            // clients do not send requests for a target that the core chose
            if self.allows_background_update() && exchange.upstream_request_target().is_empty() {
                let background = self.background.as_ref();
                self.head_before_router = background
                    .and_then(|it| it.copy_head_before_router(stream, clock::monotonic_ms()));
            }
        }
        self.enter_stream_phase(StreamPhase::Forwarded);
        StreamAction::Continue
    }

    /// Replaces the body of the request by the core's, and its target if the core chose one.
    pub(super) fn replace_request_body(&self, stream: EnvoyStreamHandle) {
        let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange)
        else {
            return;
        };
        let received = stream.body_slices(BodyType::ReceivedRequest);
        let (buffered, received) = (
            stream.earlier_buffered_request_body(&received).len(),
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
        stream.append_to_body_buffer(into, body);
        stream.drain_body(BodyType::BufferedRequest, buffered);
        stream.drain_body(BodyType::ReceivedRequest, received);
        request::edit_rewritten_request_head(exchange, &stream.access_headers(HeaderType::Request));
    }
}
