//! Redirects that Envoy follows by itself (`internal_redirect_policy`). It ends the stream
//! and begins another one with the request as it went to the node, which is not as the
//! client has sent it: what has become of a batch, say, or of its `Accept`. So the driver,
//! who knows, goes on from one to the other.

use std::cell::Cell;

use sszip_core::exchange::drive::Driver;
use sszip_core::exchange::HeadEdit;

use super::{Exchange, State};
use crate::abi::HeaderType;
use crate::envoy::{Head, Stream};

/// What Envoy sets when it follows one.
const FROM: &str = "x-envoy-original-url";

thread_local! {
    /// Of the stream that has ended, for the one that begins: Envoy does both at once.
    static GOES_ON: Cell<Option<(Driver, Vec<HeadEdit>)>> = const { Cell::new(None) };
}

/// The driver of a stream that begins, if it is another one that goes on, and what its
/// client has sent in the fields that the node gets otherwise.
pub(super) fn begun() -> (Option<Driver>, Vec<HeadEdit>) {
    let (driver, own_fields) = GOES_ON.take().unzip();
    (driver, own_fields.unwrap_or_default())
}

impl Exchange {
    /// Whether the request is one that was asked before, and went elsewhere.
    pub(super) fn is_redirected(&mut self, head: &Head) -> bool {
        self.redirected_from = head.get(FROM).map(<[u8]>::to_vec);
        if self.redirected_from.is_none() {
            self.forget();
            self.own_fields.clear();
        }
        self.driver.is_some()
    }

    /// The stream is about to end. Whether it goes on as another one.
    pub(super) fn goes_on_elsewhere(&mut self, stream: Stream) -> bool {
        let head = stream.head(HeaderType::Request);
        let goes_on = self.state == State::Forwarded
            && self.driver.is_some()
            && head.get(FROM) != self.redirected_from.as_deref();
        if goes_on {
            let own_fields = std::mem::take(&mut self.own_fields);
            GOES_ON.set(self.driver.take().map(|driver| (driver, own_fields)));
        }
        goes_on
    }
}
