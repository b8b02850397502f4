//! The destination of a route's requests, which separates the responses of routes for which the
//! operator has configured no namespace.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// One group of servers that a configuration names (in nginx: `upstream`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct UpstreamGroup {
    name: Vec<u8>,
    servers: Vec<Vec<u8>>,
}

/// The named groups of servers of a whole configuration, which resolve the URL of a route to
/// servers. Routes share them, and are created before all groups are known.
#[derive(Clone, Debug, Default)]
pub struct UpstreamGroups {
    found: Vec<UpstreamGroup>,
    all: Arc<OnceLock<Vec<UpstreamGroup>>>,
}

impl UpstreamGroups {
    /// Adds a group of servers, which routes see after
    /// [`share_groups_with_routes`](Self::share_groups_with_routes).
    pub fn add_upstream_group<'a>(&mut self, name: &[u8], servers: impl Iterator<Item = &'a [u8]>) {
        let servers = servers.map(<[u8]>::to_vec).collect();
        let name = name.to_vec();
        self.found.push(UpstreamGroup { name, servers });
    }

    /// Makes the groups visible to all routes, once all of them are added.
    pub fn share_groups_with_routes(&mut self) {
        let _ = self.all.set(std::mem::take(&mut self.found));
    }

    /// Returns the servers of the group that is the host of `url`; empty if it is none.
    fn upstream_group_servers(&self, url: &[u8]) -> &[Vec<u8>] {
        let rest = match url.windows(3).position(|three| three == b"://") {
            Some(at) => &url[at + 3..],
            None => url,
        };
        let host = rest.split(|byte| matches!(byte, b'/' | b'?')).next();
        let host = host.unwrap_or_default();
        let mut blocks = self.all.get().map_or(&[][..], Vec::as_slice).iter();
        let named = blocks.find(|block| block.name.eq_ignore_ascii_case(host));
        named.map_or(&[], |block| &block.servers)
    }
}

/// The identity of the servers of a route, which separates its cached responses where no namespace
/// is configured. It is stable across reloads, processes and restarts, because it contains no
/// positions in files.
#[derive(Clone, Debug, Default)]
pub struct RouteUpstreamIdentity {
    place: Vec<u8>,
    /// The URL, or `None` if there is none or if it depends on the request.
    url: Option<Vec<u8>>,
    upstreams: UpstreamGroups,
    request_text: OnceLock<Vec<u8>>,
}

impl RouteUpstreamIdentity {
    /// Creates the destination of the named route.
    pub fn new(place: &[u8], url: Option<&[u8]>, upstreams: &UpstreamGroups) -> Self {
        Self {
            place: place.to_vec(),
            url: url.map(<[u8]>::to_vec),
            upstreams: UpstreamGroups {
                found: Vec::new(),
                all: Arc::clone(&upstreams.all),
            },
            request_text: OnceLock::new(),
        }
    }

    /// Returns the text that identifies the destination of a request. `url` is the URL of the
    /// request, if the route's URL depends on it.
    pub fn destination_text(&self, url: Option<&[u8]>) -> Cow<'_, [u8]> {
        match url {
            Some(url) => self.destination_text_for_url(url).into(),
            None => {
                let constant = || match &self.url {
                    Some(url) => self.destination_text_for_url(url),
                    None => self.place.clone(),
                };
                self.request_text.get_or_init(constant).into()
            }
        }
    }

    /// Returns the destination of requests to `url`, as lines: a line feed ends each part, because
    /// no name in a configuration contains one.
    fn destination_text_for_url(&self, url: &[u8]) -> Vec<u8> {
        let servers = self
            .upstreams
            .upstream_group_servers(url)
            .iter()
            .map(Vec::as_slice);
        join_lines([&self.place[..], url].into_iter().chain(servers))
    }
}

/// Returns the destination for a host with named routes and named clusters of nodes. The name of
/// the route represents its changes to requests, which are not known.
pub fn named_route_destination(route: &[u8], nodes: &[u8]) -> Vec<u8> {
    join_lines([route, nodes].into_iter())
}

fn join_lines<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    parts
        .flat_map(|part| [part, b"\n"])
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{RouteUpstreamIdentity, UpstreamGroups};

    #[test]
    fn destination_contains_the_servers_of_the_named_group() {
        let mut upstreams = UpstreamGroups::default();
        let early = RouteUpstreamIdentity::new(b"/", Some(b"http://Nodes/rpc"), &upstreams);
        let servers = [&b"10.0.0.1:8545"[..], b"10.0.0.2:8545"];
        upstreams.add_upstream_group(b"other", [&b"10.0.0.9:8545"[..]].into_iter());
        upstreams.add_upstream_group(b"nodes", servers.into_iter());
        upstreams.share_groups_with_routes();
        let all = b"/\nhttp://Nodes/rpc\n10.0.0.1:8545\n10.0.0.2:8545\n";
        assert_eq!(*early.destination_text(None), all[..]);
        for (url, servers) in [
            ("nodes", "10.0.0.1:8545\n10.0.0.2:8545\n"),
            ("nodes?a", "10.0.0.1:8545\n10.0.0.2:8545\n"),
            ("grpc://nodes", "10.0.0.1:8545\n10.0.0.2:8545\n"),
            ("http://other/x://nodes", "10.0.0.9:8545\n"),
            ("http://nodes:8545/", ""),
            ("http://10.0.0.1:8545", ""),
            ("http://node", ""),
            ("http://", ""),
            ("", ""),
        ] {
            let expected = format!("/\n{url}\n{servers}");
            assert_eq!(
                *early.destination_text(Some(url.as_bytes())),
                *expected.as_bytes()
            );
        }
    }

    #[test]
    fn destination_without_a_url_is_the_name_of_the_route() {
        let destination = RouteUpstreamIdentity::new(b"/files", None, &UpstreamGroups::default());
        assert_eq!(*destination.destination_text(None), b"/files"[..]);
        assert_eq!(
            *destination.destination_text(Some(b"u")),
            b"/files\nu\n"[..]
        );
    }
}
