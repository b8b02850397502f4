//! The exchange of one stream: passes the proxy's calls to the core's driver,
//! and executes the driver's steps. It makes no decisions.

mod body_pieces;
mod purge;
mod request;
mod request_inputs;
mod response;
mod response_sender;

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::types::{Action, BufferType, MapType};
use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{ExchangeDriver, ExchangeFailureReason, HostStep};
use sszip_core::log_variable::LogVariable;
use sszip_envoy_carrier::head::HostMessageHead;
use sszip_envoy_carrier::pipelining::PipelinePosition;
use sszip_envoy_carrier::purge::abandoned_purge_line;

use self::body_pieces::RequestBodyPieces;
use self::request_inputs::RequestInputs;
use crate::abi::{self, LogLevel, SerializedMessageHead, StreamDirection};
use crate::config::FilterSettings;
use crate::redirect;
use crate::root::{FilterRoot, ResumableStream};
use crate::timers::RootTimerAction;

/// The action that a hook of the proxy has on its stream.
pub enum StreamAction {
    /// Continue the stream.
    Continue,
    /// Stop the stream until more of it arrives or another event occurs.
    Stop,
    /// Send the driver's response in place of any other.
    Respond,
    /// Respond with 502, since there is no response to send.
    Fail(ExchangeFailureReason),
    /// Reset the stream, because its response cannot be completed.
    Reset,
}

/// The phase of a stream between two calls of the proxy: reading, waiting, forwarded, buffering,
/// streaming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamPhase {
    /// The exchange takes no part in the stream.
    Passing,
    /// The request body is being buffered.
    Reading,
    /// A lookup is in progress, or another request fetches the response.
    Waiting,
    /// A purge is in progress.
    Purging,
    /// The request was forwarded, and the response head is awaited.
    Forwarded,
    /// The driver's response waits for a call of the root.
    Delayed,
    /// The driver's response is being sent.
    Responding,
    /// The response body is passed on, and observed if the driver needs it.
    PassingBody,
    /// The response head is withheld, and the body is buffered in the driver.
    Buffering,
    /// The response body passes through the encoder.
    Streaming,
}

/// The stream context that the proxy-wasm SDK owns; it passes the SDK's calls to a
/// [`StreamExchange`].
pub struct SdkStreamContext {
    pub id: u32,
    pub root: Rc<FilterRoot>,
    exchange: Rc<RefCell<StreamExchange>>,
}

/// The filter's work on one stream: the driver of its exchange, its phase, deadline and unsent
/// bytes.
#[derive(Debug)]
pub struct StreamExchange {
    id: u32,
    root: Rc<FilterRoot>,
    phase: StreamPhase,
    /// Position of the request on its connection.
    position: PipelinePosition,
    driver: Option<ExchangeDriver>,
    /// Inputs of the lookup, until the request is forwarded or has its response.
    inputs: RequestInputs,
    /// Number of the last deadline.
    timer: u64,
    /// The deadline is set and has not passed.
    is_timed: bool,
    /// Number of bytes of the request body that have arrived.
    body_length: usize,
    /// Pieces of a request body of unknown length, which the proxy must not buffer: together with
    /// a long piece they would exceed its buffer limit.
    buffered_pieces: RequestBodyPieces,
    /// Piece that follows `buffered_pieces`, and is forwarded with the next one.
    pending_piece: Vec<u8>,
    /// The proxy buffers the response body, up to its limit.
    is_buffered: bool,
    /// A deadline has resumed the response. From here on the proxy would buffer
    /// bytes that a hook lets pass, so that all of them are sent by deadlines.
    is_paced: bool,
    /// Bytes of a paced response that wait for the next deadline.
    paced_bytes: Vec<u8>,
    /// Probes to send to the node.
    probes: Vec<ExchangeDriver>,
    /// The response has a body, whose bytes can be replaced.
    has_body: bool,
    /// The response is complete.
    is_complete: bool,
    /// The driver observes the body, which is sent unchanged.
    is_observed: bool,
}

impl SdkStreamContext {
    /// Creates the exchange of a stream context.
    pub fn new(id: u32, root: &Rc<FilterRoot>) -> Self {
        let exchange = StreamExchange {
            id,
            root: Rc::clone(root),
            phase: StreamPhase::Passing,
            position: PipelinePosition::default(),
            driver: None,
            inputs: RequestInputs::default(),
            timer: 0,
            is_timed: false,
            body_length: 0,
            buffered_pieces: RequestBodyPieces::default(),
            pending_piece: Vec::new(),
            is_buffered: false,
            is_paced: false,
            paced_bytes: Vec::new(),
            probes: Vec::new(),
            has_body: false,
            is_complete: false,
            is_observed: false,
        };
        let exchange = Rc::new(RefCell::new(exchange));
        let root = Rc::clone(root);
        let stream = Rc::downgrade(&exchange);
        root.register_filter_stream(id, stream);
        Self { id, root, exchange }
    }

    /// Runs a hook of the stream, and then resumes other streams that it has woken.
    pub fn run_hook(&mut self, call: impl FnOnce(&mut StreamExchange) -> StreamAction) -> Action {
        self.root.begin_proxy_call(true);
        let action = {
            let mut exchange = self.exchange.borrow_mut();
            let act = call(&mut exchange);
            exchange.perform_hook_action(act)
        };
        self.root.finish_proxy_call(self.id);
        action
    }

    /// Ends the exchange of a complete stream, and reports it before the proxy writes its access
    /// log.
    pub fn finish_and_report_exchange(&mut self) {
        let mut exchange = self.exchange.borrow_mut();
        if exchange.phase == StreamPhase::Purging {
            let head = SerializedMessageHead::from_proxy(MapType::HttpRequestHeaders);
            abi::write_proxy_log(LogLevel::Warn, &abandoned_purge_line(head.query()));
        }
        exchange.finish_exchange();
        exchange.enqueue_probes();
    }

    /// Releases the exchange of a stream that has ended.
    pub fn release_stream(&mut self) {
        let mut exchange = self.exchange.borrow_mut();
        exchange.offer_driver_to_redirect();
        exchange.enter_stream_phase(StreamPhase::Passing);
        exchange.release_driver();
        drop(exchange);
        self.root.remove_filter_stream(self.id);
    }
}

impl StreamExchange {
    /// Performs an action within a call for this stream, and returns the action for the proxy.
    fn perform_hook_action(&mut self, act: StreamAction) -> Action {
        match act {
            StreamAction::Continue => return Action::Continue,
            StreamAction::Stop => {}
            StreamAction::Respond => self.send_driver_response(),
            StreamAction::Fail(reason) => {
                let no_headers = std::iter::empty();
                abi::send_local_response(502, no_headers, b"", reason.reason_name());
            }
            StreamAction::Reset => abi::reset_stream(),
        }
        Action::Pause
    }

    /// Performs an action within a call for another context.
    fn perform_action_for_other_context(&mut self, side: StreamDirection, act: StreamAction) {
        if let Action::Continue = self.perform_hook_action(act) {
            abi::resume_stream(side);
        }
    }

    /// Reports a finished exchange to access logs and metrics.
    fn report_exchange(&mut self) {
        if self.driver.is_some() {
            self.set_log_variables();
            self.count_exchange_tally();
        }
    }

    /// Sets the log variables of the exchange as properties, which access logs print:
    /// `%FILTER_STATE(wasm.sszip.mode:PLAIN)%`. Without access logs they can be switched off, because
    /// each is a call of the proxy and a value that the proxy frees with the request.
    fn set_log_variables(&self) {
        let settings = self.root.filter_settings();
        if !settings.is_some_and(FilterSettings::has_log_variables) {
            return;
        }
        let exchange = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::available_exchange);
        for variable in LogVariable::ALL {
            if let Some(text) = variable.log_text(exchange) {
                abi::set_log_property(log_property(variable), &text);
            }
        }
    }

    fn count_exchange_tally(&mut self) {
        let tally = self
            .driver
            .as_mut()
            .and_then(|driver| driver.take_exchange_tally(None));
        if let Some(tally) = tally {
            self.root.count_exchange(&tally);
        }
    }

    /// Drops the driver after a misuse; the stream continues without it.
    fn drop_misused_driver(&mut self) -> StreamAction {
        self.enter_stream_phase(StreamPhase::Passing);
        self.release_driver();
        StreamAction::Continue
    }

    /// Ends the exchange with a local reply for its failure reason; any other step resets the
    /// stream.
    fn fail_exchange(&mut self, step: &HostStep) -> StreamAction {
        self.enter_stream_phase(StreamPhase::Passing);
        self.report_exchange();
        match step {
            HostStep::Fail(reason) => StreamAction::Fail(*reason),
            _ => StreamAction::Reset,
        }
    }

    fn release_driver(&mut self) {
        self.driver = None;
    }

    /// Changes the phase, and cancels the deadline of the previous one.
    fn enter_stream_phase(&mut self, phase: StreamPhase) {
        self.phase = phase;
        self.is_timed = false;
    }

    /// Sets the driver's deadline, unless one is set.
    fn arm_driver_deadline(&mut self) {
        let due = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::next_timeout_ms);
        if let Some(milliseconds) = due {
            self.set_deadline_in(milliseconds);
        }
    }

    /// Sets the deadline of the stream, unless one is set.
    fn set_deadline_in(&mut self, milliseconds: u64) {
        if !self.is_timed {
            self.timer += 1;
            self.is_timed = true;
            let kind = RootTimerAction::Stream(self.id, self.timer);
            self.root.add_root_context_deadline(kind, milliseconds);
        }
    }

    /// Offers the driver of a forwarded request to the next stream: Envoy begins the stream of an
    /// internal redirect before any other event, with the properties that the request has now. The
    /// property by which that stream recognizes the request is set here, because few requests need it.
    fn offer_driver_to_redirect(&mut self) {
        if self.phase == StreamPhase::Forwarded {
            if let Some(driver) = self.driver.take() {
                abi::set_log_property(abi::REQUEST_PROPERTY, &self.id.to_le_bytes());
                redirect::offer_redirected_driver(self.id, driver);
                self.root
                    .add_root_context_deadline(RootTimerAction::OfferedDriver, 1);
            }
        }
    }

    /// Enqueues the exchange's probes, now that the head of the upstream request is final.
    fn enqueue_probes(&mut self) {
        for probe in self.probes.drain(..) {
            if self.root.probes.has_probe_slot() {
                let head = SerializedMessageHead::from_proxy(MapType::HttpRequestHeaders);
                let cluster = abi::proxy_property(abi::CLUSTER_PROPERTY);
                self.root.probes.enqueue_probe(probe, cluster, &head);
            }
        }
    }

    /// Ends the exchange: a response that was buffered or streaming is truncated, unless its client
    /// has disconnected.
    fn finish_exchange(&mut self) {
        if let (StreamPhase::Buffering | StreamPhase::Streaming, Some(driver)) =
            (self.phase, &mut self.driver)
        {
            let details = abi::proxy_property(RESPONSE_DETAILS_PROPERTY);
            if UpstreamFailure::from_envoy_local_reply(0, &details) != UpstreamFailure::Local {
                // the result of the abort does not matter
                let _ = driver.abort_response();
            }
            self.enter_stream_phase(StreamPhase::Passing);
        }
        self.report_exchange();
    }

    /// Sends the driver's response at once, or in a later call of the root if it must follow the
    /// previous response of a pipelined HTTP/1 connection.
    fn respond_in_pipeline_order(&mut self) -> StreamAction {
        let is_delayed = self.root.is_in_hook()
            && self
                .position
                .delays_response(|| abi::proxy_property(PROTOCOL_PROPERTY));
        if is_delayed {
            self.enter_stream_phase(StreamPhase::Delayed);
            self.root.wake_stream(self.id);
            return StreamAction::Stop;
        }
        StreamAction::Respond
    }

    /// Finishes the exchange if the proxy has all of the response: stores the fill, logs and
    /// counts.
    fn finish_sent_response(&mut self, is_last: bool) {
        if !is_last {
            return;
        }
        self.enter_stream_phase(StreamPhase::Passing);
        if let Some(driver) = &mut self.driver {
            let job = driver.handle_response_sent(abi::monotonic_ms());
            self.root.run_job(job);
            self.root.log_hit_verification_lines();
        }
        self.report_exchange();
        self.release_driver();
    }
}

impl ResumableStream for StreamExchange {
    fn handle_deadline(&mut self, number: u64) -> bool {
        if !self.is_timed || number != self.timer {
            return false;
        }
        self.is_timed = false;
        match self.phase {
            _ if self.is_paced => self.send_collected_bytes(),
            StreamPhase::Buffering => self.end_buffering_window(),
            StreamPhase::Waiting | StreamPhase::Purging => self.resume_woken_operation(),
            _ => {}
        }
        true
    }

    fn resume_after_wakeup(&mut self) {
        self.resume_woken_operation();
    }
}

/// Returns the name of the property that has a log variable.
const fn log_property(variable: LogVariable) -> &'static str {
    match variable {
        LogVariable::Mode => "sszip.mode",
        LogVariable::Ratio => "sszip.ratio",
        LogVariable::Coding => "sszip.coding",
        LogVariable::CacheStatus => "sszip.cache_status",
        LogVariable::CacheReason => "sszip.cache_reason",
        LogVariable::CacheKey => "sszip.cache_key",
        LogVariable::RpcMethod => "sszip.rpc_method",
        LogVariable::BatchSize => "sszip.batch_size",
        LogVariable::BatchHits => "sszip.batch_hits",
        LogVariable::Denied => "sszip.denied",
    }
}

/// Property with the origin of the response, or the reason for which the proxy ended the stream.
const RESPONSE_DETAILS_PROPERTY: &str = "response\0code_details";
/// Property with the version of HTTP of a request.
const PROTOCOL_PROPERTY: &str = "request\0protocol";
const REQUEST_BUFFER: BufferType = BufferType::HttpRequestBody;
const RESPONSE_BUFFER: BufferType = BufferType::HttpResponseBody;
