//! Purges: requests that are not forwarded.

use proxy_wasm::types::MapType;
use sszip_core::exchange::drive::{Driver, Step};
use sszip_core::exchange::Purge;

use super::{note, Act, Exchange, State};
use crate::abi::{self, Head, Level};

impl Exchange {
    /// Starts the purge that the query selects, or continues it after a wakeup
    /// or a timeout.
    pub(super) fn purge(&mut self) -> Act {
        let head = Head::of(MapType::HttpRequestHeaders);
        let query = query_of(&head);
        let purge = Purge {
            method: head.get(":method").unwrap_or_default(),
            query,
            namespace: None,
            waiter: self.root.waiter(self.id),
            now: abi::monotonic(),
        };
        let step = self.driver.as_mut().map(|driver| driver.purge(&purge));
        match step {
            Some(Ok(Step::Wait)) => {
                self.becomes(State::Purging);
                self.set_timer();
                self.root.call(self.id);
                Act::Stop
            }
            Some(Ok(Step::Respond)) => {
                if let Some(driver) = &self.driver {
                    tell(query, driver);
                    note(Some(driver));
                }
                Act::Respond
            }
            _ => Act::Reset,
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
    let head = Head::of(MapType::HttpRequestHeaders);
    let query = query_of(&head).escape_ascii();
    let line = format!("purge of \"{query}\": its client has gone before it was answered");
    abi::log(Level::Warn, &line);
}

/// Logs what was purged; the access log shows the client.
fn tell(query: &[u8], driver: &Driver) {
    let Some(exchange) = driver.exchange() else {
        return;
    };
    let level = match exchange.status() {
        ..500 => Level::Info,
        _ => Level::Error,
    };
    let said: Vec<u8> = exchange.body().flatten().copied().collect();
    let line = format!(
        "purge of \"{}\": {} {}",
        query.escape_ascii(),
        exchange.status(),
        said.trim_ascii_end().escape_ascii()
    );
    abi::log(level, &line);
}
