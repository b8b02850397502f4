//! The purges so far, and the entries that no client may receive after them.

use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use sszip_core::cache::fleet::stream_record::PurgeName;

use crate::calls::{ModelCall, ModelResult, NAMESPACE};
use crate::machine::Machine;
use crate::server::Confirmations;

/// A purge of an operator.
pub struct ModelPurge {
    machine: usize,
    name: PurgeName,
    scope: PurgeScope,
    /// Time among fetches and purges.
    begun_at: u64,
    /// Confirmations when it was queued, or published again.
    baseline: Confirmations,
    position: Option<u64>,
    is_confirmed: bool,
    /// Whether its owner has restarted since: the stream alone has it then.
    is_abandoned: bool,
}

/// The purges so far.
#[derive(Default)]
pub struct PurgeHistory {
    purges: Vec<ModelPurge>,
    pub confirmed: u64,
}

impl PurgeHistory {
    pub fn count(&self) -> usize {
        self.purges.len()
    }

    pub fn add(
        &mut self,
        machine: usize,
        name: PurgeName,
        scope: PurgeScope,
        begun_at: u64,
        baseline: Confirmations,
    ) {
        self.purges.push(ModelPurge {
            machine,
            name,
            scope,
            begun_at,
            baseline,
            position: None,
            is_confirmed: false,
            is_abandoned: false,
        });
    }

    pub fn record_restart(&mut self, machine: usize) {
        let mut purges = self.purges.iter_mut();
        while let Some(purge) = purges.find(|purge| purge.machine == machine) {
            purge.is_abandoned = true;
        }
    }

    /// Records the purges that all owners have confirmed, as their publisher does while it knows
    /// that the stream was not lost: others confirm later records after a loss.
    pub fn update_confirmations(
        &mut self,
        machines: &mut [Machine],
        present: &Confirmations,
        now: u64,
    ) {
        for purge in self.purges.iter_mut().filter(|purge| !purge.is_confirmed) {
            let sync = &mut machines[purge.machine].sync;
            let Some(position) = sync.published_position(&purge.name) else {
                continue;
            };
            if !sync.is_current(now) {
                continue;
            }
            if purge.position != Some(position) {
                if purge.position.is_some() {
                    purge.baseline = *present;
                }
                purge.position = Some(position);
            }
            let mut owners = present.iter().zip(&purge.baseline);
            let is_confirmed = owners.all(|(present, before)| {
                present.is_some_and(|(confirmed, _)| confirmed >= position) && present != before
            });
            if is_confirmed {
                purge.is_confirmed = true;
                self.confirmed += 1;
                sync.record_purge_confirmed(&purge.name);
            }
        }
    }

    /// Asserts that no acknowledged purge covers a response that a client of a machine receives.
    pub fn check_response(
        &self,
        machine: usize,
        call: ModelCall,
        result: &ModelResult,
        context: &str,
    ) {
        let about = StoredEntryAttributes {
            namespace: NAMESPACE,
            method: Some(call.method().into()),
            block: (!matches!(call, ModelCall::Logs(_))).then_some(result.height),
            ..StoredEntryAttributes::default()
        };
        let key = call.cache_key();
        for purge in &self.purges {
            if purge.begun_at < result.fetched_at || !purge.scope.covers_entry(&key, &about) {
                continue;
            }
            let is_own = purge.machine == machine && !purge.is_abandoned;
            assert!(
                !is_own && !purge.is_confirmed,
                "{context}: purged at {} by machine {}: {:?}, confirmed {}",
                purge.begun_at,
                purge.machine,
                purge.scope,
                purge.is_confirmed
            );
        }
    }
}
