//! Redirects that the proxy follows by itself (`internal_redirect_policy`). It ends the
//! stream and at once begins another one with the request as it went to the node, which is
//! not as the client has sent it: what has become of a batch, say, or of its `Accept`. So
//! the driver, who knows, goes on from one to the other.
//!
//! What a request is called goes with it in the proxy, where no client can say it.

use std::cell::Cell;

use sszip_core::exchange::drive::Driver;

use super::{Exchange, State};
use crate::abi::{self, Head};
use crate::timers::Due;

/// What the proxy sets when it follows one; clients may say it, too.
const FROM: &str = "x-envoy-original-url";

thread_local! {
    /// Of a stream that has ended, for the one that begins.
    static GOES_ON: Cell<Option<(u32, Driver)>> = const { Cell::new(None) };
}

/// What has not gone on by now does not.
pub fn forget() {
    GOES_ON.take();
}

impl Exchange {
    /// The request goes to the node.
    pub(super) fn is_sent(&self) {
        abi::note(abi::OF_REQUEST, &self.id.to_le_bytes());
    }

    /// Whether the request is one that was asked before, and went elsewhere.
    pub(super) fn is_redirected(&mut self, head: &Head) -> bool {
        let ended = GOES_ON.take();
        let (Some((id, driver)), Some(_)) = (ended, head.get(FROM)) else {
            return false;
        };
        if abi::property(abi::OF_REQUEST) != id.to_le_bytes() {
            return false;
        }
        self.driver = Some(driver);
        self.is_sent();
        self.becomes(State::Forwarded);
        true
    }

    /// The stream ends: if that is for another one, that begins before anything else
    /// happens.
    pub(super) fn may_go_on(&mut self) {
        if self.state == State::Forwarded {
            if let Some(driver) = self.driver.take() {
                GOES_ON.set(Some((self.id, driver)));
                self.root.set_timer(Due::Forgotten, 1);
            }
        }
    }
}
