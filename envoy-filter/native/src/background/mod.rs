//! Background requests, for which no client waits: probes of nodes, and
//! background updates of stored responses.
//!
//! A callout of a stream ends with the stream. Background requests are
//! therefore callouts of the filter's configuration, which sends them on
//! Envoy's main thread; any thread can enqueue one.
//!
//! If a filter's configuration is delivered on its own (ECDS), Envoy destroys
//! the previous one with its last stream, on that stream's worker, and resets
//! its callouts there. The callouts belong to the main thread, so Envoy would
//! crash. No callout may be in flight then: whenever a filter is configured,
//! all other filters, which it may replace, reset their callouts, and start
//! none for streams that may be their last. No notification exists for a filter
//! that is removed without a replacement: the worker waits until the callouts
//! in flight have ended.

mod header_rewrite;
mod requests;
mod stream_requests;

pub use self::requests::{BackgroundRequests, BEGIN_EVENT, YIELD_EVENT};
pub use self::stream_requests::{PreRouterRequestHead, StreamBackgroundSender};
