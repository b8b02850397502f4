//! Class and lifetime of the result of a call, and the metadata of its entry.

use super::target::{FillCall, FillTarget};
use super::CacheFill;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::EntryMetadata;
use crate::cache::freshness::{ResponseClassification, ResponseClassificationInput, ResultOrError};
use crate::cache::process::confirmations::FetchedResultDigest;
use crate::cache::response_directives::StaleDirectives;
use crate::cache::CacheKey;
use crate::jsonrpc::block_reference::ResultBlock;
use crate::jsonrpc::response::CallOutcomeSpan;

impl CacheFill {
    /// Returns the class and lifetime of a call's result; `None` if it is not cached.
    pub(in crate::exchange) fn classify_call_result(
        &self,
        wanted: &FillCall,
        result: &[u8],
    ) -> Option<ResponseClassification> {
        let judged = wanted
            .prospect
            .classify_fetched_result(result, self.classification_input(wanted));
        let judged = match judged {
            Some(_) if self.is_missing_transactions(wanted, result) => Some(
                wanted
                    .prospect
                    .classify_implausible_result(self.classification_input(wanted)),
            ),
            judged => judged,
        };
        judged.filter(|judged| {
            !judged
                .of
                .is_some_and(|block| self.contradicts_known_chain(&block))
        })
    }

    /// Returns the class and lifetime of a response without a storable result; `None` if no request
    /// can use it.
    pub(super) fn classify_empty_result(
        &self,
        wanted: &FillCall,
        body: &[u8],
        outcome: &CallOutcomeSpan,
    ) -> Option<ResponseClassification> {
        let call_outcome = match outcome {
            CallOutcomeSpan::Result(result) => ResultOrError::Result(&body[result.clone()]),
            CallOutcomeSpan::Error(error) => ResultOrError::Error(&body[error.clone()]),
        };
        let judged = wanted
            .prospect
            .classify_as_empty_result(call_outcome, self.classification_input(wanted));
        (judged.valid > 0 || self.has_waiting_followers()).then_some(judged)
    }

    /// Whether followers wait for the response: uncacheable entries are created for them only.
    pub(super) fn has_waiting_followers(&self) -> bool {
        let mut led = self.token.iter().chain(&self.tokens);
        let has_some = led.any(|token| self.shared.flights.has_followers(token));
        self.had_no_waiters.set(!has_some);
        has_some
    }

    /// Returns the facts that decide the class of a call's result, besides the result itself.
    pub(in crate::exchange) fn classification_input<'a>(
        &'a self,
        wanted: &'a FillCall,
    ) -> ResponseClassificationInput<'a> {
        ResponseClassificationInput {
            params: wanted.params.as_deref(),
            mark: self.dispatch_mark(),
            valid: &self.settings.valid,
        }
    }

    /// Returns the class and lifetime of a call's result, as far as it is confirmed to be complete:
    /// by a proof in the same response, or by its repetition.
    pub(super) fn classify_confirmed_result(
        &self,
        wanted: &FillCall,
        result: &[u8],
    ) -> Option<ResponseClassification> {
        if self.range_proof.is_some_and(|proof| proof.is_final) {
            let known = self.classification_input(wanted);
            return wanted.prospect.classify_proven_range(result, known);
        }
        let judged = self.classify_call_result(wanted, result)?;
        self.classify_repeated_result(judged, &wanted.key, result)
    }

    /// Returns the class and lifetime of a result that may be incomplete, once the node has
    /// repeated it; `None` if it is not stored until then.
    fn classify_repeated_result(
        &self,
        judged: ResponseClassification,
        key: &CacheKey,
        result: &[u8],
    ) -> Option<ResponseClassification> {
        let Some(valid) = judged.if_repeated else {
            return Some(judged);
        };
        // a new head makes no range incomplete
        let epoch = self.dispatch_mark().map_or(0, |mark| mark.branch);
        let reported = FetchedResultDigest::new(
            result,
            self.settings.sent_at,
            self.settings.generation,
            epoch,
        );
        if self
            .shared
            .unconfirmed_results
            .is_result_confirmed(key, reported)
        {
            let class = LifetimeClass::Immutable;
            return Some(ResponseClassification {
                class,
                valid,
                ..judged
            });
        }
        (judged.valid > 0).then_some(judged)
    }

    /// Whether a response belongs to a block outside the chain as it is known now: one of several
    /// nodes may follow another branch.
    pub(super) fn contradicts_known_chain(&self, block: &ResultBlock) -> bool {
        let owner = self
            .shared
            .owner_client()
            .filter(|_| self.dispatch_mark().is_some());
        let chain = owner.and_then(|owner| owner.followed_chains().get(&self.settings.namespace));
        let hash = block.hash.as_ref();
        chain
            .zip(hash)
            .is_some_and(|(chain, hash)| chain.contradicts_recent_block(block.number, hash))
    }

    /// Returns the metadata of an entry; `judged` is `None` if the response sets its own lifetime.
    pub(in crate::exchange) fn entry_metadata(
        &self,
        judged: Option<ResponseClassification>,
    ) -> EntryMetadata {
        EntryMetadata {
            class: judged.map_or(LifetimeClass::Resource, |judged| judged.class),
            block_number: judged.and_then(|judged| judged.block),
            follows: self
                .dispatch_mark()
                .map(|mark| (self.settings.namespace, mark.epoch)),
            height: judged.and_then(|judged| judged.height),
            stale: match self.target {
                FillTarget::Resource(_) => self.stale,
                // the extensions of RFC 5861 apply to resources only
                FillTarget::Call(_) | FillTarget::Batch(_) => StaleDirectives {
                    never: self.stale.never,
                    ..StaleDirectives::default()
                },
            },
            ..EntryMetadata::default()
        }
    }
}
