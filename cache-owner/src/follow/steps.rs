//! What is done with what the tracker says.
//!
//! Moves are told at once. What has to be on the disk first waits for it, and
//! what comes after that waits too: a block is told to be final only when the
//! mark that says so is recorded, and a mark is recorded only when what was
//! broken before it is purged.

use std::sync::Arc;

use sszip_core::cache::entry::about::Scope;
use sszip_core::cache::owner::tracker::{Identity, Mark, Move, Step};

use super::chain::Chain;
use crate::engine::{Engine, Failure};
use crate::log::{Level, Log};

/// Does the steps of one chain.
pub struct Steps {
    engine: Arc<Engine>,
    chain: Arc<Chain>,
    log: Log,
    later: Later,
    /// The disk has failed, and it was said.
    has_failed: bool,
    told: Option<u64>,
    /// The chain that the node has, which is known to be the right one: as processes were told.
    known: Option<Identity>,
}

/// What waits for the disk, in this order.
#[derive(Default)]
struct Later {
    /// Everything from this block on.
    purge: Option<u64>,
    identity: Option<Identity>,
    mark: Option<Option<Mark>>,
    last: Option<u64>,
}

impl Steps {
    /// Of `chain`, in `engine`.
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

    /// The newest final block that was told.
    pub fn told(&self) -> Option<u64> {
        self.told
    }

    /// A line for the log.
    pub fn say(&self, is_error: bool, text: &str) {
        let level = match is_error {
            true => Level::Error,
            false => Level::Notice,
        };
        (self.log)(level, &format!("{}: {text}", self.chain.name));
    }

    /// What is recorded was purged: what waits is of no use any more. What is
    /// broken is purged with it.
    pub fn forget(&mut self) {
        self.later = Later::default();
        self.set_known(None);
    }

    /// Takes in what is to be done; [`settle`](Self::settle) does the rest.
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
                    // what came before it was noticed may be of the other
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

    /// The chain that the node has, if it is the right one. That counts once it is recorded
    /// which one that is.
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

    /// Does what waits for the disk. What fails is tried again at the next
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
