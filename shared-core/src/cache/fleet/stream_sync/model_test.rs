//! Random sequences of the model, and its recovery.

use super::model::{about, key_bytes, ModelFleet, KEYS, OWNERS};
use super::*;
use crate::tier::times;

impl ModelFleet {
    fn random_scope(&mut self) -> PurgeScope {
        let key = self.random.below(KEYS.into()) as u8;
        match self.random.below(4) {
            0 => PurgeScope::Everything,
            1 => PurgeScope::Namespace(about(key).namespace),
            _ => PurgeScope::Key(key_bytes(key)),
        }
    }

    fn random_step(&mut self) {
        let owner = self.random.below(OWNERS);
        let key = self.random.below(KEYS.into()) as u8;
        match self.random.below(100) {
            0..=34 => {
                self.advance_command(owner);
            }
            35..=44 => {
                let is_done = !self.random.happens_once_in(8);
                self.advance_job(owner, is_done);
            }
            45..=54 => self.now += self.random.next() % 120,
            55..=64 => {
                let is_new = self.random.happens_once_in(2);
                self.store(owner, key, is_new);
            }
            65..=71 => self.write(owner),
            72..=83 => {
                self.look_up(owner, key);
            }
            84..=86 if self.purges.len() < 12 => {
                let scope = self.random_scope();
                self.begin_purge(owner, scope);
            }
            87..=91 => self.queue_purge(owner),
            92 => self.owners[owner].is_up = false,
            93..=95 => self.owners[owner].is_up = true,
            96 if self.random.happens_once_in(3) => {
                let has_file = !self.random.happens_once_in(4);
                self.restart(owner, has_file);
            }
            97 => self.snapshot = self.server.clone(),
            98 if self.random.happens_once_in(3) => self.failover(),
            99 if self.random.happens_once_in(4) => {
                let keeps_highest = self.random.happens_once_in(2);
                self.flush(keeps_highest);
            }
            _ => {}
        }
    }

    /// Runs all owners without faults.
    fn run_without_faults(&mut self, milliseconds: u64) {
        let until = self.now + milliseconds;
        while self.now < until {
            for owner in 0..OWNERS {
                self.owners[owner].is_up = true;
                self.queue_purge(owner);
                while self.advance_command(owner) {}
                self.advance_job(owner, true);
                self.advance_job(owner, true);
            }
            self.now += 20;
        }
    }

    /// Checks that the fleet works again: values are used, and purges are confirmed by all.
    fn check_recovery(&mut self) {
        self.run_without_faults(12_000);
        let known: Vec<_> = self.syncs.iter().map(StreamSync::position).collect();
        assert!(
            known[0].is_some() && known.iter().all(|one| *one == known[0]),
            "{known:?}"
        );
        for writer in 0..OWNERS {
            self.owners
                .iter_mut()
                .for_each(|owner| owner.writes.clear());
            self.store(writer, 0, true);
            self.write(writer);
            for reader in 0..OWNERS {
                assert!(self.look_up(reader, 0), "owner {reader} uses no value");
            }
            self.begin_purge(writer, PurgeScope::Key(key_bytes(0)));
            self.run_without_faults(2_000);
            assert!(self.purges.last().unwrap().is_confirmed);
            for reader in 0..OWNERS {
                assert!(
                    !self.look_up(reader, 0),
                    "owner {reader} uses a purged value"
                );
            }
        }
    }
}

#[test]
fn purged_values_are_not_used_after_losses_of_the_server() {
    let count: u64 = times(300, 1_000);
    let (mut accepted, mut refused, mut confirmed) = (0, 0, 0);
    for seed in 0..count {
        let mut fleet = ModelFleet::new(seed);
        // half of the sequences begin with a fleet in use
        if seed % 2 == 0 {
            fleet.run_without_faults(3_000);
        }
        for _ in 0..1_200 {
            fleet.random_step();
        }
        accepted += fleet.accepted;
        refused += fleet.refused;
        confirmed += fleet.confirmed;
        fleet.check_recovery();
    }
    // the faults must leave enough that can go wrong
    assert!(accepted > 3 * count, "{accepted}");
    assert!(refused > 3 * count, "{refused}");
    assert!(confirmed > count / 5, "{confirmed}");
}
