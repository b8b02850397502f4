//! A proxy process of a world: its event loops, and its link to the owner.

use std::sync::Arc;

use sszip_core::cache::link::OwnerLink;
use sszip_core::cache::owner_protocol::client_name::OwnerClientName;
use sszip_core::cache::process::wake::{EventLoopId, WaitingRequestId, WokenRequestQueue};
use sszip_core::cache::process::ProcessResources;
use sszip_core::config::{RouteConfig, RouteConfigBlock};

use super::owner_network::KnownChain;

/// The namespace of the route.
pub const NAMESPACE: &str = "mainnet";

/// A process with a route to the nodes of a world.
pub struct ProxyProcess {
    pub resources: ProcessResources,
    pub config: Arc<RouteConfig>,
    pub link: Arc<OwnerLink>,
    event_loops: Vec<(EventLoopId, Arc<WokenRequestQueue>)>,
    /// The chain as the process knows it from the owner.
    pub known: KnownChain,
    /// All heads that the process has known, the newest last.
    pub known_heads: Vec<u64>,
}

impl ProxyProcess {
    /// Creates a process whose route has these directives, each a line of its name and its words.
    pub fn new(number: usize, event_loops: usize, lines: &[String]) -> Self {
        let resources = ProcessResources::default();
        let shared = &resources.shared;
        shared.start_hot_tier(4 << 20, 1 << 20, event_loops);
        let event_loops = (0..event_loops).map(|_| {
            let queue = Arc::new(WokenRequestQueue::default());
            (shared.add_event_loop(queue.clone()), queue)
        });
        let event_loops = event_loops.collect();
        let name = OwnerClientName::new(&format!("process-{number}")).unwrap();
        let link = Arc::new(OwnerLink::new(name, 1 << 30));
        // longer than a process goes without callouts here
        link.set_lookup_timeout(60_000);
        shared.set_owner_client(link.clone());
        link.start_callouts();
        let mut directives = RouteConfigBlock::default();
        for line in lines {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let values: Vec<&[u8]> = words.map(str::as_bytes).collect();
            directives.set_directive(name, &values).unwrap();
        }
        Self {
            config: Arc::new(directives.resolve_route_config(resources.clone())),
            resources,
            link,
            event_loops,
            known: KnownChain::default(),
            known_heads: Vec::new(),
        }
    }

    pub fn event_loop_count(&self) -> usize {
        self.event_loops.len()
    }

    /// Returns the identity under which an event loop wakes a request.
    pub fn waiter_of_request(&self, event_loop: usize, request: usize) -> WaitingRequestId {
        self.event_loops[event_loop].0.waiter_of_request(request)
    }

    /// Returns the next request that was woken on an event loop.
    pub fn next_woken_request(&self, event_loop: usize) -> Option<usize> {
        self.event_loops[event_loop].1.next_woken_id()
    }
}
