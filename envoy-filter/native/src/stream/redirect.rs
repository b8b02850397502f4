//! Internal redirects of Envoy (`internal_redirect_policy`). Envoy ends the
//! stream and starts another one with the upstream request, which differs from
//! the client's request, for example in a batch or its `Accept`. The driver,
//! which has the client's request, is therefore passed from one stream to the
//! other.

use std::cell::Cell;

use sszip_core::exchange::drive::Driver;
use sszip_core::exchange::HeadEdit;

use super::{Exchange, State};
use crate::abi::HeaderType;
use crate::envoy::{Head, Stream};

/// Header that Envoy sets when it follows a redirect.
const FROM: &str = "x-envoy-original-url";

thread_local! {
    /// Driver of the stream that has ended, for the stream that begins: Envoy
    /// does both at once.
    static GOES_ON: Cell<Option<(Driver, Vec<HeadEdit>)>> = const { Cell::new(None) };
}

/// Driver of a stream that continues another one, and the edits that restore
/// the client's headers.
pub(super) fn stream_started() -> (Option<Driver>, Vec<HeadEdit>) {
    let (driver, own_fields) = GOES_ON.take().unzip();
    (driver, own_fields.unwrap_or_default())
}

impl Exchange {
    /// Whether the request continues one that was redirected.
    pub(super) fn is_redirected(&mut self, head: &Head) -> bool {
        self.redirected_from = head.get(FROM).map(<[u8]>::to_vec);
        if self.redirected_from.is_none() {
            self.forget();
            self.own_fields.clear();
        }
        self.driver.is_some()
    }

    /// Whether a stream that ends is continued by another one, which then
    /// receives the driver.
    pub(super) fn continue_redirect(&mut self, stream: Stream) -> bool {
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
