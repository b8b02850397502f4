//! Status requests: requests that are not forwarded.

use std::sync::Arc;

use sszip_core::exchange::drive::Step;
use sszip_core::exchange::StatusRequest;
use sszip_core::metrics;
use sszip_envoy_carrier::head::MessageHead;

use super::{Exchange, State, StreamAction};
use crate::abi::HeaderType;
use crate::envoy::Stream;
use crate::process::PROCESS;
use crate::wakeups::Waiting;
use crate::{clock, status, thread_pool};

/// Name of the host on the status page; Envoy's version is in its own
/// `/server_info`.
const HOST: &str = "envoy";

impl Exchange {
    /// Responds to a status request, again after the owner's reply or a
    /// timeout.
    pub(super) fn report_status(&mut self, stream: Stream) -> StreamAction {
        let waiting = self.waiting.get_or_insert_with(Waiting::new);
        waiting.begin_lookup();
        let waiter = waiting.waiter();
        let head = stream.head(HeaderType::Request);
        let board = status::board(metrics::gauges(&PROCESS, thread_pool::waiting()));
        let (Some(driver), Some(board)) = (&mut self.driver, board) else {
            return StreamAction::Reset("sszip: no metrics are available");
        };
        let step = driver.report_status(&StatusRequest {
            method: head.method(),
            query: head.query(),
            host: HOST,
            board,
            waiter: Some(waiter),
            now: clock::monotonic(),
            wall: clock::wall(),
        });
        match step {
            Ok(Step::Wait) => {
                let scheduler = Arc::clone(self.scheduler(stream));
                if let Some(waiting) = &self.waiting {
                    waiting.wait(&scheduler);
                }
                self.set_state(State::ReportingStatus);
                self.set_timer(stream);
                StreamAction::Stop
            }
            Ok(Step::Respond) => {
                self.waiting = None;
                self.answer(stream)
            }
            _ => StreamAction::Reset("sszip: the status could not be reported"),
        }
    }
}
