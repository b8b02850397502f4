//! The signal to stop.

use tokio::sync::watch;

/// Waits until `stop` is true, or its sender is dropped.
pub(crate) async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}
