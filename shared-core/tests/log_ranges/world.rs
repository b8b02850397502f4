//! A world: a chain, nodes, processes and their clients, and events in random order.

use sszip_core::exchange::drive::OffLoopJob;

use super::blockchain::Blockchain;
use super::check::ResponseCounts;
use super::client_calls::{ClientCalls, LogCall};
use super::exchanges::{BackgroundRequest, ClientRequest};
use super::node_record::NodeRecord;
use super::nodes::{Node, NodeKind};
use super::owner_network::OwnerNetwork;
use super::proxy_process::{ProxyProcess, NAMESPACE};
use super::random::Random;

/// Number of requests of a world.
pub const REQUESTS: u64 = 250;

/// Number of requests after which a world is idle for a while.
const REQUESTS_OF_ROUND: u64 = 50;

/// Milliseconds of the idle time: longer than a node must repeat a response after, and than no call
/// is split after a failure of the node.
const IDLE_MS: u64 = 12_000;

/// Maximum number of requests in flight.
const MAX_IN_FLIGHT: usize = 12;

/// Number of steps after which a request that is not answered is one that is never woken.
const MAX_STEPS: u64 = 400_000;

/// A world whose clients request logs.
pub struct LogWorld {
    pub random: Random,
    pub step: u64,
    pub now: u64,
    pub piece: u64,
    /// Number of calls in ten that are about one block. Without any, no logs are selected from
    /// receipts.
    pub block_calls: u64,
    /// The last block that these calls are about, if it is final.
    pub last_called: u64,
    /// Number of requests that clients send.
    pub request_count: u64,
    pub chain: Blockchain,
    pub nodes: Vec<Node>,
    pub owner: OwnerNetwork,
    pub processes: Vec<ProxyProcess>,
    pub record: NodeRecord,
    pub requests: Vec<ClientRequest>,
    pub background: Vec<BackgroundRequest>,
    pub jobs: Vec<OffLoopJob>,
    /// Whether the host sends no requests in the background.
    pub drops_background_requests: bool,
    pub sent: u64,
    pub counts: ResponseCounts,
    /// The last member that a client has received from the cache.
    pub last_member: String,
}

impl LogWorld {
    /// Creates a world of several nodes: the first one follows the chain.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let head = 40 + random.number_below(160);
        let last_final = head - 2 - random.number_below(30);
        let mut kinds = vec![NodeKind::Following];
        for _ in 0..random.number_below(4) {
            kinds.push(match random.number_below(6) {
                0 => NodeKind::Following,
                1 => NodeKind::Lagging(random.number_below(50)),
                2 => NodeKind::Pruned {
                    below: random.number_below(head),
                    is_silent: random.happens_once_in(2),
                },
                3 => NodeKind::Batchless,
                4 => NodeKind::Truncating,
                _ => NodeKind::OtherChain,
            });
        }
        let chain = Blockchain::new(1, head, last_final);
        let other = Blockchain::new(2, head + 10, last_final);
        let nodes = kinds.into_iter().map(|kind| {
            let view = match kind {
                NodeKind::OtherChain => &other.view,
                _ => &chain.view,
            };
            let mut node = Node::new(kind, view.clone(), &mut random);
            node.adopt_view(&chain.view);
            node
        });
        let nodes = nodes.collect();
        let processes = 1 + random.index(2);
        let piece = [7, 10, 16, 50][random.index(4)];
        let block_calls = 5 * random.number_below(2);
        Self::from_nodes(random, chain, nodes, processes, piece, block_calls)
    }

    /// Creates a world of one process, whose nodes have the same logs and receipts: most calls are
    /// about one block.
    pub fn for_block_calls(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let chain = Blockchain::new(1, 60 + random.number_below(20), 50);
        let nodes = [(); 2].map(|()| Node::reliable(chain.view.clone()));
        Self {
            last_called: 50,
            request_count: 16 * REQUESTS,
            ..Self::from_nodes(random, chain, nodes.into(), 1, 16, 9)
        }
    }

    /// Creates a world of one process, and of one node that follows the chain and never fails.
    pub fn honest(seed: u64) -> Self {
        let chain = Blockchain::new(1, 200, 180);
        let nodes = vec![Node::reliable(chain.view.clone())];
        Self::from_nodes(Random::new(seed), chain, nodes, 1, 16, 0)
    }

    fn from_nodes(
        mut random: Random,
        chain: Blockchain,
        nodes: Vec<Node>,
        processes: usize,
        piece: u64,
        block_calls: u64,
    ) -> Self {
        let concurrent = 1 + random.number_below(5);
        let receipts = if block_calls > 0 { "on" } else { "off" };
        let lines = [
            "enable on".to_owned(),
            "zstd on".to_owned(),
            "cache on".to_owned(),
            format!("cache_namespace {NAMESPACE}"),
            "cache_lock_timeout 60s".to_owned(),
            format!("logs_split {piece} concurrent={concurrent}"),
            format!("logs_from_receipts {receipts}"),
        ];
        let now = 1_000;
        let owner = OwnerNetwork::new(&chain, processes, now);
        let processes =
            (0..processes).map(|number| ProxyProcess::new(number, 1 + random.index(3), &lines));
        let mut world = Self {
            step: 1,
            now,
            piece,
            block_calls,
            last_called: u64::MAX,
            request_count: REQUESTS,
            chain,
            nodes,
            owner,
            processes: processes.collect(),
            random,
            record: NodeRecord::default(),
            requests: Vec::new(),
            background: Vec::new(),
            jobs: Vec::new(),
            drops_background_requests: false,
            sent: 0,
            counts: ResponseCounts::default(),
            last_member: String::new(),
        };
        for process in 0..world.processes.len() {
            world.synchronize(process);
        }
        world
    }

    /// Sends all requests, and returns the numbers of the responses by their source.
    pub fn run(mut self) -> ResponseCounts {
        while self.sent < self.request_count {
            self.run_round();
            self.now += IDLE_MS;
            for process in 0..self.processes.len() {
                self.synchronize(process);
            }
        }
        self.finish()
    }

    /// Sends the requests of a round, with other events between them, until all are answered.
    fn run_round(&mut self) {
        let last = (self.sent + REQUESTS_OF_ROUND).min(self.request_count);
        while self.sent < last || self.has_work() {
            assert!(
                self.step < MAX_STEPS,
                "{} requests wait",
                self.requests.len()
            );
            match self.random.number_below(100) {
                0..=19 if self.sent < last => self.send_random_request(),
                20..=21 => self.change_chain(),
                25..=34 => self.adopt_views(),
                35..=37 => self.owner.follow_chain(&self.chain),
                // rarer in a longer world: a purge ends the trust in receipts
                38 if self.random.happens_once_in(6 * self.request_count / 50) => {
                    self.owner.purge_everything(self.now);
                }
                39 => self.abort_request(),
                _ => {}
            }
            self.advance();
        }
    }

    /// Number of pieces whose blocks are all final.
    pub fn final_piece_count(&self) -> u64 {
        (self.chain.last_final + 1) / self.piece
    }

    /// Requests these pieces in one range, and returns the number of calls that the node has
    /// received for it. The response is the concatenation of the logs.
    pub fn request_final_pieces(&mut self, pieces: std::ops::Range<u64>) -> u64 {
        let (first, last) = (pieces.start * self.piece, pieces.end * self.piece - 1);
        let call = Self::call_of_range(first, last);
        let logs = self.chain.view.logs_of_range(first, last, &call.filter);
        let count = self.request_alone(call);
        assert_eq!(self.last_member, format!("\"result\":[{logs}]"));
        count
    }

    /// Sends a call for the logs up to this block, while the host drops its background requests, and
    /// returns the number of calls that the node has received.
    pub fn request_without_background(&mut self, last: u64) -> u64 {
        self.drops_background_requests = true;
        let count = self.request_alone(Self::call_of_range(0, last));
        self.drops_background_requests = false;
        count
    }

    /// Returns a call for all logs of these blocks.
    fn call_of_range(first: u64, last: u64) -> LogCall {
        let ends = [first, last].map(|number| format!("\"0x{number:x}\""));
        LogCall::new(
            Some(&ends[0]),
            Some(&ends[1]),
            &serde_json::json!({}),
            "7".into(),
        )
    }

    /// Sends a call, and returns the number of calls that the node has received when the client has
    /// its response.
    fn request_alone(&mut self, call: LogCall) -> u64 {
        let before = self.record.log_calls;
        self.send_request(0, ClientCalls::single(call));
        while self.has_work() {
            assert!(
                self.step < MAX_STEPS,
                "{} requests wait",
                self.requests.len()
            );
            self.advance();
        }
        self.record.log_calls - before
    }

    fn has_work(&self) -> bool {
        !(self.requests.is_empty() && self.background.is_empty() && self.jobs.is_empty())
    }

    /// Makes progress with one of the requests, jobs and callouts.
    fn advance(&mut self) {
        self.step += 1;
        self.now += self.random.number_below(20);
        match self.random.number_below(5) {
            0 => self.continue_request(),
            1 => self.answer_background_request(),
            2 => self.run_job(),
            3 => {
                let process = self.random.index(self.processes.len());
                self.synchronize(process);
            }
            _ => self.resume_woken_request(),
        }
    }

    /// Ends all connections, and checks that no flight and no memory is left.
    fn finish(mut self) -> ResponseCounts {
        // a lookup that was abandoned ends with the owner's reply, or after its timeout
        for _ in 0..2 {
            self.now += IDLE_MS;
            for process in 0..self.processes.len() {
                self.synchronize(process);
            }
        }
        for process in &self.processes {
            assert_eq!(process.resources.shared.flights.flight_count(), 0);
            assert_eq!(process.resources.budget.reserved_bytes(), 0);
        }
        self.counts
    }

    fn synchronize(&mut self, process: usize) {
        self.owner
            .synchronize(process, &mut self.processes[process], self.now);
    }

    /// Changes the chain: new blocks, a reorganisation, or finality.
    fn change_chain(&mut self) {
        let (random, step) = (&mut self.random, self.step);
        match random.number_below(6) {
            0 => {
                let (depth, length) = (1 + random.number_below(6), random.number_below(8));
                self.chain.replace_blocks(depth, length, step);
            }
            1 | 2 => {
                let own = |node: &&Node| node.kind != NodeKind::OtherChain;
                let views = self.nodes.iter().filter(own).map(|node| &node.view);
                self.chain.finalize(random.number_below(6), views);
            }
            _ => self
                .chain
                .replace_blocks(0, 1 + random.number_below(2), step),
        }
    }

    /// Some nodes adopt the present view of the chain.
    fn adopt_views(&mut self) {
        for node in &mut self.nodes {
            if self.random.happens_once_in(2) {
                node.adopt_view(&self.chain.view);
            }
        }
    }

    fn send_random_request(&mut self) {
        if self.requests.len() == MAX_IN_FLIGHT {
            return;
        }
        let calls = match self.random.happens_once_in(4) {
            true => {
                let count = 1 + self.random.index(3);
                ClientCalls::batch((0..count).map(|_| self.random_call()).collect())
            }
            false => ClientCalls::single(self.random_call()),
        };
        let process = self.random.index(self.processes.len());
        self.send_request(process, calls);
    }

    fn random_call(&mut self) -> LogCall {
        let random = &mut self.random;
        match random.number_below(10) < self.block_calls {
            true => LogCall::random_of_block(random, &self.chain, self.last_called),
            false => LogCall::random(random, self.chain.view.head(), self.piece),
        }
    }
}
