//! Purges: requests that are not forwarded.

use sszip_core::exchange::drive::HostStep;
use sszip_envoy_carrier::head::HostMessageHead;
use sszip_envoy_carrier::purge::{
    abandoned_purge_line, create_purge_request_from_head, purge_result_line,
};

use super::{set_log_variables_as_metadata, StreamAction, StreamExchange, StreamPhase};
use crate::abi::{HeaderType, LogLevel};
use crate::clock;
use crate::envoy::{write_envoy_log, EnvoyStreamHandle};
use crate::wakeups::StreamWaitGuard;

impl StreamExchange {
    /// Starts the purge that the query selects, or continues it after a wakeup
    /// or a timeout.
    pub(super) fn handle_purge_request(&mut self, stream: EnvoyStreamHandle) -> StreamAction {
        let guard = self.wait_guard.get_or_insert_with(StreamWaitGuard::new);
        guard.mark_lookup_start();
        let waiter = guard.core_waiter();
        let head = stream.copy_message_head(HeaderType::Request);
        let request = create_purge_request_from_head(&head, waiter, clock::monotonic_ms());
        let driver = self.driver.as_mut();
        match driver.map(|driver| driver.handle_purge_request(&request)) {
            Some(Ok(HostStep::Wait)) => {
                self.begin_wait(stream, StreamPhase::Purging);
                StreamAction::Stop
            }
            Some(Ok(HostStep::Respond)) => self.respond_to_purge(stream, head.query()),
            _ => StreamAction::Reset("sszip: a purge could not be started"),
        }
    }

    /// Logs the result of a purge, and sends its response.
    fn respond_to_purge(&mut self, stream: EnvoyStreamHandle, query: &[u8]) -> StreamAction {
        self.wait_guard = None;
        if let Some(driver) = &self.driver {
            if let Some(line) = purge_result_line(query, driver) {
                let level = match line.is_error {
                    true => LogLevel::Error,
                    false => LogLevel::Info,
                };
                write_envoy_log(level, &line.text);
            }
            set_log_variables_as_metadata(stream, Some(driver));
        }
        self.respond_in_pipeline_order(stream)
    }

    /// Logs that the client closed its connection before the response. The
    /// owner continues the purge.
    pub(super) fn log_abandoned_purge(&self, stream: EnvoyStreamHandle) {
        let head = stream.copy_message_head(HeaderType::Request);
        write_envoy_log(LogLevel::Warn, &abandoned_purge_line(head.query()));
    }
}
