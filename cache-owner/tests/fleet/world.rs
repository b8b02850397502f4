//! The machines, the server, and the tree of blocks, with the steps that change them.

mod chain_steps;
mod lookups;
mod stores;

use std::collections::BTreeMap;
use std::sync::Arc;

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::fleet::keyring::FleetKeyring;
use sszip_core::cache::fleet::stream_record::{PublishedPurge, PurgeName, PurgeRecordKind};
use sszip_core::cache::owner::ClockReading;

use crate::blocks::{BlockPath, BlockTree, Random};
use crate::calls::NAMESPACE;
use crate::machine::Machine;
use crate::purges::PurgeHistory;
use crate::server::{FleetServer, MACHINES};

const START: u64 = 1_700_000_000_000;

/// Height of the first head, and of the first final block.
const FIRST_HEAD: u32 = 60;
const FIRST_FINAL: u64 = 50;

/// The machine whose node lags, and the one whose node is on other branches.
const LAGGING: usize = 1;
const BRANCHING: usize = 2;

/// Maximum number of blocks by which the lagging node is behind.
const MAX_LAG: u64 = 40;

const MAX_ENTRY: usize = 1 << 20;

/// The finality that a node reports on another branch than the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FinalityOfBranches {
    /// Blocks that all nodes have.
    Right,
    /// Blocks of its own branch, two below its head.
    Wrong,
}

/// Numbers of the responses that were checked, and of the cases that lookups have reached.
#[derive(Debug, Default)]
pub struct Coverage {
    pub responses: u64,
    counts: BTreeMap<&'static str, u64>,
}

impl Coverage {
    fn count(&mut self, case: &'static str) {
        *self.counts.entry(case).or_default() += 1;
    }

    pub fn count_of(&self, case: &str) -> u64 {
        self.counts.get(case).copied().unwrap_or(0)
    }

    pub fn add(&mut self, other: &Self) {
        self.responses += other.responses;
        for (case, count) in &other.counts {
            *self.counts.entry(case).or_default() += count;
        }
    }
}

/// The simulated machines with their nodes, and the server between them.
pub struct FleetWorld {
    seed: u64,
    random: Random,
    finality: FinalityOfBranches,
    keyring: Arc<FleetKeyring>,
    tree: BlockTree,
    /// The chain of the nodes that are right.
    trunk: BlockPath,
    final_height: u64,
    lag: u64,
    is_forked: bool,
    server: FleetServer,
    machines: Vec<Machine>,
    purges: PurgeHistory,
    /// Milliseconds.
    now: u64,
    /// Order of fetches and purges.
    time: u64,
    next_lookup: u32,
    pub coverage: Coverage,
}

fn clocks_at(now: u64, machine: usize) -> ClockReading {
    ClockReading {
        monotonic: now,
        // the clocks differ
        unix: START + now + 700 * machine as u64,
    }
}

impl FleetWorld {
    pub fn new(seed: u64, finality: FinalityOfBranches) -> Self {
        let keyring = Arc::new(match seed % 2 {
            0 => FleetKeyring::unkeyed(),
            _ => FleetKeyring::from_key_files(&[vec![7; 32]]).unwrap(),
        });
        let (tree, trunk) = BlockTree::new(FIRST_HEAD + 1);
        let now = 1_000;
        let machines = (0..MACHINES).map(|machine| {
            let clocks = clocks_at(now, machine);
            Machine::new(machine, trunk.clone(), FIRST_FINAL, &keyring, clocks)
        });
        let mut world = Self {
            seed,
            random: Random(seed),
            finality,
            machines: machines.collect(),
            keyring,
            tree,
            trunk,
            final_height: FIRST_FINAL,
            lag: 0,
            is_forked: false,
            server: FleetServer::default(),
            purges: PurgeHistory::default(),
            now,
            time: 0,
            next_lookup: 0,
            coverage: Coverage::default(),
        };
        // a fleet in use
        for _ in 0..60 {
            for machine in 0..MACHINES {
                for _ in 0..8 {
                    world.advance_stream(machine);
                }
            }
            world.now += 50;
        }
        world
    }

    fn clocks(&self, machine: usize) -> ClockReading {
        clocks_at(self.now, machine)
    }

    fn next_time(&mut self) -> u64 {
        self.time += 1;
        self.time
    }

    pub fn run_step(&mut self) {
        let machine = self.random.below(MACHINES as u64) as usize;
        match self.random.below(1_000) {
            0..=299 => {
                for _ in 0..4 {
                    self.advance_stream(machine);
                }
            }
            300..=359 => self.now += self.random.below(100),
            360..=599 => self.look_up(machine),
            600..=729 => self.write_value(machine),
            730..=779 => {
                self.advance_lookup(machine);
            }
            780..=791 => self.add_block(),
            830..=834 => self.reorganise(),
            840..=849 => self.finalise(),
            870..=873 => self.change_branch(),
            885..=889 => self.change_lag(),
            900..=907 => self.change_knowledge_of_finality(machine),
            908..=914 => {
                let is_known = !self.random.happens_once_in(5);
                self.machines[machine].set_identity_known(is_known);
            }
            915..=918 if self.purges.count() < 40 => self.purge(machine),
            925..=927 => self.machines[machine].is_up = false,
            928..=939 => self.machines[machine].is_up = true,
            940 | 941 => self.restart(machine),
            944..=946 => self.server.evict_values(&mut self.random),
            947 if self.random.happens_once_in(3) => self.lose_stream(),
            948 => self.now += self.random.below(6_000),
            _ => {}
        }
    }

    fn advance_stream(&mut self, machine: usize) {
        let now = self.clocks(machine);
        self.machines[machine].advance_command(&mut self.server, now);
        self.machines[machine].advance_job(now);
        let before = self.purges.confirmed;
        let confirmations = self.server.confirmations;
        self.purges
            .update_confirmations(&mut self.machines, &confirmations, self.now);
        for _ in before..self.purges.confirmed {
            self.coverage.count("confirmed purges");
        }
    }

    /// Removes the stream from the server. No command takes longer than the time until an owner
    /// begins another one.
    fn lose_stream(&mut self) {
        self.server.lose_stream();
        for machine in 0..MACHINES {
            let now = self.clocks(machine);
            self.machines[machine].end_command(now);
        }
    }

    fn restart(&mut self, machine: usize) {
        let now = self.clocks(machine);
        self.machines[machine].restart(now);
        self.purges.record_restart(machine);
        self.coverage.count("restarts");
    }

    fn next_purge_name(&mut self) -> PurgeName {
        u128::from(self.next_time()).to_be_bytes()
    }

    fn purge(&mut self, at: usize) {
        let call = self.random_call();
        let height = self.trunk.head() - self.random.below(20);
        let scope = match self.random.below(6) {
            0 => PurgeScope::Everything,
            1 => PurgeScope::Namespace(NAMESPACE),
            2 => PurgeScope::Method {
                namespace: None,
                method: call.method().into(),
            },
            3 => PurgeScope::Blocks {
                namespace: NAMESPACE,
                from: height,
                to: height + 5,
            },
            _ => PurgeScope::Key(call.cache_key()),
        };
        let (begun_at, now) = (self.next_time(), self.clocks(at));
        let name = u128::from(begun_at).to_be_bytes();
        let machine = &mut self.machines[at];
        machine.sync.begin_purge(PublishedPurge {
            kind: PurgeRecordKind::Purge,
            name,
            scope: scope.clone(),
        });
        machine.purge_locally(&scope, now);
        let baseline = self.server.confirmations;
        self.purges.add(at, name, scope, begun_at, baseline);
        machine.sync.queue_purge(&name);
    }
}
