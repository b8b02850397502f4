//! Comparison of the chain that a response shows with the chain of its namespace.

use super::target::FillCall;
use super::CacheFill;
use crate::cache::freshness::ResponseClassification;
use crate::cache::process::chain_identities::{is_identity_method, ChainIdentityFact};
use crate::cache::reason::Reason;
use crate::cache::vary_key::truncated_blake3;
use crate::exchange::cache::chain_identity::{is_namespace_suspended, suspend_namespace};
use crate::jsonrpc::response::JsonRpcResponse;
use crate::transcode::chain_spec::parse_genesis_response_root;

impl CacheFill {
    /// Compares the chain that the result of a call shows with the chain of the namespace, and
    /// records a contradiction.
    pub(super) fn check_result_chain(
        &self,
        wanted: &FillCall,
        result: &[u8],
        judged: Option<&ResponseClassification>,
    ) {
        if is_identity_method(&wanted.method) {
            match ChainIdentityFact::identity_fact_from_rpc_result(&wanted.method, result) {
                Some(fact) => self.check_chain_fact(fact),
                // a result that names no chain contradicts none
                None => self.mark_chain_headers_verified(),
            }
        }
        let block = judged.and_then(|judged| judged.of);
        let Some((number, hash)) = block.and_then(|block| Some((block.number, block.hash?))) else {
            return;
        };
        if number == 0 {
            self.check_chain_fact(ChainIdentityFact::Genesis(hash));
        } else if let Some(mark) = self
            .dispatch_mark()
            .filter(|mark| mark.is_height_final(number))
        {
            self.check_chain_fact(ChainIdentityFact::Final {
                number,
                hash,
                epoch: mark.epoch,
            });
        }
    }

    /// Whether the responses of the batch in `body` prove the range of the fill's call, if it needs
    /// a proof.
    pub(super) fn has_required_range_proof(
        &self,
        body: &[u8],
        answers: &[JsonRpcResponse],
    ) -> bool {
        let Some(proof) = self.range_proof else {
            return true;
        };
        let chain_id = proof.proven_chain_id(body, answers);
        chain_id.is_some_and(|chain_id| self.matches_namespace_chain(chain_id))
    }

    /// Whether the result of `eth_chainId` names the chain of the namespace, as far as that is known.
    /// A contradiction is recorded.
    pub(super) fn matches_namespace_chain(&self, chain_id: &[u8]) -> bool {
        let fact = ChainIdentityFact::identity_fact_from_rpc_result(b"eth_chainId", chain_id);
        let Some(fact) = fact else {
            return false;
        };
        self.check_chain_fact(fact);
        self.wrong_chain.borrow().is_none()
    }

    /// Compares the genesis in the body of a Beacon API route, whose responses are constants of the
    /// chain, with the chain of the namespace.
    pub(super) fn compare_genesis_with_chain(&self, body: &[u8]) {
        if let Some(root) = parse_genesis_response_root(body) {
            self.check_chain_fact(ChainIdentityFact::ValidatorsRoot(root));
        }
    }

    /// Compares a fact about the chain with the facts that are known, and records a contradiction.
    fn check_chain_fact(&self, fact: ChainIdentityFact) {
        let (identities, generation) = (&self.shared.identities, self.settings.generation);
        if identities.is_namespace_purged_since(&self.scope, generation) {
            // the fact may be of the chain before the purge
            return;
        }
        let observed = self.describe_chain_contradiction(fact).map_or_else(
            || identities.compare_and_record_fact(&self.scope, generation, fact),
            Err,
        );
        match observed {
            Ok(()) => self.mark_chain_headers_verified(),
            Err(how) => *self.wrong_chain.borrow_mut() = Some(how),
        }
    }

    /// Describes how a fact contradicts the chain of the followed node; `None` if it does not.
    fn describe_chain_contradiction(&self, fact: ChainIdentityFact) -> Option<String> {
        if self.settings.has_keyed_fields {
            // they may select another chain than the followed one
            return None;
        }
        let namespace = truncated_blake3(self.scope.namespace_key_bytes());
        let state = self
            .shared
            .owner_client()?
            .followed_chains()
            .get(&namespace)?
            .copy_chain_state();
        let (followed, here) = fact.contradicting_identity_values(&state)?;
        let name = fact.fact_name();
        Some(format!(
            "{name} is {followed} on the node of cache_head, and {here} on this one"
        ))
    }

    /// Marks the request's chain-selecting headers as verified, because the node has responded to a
    /// request with them.
    fn mark_chain_headers_verified(&self) {
        if let Some(selector) = self.settings.selector {
            self.shared.identities.mark_request_headers_verified(
                &self.scope,
                self.settings.generation,
                selector,
            );
        }
    }

    /// Discards the entries and suspends the cache of the namespace if the response belongs to
    /// another chain.
    pub(super) fn suspend_if_wrong_chain(&mut self) {
        if let Some(how) = self.wrong_chain.take() {
            self.entries.clear();
            self.refused = Some(Reason::WrongChain);
            suspend_namespace(&self.shared, &self.scope, &how, self.settings.sent_at);
        }
    }

    /// Whether the cache of the fill's namespace is suspended, so that the response must not be
    /// stored.
    pub(super) fn is_fill_namespace_suspended(&self) -> bool {
        let owner = self.shared.owner_client();
        let any_wrong = owner.is_some_and(|owner| owner.followed_chains().any_wrong());
        (any_wrong || self.shared.identities.has_suspended())
            && is_namespace_suspended(
                &self.shared,
                &truncated_blake3(self.scope.namespace_key_bytes()),
            )
    }
}
