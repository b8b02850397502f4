//! Purges: requests that are not forwarded.

use proxy_wasm::types::MapType;
use sszip_core::exchange::drive::HostStep;
use sszip_envoy_carrier::head::HostMessageHead;
use sszip_envoy_carrier::purge::{create_purge_request_from_head, purge_result_line};

use super::{StreamAction, StreamExchange, StreamPhase};
use crate::abi::{self, LogLevel, SerializedMessageHead};

impl StreamExchange {
    /// Starts the purge that the query selects, or continues it after a wakeup
    /// or a timeout.
    pub(super) fn handle_purge_request(&mut self) -> StreamAction {
        let head = SerializedMessageHead::from_proxy(MapType::HttpRequestHeaders);
        let purge = create_purge_request_from_head(
            &head,
            self.root.lookup_waiter_of_stream(self.id),
            abi::monotonic_ms(),
        );
        let step = self
            .driver
            .as_mut()
            .map(|driver| driver.handle_purge_request(&purge));
        match step {
            Some(Ok(HostStep::Wait)) => {
                self.enter_stream_phase(StreamPhase::Purging);
                self.arm_driver_deadline();
                StreamAction::Stop
            }
            Some(Ok(HostStep::Respond)) => {
                if let Some(driver) = &self.driver {
                    if let Some(line) = purge_result_line(head.query(), driver) {
                        let level = match line.is_error {
                            true => LogLevel::Error,
                            false => LogLevel::Info,
                        };
                        abi::write_proxy_log(level, &line.text);
                    }
                    self.set_log_variables();
                }
                self.respond_in_pipeline_order()
            }
            _ => StreamAction::Reset,
        }
    }
}
