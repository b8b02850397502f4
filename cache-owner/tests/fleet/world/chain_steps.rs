//! Changes of the tree of blocks, and of the views that nodes have of it.

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::fleet::stream_record::{PublishedPurge, PurgeRecordKind};

use super::{FinalityOfBranches, FleetWorld, BRANCHING, LAGGING, MAX_LAG};
use crate::blocks::BlockPath;
use crate::calls::NAMESPACE;
use crate::server::MACHINES;

impl FleetWorld {
    /// Moves the node of a machine to another head. Values about final blocks that it has no more are
    /// purged, and the machine's own entries.
    pub(super) fn follow(&mut self, at: usize, path: BlockPath) {
        let now = self.clocks(at);
        let name = self.next_purge_name();
        let machine = &mut self.machines[at];
        let Some(from) = machine.reverted_block(&path) else {
            return machine.follow(path);
        };
        self.coverage.count("reverted finality");
        let scope = PurgeScope::Blocks {
            namespace: NAMESPACE,
            from,
            to: u64::MAX,
        };
        machine.sync.begin_purge(PublishedPurge {
            kind: PurgeRecordKind::ValuesOnly,
            name,
            scope: scope.clone(),
        });
        machine.follow(path);
        machine.purge_locally(&scope, now);
        machine.sync.queue_purge(&name);
    }

    pub(super) fn add_block(&mut self) {
        self.tree.extend(&mut self.trunk);
        self.follow_trunk();
    }

    /// Moves all nodes that are not on another branch.
    pub(super) fn follow_trunk(&mut self) {
        self.follow(0, self.trunk.clone());
        let behind = self.trunk.head().saturating_sub(self.lag);
        let height = behind.max(self.machines[LAGGING].path.head());
        let lagging = self.trunk.up_to(height.min(self.trunk.head()));
        self.follow(LAGGING, lagging);
        if !self.is_forked {
            self.follow(BRANCHING, self.trunk.clone());
        } else if self.random.happens_once_in(2) {
            let mut path = self.machines[BRANCHING].path.clone();
            self.tree.extend(&mut path);
            self.follow(BRANCHING, path);
            self.update_finality(BRANCHING);
        }
    }

    /// Replaces the last blocks of the trunk, which are not final.
    pub(super) fn reorganise(&mut self) {
        let base = self.trunk.head() - 1 - self.random.below(5);
        if base < self.final_height {
            return;
        }
        let length = self.trunk.head() - base + 1;
        self.trunk = self.trunk.up_to(base);
        for _ in 0..length {
            self.tree.extend(&mut self.trunk);
        }
        self.follow_trunk();
    }

    pub(super) fn finalise(&mut self) {
        let distance = 4 + self.random.below(8);
        let height = self.trunk.head().saturating_sub(distance);
        self.final_height = self.final_height.max(height);
        for machine in 0..MACHINES {
            self.update_finality(machine);
        }
    }

    /// Reports the finality of a machine's node, if it is known and has advanced.
    pub(super) fn update_finality(&mut self, at: usize) {
        let machine = &self.machines[at];
        if machine.last_final.is_some() {
            let height = self.final_block_of(at);
            if height > machine.final_mark {
                self.machines[at].set_final(Some(height));
            }
        }
    }

    pub(super) fn final_block_of(&self, at: usize) -> u64 {
        let machine = &self.machines[at];
        let common = machine.path.common_height(&self.trunk);
        // the lagging node has another rule of finality as well
        let behind = if at == LAGGING { 6 } else { 0 };
        let right = self.final_height.saturating_sub(behind).min(common);
        let right = right.max(machine.final_mark);
        match (self.finality, at, self.is_forked) {
            (FinalityOfBranches::Wrong, BRANCHING, true) => right.max(machine.path.head() - 2),
            _ => right,
        }
    }

    pub(super) fn change_knowledge_of_finality(&mut self, at: usize) {
        match self.machines[at].last_final {
            Some(_) if self.random.happens_once_in(4) => self.machines[at].set_final(None),
            Some(_) => {}
            None => {
                let height = self.final_block_of(at);
                self.machines[at].set_final(Some(height));
            }
        }
    }

    /// Moves a node to a branch of its own, or back to the trunk.
    pub(super) fn change_branch(&mut self) {
        let mut path = self.trunk.clone();
        if !self.is_forked {
            let own = &self.machines[BRANCHING];
            let base = own.path.head() - 1 - self.random.below(6);
            if base < own.final_mark {
                return;
            }
            path = own.path.up_to(base);
            for _ in 0..=self.random.below(6) {
                self.tree.extend(&mut path);
            }
        }
        self.is_forked = !self.is_forked;
        self.follow(BRANCHING, path);
        self.update_finality(BRANCHING);
    }

    pub(super) fn change_lag(&mut self) {
        self.lag = match self.random.happens_once_in(2) {
            true => 0,
            false => self.random.below(MAX_LAG + 1),
        };
        self.follow_trunk();
        self.update_finality(LAGGING);
    }
}
