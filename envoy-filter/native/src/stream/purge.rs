//! Purges: requests that are not forwarded.

use std::sync::Arc;

use sszip_core::cache::process::wake::Waiter;
use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::exchange::PurgeRequest;

use super::{set_dynamic_metadata, Exchange, State, StreamAction};
use crate::abi::{HeaderType, LogLevel};
use crate::clock;
use crate::envoy::{log, Head, Stream};
use crate::wakeups::Waiting;

impl Exchange {
    /// Starts the purge that the query selects, or continues it after a wakeup
    /// or a timeout.
    pub(super) fn purge(&mut self, stream: Stream) -> StreamAction {
        let waiting = self.waiting.get_or_insert_with(Waiting::new);
        waiting.begin_lookup();
        let waiter = waiting.waiter();
        let head = stream.head(HeaderType::Request);
        let query = query_of(&head);
        let method = head.get(":method").unwrap_or_default();
        match self.start_purge(method, query, waiter) {
            Some(Step::Wait) => {
                let scheduler = Arc::clone(self.scheduler(stream));
                if let Some(waiting) = &self.waiting {
                    waiting.wait(&scheduler);
                }
                self.set_state(State::Purging);
                self.set_timer(stream);
                StreamAction::Stop
            }
            Some(Step::Respond) => self.purged(stream, query),
            _ => StreamAction::Reset("sszip: a purge could not be asked for"),
        }
    }

    fn start_purge(&mut self, method: &[u8], query: &[u8], waiter: Waiter) -> Option<Step> {
        let purge = PurgeRequest {
            method,
            query,
            namespace: None,
            waiter,
            now: clock::monotonic(),
        };
        self.driver.as_mut()?.purge(&purge).ok()
    }

    fn purged(&mut self, stream: Stream, query: &[u8]) -> StreamAction {
        self.waiting = None;
        if let Some(driver) = &self.driver {
            respond_purge(query, driver);
            set_dynamic_metadata(stream, Some(driver));
        }
        self.answer(stream)
    }

    /// Logs that the client closed its connection before the response. The
    /// owner continues the purge.
    pub(super) fn purge_is_left(&self, stream: Stream) {
        let head = stream.head(HeaderType::Request);
        let query = query_of(&head).escape_ascii();
        let line = format!("purge of \"{query}\": its client has gone before it was answered");
        log(LogLevel::Warn, &line);
    }
}

pub(super) fn query_of(head: &Head) -> &[u8] {
    let target = head.get(":path").unwrap_or_default();
    let query = target.iter().position(|byte| *byte == b'?');
    query.map_or(&b""[..], |at| &target[at + 1..])
}

/// Logs what was purged; the access log shows the client.
fn respond_purge(query: &[u8], driver: &Driver) {
    let Some(exchange) = driver.exchange() else {
        return;
    };
    let level = match exchange.status() {
        ..500 => LogLevel::Info,
        _ => LogLevel::Error,
    };
    let body: Vec<u8> = exchange.body().flatten().copied().collect();
    let line = format!(
        "purge of \"{}\": {} {}",
        query.escape_ascii(),
        exchange.status(),
        body.trim_ascii_end().escape_ascii()
    );
    log(level, &line);
}
