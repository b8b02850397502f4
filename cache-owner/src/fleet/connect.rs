//! Connections to the server of a fleet: TCP and TLS.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use sszip_core::config::fleet::FleetSettings;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::host_resolver::HostResolver;
use crate::tls::{tls_config, ClientIdentity, TrustedAuthorities};

/// Time without traffic after which the system probes a connection, and the interval of the probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// Time after which the system ends a connection whose bytes are not acknowledged, in milliseconds.
const UNACKNOWLEDGED_MS: u32 = 5_000;

/// A byte stream to a server: TCP or TLS.
pub trait FleetByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> FleetByteStream for T {}

/// The factory of connections to the server of a fleet.
#[derive(Clone)]
pub struct FleetConnector {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    resolver: HostResolver,
}

impl FleetConnector {
    /// Creates a connector to the server of `settings`.
    ///
    /// # Errors
    /// The server's name, the certificates or the key are invalid. The message is for operators.
    pub fn new(settings: &FleetSettings) -> Result<Self, String> {
        let endpoint = &settings.endpoint;
        let host = endpoint.host.clone();
        let tls = match endpoint.is_secure {
            true => {
                let name = ServerName::try_from(host.clone())
                    .map_err(|error| format!("\"{host}\" is not a host name: {error}"))?;
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
                Some((TlsConnector::from(Arc::new(config)), name))
            }
            false => None,
        };
        Ok(Self {
            host,
            port: endpoint.port,
            tls,
            resolver: HostResolver::default(),
        })
    }

    /// Opens a connection to the server. The caller limits the time.
    ///
    /// # Errors
    /// The error of the system, or what is wrong with the server's certificate.
    pub async fn open_fleet_stream(&self) -> io::Result<Box<dyn FleetByteStream>> {
        let addresses = self.resolver.resolve(&self.host, self.port).await?;
        let stream = TcpStream::connect(&addresses[..]).await?;
        set_socket_options(&stream)?;
        Ok(match &self.tls {
            Some((tls, name)) => Box::new(tls.connect(name.clone(), stream).await?),
            None => Box::new(stream),
        })
    }
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
