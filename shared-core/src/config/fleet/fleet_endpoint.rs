//! The servers of a fleet, and the URL that names them.

use std::fmt;
use std::net::IpAddr;

use crate::config::endpoint::parse_url_host;
use crate::config::suggest::nearest_word;
use crate::config::values::{DirectiveValueRange, DirectiveValueUnit};

const PORT_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 1,
    most: 65_535,
    unit: DirectiveValueUnit::Number,
};
const DATABASE_RANGE: DirectiveValueRange = DirectiveValueRange {
    least: 0,
    most: 65_535,
    unit: DirectiveValueUnit::Number,
};

/// Default port of a server.
const SERVER_PORT: u16 = 6379;
/// Default port of a Sentinel.
const SENTINEL_PORT: u16 = 26_379;

/// Maximum number of servers in a URL.
const MAX_NODES: usize = 32;

/// Maximum length of a host name in bytes.
const MAX_HOST: usize = 255;

/// Maximum length of a primary's name in bytes.
const MAX_PRIMARY_NAME: usize = 64;

/// All schemes, without and with TLS.
const SCHEMES: [&str; 6] = [
    "redis",
    "rediss",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
];

/// How the servers of a URL lead to the server of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetTopology {
    /// One server has all keys.
    Server,
    /// The servers are nodes of a Redis Cluster; each one knows all nodes.
    Cluster,
    /// The servers are Sentinels, which name the address of the primary.
    Sentinel {
        /// Name under which the Sentinels monitor the primary.
        primary_name: String,
    },
}

impl FleetTopology {
    /// Returns the scheme of URLs.
    pub(super) fn scheme(&self, is_secure: bool) -> &'static str {
        match (self, is_secure) {
            (Self::Server, false) => "redis",
            (Self::Server, true) => "rediss",
            (Self::Cluster, false) => "redis+cluster",
            (Self::Cluster, true) => "rediss+cluster",
            (Self::Sentinel { .. }, false) => "redis+sentinel",
            (Self::Sentinel { .. }, true) => "rediss+sentinel",
        }
    }
}

/// The address of a server. `Display` writes it with the brackets of an IPv6 address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetNode {
    /// A host name, or an address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl FleetNode {
    fn parse_node(text: &str, default_port: u16) -> Option<Self> {
        let (host, port) = match text.rsplit_once(':') {
            // the colons of an IPv6 address are in brackets
            Some((host, port)) if !port.ends_with(']') => {
                (host, PORT_RANGE.parse_in_range(port.as_bytes()).ok()?)
            }
            _ => (text, default_port.into()),
        };
        Some(Self {
            host: parse_url_host(host)?.to_owned(),
            port: u16::try_from(port).ok()?,
        })
    }

    /// Creates the address that another server reports: a host name, or an address without
    /// brackets. Returns `None` if it is neither, or the port is 0.
    pub fn from_reported_address(host: &str, port: u16) -> Option<Self> {
        let is_name = host.len() <= MAX_HOST && parse_url_host(host) == Some(host);
        let is_host = is_name || host.parse::<IpAddr>().is_ok();
        (is_host && port != 0).then(|| Self {
            host: host.to_owned(),
            port,
        })
    }

    fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.is_loopback())
    }
}

impl fmt::Display for FleetNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

/// The servers of a fleet, as its URL names them. `Display` writes the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetEndpoint {
    /// The servers in their order, at least one, all different.
    pub nodes: Vec<FleetNode>,
    /// How the servers lead to the server of a command.
    pub topology: FleetTopology,
    /// Whether connections use TLS.
    pub is_secure: bool,
    /// Number of the database; 0 unless there is one server.
    pub database: u32,
}

impl FleetEndpoint {
    /// Parses a URL: `redis://HOST[:PORT][/DATABASE]`, `redis+cluster://HOST[:PORT],...` or
    /// `redis+sentinel://HOST[:PORT],.../NAME`. With `rediss`, connections use TLS. Returns `None`
    /// for any other URL, also if it has a user or a password.
    pub fn parse_url(url: &str) -> Option<Self> {
        Self::parse_or_explain_url(url).ok()
    }

    /// Parses a URL.
    ///
    /// # Errors
    /// The text continues "it must be", and has no part of the URL but addresses.
    pub(super) fn parse_or_explain_url(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or((url, ""));
        let lower = scheme.to_ascii_lowercase();
        let (kind, is_secure) = match lower.strip_prefix("rediss") {
            Some(kind) => (kind, true),
            None => (lower.strip_prefix("redis").unwrap_or(&lower), false),
        };
        let is_known = url.contains("://") && SCHEMES.contains(&&*lower);
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (topology, port, form) = match kind {
            _ if !is_known => return Err(explain_scheme(scheme)),
            "+cluster" => (
                FleetTopology::Cluster,
                SERVER_PORT,
                "HOST[:PORT],HOST[:PORT],...",
            ),
            "+sentinel" => (
                FleetTopology::Sentinel {
                    primary_name: parse_primary_name(path).ok_or_else(|| {
                        format!(
                            "\"{lower}://HOST[:PORT],HOST[:PORT],.../NAME\", with the name under \
                             which the Sentinels monitor the primary: 1 to {MAX_PRIMARY_NAME} \
                             letters, digits, \"_\", \"-\" or \".\""
                        )
                    })?,
                },
                SENTINEL_PORT,
                "HOST[:PORT],HOST[:PORT],.../NAME",
            ),
            _ => (FleetTopology::Server, SERVER_PORT, "HOST[:PORT][/DATABASE]"),
        };
        let expected = || format!("\"{lower}://{form}\"");
        let parse_node = |text| FleetNode::parse_node(text, port).ok_or_else(expected);
        let nodes: Vec<_> = authority
            .split(',')
            .take(MAX_NODES + 1)
            .map(parse_node)
            .collect::<Result<_, _>>()?;
        let database = match (&topology, path) {
            (FleetTopology::Server, path) if !path.is_empty() => {
                let number = DATABASE_RANGE.parse_in_range(path.as_bytes());
                number.map_err(|_| expected())?
            }
            (FleetTopology::Cluster, path) if !path.is_empty() => {
                return Err(format!(
                    "{}, without a database: a cluster has database 0 only",
                    expected()
                ));
            }
            _ => 0,
        };
        check_nodes(&topology, is_secure, &nodes)?;
        Ok(Self {
            nodes,
            topology,
            is_secure,
            database: u32::try_from(database).map_err(|_| expected())?,
        })
    }

    /// Whether all servers of the URL are on this machine, so that connections to them cross no
    /// network.
    pub fn is_loopback(&self) -> bool {
        self.nodes.iter().all(FleetNode::is_loopback)
    }

    /// Returns the beginning of a URL of the same topology with TLS.
    pub(super) fn secure_url_scheme(&self) -> String {
        format!("{}://", self.topology.scheme(true))
    }
}

impl fmt::Display for FleetEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.topology.scheme(self.is_secure))?;
        for (index, node) in self.nodes.iter().enumerate() {
            match index {
                0 => write!(f, "{node}")?,
                _ => write!(f, ",{node}")?,
            }
        }
        match (&self.topology, self.database) {
            (FleetTopology::Sentinel { primary_name }, _) => write!(f, "/{primary_name}"),
            (_, 0) => Ok(()),
            (_, number) => write!(f, "/{number}"),
        }
    }
}

/// Returns the text about an unknown scheme, with all schemes and the nearest one.
fn explain_scheme(scheme: &str) -> String {
    let [others @ .., last] = SCHEMES.map(|scheme| format!("\"{scheme}://\""));
    let mut text = format!("a URL that begins with {} or {last}", others.join(", "));
    if let Some(nearest) = nearest_word(scheme, SCHEMES.into_iter()) {
        text += &format!("; did you mean \"{nearest}://\"?");
    }
    text
}

/// Checks the number of servers, and that all are different.
fn check_nodes(
    topology: &FleetTopology,
    is_secure: bool,
    nodes: &[FleetNode],
) -> Result<(), String> {
    if *topology == FleetTopology::Server && nodes.len() > 1 {
        let primary_name = String::new();
        return Err(format!(
            "a URL of one server; \"{}://\" has the nodes of a Redis Cluster, and \"{}://\" the \
             Sentinels of a primary",
            FleetTopology::Cluster.scheme(is_secure),
            FleetTopology::Sentinel { primary_name }.scheme(is_secure),
        ));
    }
    if nodes.len() > MAX_NODES {
        return Err(format!("a URL of at most {MAX_NODES} servers"));
    }
    for (index, node) in nodes.iter().enumerate() {
        let is_same = |other: &FleetNode| {
            node.port == other.port && node.host.eq_ignore_ascii_case(&other.host)
        };
        if nodes.iter().take(index).any(is_same) {
            return Err(format!(
                "a URL of different servers: \"{node}\" is there twice"
            ));
        }
    }
    Ok(())
}

fn parse_primary_name(path: &str) -> Option<String> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let is_name = (1..=MAX_PRIMARY_NAME).contains(&path.len()) && path.bytes().all(is_letter);
    is_name.then(|| path.to_owned())
}
