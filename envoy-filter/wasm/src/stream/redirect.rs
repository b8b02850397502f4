//! Internal redirects of the proxy (`internal_redirect_policy`). The proxy ends
//! the stream and at once starts another one with the upstream request, which
//! differs from the client's request, for example in a batch or its `Accept`.
//! The driver, which has the client's request, is therefore passed from one
//! stream to the other.
//!
//! The proxy keeps the name of the request in a property, which clients cannot
//! set.

use std::cell::Cell;

use sszip_core::exchange::drive::Driver;

use super::{Exchange, State};
use crate::abi::{self, Head};
use crate::timers::TimerKind;

/// Header that the proxy sets when it follows a redirect; clients may send it,
/// too.
const FROM: &str = "x-envoy-original-url";

thread_local! {
    /// Driver of a stream that has ended, for the stream that begins.
    static GOES_ON: Cell<Option<(u32, Driver)>> = const { Cell::new(None) };
}

/// Drops a driver that no new stream has continued.
pub fn forget() {
    GOES_ON.take();
}

impl Exchange {
    /// Marks the request as forwarded.
    pub(super) fn mark_forwarded(&self) {
        abi::note(abi::REQUEST_PROPERTY, &self.id.to_le_bytes());
    }

    /// Whether the request continues one that was redirected; it then has its
    /// driver.
    pub(super) fn is_redirected(&mut self, head: &Head) -> bool {
        let ended = GOES_ON.take();
        let (Some((id, driver)), Some(_)) = (ended, head.get(FROM)) else {
            return false;
        };
        if abi::property(abi::REQUEST_PROPERTY) != id.to_le_bytes() {
            return false;
        }
        self.driver = Some(driver);
        self.mark_forwarded();
        self.set_state(State::Forwarded);
        true
    }

    /// Offers the driver of a stream that ends: a stream that continues it
    /// begins before any other event.
    pub(super) fn offer_driver(&mut self) {
        if self.state == State::Forwarded {
            if let Some(driver) = self.driver.take() {
                GOES_ON.set(Some((self.id, driver)));
                self.root.set_timer(TimerKind::Canceled, 1);
            }
        }
    }
}
