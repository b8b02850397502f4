//! Connections to nodes: TCP, TLS, Unix sockets.
//!
//! The system's resolver blocks a thread for an unlimited time, and the threads that may block
//! are those that read disks: one request at a time resolves a node's name, even if earlier ones
//! were abandoned.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use sszip_core::config::endpoint::{NodeEndpoint, NodeSocketAddress};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::format_error_causes;

/// A byte stream to a node: TCP, TLS or a Unix socket.
pub trait NodeStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> NodeStream for T {}

/// An open connection to a node: TCP, TLS or a Unix socket.
pub type NodeConnection = Box<dyn NodeStream>;

/// The factory of connections to one followed node, over the transport that its URL selects.
#[derive(Clone)]
pub struct NodeConnector {
    transport: NodeSocketAddress,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// Permit of the one request that resolves the node's name.
    resolving: Arc<Semaphore>,
}

impl NodeConnector {
    /// Creates a connector to the node at `endpoint`. The certificate of the node, if it has one,
    /// must be signed by an authority in the file `ca`, or by one that the system trusts.
    ///
    /// # Errors
    /// The node's name or the certificates are invalid. The message is for operators.
    pub fn new(endpoint: &NodeEndpoint, ca: Option<&Path>) -> Result<Self, String> {
        let tls = match &endpoint.transport {
            NodeSocketAddress::Tcp {
                host,
                is_secure: true,
                ..
            } => {
                let name = ServerName::try_from(host.clone())
                    .map_err(|error| format!("\"{host}\" is not a host name: {error}"))?;
                Some((TlsConnector::from(Arc::new(tls_config(ca)?)), name))
            }
            _ => None,
        };
        Ok(Self {
            transport: endpoint.transport.clone(),
            tls,
            resolving: Arc::new(Semaphore::new(1)),
        })
    }

    /// Opens a connection to the node.
    ///
    /// # Errors
    /// The error of the system, or what is wrong with the node's certificate.
    pub async fn open_node_connection(&self) -> io::Result<NodeConnection> {
        let (host, port) = match &self.transport {
            NodeSocketAddress::Unix(path) => {
                return Ok(Box::new(UnixStream::connect(path).await?));
            }
            NodeSocketAddress::Tcp { host, port, .. } => (&host[..], *port),
        };
        let stream = TcpStream::connect(&self.resolve_host(host, port).await?[..]).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await?),
            None => Box::new(stream),
        })
    }
}

impl NodeConnector {
    async fn resolve_host(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
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

/// Creates a TLS configuration that trusts the authorities in `ca`, or the system's.
fn tls_config(ca: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(path) => {
            let wrong = |error: &dyn std::error::Error| {
                format!("{}: {}", path.display(), format_error_causes(error))
            };
            let all = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
            for certificate in all {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
            if roots.is_empty() {
                return Err(format!("{} contains no certificate", path.display()));
            }
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(
                    "the system has no trusted certificates; set \"ca\" to a file of \
                            certificates"
                        .into(),
                );
            }
        }
    }
    // its own provider: other code of the process may choose another one
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

impl Service<Uri> for NodeConnector {
    type Response = TokioIo<NodeConnection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<NodeConnection>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Connects to the one node, whatever the URI is.
    fn call(&mut self, _: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { connector.open_node_connection().await.map(TokioIo::new) })
    }
}

impl Connection for NodeConnection {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
