//! Purges: requests that are not forwarded.

use proxy_wasm::types::MapType;
use sszip_core::exchange::drive::Step;
use sszip_envoy_carrier::head::MessageHead;
use sszip_envoy_carrier::purge::{purge_request, result_line};

use super::{set_dynamic_metadata, Exchange, State, StreamAction};
use crate::abi::{self, Head, Level};

impl Exchange {
    /// Starts the purge that the query selects, or continues it after a wakeup
    /// or a timeout.
    pub(super) fn purge(&mut self) -> StreamAction {
        let head = Head::from_proxy(MapType::HttpRequestHeaders);
        let purge = purge_request(&head, self.root.waiter(self.id), abi::monotonic());
        let step = self.driver.as_mut().map(|driver| driver.purge(&purge));
        match step {
            Some(Ok(Step::Wait)) => {
                self.set_state(State::Purging);
                self.set_timer();
                self.root.send_owner_requests(self.id);
                StreamAction::Stop
            }
            Some(Ok(Step::Respond)) => {
                if let Some(driver) = &self.driver {
                    if let Some(line) = result_line(head.query(), driver) {
                        let level = match line.is_error {
                            true => Level::Error,
                            false => Level::Info,
                        };
                        abi::log(level, &line.text);
                    }
                    set_dynamic_metadata(Some(driver));
                }
                StreamAction::Respond
            }
            _ => StreamAction::Reset,
        }
    }
}
