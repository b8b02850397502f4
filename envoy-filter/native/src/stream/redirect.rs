//! Internal redirects of Envoy (`internal_redirect_policy`). Envoy ends the
//! stream and starts another one with the upstream request, which differs from
//! the client's request, for example in a batch or its `Accept`. The driver,
//! which has the client's request, is therefore passed from one stream to the
//! other.

use std::cell::Cell;

use sszip_core::exchange::drive::ExchangeDriver;
use sszip_core::exchange::HeadEdit;

thread_local! {
    /// Driver of the stream that has ended, for the stream that begins: Envoy
    /// does both at once.
    static OFFERED: Cell<Option<(ExchangeDriver, Vec<HeadEdit>)>> = const { Cell::new(None) };
}

/// Offers the driver of a stream that ends, with the edits that restore the
/// client's headers, to the stream that begins next.
pub(super) fn offer_redirected_driver(
    driver: Option<ExchangeDriver>,
    restoring_edits: Vec<HeadEdit>,
) {
    OFFERED.set(driver.map(|driver| (driver, restoring_edits)));
}

/// Takes the driver that the previous stream offered, with the edits that
/// restore the client's headers.
pub(super) fn take_offered_driver() -> (Option<ExchangeDriver>, Vec<HeadEdit>) {
    let (driver, restoring_edits) = OFFERED.take().unzip();
    (driver, restoring_edits.unwrap_or_default())
}
