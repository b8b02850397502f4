//! The function that opens byte streams to the server.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::fleet::connect::FleetByteStream;

/// The function that opens a byte stream to the server.
pub(super) type StreamOpener =
    Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn FleetByteStream>>> + Send + Sync>;
