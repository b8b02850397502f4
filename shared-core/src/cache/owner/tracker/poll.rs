//! The queries and results of a poll.

use std::collections::{HashMap, HashSet};

use super::terms::{Answer, Ask, Block, Hash};

/// A poll. Results do not change until its end, so that an evaluation that is repeated begins
/// with the same results.
#[derive(Debug)]
pub(super) struct Poll {
    first: Option<Vec<Ask>>,
    /// Whether the chain identity must be queried once the head is known.
    pub(super) is_identity_due: bool,
    asked: HashSet<Ask>,
    answers: HashMap<Ask, Answer>,
}

/// The reason why an evaluation stops.
#[derive(Debug)]
pub(super) enum Halt {
    /// The results of these queries are missing.
    Asks(Vec<Ask>),
    /// A query failed. The message is for operators.
    Failed(String),
    /// The results are not of one chain.
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

    /// Takes the queries with which the poll begins, once.
    pub(super) fn first_asks(&mut self) -> Option<Vec<Ask>> {
        self.first.take()
    }

    /// Marks a query as sent. Returns false if it was sent before.
    pub(super) fn note(&mut self, ask: Ask) -> bool {
        self.asked.insert(ask)
    }

    pub(super) fn answer(&mut self, ask: Ask, answer: Answer) {
        self.answers.insert(ask, answer);
    }

    pub(super) fn has_identity(&self) -> bool {
        self.asked.contains(&Ask::ChainId)
    }

    /// Whether a query was sent whose result need not be of the head's chain: by number, or for the
    /// chain identity.
    pub(super) fn is_loose(&self) -> bool {
        self.has_identity() || self.asked.iter().any(|ask| matches!(ask, Ask::ByNumber(_)))
    }

    /// The result of a query as `read` extracts it, or the node's error.
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

    /// A block, `None` if the node does not have it, or the node's error.
    pub(super) fn try_block(&self, ask: Ask) -> Result<Result<Option<Block>, String>, Halt> {
        self.get(ask, |answer| match answer {
            Answer::Block(block) => Some(*block),
            _ => None,
        })
    }

    /// A block, or `None` if the node does not have it. An error ends the poll.
    pub(super) fn block(&self, ask: Ask) -> Result<Option<Block>, Halt> {
        self.try_block(ask)?.map_err(Halt::Failed)
    }

    pub(super) fn syncing(&self) -> Result<Result<bool, String>, Halt> {
        self.get(Ask::Syncing, |answer| match answer {
            Answer::Syncing(is_syncing) => Some(*is_syncing),
            _ => None,
        })
    }

    /// The chain identity. Both queries are sent at once.
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
