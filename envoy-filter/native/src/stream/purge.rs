//! Purges: requests that are not forwarded.

use std::sync::Arc;

use sszip_core::exchange::drive::Step;
use sszip_envoy_carrier::head::MessageHead;
use sszip_envoy_carrier::purge::{abandoned_line, purge_request, result_line};

use super::{set_dynamic_metadata, Exchange, State, StreamAction};
use crate::abi::{HeaderType, LogLevel};
use crate::clock;
use crate::envoy::{log, Stream};
use crate::wakeups::Waiting;

impl Exchange {
    /// Starts the purge that the query selects, or continues it after a wakeup
    /// or a timeout.
    pub(super) fn purge(&mut self, stream: Stream) -> StreamAction {
        let waiting = self.waiting.get_or_insert_with(Waiting::new);
        waiting.begin_lookup();
        let waiter = waiting.waiter();
        let head = stream.head(HeaderType::Request);
        let request = purge_request(&head, waiter, clock::monotonic());
        let driver = self.driver.as_mut();
        match driver.map(|driver| driver.purge(&request)) {
            Some(Ok(Step::Wait)) => {
                let scheduler = Arc::clone(self.scheduler(stream));
                if let Some(waiting) = &self.waiting {
                    waiting.wait(&scheduler);
                }
                self.set_state(State::Purging);
                self.set_timer(stream);
                StreamAction::Stop
            }
            Some(Ok(Step::Respond)) => self.purged(stream, head.query()),
            _ => StreamAction::Reset("sszip: a purge could not be started"),
        }
    }

    fn purged(&mut self, stream: Stream, query: &[u8]) -> StreamAction {
        self.waiting = None;
        if let Some(driver) = &self.driver {
            if let Some(line) = result_line(query, driver) {
                let level = match line.is_error {
                    true => LogLevel::Error,
                    false => LogLevel::Info,
                };
                log(level, &line.text);
            }
            set_dynamic_metadata(stream, Some(driver));
        }
        self.answer(stream)
    }

    /// Logs that the client closed its connection before the response. The
    /// owner continues the purge.
    pub(super) fn purge_is_left(&self, stream: Stream) {
        let head = stream.head(HeaderType::Request);
        log(LogLevel::Warn, &abandoned_line(head.query()));
    }
}
