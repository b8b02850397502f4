//! Status requests: requests that are not forwarded.

use sszip_core::exchange::drive::HostStep;
use sszip_core::exchange::StatusPageRequest;
use sszip_core::metrics;
use sszip_envoy_carrier::head::HostMessageHead;

use super::{StreamAction, StreamExchange, StreamPhase};
use crate::abi::HeaderType;
use crate::envoy::EnvoyStreamHandle;
use crate::process::PROCESS;
use crate::wakeups::StreamWaitGuard;
use crate::{clock, status, thread_pool};

/// Name of the host on the status page; Envoy's version is in its own
/// `/server_info`.
const HOST: &str = "envoy";

impl StreamExchange {
    /// Responds to a status request, again after the owner's reply or a
    /// timeout.
    pub(super) fn handle_status_page_request(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        let guard = self.wait_guard.get_or_insert_with(StreamWaitGuard::new);
        guard.mark_lookup_start();
        let waiter = guard.core_waiter();
        let head = stream.copy_message_head(HeaderType::Request);
        let board = status::refresh_board_gauges(metrics::gauge_values(
            &PROCESS,
            thread_pool::queued_job_count(),
        ));
        let (Some(driver), Some(board)) = (&mut self.driver, board) else {
            return StreamAction::Reset("sszip: no metrics are available");
        };
        let step = driver.respond_with_status_page(&StatusPageRequest {
            method: head.request_method(),
            query: head.query(),
            host: HOST,
            board,
            waiter: Some(waiter),
            now: clock::monotonic_ms(),
            wall: clock::unix_seconds(),
        });
        match step {
            Ok(HostStep::Wait) => {
                self.begin_wait(stream, StreamPhase::ReportingStatus);
                StreamAction::Stop
            }
            Ok(HostStep::Respond) => {
                self.wait_guard = None;
                self.respond_in_pipeline_order(stream)
            }
            _ => StreamAction::Reset("sszip: the status could not be reported"),
        }
    }
}
