//! The execution of the tracker's steps.
//!
//! Chain changes are published at once. A step that must be on the disk first waits for it, and so
//! do those that depend on it: a final block is published only after its mark is recorded, and a
//! mark is recorded only after the blocks that were broken before it are purged.

use std::sync::Arc;

use sszip_core::cache::entry::about::Scope;
use sszip_core::cache::owner::tracker::{Identity, Mark, Move, Step};

use super::chain::Chain;
use crate::engine::{Engine, Failure};
use crate::log::{Level, Log};

/// The runner of one chain's steps.
pub struct Steps {
    engine: Arc<Engine>,
    chain: Arc<Chain>,
    log: Log,
    later: Later,
    /// Whether the disk has failed, and that was logged.
    has_failed: bool,
    told: Option<u64>,
    /// The published identity of the node, which is the recorded one.
    known: Option<Identity>,
}

/// The steps that wait for the disk, in this order.
#[derive(Default)]
struct Later {
    /// The lowest block to purge, with all above it.
    purge: Option<u64>,
    identity: Option<Identity>,
    mark: Option<Option<Mark>>,
    last: Option<u64>,
}

impl Steps {
    /// A runner for `chain` in `engine`.
    pub fn new(engine: Arc<Engine>, chain: Arc<Chain>, log: Log) -> Self {
        Self {
            engine,
            chain,
            log,
            later: Later::default(),
            has_failed: false,
            told: None,
            known: None,
        }
    }

    /// The newest published final block.
    pub fn told(&self) -> Option<u64> {
        self.told
    }

    /// Writes a line to the log.
    pub fn say(&self, is_error: bool, text: &str) {
        let level = match is_error {
            true => Level::Error,
            false => Level::Notice,
        };
        (self.log)(level, &format!("{}: {text}", self.chain.name));
    }

    /// Drops the waiting steps after a purge of the record, which covers the broken blocks too.
    pub fn forget(&mut self) {
        self.later = Later::default();
        self.set_known(None);
    }

    /// Carries out a step, or queues it for [`settle`](Self::settle).
    pub fn take(&mut self, step: Step) {
        match step {
            Step::Say { is_error, text } => self.say(is_error, &text),
            Step::KeepIdentity(identity) => {
                self.later.identity = Some(identity);
                self.later.mark = None;
            }
            Step::KeepMark(mark) => self.later.mark = Some(mark),
            Step::Move(Move::Final(Some(number))) => self.later.last = Some(number),
            Step::Move(told) => {
                match told {
                    Move::Final(_) => {
                        self.later.last = None;
                        self.told = None;
                    }
                    Move::Broken { from } => self.purge_from(from),
                    // entries from before the detection may be of the other chain
                    Move::Wrong(true) if self.known.is_some() => self.purge_from(0),
                    _ => {}
                }
                self.tell(told);
            }
        }
    }

    fn purge_from(&mut self, from: u64) {
        let from = self.later.purge.map_or(from, |other| other.min(from));
        self.later.purge = Some(from);
    }

    /// Sets the identity of the node, if it is the recorded one. It is published once the record
    /// is written.
    pub fn know(&mut self, identity: Option<Identity>) {
        self.set_known(identity.filter(|_| self.later.identity.is_none()));
    }

    fn set_known(&mut self, known: Option<Identity>) {
        if self.known != known {
            self.known = known;
            let owner = &self.engine.owner;
            owner.identified(&self.chain.namespace, known);
        }
    }

    fn tell(&self, told: Move) {
        self.engine.owner.moved(&self.chain.namespace, told);
    }

    /// Carries out the steps that wait for the disk. A failed step is tried again at the next
    /// call.
    pub async fn settle(&mut self) {
        match self.try_settle().await {
            Ok(()) => {
                if std::mem::take(&mut self.has_failed) {
                    self.say(false, "postponed writes completed");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    let text = format!("cannot record finality: {error}; new blocks are not treated as final until it can");
                    self.say(true, &text);
                }
            }
        }
    }

    async fn try_settle(&mut self) -> Result<(), String> {
        let namespace = self.chain.namespace;
        if let Some(from) = self.later.purge {
            let blocks = Scope::Blocks {
                namespace,
                from,
                to: u64::MAX,
            };
            let purged = self.engine.purge(blocks).await;
            purged
                .map_err(|error| format!("block {from} and later are not purged yet: {error}"))?;
            self.later.purge = None;
            self.say(false, &format!("block {from} and later are purged"));
        }
        let unrecorded = |error: Failure| format!("what is final can't be recorded: {error}");
        if let Some(identity) = self.later.identity {
            let kept = self
                .engine
                .on_disk(move |owner| owner.disk().keep_identity(&namespace, &identity));
            kept.await.map_err(unrecorded)?;
            self.later.identity = None;
        }
        if let Some(mark) = self.later.mark {
            let kept = self
                .engine
                .on_disk(move |owner| owner.disk().keep_mark(&namespace, mark.as_ref()));
            kept.await.map_err(unrecorded)?;
            self.later.mark = None;
        }
        if let Some(number) = self.later.last.take() {
            self.told = Some(number);
            self.tell(Move::Final(Some(number)));
        }
        Ok(())
    }
}
