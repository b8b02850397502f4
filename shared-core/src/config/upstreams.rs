//! Where a place's requests go: what keeps the answers of one place apart from
//! those of another, where the operator has not named them.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// Servers that a configuration names together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Block {
    name: Vec<u8>,
    servers: Vec<Vec<u8>>,
}

/// All of a configuration's, shared by its places, which are made before all are
/// known.
#[derive(Clone, Debug, Default)]
pub struct Upstreams {
    found: Vec<Block>,
    all: Arc<OnceLock<Vec<Block>>>,
}

impl Upstreams {
    /// Adds a block of servers.
    pub fn add<'a>(&mut self, name: &[u8], servers: impl Iterator<Item = &'a [u8]>) {
        let servers = servers.map(<[u8]>::to_vec).collect();
        let name = name.to_vec();
        self.found.push(Block { name, servers });
    }

    /// There are no more.
    pub fn finish(&mut self) {
        let _ = self.all.set(std::mem::take(&mut self.found));
    }

    /// The servers of the block that a URL names.
    fn servers(&self, url: &[u8]) -> &[Vec<u8>] {
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

/// Where requests of a place go. It is the same after a reload, in another process
/// and after a restart: nothing in it is the place of a line in a file.
#[derive(Clone, Debug, Default)]
pub struct Destination {
    place: Vec<u8>,
    /// `None`: there is none, or it is another one for each request.
    url: Option<Vec<u8>>,
    upstreams: Upstreams,
    text: OnceLock<Vec<u8>>,
}

impl Destination {
    /// Of the place of that name.
    pub fn new(place: &[u8], url: Option<&[u8]>, upstreams: &Upstreams) -> Self {
        Self {
            place: place.to_vec(),
            url: url.map(<[u8]>::to_vec),
            upstreams: Upstreams {
                found: Vec::new(),
                all: Arc::clone(&upstreams.all),
            },
            text: OnceLock::new(),
        }
    }

    /// What it comes to; `url` is the one of a request, where each has its own.
    pub fn text(&self, url: Option<&[u8]>) -> Cow<'_, [u8]> {
        match url {
            Some(url) => self.of(url).into(),
            None => {
                let constant = || match &self.url {
                    Some(url) => self.of(url),
                    None => self.place.clone(),
                };
                self.text.get_or_init(constant).into()
            }
        }
    }

    /// A line feed ends each part: no configuration has one in a name.
    fn of(&self, url: &[u8]) -> Vec<u8> {
        let servers = self.upstreams.servers(url).iter().map(Vec::as_slice);
        text_of([&self.place[..], url].into_iter().chain(servers))
    }
}

/// The same for a host whose places are routes with names, each to some nodes that have
/// one, too. What a route does to its requests is not known: its name stands for that.
pub fn place_of(route: &[u8], nodes: &[u8]) -> Vec<u8> {
    text_of([route, nodes].into_iter())
}

fn text_of<'a>(parts: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    parts
        .flat_map(|part| [part, b"\n"])
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Destination, Upstreams};

    #[test]
    fn the_servers_of_the_block_that_a_url_names_are_in_it() {
        let mut upstreams = Upstreams::default();
        let early = Destination::new(b"/", Some(b"http://Nodes/rpc"), &upstreams);
        let servers = [&b"10.0.0.1:8545"[..], b"10.0.0.2:8545"];
        upstreams.add(b"other", [&b"10.0.0.9:8545"[..]].into_iter());
        upstreams.add(b"nodes", servers.into_iter());
        upstreams.finish();
        let all = b"/\nhttp://Nodes/rpc\n10.0.0.1:8545\n10.0.0.2:8545\n";
        assert_eq!(*early.text(None), all[..]);
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
            assert_eq!(*early.text(Some(url.as_bytes())), *expected.as_bytes());
        }
    }

    #[test]
    fn a_place_that_passes_nothing_on_is_its_name() {
        let destination = Destination::new(b"/files", None, &Upstreams::default());
        assert_eq!(*destination.text(None), b"/files"[..]);
        assert_eq!(*destination.text(Some(b"u")), b"/files\nu\n"[..]);
    }
}
