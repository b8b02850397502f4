//! What was asked in a poll, and answered.

use std::collections::{HashMap, HashSet};

use super::terms::{Answer, Ask, Block, Hash};

/// A poll. What was answered stays answered until its end, so that a judgement
/// that began with it is repeated with the same.
#[derive(Debug)]
pub(super) struct Poll {
    first: Option<Vec<Ask>>,
    /// It has to be asked which chain it is, once its head is known.
    pub(super) is_identity_due: bool,
    asked: HashSet<Ask>,
    answers: HashMap<Ask, Answer>,
}

/// Why a judgement can't go on.
#[derive(Debug)]
pub(super) enum Halt {
    /// This is not known yet.
    Asks(Vec<Ask>),
    /// This went wrong. For people.
    Failed(String),
    /// The answers are not of one chain.
    Confused,
}

impl Poll {
    pub(super) fn new(first: Vec<Ask>, is_identity_due: bool) -> Self {
        Self {
            asked: first.iter().copied().collect(),
            first: Some(first),
            is_identity_due,
            answers: HashMap::new(),
        }
    }

    /// What it begins with, once.
    pub(super) fn first_asks(&mut self) -> Option<Vec<Ask>> {
        self.first.take()
    }

    /// It is asked. `false`: it was before.
    pub(super) fn note(&mut self, ask: Ask) -> bool {
        self.asked.insert(ask)
    }

    pub(super) fn answer(&mut self, ask: Ask, answer: Answer) {
        self.answers.insert(ask, answer);
    }

    pub(super) fn has_identity(&self) -> bool {
        self.asked.contains(&Ask::ChainId)
    }

    /// Whether something was asked that need not be of the chain that the head
    /// was of: by number, or which chain it is.
    pub(super) fn is_loose(&self) -> bool {
        self.has_identity() || self.asked.iter().any(|ask| matches!(ask, Ask::ByNumber(_)))
    }

    fn get(&self, ask: Ask) -> Result<&Answer, Halt> {
        self.answers.get(&ask).ok_or_else(|| Halt::Asks(vec![ask]))
    }

    /// A block, or that there is none. An error is one of the node's.
    pub(super) fn try_block(&self, ask: Ask) -> Result<Result<Option<Block>, String>, Halt> {
        Ok(match self.get(ask)? {
            Answer::Block(block) => Ok(*block),
            Answer::Failed(error) => Err(error.clone()),
            _ => Err("not an answer to what was asked".into()),
        })
    }

    /// The same where an error is the end of the poll.
    pub(super) fn block(&self, ask: Ask) -> Result<Option<Block>, Halt> {
        self.try_block(ask)?.map_err(Halt::Failed)
    }

    pub(super) fn syncing(&self) -> Result<Result<bool, String>, Halt> {
        Ok(match self.get(Ask::Syncing)? {
            Answer::Syncing(is_syncing) => Ok(*is_syncing),
            Answer::Failed(error) => Err(error.clone()),
            _ => Err("not an answer to what was asked".into()),
        })
    }

    /// What chain it is. Both questions are put at a time.
    pub(super) fn identity(&self) -> Result<(Option<u64>, Hash), Halt> {
        let asks = [Ask::ChainId, Ask::Genesis];
        let missing: Vec<Ask> = asks
            .into_iter()
            .filter(|ask| !self.answers.contains_key(ask))
            .collect();
        if !missing.is_empty() {
            return Err(Halt::Asks(missing));
        }
        let wrong = || Halt::Failed("not an answer to what was asked".into());
        let chain_id = match self.get(Ask::ChainId)? {
            Answer::ChainId(id) => *id,
            Answer::Failed(error) => return Err(Halt::Failed(error.clone())),
            _ => return Err(wrong()),
        };
        match self.get(Ask::Genesis)? {
            Answer::Genesis(hash) => Ok((chain_id, *hash)),
            Answer::Failed(error) => Err(Halt::Failed(error.clone())),
            _ => Err(wrong()),
        }
    }
}
