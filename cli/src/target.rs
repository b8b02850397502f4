//! The URL or socket that a command sends its requests to.

use std::fmt;
use std::str::FromStr;

use sszip_core::config::endpoint::{NodeEndpoint, NodeSocketAddress};

/// The status page of the example configurations (configs/README.md).
pub const DEFAULT_STATUS_TARGET: &str = "http://127.0.0.1:8580/sszip";

/// The endpoint of a proxy, of an owner, or of Envoy's admin interface.
#[derive(Clone, Debug)]
pub struct Target {
    /// The target as the user has written it.
    pub text: String,
    /// The transport, the authority and the path of requests.
    pub endpoint: NodeEndpoint,
}

impl FromStr for Target {
    type Err = String;

    /// Parses `http://`, `https://`, `unix:/SOCKET`, `unix:/SOCKET:/PATH`, or `/SOCKET`.
    fn from_str(text: &str) -> Result<Self, String> {
        let url = match text.starts_with('/') {
            true => format!("unix:{text}"),
            false => text.into(),
        };
        let scheme = url.split(':').next().unwrap_or_default();
        let authority = url.split('/').nth(2).unwrap_or_default();
        let endpoint = NodeEndpoint::parse_url(&url).filter(|endpoint| !endpoint.is_websocket);
        if let Some(endpoint) = endpoint {
            let text = text.into();
            return Ok(Self { text, endpoint });
        }
        let reason = match &*scheme.to_ascii_lowercase() {
            "http" | "https" if authority.contains('@') => {
                "user information is not supported; use --header \"Authorization: ...\""
            }
            "http" | "https" => "expected http://HOST[:PORT]/PATH",
            "unix" => {
                "expected the absolute path of a socket of at most 107 bytes, and after a colon a \
                 path: unix:/run/sszip/cached.sock:/v1/status"
            }
            "ws" | "wss" => "WebSockets are not supported; use http:// or https://",
            _ => "expected http://, https://, unix:/SOCKET, or the absolute path of a socket",
        };
        Err(reason.into())
    }
}

impl Target {
    /// Whether the target is a Unix socket.
    pub fn is_socket(&self) -> bool {
        matches!(self.endpoint.transport, NodeSocketAddress::Unix(_))
    }

    /// Returns the target with another path and query.
    pub fn with_path(&self, path: &str) -> Self {
        let endpoint = NodeEndpoint {
            path: path.into(),
            ..self.endpoint.clone()
        };
        let authority = &endpoint.authority;
        let text = match &endpoint.transport {
            NodeSocketAddress::Unix(socket) => format!("unix:{}:{path}", socket.display()),
            NodeSocketAddress::Tcp {
                is_secure: true, ..
            } => format!("https://{authority}{path}"),
            NodeSocketAddress::Tcp { .. } => format!("http://{authority}{path}"),
        };
        Self { text, endpoint }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_sockets_are_parsed() {
        for (text, is_socket, path) in [
            (DEFAULT_STATUS_TARGET, false, "/sszip"),
            ("https://proxy:8443/s?format=json", false, "/s?format=json"),
            ("HTTP://[::1]:80", false, "/"),
            ("unix:/run/a.sock", true, "/"),
            ("unix:/run/a.sock:/sszip", true, "/sszip"),
            ("/run/a.sock", true, "/"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.is_socket(), is_socket, "{text}");
            assert_eq!(target.endpoint.path, path, "{text}");
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn invalid_targets_are_rejected_with_the_expected_form() {
        for (text, expected) in [
            ("", "expected http://"),
            ("localhost:8580", "expected http://"),
            ("relative.sock", "expected http://"),
            ("ws://proxy", "WebSockets"),
            ("http://user:key@proxy/", "--header"),
            ("http://proxy:0/", "HOST[:PORT]"),
            ("http://", "HOST[:PORT]"),
            ("http://a b/", "HOST[:PORT]"),
            ("unix:relative", "absolute path"),
            ("unix:/run/a:relative", "absolute path"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let long = format!("/{}", "a".repeat(107));
        assert!(long.parse::<Target>().unwrap_err().contains("107 bytes"));
    }

    #[test]
    fn path_is_replaced() {
        for (text, expected) in [
            ("https://proxy:1/a?b", "https://proxy:1/c"),
            ("http://[::1]/a", "http://[::1]/c"),
            ("/run/a.sock", "unix:/run/a.sock:/c"),
        ] {
            let target = text.parse::<Target>().unwrap().with_path("/c");
            assert_eq!(target.text, expected);
            assert_eq!(target.endpoint.path, "/c");
            let again: Target = target.text.parse().unwrap();
            assert_eq!(again.endpoint, target.endpoint);
        }
    }
}
