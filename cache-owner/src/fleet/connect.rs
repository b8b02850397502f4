//! Connections to the servers of a fleet: TCP and TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use sszip_connect::host_resolver::HostResolver;
use sszip_connect::tls::{tls_config, ClientIdentity, TrustedAuthorities};
use sszip_core::config::fleet::{FleetNode, FleetSettings};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

/// Time without traffic after which the system probes a connection, and the interval of the probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Time after which the system ends a connection whose bytes are not acknowledged, in milliseconds.
const UNACKNOWLEDGED_MS: u32 = 5_000;

/// A byte stream to a server: TCP or TLS.
pub trait FleetByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> FleetByteStream for T {}

/// The factory of connections to the servers of a fleet.
#[derive(Clone)]
pub struct FleetConnector {
    tls: Option<TlsConnector>,
    resolver: HostResolver,
}

impl FleetConnector {
    /// Creates a connector to the servers of `settings`.
    ///
    /// # Errors
    /// A server's name, the certificates or the key are invalid. The message is for operators.
    pub fn new(settings: &FleetSettings) -> Result<Self, String> {
        let tls = match settings.endpoint.is_secure {
            true => {
                for node in &settings.endpoint.nodes {
                    parse_server_name(&node.host)?;
                }
                let authorities = settings
                    .ca
                    .as_deref()
                    .map_or(TrustedAuthorities::System, TrustedAuthorities::Pem);
                let identity =
                    settings
                        .client_cert
                        .as_ref()
                        .map(|(certificates, key)| ClientIdentity {
                            certificates: certificates.as_bytes(),
                            key: key.as_bytes(),
                        });
                let config = tls_config(authorities, identity)?;
                Some(TlsConnector::from(Arc::new(config)))
            }
            false => None,
        };
        Ok(Self {
            tls,
            resolver: HostResolver::default(),
        })
    }

    /// Opens a connection to a server, whose certificate must be valid for the host of `node`. The
    /// caller limits the time.
    ///
    /// # Errors
    /// The error of the system, or what is wrong with the server's certificate.
    pub async fn open_node_stream(&self, node: &FleetNode) -> io::Result<Box<dyn FleetByteStream>> {
        let addresses = self.resolver.resolve(&node.host, node.port).await?;
        let stream = TcpStream::connect(&addresses[..]).await?;
        set_socket_options(&stream)?;
        Ok(match &self.tls {
            Some(tls) => {
                let name = parse_server_name(&node.host).map_err(io::Error::other)?;
                Box::new(tls.connect(name, stream).await?)
            }
            None => Box::new(stream),
        })
    }
}

/// Parses the name of a server for the verification of its certificate.
fn parse_server_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned())
        .map_err(|error| format!("\"{host}\" is not a host name: {error}"))
}

/// Sets the options of a connection that carries short commands, and must fail soon when its server
/// is unreachable.
fn set_socket_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_user_timeout(stream, UNACKNOWLEDGED_MS)?;
    Ok(())
}

#[cfg(test)]
mod tests;
