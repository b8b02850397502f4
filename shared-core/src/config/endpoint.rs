//! Parser of node URLs.

use std::path::PathBuf;

use http::uri::{PathAndQuery, Uri};

/// The transport of connections to a node: TCP, with or without TLS, or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeSocketAddress {
    /// TCP.
    Tcp {
        /// A host name, or an address without brackets.
        host: String,
        /// The port.
        port: u16,
        /// Whether the connection uses TLS.
        is_secure: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// The URL of a node, parsed into the parts that a client needs to connect to it and to send
/// requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// The transport to the node.
    pub transport: NodeSocketAddress,
    /// Whether requests are sent over a WebSocket.
    pub is_websocket: bool,
    /// Value of the header `Host`.
    pub authority: String,
    /// Path and query of requests.
    pub path: String,
}

/// Maximum length of a Unix socket's path in bytes: the system's limit of 108 includes a NUL.
pub(super) const MAX_SOCKET_PATH: usize = 107;

/// Returns the host of a URL without the brackets of an IPv6 address, or `None` if it is neither a
/// name nor an address.
pub(super) fn parse_url_host(host: &str) -> Option<&str> {
    match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address
            .parse::<std::net::Ipv6Addr>()
            .is_ok()
            .then_some(address),
        None => {
            let is_letter =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
            (!host.is_empty() && host.bytes().all(is_letter)).then_some(host)
        }
    }
}

impl NodeEndpoint {
    /// Parses a URL. Returns `None` if it is not a node's URL, or has user information.
    pub fn parse_url(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once(':')?;
        let (is_websocket, is_secure) = match &*scheme.to_ascii_lowercase() {
            "unix" => return Self::parse_unix_url(rest),
            "http" => (false, false),
            "https" => (false, true),
            "ws" => (true, false),
            "wss" => (true, true),
            _ => return None,
        };
        let uri: Uri = url.parse().ok()?;
        let authority = uri.authority()?;
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host)? {
            "" if is_secure => 443,
            "" => 80,
            port => {
                let digits = port.strip_prefix(':')?;
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                let number = digits.parse().ok();
                number.filter(|number| is_number && *number > 0)?
            }
        };
        Some(Self {
            transport: NodeSocketAddress::Tcp {
                host: parse_url_host(host)?.into(),
                port,
                is_secure,
            },
            is_websocket,
            authority: authority.as_str().into(),
            path: uri
                .path_and_query()
                .map_or("/", PathAndQuery::as_str)
                .into(),
        })
    }

    /// Parses what follows `unix:` in a URL: the absolute path of a socket, and after a colon the
    /// path of the request, by default `/`.
    fn parse_unix_url(rest: &str) -> Option<Self> {
        let (socket, path) = rest.split_once(':').unwrap_or((rest, "/"));
        let is_socket = (2..=MAX_SOCKET_PATH).contains(&socket.len()) && socket.starts_with('/');
        let is_path = path.starts_with('/') && path.parse::<PathAndQuery>().is_ok();
        (is_socket && is_path).then(|| Self {
            transport: NodeSocketAddress::Unix(socket.into()),
            is_websocket: false,
            authority: "localhost".into(),
            path: path.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_all_schemes_are_parsed() {
        for (url, host, port, is_secure, is_websocket, path) in [
            ("http://node", "node", 80, false, false, "/"),
            (
                "http://node:8545/v1?k=1",
                "node",
                8545,
                false,
                false,
                "/v1?k=1",
            ),
            ("https://[::1]/", "::1", 443, true, false, "/"),
            ("https://node:1", "node", 1, true, false, "/"),
            ("ws://node:8546", "node", 8546, false, true, "/"),
            ("wss://node/ws", "node", 443, true, true, "/ws"),
        ] {
            let endpoint = NodeEndpoint::parse_url(url).unwrap();
            let transport = NodeSocketAddress::Tcp {
                host: host.into(),
                port,
                is_secure,
            };
            assert_eq!(endpoint.transport, transport, "{url}");
            assert_eq!(endpoint.is_websocket, is_websocket, "{url}");
            assert_eq!(endpoint.path, path, "{url}");
        }
        for (url, socket, path) in [
            ("unix:/run/geth.ipc", "/run/geth.ipc", "/"),
            ("unix:/run/node.sock:/rpc", "/run/node.sock", "/rpc"),
        ] {
            let endpoint = NodeEndpoint::parse_url(url).unwrap();
            assert_eq!(endpoint.transport, NodeSocketAddress::Unix(socket.into()));
            assert_eq!(endpoint.path, path);
        }
    }
}
