//! The servers of a connection, and how they are reached.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::cluster::ClusterNodes;
use crate::fleet::connect::FleetByteStream;

/// The function that opens a byte stream to the server.
pub(super) type StreamOpener =
    Arc<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn FleetByteStream>>> + Send + Sync>;

/// The servers to which a connection sends its commands.
#[derive(Clone)]
pub(super) enum LinkTarget {
    /// One server.
    Server(StreamOpener),
    /// The server that Sentinels name as the primary: it must have this role.
    Primary(StreamOpener),
    /// The nodes of a cluster.
    Cluster(ClusterNodes),
}
