//! Connections to the endpoint of a URL: TCP, TLS, Unix sockets.

use std::future::Future;
use std::io;
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
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::host_resolver::HostResolver;
use crate::tls::{tls_config, TrustedAuthorities};

/// A byte stream to a node: TCP, TLS or a Unix socket.
pub trait NodeStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> NodeStream for T {}

/// An open connection to a node: TCP, TLS or a Unix socket.
pub type NodeConnection = Box<dyn NodeStream>;

/// The factory of connections to one endpoint, over the transport that its URL selects.
#[derive(Clone)]
pub struct NodeConnector {
    transport: NodeSocketAddress,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    resolver: HostResolver,
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
                let authorities = ca.map_or(TrustedAuthorities::System, TrustedAuthorities::File);
                let config = tls_config(authorities, None)?;
                Some((TlsConnector::from(Arc::new(config)), name))
            }
            _ => None,
        };
        Ok(Self {
            transport: endpoint.transport.clone(),
            tls,
            resolver: HostResolver::default(),
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
        let addresses = self.resolver.resolve(host, port).await?;
        let stream = TcpStream::connect(&addresses[..]).await?;
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await?),
            None => Box::new(stream),
        })
    }
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
