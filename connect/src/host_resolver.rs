//! Resolution of host names by the system.
//!
//! The system's resolver blocks a thread for an unlimited time, and the threads that may block
//! are those that read disks: one request at a time resolves a host's name, even if earlier ones
//! were abandoned.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// The resolver of one host's name.
#[derive(Clone, Debug)]
pub struct HostResolver {
    /// Permit of the one request that resolves the name.
    resolving: Arc<Semaphore>,
}

impl Default for HostResolver {
    fn default() -> Self {
        Self {
            resolving: Arc::new(Semaphore::new(1)),
        }
    }
}

impl HostResolver {
    /// Returns the addresses of a host: a name, or an address itself.
    ///
    /// # Errors
    /// The error of the system's resolver, with the name.
    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![(address, port).into()]);
        }
        let resolving = Arc::clone(&self.resolving).acquire_owned().await;
        let resolving = resolving.map_err(io::Error::other)?;
        let host = host.to_owned();
        let resolved = spawn_blocking(move || {
            let _resolving = resolving;
            let found = (&host[..], port).to_socket_addrs();
            found
                .map(Iterator::collect)
                .map_err(|error| io::Error::new(error.kind(), format!("{host}: {error}")))
        });
        resolved.await.map_err(io::Error::other)?
    }
}
