//! Internal redirects of the proxy (`internal_redirect_policy`). The proxy ends
//! the stream and at once starts another one with the upstream request, which
//! differs from the client's request, for example in a batch or its `Accept`.
//! The driver, which has the client's request, is therefore passed from one
//! stream to the other.
//!
//! The proxy keeps the name of the request in a property, which clients cannot
//! set.

use std::cell::Cell;

use sszip_core::exchange::drive::ExchangeDriver;

thread_local! {
    /// Driver of a stream that has ended, with the stream's context, for the
    /// stream that begins.
    static OFFERED: Cell<Option<(u32, ExchangeDriver)>> = const { Cell::new(None) };
}

/// Offers the driver of a stream that ends to the stream that begins next.
pub fn offer_redirected_driver(stream: u32, driver: ExchangeDriver) {
    OFFERED.set(Some((stream, driver)));
}

/// Takes the driver that the previous stream offered, with that stream's context.
pub fn take_offered_driver() -> Option<(u32, ExchangeDriver)> {
    OFFERED.take()
}

/// Drops an offered driver that no new stream has taken.
pub fn drop_offered_driver() {
    OFFERED.take();
}
