//! The exchange of one stream: passes Envoy's events to the core's driver, and
//! executes the driver's steps. It makes no decisions.
//!
//! Some calls make Envoy call hooks at once, such as a response of the filter
//! or a resumed stream. They are returned as a [`StreamAction`] and performed after the
//! exchange is released.

mod encode_body;
mod purge;
mod redirect;
mod request;
mod response;
mod response_sender;
mod status_request;

use std::cell::Cell;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use sszip_core::cache::use_stale::UpstreamFailure;
use sszip_core::exchange::drive::{
    BodyLength, ExchangeDriver, ExchangeFailureReason, HostStep, OffLoopJob,
};
use sszip_core::exchange::HeadEdit;
use sszip_core::log_variable::LogVariable;
use sszip_envoy_carrier::head::HostMessageHead;
use sszip_envoy_carrier::pipelining::PipelinePosition;
use sszip_envoy_carrier::request::REDIRECTED_FROM;

use self::response_sender::UnsentResponseRemainder;
use crate::abi::{BodyType, HeaderType};
use crate::background::{PreRouterRequestHead, StreamBackgroundSender};
use crate::envoy::{EnvoyEventScheduler, EnvoyStreamHandle};
use crate::metrics::EnvoyMetrics;
use crate::wakeups::{StreamWaitGuard, WOKEN_EVENT};
use crate::{clock, status, thread_pool, timers};

/// An action of a hook on its stream, performed after the exchange is released, since Envoy may end
/// the stream meanwhile.
pub enum StreamAction {
    /// Continue the stream.
    Continue,
    /// Stop the stream until more of it arrives or another event occurs.
    Stop,
    /// Let Envoy buffer the request body until it is complete.
    Buffer,
    /// Send the driver's response, without a request to the upstream.
    Respond(Box<ExchangeDriver>),
    /// Send the rest of the driver's response.
    Resume(UnsentResponseRemainder),
    /// Respond with 502, since there is no response to send.
    Fail(ExchangeFailureReason),
    /// Reset the stream, because its response cannot be completed.
    Reset(&'static str),
}

/// The result of a performed action, which determines the status that the hook returns.
pub enum HookOutcome {
    /// The stream continues.
    Continue,
    /// The stream waits.
    Wait,
    /// The stream waits, and Envoy keeps the buffered request body.
    Keep,
    /// The filter's own response was started, with its rest if the client reads
    /// slowly; or the stream was reset.
    Ended(Option<UnsentResponseRemainder>),
}

/// The phase of a stream between two hooks: reading, waiting, forwarded, buffering, streaming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamPhase {
    /// The exchange takes no part in the stream.
    Passing,
    /// The request body is being buffered.
    Reading,
    /// A job processes the request.
    LookingUp,
    /// Another request fetches the response that the stream waits for.
    Waiting,
    /// A purge is in progress.
    Purging,
    /// A status request waits for the owner.
    ReportingStatus,
    /// The driver's response waits until the previous response of its
    /// connection is sent.
    Delayed,
    /// The request was forwarded, and the response head is awaited.
    Forwarded,
    /// The response body is observed and passed on.
    Observing,
    /// The response head is withheld, and the body is buffered in the driver.
    Buffering,
    /// A job processes the response.
    Encoding,
    /// The response body passes through the encoder.
    Streaming,
}

/// Event of a deadline; the other bits are its number.
const TIMER_EVENT: u64 = 1 << 62;
/// Event of a job that has run.
const JOB_DONE_EVENT: u64 = 1 << 61;
/// Event that starts a delayed response.
const DELAYED_RESPONSE_EVENT: u64 = 1 << 57;
/// Event of a client that reads again.
const CLIENT_READS_EVENT: u64 = 1 << 58;
/// Event that completes a response whose trailers arrived.
const TRAILERS_EVENT: u64 = 1 << 60;

/// The filter's work on one stream: the driver of its exchange, its phase, deadline and unsent
/// output.
pub struct StreamExchange {
    phase: StreamPhase,
    driver: Option<ExchangeDriver>,
    /// Length of the request body that its head announces.
    announced_length: BodyLength,
    /// Position of the request on its connection.
    position: PipelinePosition,
    /// Created on first use.
    stream_scheduler: Option<Arc<EnvoyEventScheduler>>,
    /// Event of the last deadline.
    timer: u64,
    /// The deadline is set and has not passed.
    is_timed: bool,
    /// Slot into which a job is returned.
    job_slot: thread_pool::FinishedJobSlot,
    /// Identity by which the stream is woken.
    wait_guard: Option<StreamWaitGuard>,
    /// Output of the encoder that was not sent.
    encoder_output: Vec<u8>,
    /// Failure of the upstream, if the response is a local reply of Envoy.
    local_reply_failure: Option<UpstreamFailure>,
    /// Rest of the filter's own response, which waits for the client.
    unsent_response: Option<UnsentResponseRemainder>,
    /// The upstream sent trailers, and thereby its whole response.
    has_trailers: bool,
    /// Value of Envoy's redirect header when the request arrived, if it was an
    /// internal redirect.
    redirected_from: Option<Vec<u8>>,
    /// Time at which the stream began, if exchanges are counted.
    started_at: Option<Instant>,
    /// Metrics of the stream's filter.
    metrics: Option<Arc<EnvoyMetrics>>,
    /// Edits that restore the client's request headers, which differ in the
    /// upstream request.
    restoring_edits: Vec<HeadEdit>,
    /// Background requests of the stream, if one may be needed.
    background: Option<StreamBackgroundSender>,
    /// Forwarded request, from which the router's changes to its head are
    /// recorded.
    head_before_router: Option<PreRouterRequestHead>,
}

impl StreamExchange {
    /// Creates the exchange of a new stream, with the driver that a redirected stream has left, if
    /// any.
    pub fn new() -> Self {
        let (driver, restoring_edits) = redirect::take_offered_driver();
        Self {
            phase: StreamPhase::Passing,
            announced_length: BodyLength::Unknown,
            driver,
            position: PipelinePosition::default(),
            stream_scheduler: None,
            timer: 0,
            is_timed: false,
            job_slot: thread_pool::FinishedJobSlot::default(),
            wait_guard: None,
            encoder_output: Vec::new(),
            local_reply_failure: None,
            unsent_response: None,
            has_trailers: false,
            redirected_from: None,
            background: None,
            head_before_router: None,
            metrics: None,
            started_at: status::is_counting_exchanges().then(Instant::now),
            restoring_edits,
        }
    }

    /// Sets the metrics in which the stream is counted.
    pub fn set_metrics(&mut self, metrics: &Arc<EnvoyMetrics>) {
        self.metrics = Some(Arc::clone(metrics));
    }

    /// Reports a finished exchange to access logs and metrics.
    fn report_exchange(&mut self, stream: EnvoyStreamHandle) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        set_log_variables_as_metadata(stream, Some(driver));
        self.count_exchange_tally(stream);
    }

    fn count_exchange_tally(&mut self, stream: EnvoyStreamHandle) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        status::count_finished_exchange(driver, self.started_at, |tally| {
            if let Some(metrics) = &self.metrics {
                metrics.count_exchange(stream, tally);
            }
        });
    }

    /// Ends the exchange of a stream that is complete; an unfinished exchange means that the client
    /// is gone.
    pub fn finish_stream_exchange(&mut self, stream: EnvoyStreamHandle) {
        if self.driver.is_none() || self.offer_driver_to_redirect(stream) {
            return;
        }
        let own = std::mem::take(&mut self.restoring_edits);
        stream.apply_head_edits(HeaderType::Request, &own);
        match self.phase {
            StreamPhase::Purging => self.log_abandoned_purge(stream),
            _ => self.report_exchange(stream),
        }
    }

    /// Offers the driver to the next stream, if Envoy follows an internal redirect with it. Returns
    /// whether it does.
    fn offer_driver_to_redirect(&mut self, stream: EnvoyStreamHandle) -> bool {
        let head = stream.copy_message_head(HeaderType::Request);
        let is_redirected = self.phase == StreamPhase::Forwarded
            && self.driver.is_some()
            && head.header_value(REDIRECTED_FROM) != self.redirected_from.as_deref();
        if is_redirected {
            let restoring_edits = std::mem::take(&mut self.restoring_edits);
            redirect::offer_redirected_driver(self.driver.take(), restoring_edits);
        }
        is_redirected
    }

    /// Drops the driver after a misuse; the stream continues without it.
    fn drop_misused_driver(&mut self) -> StreamAction {
        self.phase = StreamPhase::Passing;
        self.release_driver();
        StreamAction::Continue
    }

    /// Handles a local reply of Envoy before it is sent.
    pub fn handle_envoy_local_reply(
        &mut self,
        stream: EnvoyStreamHandle,
        failure: UpstreamFailure,
    ) {
        self.local_reply_failure = Some(failure);
        if let (StreamPhase::Buffering | StreamPhase::Streaming, Some(driver)) =
            (self.phase, &mut self.driver)
        {
            // the upstream's connection ended; the result of the abort does not
            // matter
            let _ = driver.abort_response();
            self.phase = StreamPhase::Passing;
            self.report_exchange(stream);
        }
    }

    /// Whether the stopped direction is the request, not the response.
    pub fn is_request_direction_stopped(&self) -> bool {
        matches!(
            self.phase,
            StreamPhase::LookingUp
                | StreamPhase::Waiting
                | StreamPhase::Purging
                | StreamPhase::ReportingStatus
                | StreamPhase::Delayed
        )
    }

    /// Whether the response is complete, so that the rest of the request must be discarded, and
    /// Envoy must not resume the stream.
    fn has_complete_response_to_send(&self) -> bool {
        matches!(self.phase, StreamPhase::Encoding | StreamPhase::Delayed) || self.has_trailers
    }

    /// Handles an event of the stream's scheduler. If Envoy does not let the stream resume
    /// (`can_resume`), a deadline must wait until more of the stream arrives.
    pub fn handle_scheduled_event(
        &mut self,
        stream: EnvoyStreamHandle,
        event: u64,
        can_resume: bool,
    ) -> StreamAction {
        match event {
            JOB_DONE_EVENT => self.handle_finished_job(stream),
            WOKEN_EVENT => self.resume_woken_operation(stream),
            DELAYED_RESPONSE_EVENT if self.phase == StreamPhase::Delayed => {
                self.respond_immediately()
            }
            CLIENT_READS_EVENT => self
                .unsent_response
                .take()
                .map_or(StreamAction::Stop, StreamAction::Resume),
            TRAILERS_EVENT => self.end_response_after_trailers(stream),
            timer if self.is_timed && timer == self.timer => {
                self.is_timed = false;
                match can_resume {
                    true => self.handle_deadline(stream),
                    false => StreamAction::Stop,
                }
            }
            _ => StreamAction::Stop,
        }
    }

    /// Continues the exchange after its job has run. Without a job or a driver the stream stays as
    /// it is.
    fn handle_finished_job(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        let job = self
            .job_slot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let (Some(job), Some(driver)) = (job, &mut self.driver) else {
            return StreamAction::Stop;
        };
        let step = driver.resume_after_job(job);
        if let (StreamPhase::LookingUp, HostStep::Wait) = (self.phase, &step) {
            // the lookup is repeated at once
            self.enter_stream_phase(StreamPhase::Waiting);
            return self.resume_woken_operation(stream);
        }
        match self.phase {
            StreamPhase::LookingUp => self.handle_lookup_step(stream, step),
            StreamPhase::Encoding => {
                self.send_complete_response(stream, step, BodyType::BufferedResponse)
            }
            _ => StreamAction::Stop,
        }
    }

    /// Handles a passed deadline: sends the buffered body or the encoder's output, or repeats the
    /// lookup.
    fn handle_deadline(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        let into = BodyType::BufferedResponse;
        match self.phase {
            StreamPhase::Buffering => match self.driver.as_mut().map(ExchangeDriver::end_buffering)
            {
                Some(Ok(HostStep::Await)) => StreamAction::Stop,
                Some(Ok(HostStep::SendThenPass)) => {
                    self.edit_response_head(stream);
                    self.copy_driver_body_to_envoy(stream, into);
                    self.enter_stream_phase(StreamPhase::Observing);
                    StreamAction::Continue
                }
                Some(Ok(HostStep::Stream)) => {
                    self.edit_response_head(stream);
                    self.enter_stream_phase(StreamPhase::Streaming);
                    self.flush_encoder(stream)
                }
                Some(Ok(step)) => self.fail_exchange(stream, &step),
                _ => StreamAction::Reset("sszip: a buffered body could not be released"),
            },
            StreamPhase::Streaming => self.flush_encoder(stream),
            StreamPhase::Waiting | StreamPhase::Purging | StreamPhase::ReportingStatus => {
                self.resume_woken_operation(stream)
            }
            _ => StreamAction::Stop,
        }
    }

    /// Sets the driver's deadline, unless one is set: a buffered body's counts
    /// from its first byte, a stream's from the first byte that was not sent.
    fn arm_driver_deadline(&mut self, stream: EnvoyStreamHandle) {
        let due = self
            .driver
            .as_ref()
            .and_then(ExchangeDriver::next_timeout_ms);
        if let (Some(ms), false) = (due, self.is_timed) {
            self.timer = TIMER_EVENT | (self.timer + 1) & (TIMER_EVENT - 1);
            let timer = self.timer;
            self.is_timed = timers::set_stream_timer(self.stream_scheduler(stream), timer, ms);
        }
    }

    /// Changes the phase, and cancels the deadline of the previous one.
    fn enter_stream_phase(&mut self, phase: StreamPhase) {
        self.phase = phase;
        self.is_timed = false;
    }

    /// Returns the scheduler of the stream, which is created on first use.
    fn stream_scheduler(&mut self, stream: EnvoyStreamHandle) -> &Arc<EnvoyEventScheduler> {
        self.stream_scheduler
            .get_or_insert_with(|| stream.create_stream_scheduler())
    }

    /// Runs a job on the thread pool, which then schedules [`JOB_DONE_EVENT`] for the stream.
    fn run_job(&mut self, stream: EnvoyStreamHandle, job: OffLoopJob) {
        let slot = Arc::clone(&self.job_slot);
        thread_pool::run_job_on_pool(job, &slot, self.stream_scheduler(stream), JOB_DONE_EVENT);
    }

    /// Sends the driver's response at once, or after the previous response of a pipelined HTTP/1
    /// connection.
    fn respond_in_pipeline_order(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        if self.position.delays_response(|| stream.client_protocol()) {
            self.enter_stream_phase(StreamPhase::Delayed);
            self.stream_scheduler(stream)
                .schedule_event(DELAYED_RESPONSE_EVENT);
            return StreamAction::Stop;
        }
        self.respond_immediately()
    }

    /// Sends the driver's response at once.
    fn respond_immediately(&mut self) -> StreamAction {
        self.enter_stream_phase(StreamPhase::Passing);
        let driver = self.driver.take();
        driver.map_or(StreamAction::Continue, |driver| {
            StreamAction::Respond(Box::new(driver))
        })
    }

    /// Ends the exchange with a local reply for its failure reason; any other step resets the
    /// stream.
    fn fail_exchange(&mut self, stream: EnvoyStreamHandle, step: &HostStep) -> StreamAction {
        self.phase = StreamPhase::Passing;
        self.report_exchange(stream);
        match step {
            HostStep::Fail(reason) => StreamAction::Fail(*reason),
            _ => StreamAction::Reset("sszip: unexpected step"),
        }
    }

    /// Finishes the exchange if Envoy has all of the response: stores the fill, logs and counts.
    fn finish_sent_response(&mut self, stream: EnvoyStreamHandle, is_last: bool) {
        if !is_last {
            return;
        }
        self.phase = StreamPhase::Passing;
        if let Some(driver) = &mut self.driver {
            if let Some(job) = driver.handle_response_sent(clock::monotonic_ms()) {
                thread_pool::run_detached_job(job);
            }
        }
        thread_pool::log_hit_verification_lines();
        self.report_exchange(stream);
        // Envoy has a copy, and the client may be slow
        self.release_driver();
    }

    /// Drops the driver. An exchange with a long body is freed on the thread pool.
    fn release_driver(&mut self) {
        if let Some(job) = self
            .driver
            .as_mut()
            .and_then(ExchangeDriver::take_exchange_as_teardown_job)
        {
            thread_pool::run_detached_job(job);
        }
        self.driver = None;
    }

    /// Schedules the rest of the filter's own response after the client has read. The event is
    /// deferred, because Envoy is about to notify other filters and must not find the stream ended.
    pub fn schedule_unsent_response(&mut self, stream: EnvoyStreamHandle) {
        if self.unsent_response.is_some() {
            self.stream_scheduler(stream)
                .schedule_event(CLIENT_READS_EVENT);
        }
    }

    /// Keeps the rest of a response until the client reads again.
    pub fn keep_unsent_response(&mut self, remainder: UnsentResponseRemainder) {
        self.unsent_response = Some(remainder);
    }

    /// Releases the memory and the waits of a stream that has ended.
    pub fn release_stream(&mut self) {
        self.wait_guard = None;
        self.unsent_response = None;
        self.release_driver();
        if let Some(scheduler) = &self.stream_scheduler {
            scheduler.close_event_scheduler();
        }
    }
}

impl StreamAction {
    /// Performs the action while the exchange is released. `is_behind`: the
    /// client reads slowly.
    pub fn perform_hook_action(
        self,
        stream: EnvoyStreamHandle,
        is_behind: &Cell<bool>,
    ) -> HookOutcome {
        match self {
            StreamAction::Continue => return HookOutcome::Continue,
            StreamAction::Stop => return HookOutcome::Wait,
            StreamAction::Buffer => return HookOutcome::Keep,
            StreamAction::Respond(driver) => {
                let remainder = UnsentResponseRemainder::send_response_head(driver, stream);
                return HookOutcome::Ended(remainder.send_until_backpressure(stream, is_behind));
            }
            StreamAction::Resume(remainder) => {
                return HookOutcome::Ended(remainder.send_until_backpressure(stream, is_behind))
            }
            StreamAction::Fail(reason) => stream.send_local_reply(502, "", reason.reason_name()),
            StreamAction::Reset(details) => stream.reset_stream(details),
        }
        HookOutcome::Ended(None)
    }
}

/// Sets the log variables of the exchange as dynamic metadata, which access logs print.
fn set_log_variables_as_metadata(stream: EnvoyStreamHandle, driver: Option<&ExchangeDriver>) {
    let exchange = driver.and_then(ExchangeDriver::available_exchange);
    let values = LogVariable::ALL.map(|variable| {
        let name = variable.log_variable_name();
        let name = name.strip_prefix("sszip_").unwrap_or(name);
        (name, variable.log_text(exchange))
    });
    let values = values.iter();
    stream.set_dynamic_metadata(values.filter_map(|(name, text)| Some((*name, text.as_deref()?))));
}
