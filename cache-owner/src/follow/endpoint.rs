//! What the URL of a node says.

use std::path::PathBuf;

use hyper::Uri;

/// How a node is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp {
        /// A name, or an address without brackets.
        host: String,
        /// Its port.
        port: u16,
        /// TLS inside.
        is_secure: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// A node's URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// How it is reached.
    pub transport: Transport,
    /// It is asked over a WebSocket.
    pub is_websocket: bool,
    /// For the `Host` of requests.
    pub authority: String,
    /// What is asked for there, with the query.
    pub path: String,
}

/// What is allowed, for messages.
const ALLOWED: &str = "http://, https://, ws://, wss:// or unix:/path[:/uri]";

impl Endpoint {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// What is wrong with it, and what is allowed.
    pub fn parse(url: &str) -> Result<Self, String> {
        if let Some(rest) = url.strip_prefix("unix:") {
            let (socket, path) = rest.split_once(':').unwrap_or((rest, "/"));
            if !socket.starts_with('/') || !path.starts_with('/') {
                return Err(format!("\"{url}\" is no URL of a node: {ALLOWED}"));
            }
            return Ok(Self {
                transport: Transport::Unix(socket.into()),
                is_websocket: false,
                authority: "localhost".into(),
                path: path.into(),
            });
        }
        // what may be a secret is not said
        let uri: Uri = url
            .parse()
            .map_err(|error| format!("it is no URL of a node ({error}): {ALLOWED}"))?;
        let (is_websocket, is_secure) = match uri.scheme_str() {
            Some("http") => (false, false),
            Some("https") => (false, true),
            Some("ws") => (true, false),
            Some("wss") => (true, true),
            _ => return Err(format!("it is no URL of a node: {ALLOWED}")),
        };
        let authority = uri.authority().filter(|it| !it.host().is_empty());
        let authority = authority.ok_or_else(|| format!("it names no host: {ALLOWED}"))?;
        if authority.as_str().contains('@') {
            return Err("a password goes into a header, Authorization, not into the URL".into());
        }
        let host = authority.host();
        let host = host.strip_prefix('[').unwrap_or(host);
        let host = host.strip_suffix(']').unwrap_or(host);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            transport: Transport::Tcp {
                host: host.into(),
                port: authority
                    .port_u16()
                    .unwrap_or(if is_secure { 443 } else { 80 }),
                is_secure,
            },
            is_websocket,
            authority: authority.as_str().into(),
            path: path.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_url_is_taken_apart() {
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
            let endpoint = Endpoint::parse(url).unwrap();
            let transport = Transport::Tcp {
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
            let endpoint = Endpoint::parse(url).unwrap();
            assert_eq!(endpoint.transport, Transport::Unix(socket.into()));
            assert_eq!(endpoint.path, path);
        }
    }

    #[test]
    fn what_is_no_url_of_a_node_is_refused_without_saying_it() {
        for url in [
            "",
            "node",
            "node:8545",
            "ftp://node",
            "unix:",
            "unix:run",
            "unix:/run:uri",
            "http://",
            "http:///x",
            "http://no de",
        ] {
            let error = Endpoint::parse(url).unwrap_err();
            assert!(error.contains("unix:/path[:/uri]"), "{url}: {error}");
        }
        let error = Endpoint::parse("http://me:secret@node/").unwrap_err();
        assert!(error.contains("Authorization") && !error.contains("secret"));
    }
}
