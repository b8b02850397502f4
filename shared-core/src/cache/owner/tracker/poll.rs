//! The queries and results of a poll.

use crate::hash_keys::{HashMap, HashSet};

use super::types::{BlockHash, NodeBlock, NodeQuery, NodeResult};

/// The queries and results of one round of queries to the node. Results do not change until its
/// end, so that an evaluation that is repeated begins with the same results.
#[derive(Debug)]
pub(super) struct NodePoll {
    first: Option<Vec<NodeQuery>>,
    /// Whether the chain identity must be queried once the head is known.
    pub(super) is_identity_due: bool,
    sent: HashSet<NodeQuery>,
    answers: HashMap<NodeQuery, NodeResult>,
}

/// The reason why the evaluation of a poll stops before its end: results are missing, failed or
/// inconsistent.
#[derive(Debug)]
pub(super) enum IncompleteNodePoll {
    /// The results of these queries are missing.
    NeedsQuery(Vec<NodeQuery>),
    /// A query failed. The message is for operators.
    Failed(String),
    /// The results are not of one chain.
    Confused,
}

impl NodePoll {
    pub(super) fn new(first: Vec<NodeQuery>, is_identity_due: bool) -> Self {
        Self {
            sent: first.iter().copied().collect(),
            first: Some(first),
            is_identity_due,
            answers: HashMap::default(),
        }
    }

    /// Takes the queries with which the poll begins, once.
    pub(super) fn take_first_queries(&mut self) -> Option<Vec<NodeQuery>> {
        self.first.take()
    }

    /// Marks a query as sent. Returns false if it was sent before.
    pub(super) fn mark_node_query_sent(&mut self, query: NodeQuery) -> bool {
        self.sent.insert(query)
    }

    pub(super) fn record_query_result(&mut self, query: NodeQuery, answer: NodeResult) {
        self.answers.insert(query, answer);
    }

    pub(super) fn has_identity_query(&self) -> bool {
        self.sent.contains(&NodeQuery::ChainId)
    }

    /// Whether a query was sent whose result need not be of the head's chain: by number, or for the
    /// chain identity.
    pub(super) fn needs_head_recheck(&self) -> bool {
        self.has_identity_query()
            || self
                .sent
                .iter()
                .any(|query| matches!(query, NodeQuery::ByNumber(_)))
    }

    /// Returns the result of a query as `read` extracts it, or the node's error.
    fn read_query_result<T>(
        &self,
        query: NodeQuery,
        read: impl FnOnce(&NodeResult) -> Option<T>,
    ) -> Result<Result<T, String>, IncompleteNodePoll> {
        let answer = self.answers.get(&query);
        Ok(
            match answer.ok_or_else(|| IncompleteNodePoll::NeedsQuery(vec![query]))? {
                NodeResult::Failed(error) => Err(error.clone()),
                answer => {
                    read(answer).ok_or_else(|| "the response does not match the query".into())
                }
            },
        )
    }

    /// Returns a polled block, `None` if the node does not have it, or the node's error.
    pub(super) fn polled_block_or_error(
        &self,
        query: NodeQuery,
    ) -> Result<Result<Option<NodeBlock>, String>, IncompleteNodePoll> {
        self.read_query_result(query, |answer| match answer {
            NodeResult::Block(block) => Some(*block),
            _ => None,
        })
    }

    /// Returns a polled block, or `None` if the node does not have it. An error ends the poll.
    pub(super) fn polled_block(
        &self,
        query: NodeQuery,
    ) -> Result<Option<NodeBlock>, IncompleteNodePoll> {
        self.polled_block_or_error(query)?
            .map_err(IncompleteNodePoll::Failed)
    }

    pub(super) fn syncing_result(&self) -> Result<Result<bool, String>, IncompleteNodePoll> {
        self.read_query_result(NodeQuery::Syncing, |answer| match answer {
            NodeResult::Syncing(is_syncing) => Some(*is_syncing),
            _ => None,
        })
    }

    /// Returns the chain identity. Both queries are sent at once.
    pub(super) fn chain_identity_result(
        &self,
    ) -> Result<(Option<u64>, BlockHash), IncompleteNodePoll> {
        let identity_queries = [NodeQuery::ChainId, NodeQuery::Genesis];
        let missing: Vec<NodeQuery> = identity_queries
            .into_iter()
            .filter(|query| !self.answers.contains_key(query))
            .collect();
        if !missing.is_empty() {
            return Err(IncompleteNodePoll::NeedsQuery(missing));
        }
        let chain_id = self.read_query_result(NodeQuery::ChainId, |answer| match answer {
            NodeResult::ChainId(id) => Some(*id),
            _ => None,
        })?;
        let genesis = self.read_query_result(NodeQuery::Genesis, |answer| match answer {
            NodeResult::Genesis(hash) => Some(*hash),
            _ => None,
        })?;
        Ok((
            chain_id.map_err(IncompleteNodePoll::Failed)?,
            genesis.map_err(IncompleteNodePoll::Failed)?,
        ))
    }
}
