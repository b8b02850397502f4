//! The execution of the tracker's steps.
//!
//! Chain changes are published at once. A step that must be on the disk first waits for it, and so
//! do those that depend on it: a final block is published only after its mark is recorded, and a
//! mark is recorded only after the blocks that were broken before it are purged.

use std::sync::Arc;

use sszip_core::cache::entry::store_attributes::PurgeScope;
use sszip_core::cache::owner::tracker::{ChainChange, ChainIdentity, FinalityMark, TrackerAction};

use super::chain::FollowedChain;
use crate::engine::{OwnerExecutionError, OwnerRequestExecutor};
use crate::fleet::purge::BegunFleetPurge;
use crate::log::{LogFunction, LogLevel};

/// The executor of a chain tracker's steps: it publishes chain changes, records finality marks and
/// purges replaced blocks.
pub struct TrackerActionExecutor {
    engine: Arc<OwnerRequestExecutor>,
    chain: Arc<FollowedChain>,
    log: LogFunction,
    later: TrackerActionsAwaitingDisk,
    /// Whether the disk has failed, and that was logged.
    has_failed: bool,
    published_final: Option<u64>,
    /// The published identity of the node, which is the recorded one.
    known: Option<ChainIdentity>,
}

/// The tracker's steps that wait for the disk, in the order in which they are run.
#[derive(Default)]
struct TrackerActionsAwaitingDisk {
    /// The lowest block to purge, with all above it.
    purge: Option<u64>,
    identity: Option<ChainIdentity>,
    mark: Option<Option<FinalityMark>>,
    last: Option<u64>,
}

impl TrackerActionExecutor {
    /// Creates the runner of a chain's steps; it has no deferred steps.
    pub fn new(
        engine: Arc<OwnerRequestExecutor>,
        chain: Arc<FollowedChain>,
        log: LogFunction,
    ) -> Self {
        Self {
            engine,
            chain,
            log,
            later: TrackerActionsAwaitingDisk::default(),
            has_failed: false,
            published_final: None,
            known: None,
        }
    }

    /// Returns the number of the newest final block that was published.
    pub fn published_final_block(&self) -> Option<u64> {
        self.published_final
    }

    /// Writes a line about the chain to the owner's log.
    pub fn log_chain_line(&self, is_error: bool, text: &str) {
        let level = match is_error {
            true => LogLevel::Error,
            false => LogLevel::Notice,
        };
        (self.log)(level, &format!("{}: {text}", self.chain.name));
    }

    /// Drops the deferred steps, because a purge removed the chain's record and the blocks that
    /// they concern.
    pub fn discard_deferred_steps(&mut self) {
        self.later = TrackerActionsAwaitingDisk::default();
        self.publish_identity(None);
    }

    /// Runs a step at once, or queues it for [`run_deferred_tracker_steps`](Self::run_deferred_tracker_steps).
    pub fn apply_or_defer_tracker_step(&mut self, step: TrackerAction) {
        match step {
            TrackerAction::Log { is_error, text } => self.log_chain_line(is_error, &text),
            TrackerAction::RecordIdentity(identity) => {
                self.later.identity = Some(identity);
                self.later.mark = None;
            }
            TrackerAction::RecordMark(mark) => self.later.mark = Some(mark),
            TrackerAction::ChainChange(ChainChange::Final(Some(number))) => {
                self.later.last = Some(number);
            }
            TrackerAction::ChainChange(change) => {
                match change {
                    ChainChange::Final(_) => {
                        self.later.last = None;
                        self.published_final = None;
                    }
                    ChainChange::FinalityReverted { from } => self.defer_purge_from(from),
                    // entries from before the detection may be of the other chain
                    ChainChange::Wrong(true) if self.known.is_some() => self.defer_purge_from(0),
                    _ => {}
                }
                self.publish_change(change);
            }
        }
    }

    fn defer_purge_from(&mut self, from: u64) {
        let from = self.later.purge.map_or(from, |other| other.min(from));
        self.later.purge = Some(from);
    }

    /// Publishes the chain identity of the node, or none while its record is not written.
    pub fn publish_recorded_chain_identity(&mut self, identity: Option<ChainIdentity>) {
        self.publish_identity(identity.filter(|_| self.later.identity.is_none()));
    }

    fn publish_identity(&mut self, known: Option<ChainIdentity>) {
        if self.known != known {
            self.known = known;
            let owner = &self.engine.owner;
            owner.set_chain_identity(&self.chain.namespace, known);
        }
    }

    fn publish_change(&self, change: ChainChange) {
        self.engine
            .owner
            .apply_chain_change(&self.chain.namespace, change);
    }

    /// Runs the deferred steps, which wait for the disk. A failed step is tried again at the next
    /// call.
    pub async fn run_deferred_tracker_steps(&mut self) {
        match self.try_run_deferred().await {
            Ok(()) => {
                if std::mem::take(&mut self.has_failed) {
                    self.log_chain_line(false, "postponed writes completed");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    let text = format!("cannot record finality: {error}; new blocks are not treated as final until it can");
                    self.log_chain_line(true, &text);
                }
            }
        }
    }

    /// Begins the purge of the fleet's values about replaced blocks. Another chain of this node is no
    /// reason: values carry the identity of their chain.
    fn begin_fleet_purge(&self, blocks: &PurgeScope) -> Option<BegunFleetPurge> {
        let fleet = self.engine.fleet.get()?;
        let owner = &self.engine.owner;
        let chain = owner.chain_state_of_namespace(&self.chain.namespace)?;
        (!chain.wrong).then(|| fleet.purges.begin_values_only(blocks))
    }

    async fn try_run_deferred(&mut self) -> Result<(), String> {
        let namespace = self.chain.namespace;
        if let Some(from) = self.later.purge {
            let blocks = PurgeScope::Blocks {
                namespace,
                from,
                to: u64::MAX,
            };
            let begun = self.begin_fleet_purge(&blocks);
            let purged = self.engine.purge_entries(blocks).await;
            purged
                .map_err(|error| format!("block {from} and later are not purged yet: {error}"))?;
            self.later.purge = None;
            if let Some(begun) = begun {
                tokio::spawn(begun.publish_unconfirmed());
            }
            self.log_chain_line(false, &format!("block {from} and later are purged"));
        }
        let unrecorded = |error: OwnerExecutionError| {
            format!("the record of the chain can't be written: {error}")
        };
        if let Some(identity) = self.later.identity {
            let write = self.engine.try_store_write(move |owner| {
                owner
                    .owner_store()
                    .record_chain_identity(&namespace, &identity)
            });
            write.await.map_err(unrecorded)?;
            self.later.identity = None;
        }
        if let Some(mark) = self.later.mark {
            let write = self.engine.try_store_write(move |owner| {
                owner
                    .owner_store()
                    .record_finality_mark(&namespace, mark.as_ref())
            });
            write.await.map_err(unrecorded)?;
            self.later.mark = None;
        }
        if let Some(number) = self.later.last.take() {
            self.published_final = Some(number);
            self.publish_change(ChainChange::Final(Some(number)));
        }
        Ok(())
    }
}
