//! Request hooks of a stream.

use proxy_wasm::types::MapType;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, ExchangeFailureReason, HostStep, OffLoopJob,
    RequestBodyAvailability,
};
use sszip_core::exchange::LookupRequest;
use sszip_envoy_carrier::head::{EnvoyHeaderMap, HostMessageHead};
use sszip_envoy_carrier::lookup::RouteIdentity;
use sszip_envoy_carrier::pipelining::PipelinePosition;
use sszip_envoy_carrier::request::{self, RequestAction, REDIRECTED_FROM};

use super::request_inputs::RequestInputs;
use super::{StreamAction, StreamExchange, StreamPhase, REQUEST_BUFFER};
use crate::abi::{self, SerializedMessageHead, StreamDirection, WasmContextHeaderMap};
use crate::redirect;

const HEAD: WasmContextHeaderMap = WasmContextHeaderMap(MapType::HttpRequestHeaders);

impl StreamExchange {
    /// Starts the exchange of a request, and looks it up or reads its body first. `is_all`: the
    /// request has no body.
    pub fn handle_request_head(&mut self, is_all: bool) -> StreamAction {
        let root = std::rc::Rc::clone(&self.root);
        let Some(filter) = root.filter_settings() else {
            return StreamAction::Continue;
        };
        self.position =
            PipelinePosition::record_request(abi::numeric_property(CONNECTION_ID_PROPERTY));
        let head = HEAD.copy_headers();
        if self.adopt_redirected_driver(&head) {
            return StreamAction::Continue;
        }
        let settings = filter.settings_for_request();
        let settings = settings.filter(|it| it.may_handle_requests());
        let Some(settings) = settings else {
            self.set_log_variables();
            return StreamAction::Continue;
        };
        let Some(mut driver) = request::start_exchange(&settings.core, &head) else {
            return StreamAction::Continue;
        };
        if settings.purges {
            self.driver = Some(driver);
            return self.handle_purge_request();
        }
        let mut inputs = RequestInputs::new(head);
        if settings.core.ssz.enable {
            driver.load_node_capabilities(&filter.node_capabilities(inputs.cluster()));
        }
        let length = request::announced_body_length(&inputs.head, is_all);
        let action = request::decide_request_head_action(&mut driver, length, is_all);
        self.driver = Some(driver);
        match action {
            RequestAction::Forward => self.forward_request(),
            RequestAction::LookUp(body) => {
                self.inputs = inputs;
                self.look_up_with_body(body)
            }
            RequestAction::BufferBody => {
                self.inputs = inputs;
                let limit = filter.buffer_limit();
                match length {
                    BodyLength::Known(length) if length > limit => {
                        self.exceeds_body_limit(length, limit);
                        self.look_up_request(None)
                    }
                    _ => {
                        self.phase = StreamPhase::Reading;
                        StreamAction::Stop
                    }
                }
            }
        }
    }

    /// Whether the request continues a redirected one, whose driver it then takes.
    fn adopt_redirected_driver(&mut self, head: &SerializedMessageHead) -> bool {
        let ended = redirect::take_offered_driver();
        let (Some((id, driver)), Some(_)) = (ended, head.header_value(REDIRECTED_FROM)) else {
            return false;
        };
        if abi::proxy_property(abi::REQUEST_PROPERTY) != id.to_le_bytes() {
            return false;
        }
        self.driver = Some(driver);
        self.enter_stream_phase(StreamPhase::Forwarded);
        true
    }

    fn exceeds_body_limit(&mut self, length: u64, limit: u64) -> bool {
        let driver = self.driver.as_mut();
        driver.is_some_and(|driver| driver.exceeds_request_limit(length, limit))
    }

    /// Handles the request body, whose first `length` bytes have arrived,
    /// buffered bytes included.
    pub fn handle_request_body(&mut self, length: usize, is_last: bool) -> StreamAction {
        match self.phase {
            StreamPhase::Reading => {}
            StreamPhase::Waiting | StreamPhase::Purging => return StreamAction::Stop,
            // the response does not need the body, and the proxy would forward the request with it
            StreamPhase::Delayed => {
                abi::replace_buffer(REQUEST_BUFFER, b"");
                return StreamAction::Stop;
            }
            _ => {
                if !self.pending_piece.is_empty() {
                    abi::prepend_to_buffer(
                        REQUEST_BUFFER,
                        &std::mem::take(&mut self.pending_piece),
                    );
                }
                return StreamAction::Continue;
            }
        }
        if is_last {
            return self.finish_request_body(length);
        }
        match self.inputs.head.content_length() {
            Some(announced) => {
                self.body_length = length;
                match self.can_reserve_body(length, BodyLength::Known(announced)) {
                    true => StreamAction::Stop,
                    false => self.look_up_request(None),
                }
            }
            None => self.take_request_body_piece(length),
        }
    }

    /// Whether the driver can reserve memory for the bytes that have arrived.
    fn can_reserve_body(&mut self, received: usize, length: BodyLength) -> bool {
        let driver = self.driver.as_mut();
        driver.is_some_and(|driver| {
            driver
                .request_buffer_allowance(received as u64, length)
                .is_some()
        })
    }

    /// Takes a piece of a body of unknown length. The next piece may be as long
    /// as the proxy's buffer limit, so that the proxy must not buffer this one.
    fn take_request_body_piece(&mut self, length: usize) -> StreamAction {
        let limit = self
            .root
            .filter_settings()
            .map_or(0, |it| it.buffer_limit());
        let received = self.buffered_pieces.total_length() + length;
        let is_too_long = self.exceeds_body_limit(received as u64, limit / 2)
            || !self.can_reserve_body(received, BodyLength::Unknown);
        if is_too_long && self.buffered_pieces.total_length() == 0 {
            return self.look_up_request(None);
        }
        let piece = abi::copy_buffer(REQUEST_BUFFER, length).filter(|piece| piece.len() == length);
        let Some(piece) = piece.filter(|_| self.buffered_pieces.has_piece_room()) else {
            // memory is exhausted
            self.buffered_pieces.restore_to_proxy();
            return self.look_up_request(None);
        };
        abi::replace_buffer(REQUEST_BUFFER, b"");
        if is_too_long {
            self.buffered_pieces.restore_to_proxy();
            self.pending_piece = piece;
            return self.look_up_request(None);
        }
        self.buffered_pieces.push(piece);
        StreamAction::Stop
    }

    /// Completes the body, whose last `length` bytes are in the proxy's buffer.
    fn finish_request_body(&mut self, length: usize) -> StreamAction {
        self.body_length = length + self.buffered_pieces.total_length();
        if !self.buffered_pieces.restore_to_proxy() {
            return StreamAction::Reset;
        }
        self.look_up_buffered_body()
    }

    /// Looks up the request with the buffered body, or without a body if memory for it is refused.
    /// The body is kept while the request waits.
    fn look_up_buffered_body(&mut self) -> StreamAction {
        let length = self.body_length;
        let has_room = self
            .driver
            .as_mut()
            .is_some_and(|driver| driver.reserve_body_copy(length));
        if !has_room {
            return self.look_up_request(None);
        }
        let body = self.inputs.take_body(length);
        let action = self.look_up_request(body.as_deref());
        if self.phase == StreamPhase::Waiting {
            self.inputs.keep_body(body);
        }
        action
    }

    /// Handles the request trailers, which end the body.
    pub fn handle_request_trailers(&mut self) -> StreamAction {
        match self.phase {
            StreamPhase::Reading => {
                // the proxy has the bytes that the filter let it buffer
                let buffered = match self.buffered_pieces.total_length() {
                    0 => self.body_length,
                    _ => 0,
                };
                self.finish_request_body(buffered)
            }
            StreamPhase::Waiting | StreamPhase::Purging | StreamPhase::Delayed => {
                StreamAction::Stop
            }
            // the proxy has no buffer for the rest any more
            _ if !self.pending_piece.is_empty() => StreamAction::Reset,
            _ => StreamAction::Continue,
        }
    }

    /// Looks up the request with its body. `None`: the body could not be buffered.
    fn look_up_request(&mut self, body: Option<&[u8]>) -> StreamAction {
        self.look_up_with_body(body.into())
    }

    /// Looks up the request under the policy of its route, and performs the step that follows.
    fn look_up_with_body(&mut self, body: RequestBodyAvailability<'_>) -> StreamAction {
        let Some(driver) = &mut self.driver else {
            return StreamAction::Continue;
        };
        let exchange = driver.available_exchange();
        let cached = exchange.filter(|it| it.route_config().is_cache_enabled());
        let uncached = RouteIdentity::default();
        let (head, route, port, waiter) = match cached {
            Some(exchange) => {
                let (head, route, port) = self.inputs.cached_lookup_inputs(exchange);
                let waiter = self.root.lookup_waiter_of_stream(self.id);
                (head, route, port, Some(waiter))
            }
            None => (&self.inputs.head, &uncached, 0, None),
        };
        let lookup = LookupRequest {
            no_background_update: true,
            ..route.stream_lookup_request(head, port, abi::monotonic_ms(), waiter)
        };
        match driver.lookup_under_policy(body, lookup) {
            Ok(step) => self.handle_lookup_step(step),
            Err(_) => self.drop_misused_driver(),
        }
    }

    /// Runs a job at once, since the sandbox has no other thread. Returns the step that follows;
    /// `None`: there is no driver.
    pub(super) fn run_job(&mut self, mut job: OffLoopJob) -> Option<HostStep> {
        job.run_job();
        abi::expire_call_time();
        let driver = self.driver.as_mut();
        driver.map(|driver| driver.resume_after_job(job))
    }

    /// Performs the step that follows a lookup; a job runs at once.
    fn handle_lookup_step(&mut self, step: HostStep) -> StreamAction {
        match step {
            HostStep::Wait => {
                self.enter_stream_phase(StreamPhase::Waiting);
                self.arm_driver_deadline();
                StreamAction::Stop
            }
            HostStep::Forward => self.forward_request(),
            HostStep::ForwardRewritten => match self.replace_request_body() {
                true => self.forward_request(),
                false => self.fail_exchange(&HostStep::Fail(ExchangeFailureReason::Format)),
            },
            HostStep::Respond => {
                self.report_exchange();
                self.respond_in_pipeline_order()
            }
            HostStep::RunJob(job) => match self.run_job(job) {
                Some(step) => self.handle_lookup_step(step),
                None => self.drop_misused_driver(),
            },
            step @ HostStep::Fail(_) => self.fail_exchange(&step),
            _ => self.drop_misused_driver(),
        }
    }

    /// Repeats the lookup or the purge of a woken stream.
    pub(super) fn resume_woken_operation(&mut self) {
        let act = match self.phase {
            StreamPhase::Waiting => self.look_up_buffered_body(),
            StreamPhase::Purging => self.handle_purge_request(),
            StreamPhase::Delayed => StreamAction::Respond,
            _ => return,
        };
        self.perform_action_for_other_context(StreamDirection::Request, act);
    }

    /// Applies the upstream edits to the request head, and lets the proxy forward the request.
    fn forward_request(&mut self) -> StreamAction {
        self.inputs = RequestInputs::default();
        if let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange)
        {
            HEAD.apply_edits(exchange.upstream_edits());
        }
        self.enter_stream_phase(StreamPhase::Forwarded);
        StreamAction::Continue
    }

    /// Replaces the body of the request by the core's, and its target if the core chose one.
    /// `false`: the proxy has no buffer for the body, as for a request that had none.
    fn replace_request_body(&self) -> bool {
        let Some(exchange) = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange)
        else {
            return false;
        };
        let body = exchange.upstream_request_body();
        let limit = self
            .root
            .filter_settings()
            .map_or(0, |it| it.buffer_limit());
        if body.len() as u64 > limit || !abi::replace_buffer(REQUEST_BUFFER, body) {
            return false;
        }
        request::edit_rewritten_request_head(exchange, &HEAD);
        true
    }
}

const CONNECTION_ID_PROPERTY: &str = "connection\0id";
