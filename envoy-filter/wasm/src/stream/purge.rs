//! Purges: requests that are not forwarded.

use proxy_wasm::types::MapType;
use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::exchange::PurgeRequest;

use super::{set_dynamic_metadata, Exchange, State, StreamAction};
use crate::abi::{self, Head, Level};

impl Exchange {
    /// Starts the purge that the query selects, or continues it after a wakeup
    /// or a timeout.
    pub(super) fn purge(&mut self) -> StreamAction {
        let head = Head::from_proxy(MapType::HttpRequestHeaders);
        let query = query_of(&head);
        let purge = PurgeRequest {
            method: head.get(":method").unwrap_or_default(),
            query,
            namespace: None,
            waiter: self.root.waiter(self.id),
            now: abi::monotonic(),
        };
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
                    respond_purge(query, driver);
                    set_dynamic_metadata(Some(driver));
                }
                StreamAction::Respond
            }
            _ => StreamAction::Reset,
        }
    }
}

fn query_of(head: &Head) -> &[u8] {
    let target = head.get(":path").unwrap_or_default();
    let query = target.iter().position(|byte| *byte == b'?');
    query.map_or(&b""[..], |at| &target[at + 1..])
}

/// Logs that the client closed its connection before the response. The owner
/// continues the purge.
pub fn is_left() {
    let head = Head::from_proxy(MapType::HttpRequestHeaders);
    let query = query_of(&head).escape_ascii();
    let line = format!("purge of \"{query}\": its client has gone before it was answered");
    abi::log(Level::Warn, &line);
}

/// Logs what was purged; the access log shows the client.
fn respond_purge(query: &[u8], driver: &Driver) {
    let Some(exchange) = driver.exchange() else {
        return;
    };
    let level = match exchange.status() {
        ..500 => Level::Info,
        _ => Level::Error,
    };
    let body: Vec<u8> = exchange.body().flatten().copied().collect();
    let line = format!(
        "purge of \"{}\": {} {}",
        query.escape_ascii(),
        exchange.status(),
        body.trim_ascii_end().escape_ascii()
    );
    abi::log(level, &line);
}
