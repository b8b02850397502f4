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

    /// What was answered, as `read` finds it. An error is one of the node's.
    fn get<T>(
        &self,
        ask: Ask,
        read: impl FnOnce(&Answer) -> Option<T>,
    ) -> Result<Result<T, String>, Halt> {
        let answer = self.answers.get(&ask);
        Ok(match answer.ok_or_else(|| Halt::Asks(vec![ask]))? {
            Answer::Failed(error) => Err(error.clone()),
            answer => read(answer).ok_or_else(|| "not an answer to what was asked".into()),
        })
    }

    /// A block, or that there is none.
    pub(super) fn try_block(&self, ask: Ask) -> Result<Result<Option<Block>, String>, Halt> {
        self.get(ask, |answer| match answer {
            Answer::Block(block) => Some(*block),
            _ => None,
        })
    }

    /// The same where an error is the end of the poll.
    pub(super) fn block(&self, ask: Ask) -> Result<Option<Block>, Halt> {
        self.try_block(ask)?.map_err(Halt::Failed)
    }

    pub(super) fn syncing(&self) -> Result<Result<bool, String>, Halt> {
        self.get(Ask::Syncing, |answer| match answer {
            Answer::Syncing(is_syncing) => Some(*is_syncing),
            _ => None,
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
        let chain_id = self.get(Ask::ChainId, |answer| match answer {
            Answer::ChainId(id) => Some(*id),
            _ => None,
        })?;
        let genesis = self.get(Ask::Genesis, |answer| match answer {
            Answer::Genesis(hash) => Some(*hash),
            _ => None,
        })?;
        Ok((
            chain_id.map_err(Halt::Failed)?,
            genesis.map_err(Halt::Failed)?,
        ))
    }
}
