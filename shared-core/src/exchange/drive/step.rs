//! Steps that a host executes, and the jobs that it runs.

use std::ffi::CStr;

use crate::exchange::cache::fill::CacheFill;
use crate::exchange::machine::Exchange;
use crate::panics::catch_panic;
use crate::response_mode::ResponseMode;

/// The next action that a host takes for an exchange.
#[derive(Debug)]
pub enum HostStep {
    /// Wait for the next event: the piece was accepted.
    Await,
    /// Forward the request to the upstream.
    Forward,
    /// Forward the request with [`Exchange::request_body`] as its body.
    ForwardRewritten,
    /// Send a stored response: [`Exchange::stored_response_status`], [`Exchange::head_edits`] as
    /// the whole head, and [`Exchange::body_slices`].
    Respond,
    /// Repeat the lookup when this request is woken, or when its
    /// [timer](crate::exchange::drive::ExchangeDriver::next_timeout_ms) expires. After a job it
    /// expires at once.
    Wait,
    /// Send the head with the head edits, and stream the body unchanged.
    Pass,
    /// Send the response as with [`HostStep::Pass`], and report each piece of the body to
    /// [`handle_body_piece`](crate::exchange::drive::ExchangeDriver::handle_body_piece).
    Observe,
    /// Withhold the head, and deliver the body to
    /// [`handle_body_piece`](crate::exchange::drive::ExchangeDriver::handle_body_piece).
    Buffer,
    /// Send the head with the head edits, and the body through
    /// [`encode_body_piece`](crate::exchange::drive::ExchangeDriver::encode_body_piece), beginning
    /// with the last piece that was delivered.
    Stream,
    /// Send the head with the head edits, and [`Exchange::body_slices`] as the complete body.
    Send,
    /// Send the head with the head edits, [`Exchange::body_slices`], then the last piece that was
    /// delivered, and the rest of the body unchanged.
    SendThenPass,
    /// Run this job on a thread that serves no connections, then pass it to
    /// [`resume_after_job`](crate::exchange::drive::ExchangeDriver::resume_after_job).
    RunJob(OffLoopJob),
    /// Respond with 502: nothing was sent, and there is no response to send.
    Fail(ExchangeFailureReason),
}

/// The reason why the host must respond with 502: there is no response to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeFailureReason {
    /// The upstream's response is truncated.
    Short,
    /// Memory is missing for a response that can't be sent unchanged.
    Memory,
    /// The response is not available in the requested format, and was too long for its original to
    /// be buffered.
    Format,
    /// The head could not be evaluated, and the client may not accept the response.
    Judgement,
    /// The node switches to another protocol, in which the policy could not be applied to calls.
    Protocol,
}

impl ExchangeFailureReason {
    /// Returns the reason for an exchange with this mode that has no response to send.
    pub(in crate::exchange) fn from_response_mode(mode: ResponseMode) -> Self {
        match mode {
            ResponseMode::SszVersion
            | ResponseMode::SszFork
            | ResponseMode::SszInvalid
            | ResponseMode::SszLength => ExchangeFailureReason::Format,
            ResponseMode::SszBusy | ResponseMode::Encoded | ResponseMode::Failed => {
                ExchangeFailureReason::Format
            }
            _ => ExchangeFailureReason::Memory,
        }
    }

    /// Name of the reason, for hosts whose logs have one for each local reply.
    pub const fn reason_name(self) -> &'static str {
        match self {
            ExchangeFailureReason::Short => "sszip_cut_short",
            ExchangeFailureReason::Memory => "sszip_memory",
            ExchangeFailureReason::Format => "sszip_format",
            ExchangeFailureReason::Judgement => "sszip_not_judged",
            ExchangeFailureReason::Protocol => "sszip_protocol",
        }
    }

    /// Description of the reason, for logs.
    pub const fn reason_description(self) -> &'static CStr {
        match self {
            ExchangeFailureReason::Short => {
                c"the upstream response ended before its length was reached"
            }
            ExchangeFailureReason::Memory => c"not enough memory to buffer the response",
            ExchangeFailureReason::Format => {
                c"the response is not available in the requested format, and the original is \
                  longer than ssz_hold"
            }
            ExchangeFailureReason::Judgement => {
                c"the response was not evaluated, and the client accepts SSZ only"
            }
            ExchangeFailureReason::Protocol => {
                c"the node switched protocols (101) on a route with a \
                     policy; see the setting \"upgrade\""
            }
        }
    }
}

/// Work of an exchange that takes too long for an event loop, and that the host runs on another
/// thread.
#[derive(Debug)]
pub struct OffLoopJob(pub(in crate::exchange) OffLoopWork);

/// The work of a job, with the data that it takes to its thread.
#[derive(Debug)]
pub(in crate::exchange) enum OffLoopWork {
    /// Compress or decompress a response.
    PendingWork(Box<Exchange>),
    /// Build and store the entry for a response that was sent.
    Store(Box<CacheFill>),
    /// Free the memory of a response that was sent.
    Teardown(Option<Box<Exchange>>),
}

/// Length of a response in bytes from which its memory is freed by a job: returning memory to the
/// system takes a tenth of a millisecond per megabyte. Shorter responses are freed at once, so that
/// the next request can use the memory.
pub(in crate::exchange) const TEARDOWN_JOB_LENGTH: usize = 32 << 20;

impl OffLoopJob {
    /// Maximum number of jobs that a process should run at once: one core is left to the event loop
    /// if there is more than one.
    pub fn max_concurrent_jobs() -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        cores.saturating_sub(1).max(1)
    }

    /// Does the job's work on the calling thread. Takes milliseconds per megabyte.
    pub fn run_job(&mut self) {
        match &mut self.0 {
            OffLoopWork::PendingWork(exchange) => run_pending_exchange_work(exchange),
            // an entry that could not be built is not stored
            OffLoopWork::Store(fill) => {
                catch_panic(|| fill.build_collected_entries()).unwrap_or_default();
            }
            OffLoopWork::Teardown(exchange) => drop(exchange.take()),
        }
    }

    /// Whether the job must run even if its client has disconnected.
    pub fn runs_without_client(&self) -> bool {
        match &self.0 {
            OffLoopWork::PendingWork(exchange) => exchange.has_active_fill(),
            OffLoopWork::Store(_) | OffLoopWork::Teardown(_) => true,
        }
    }

    /// Stores the entry that a job has built for which no client waits, at `now` of the lookup
    /// clock.
    pub fn store_built_entry(self, now: u64) {
        match self.0 {
            OffLoopWork::PendingWork(_) | OffLoopWork::Teardown(_) => {}
            OffLoopWork::Store(fill) => {
                catch_panic(|| fill.store_and_publish_entries(now)).unwrap_or_default();
            }
        }
    }
}

/// Runs the pending work of an exchange: compression, conversion, merge, decompression or rewrite.
/// If it panics, the original is sent.
pub(in crate::exchange) fn run_pending_exchange_work(exchange: &mut Exchange) {
    let coded = catch_panic(|| exchange.run_pending_stages());
    // the state allows the compression, or sending the original
    let _ = coded.unwrap_or_else(|| exchange.send_original_response(ResponseMode::Failed));
}

/// The changes that the host's other filters make to the body of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherFiltersEffect {
    /// The body is not changed.
    None,
    /// The body is changed.
    BodyChanged,
    /// The body is changed, and the upstream's body is reported to
    /// [`handle_upstream_piece`](crate::exchange::drive::ExchangeDriver::handle_upstream_piece).
    SeparateCopy,
}

/// Stores the entry of a fill, or returns the job that builds it if that takes too long.
pub(in crate::exchange) fn build_fill_or_defer(
    mut fill: Box<CacheFill>,
    now: u64,
) -> Option<OffLoopJob> {
    if fill.needs_build_job() {
        return Some(OffLoopJob(OffLoopWork::Store(fill)));
    }
    catch_panic(|| {
        fill.build_collected_entries();
        fill.store_and_publish_entries(now);
    });
    None
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use super::{HostStep, OffLoopJob, OffLoopWork};
    use crate::config::RouteConfigBlock;
    use crate::exchange::drive::{BodyLength, ExchangeDriver, RequestBodyAvailability};
    use crate::exchange::machine::transitions::ExchangeState;
    use crate::exchange::{Exchange, Header, LookupRequest, RequestHead, ResponseHead};
    use crate::memory::MemoryBudget;
    use crate::response_mode::ResponseMode;

    const JSON: Header<'static> = (b"Content-Type", b"application/json");

    /// Returns an exchange whose response, with these headers, waits for its compression.
    fn exchange_before_compression(
        most: Option<&[u8]>,
        fields: &[Header<'_>],
        body: &[u8],
    ) -> Box<Exchange> {
        let mut directives = RouteConfigBlock::default();
        directives.set_directive("enable", &[b"on"]).unwrap();
        if let Some(most) = most {
            directives
                .set_directive("max_answer", &[b"eth_*", most])
                .unwrap();
        }
        let mut driver = ExchangeDriver::new(Arc::new(
            directives.resolve_route_config(MemoryBudget::new()),
        ));
        let head = RequestHead {
            method: b"POST",
            target: b"/",
            fields: [JSON, (b"Accept-Encoding", b"gzip")].into_iter(),
        };
        driver.handle_request_head(head).unwrap();
        let call = br#"{"jsonrpc":"2.0","id":1,"method":"eth_getLogs"}"#;
        driver.required_body(BodyLength::Known(call.len() as u64));
        let lookup = LookupRequest {
            coding_allowed: true,
            ..LookupRequest::default()
        };
        driver
            .lookup_under_policy(RequestBodyAvailability::Whole(call), lookup)
            .unwrap();
        let head = ResponseHead {
            status: 200,
            content_length: Some(body.len() as u64),
            fields: fields.iter().copied(),
            delimited: true,
            now: 0,
            unbuffered: false,
            subrequest: false,
            coding_allowed: true,
            host_writes_vary: false,
        };
        assert!(matches!(
            driver.handle_response_head(head),
            Ok(HostStep::Buffer)
        ));
        driver.handle_body_piece(body).unwrap();
        match driver.handle_body_end().unwrap() {
            HostStep::RunJob(OffLoopJob(OffLoopWork::PendingWork(exchange))) => exchange,
            step => panic!("{step:?}"),
        }
    }

    fn body(exchange: &Exchange) -> Vec<u8> {
        exchange.body_slices().flatten().copied().collect()
    }

    fn gzip(body: &[u8]) -> Vec<u8> {
        let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        coder.write_all(body).unwrap();
        coder.finish().unwrap()
    }

    #[test]
    fn response_whose_compression_fails_is_sent_unchanged_if_it_is_within_its_limit() {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":"{}"}}"#,
            "a".repeat(2 << 20)
        );
        for most in [None, Some(&b"3m"[..])] {
            let mut exchange = exchange_before_compression(most, &[JSON], text.as_bytes());
            exchange
                .send_original_response(ResponseMode::Failed)
                .unwrap();
            let state = (exchange.exchange_state(), exchange.response_mode());
            assert_eq!(
                state,
                (ExchangeState::Ready, ResponseMode::Failed),
                "{most:?}"
            );
            assert!(body(&exchange) == text.as_bytes());
        }
    }

    #[test]
    fn compressed_response_whose_length_is_not_measured_is_replaced_by_an_error() {
        let coded = gzip(&vec![b' '; 8 << 20]);
        let fields = [JSON, (b"Content-Encoding", b"gzip")];
        let mut exchange = exchange_before_compression(Some(b"3m"), &fields, &coded);
        exchange
            .send_original_response(ResponseMode::Failed)
            .unwrap();
        let state = (exchange.exchange_state(), exchange.response_mode());
        assert_eq!(state, (ExchangeState::Ready, ResponseMode::Denied));
        let error = body(&exchange);
        assert!(error.windows(6).any(|it| it == b"-32005"), "{error:?}");
    }

    #[test]
    fn measured_response_is_sent_unchanged_if_a_later_stage_fails() {
        let coded = gzip(&vec![b' '; 8 << 20]);
        let fields = [JSON, (b"Content-Encoding", b"gzip")];
        let mut exchange = exchange_before_compression(Some(b"9m"), &fields, &coded);
        assert!(exchange.decoded_body_is_within_limit());
        exchange
            .send_original_response(ResponseMode::Failed)
            .unwrap();
        let state = (exchange.exchange_state(), exchange.response_mode());
        assert_eq!(state, (ExchangeState::Ready, ResponseMode::Failed));
        assert!(body(&exchange) == coded);
    }
}
