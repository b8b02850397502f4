//! Lifetimes of responses, by the call and by its result.
//!
//! A response that depends on a block *number* may change with a reorganisation of the chain. So it
//! is `unfinalized` and has a short lifetime, unless the owner follows the chain and the block was
//! finalized when the request was sent to the node.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::chain::{DispatchMark, HeightUnit};
use super::class::LifetimeClass;
use block_anchor::AnchoredResult;
pub use block_anchor::BlockAnchor;
use range_ends::{class_by_finality, CallBlockDependency};

use crate::jsonrpc::block_reference::{self, BlockReference, BlockTag, ResultBlock};
use crate::jsonrpc::incomplete_result::{has_failed_trace, is_incomplete_block};
use crate::jsonrpc::method_spec::MethodSpecs;
use crate::jsonrpc::methods::{self, MethodRow};
use crate::jsonrpc::plausible::{self, ResultPlausibility};
use crate::jsonrpc::response::{classify_result_content, find_object_member, ResultEmptiness};

mod block_anchor;
mod proven_range;
mod range_ends;

/// The lifetimes of a route: those that an operator has set for classes and methods, and the
/// operator's method rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheLifetimes {
    classes: [Option<u64>; LifetimeClass::ALL.len()],
    methods: Vec<(Vec<u8>, u64)>,
    rows: Arc<MethodSpecs>,
}

/// The error of a configuration that sets the lifetime of a class or a method twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateLifetimeSetting;

impl CacheLifetimes {
    /// Sets the lifetime of all responses of a class in milliseconds; with 0 they are not stored.
    ///
    /// # Errors
    /// Returns [`DuplicateLifetimeSetting`] if the class has a lifetime already.
    pub fn set_class_lifetime(
        &mut self,
        class: LifetimeClass,
        milliseconds: u64,
    ) -> Result<(), DuplicateLifetimeSetting> {
        match self.classes[class as usize].replace(milliseconds) {
            None => Ok(()),
            Some(_) => Err(DuplicateLifetimeSetting),
        }
    }

    /// Sets the lifetime of a method's responses in milliseconds, regardless of their class.
    ///
    /// # Errors
    /// Returns [`DuplicateLifetimeSetting`] if the method has a lifetime already.
    pub fn set_method_lifetime(
        &mut self,
        method: &[u8],
        milliseconds: u64,
    ) -> Result<(), DuplicateLifetimeSetting> {
        if self.lifetime_for_method(method).is_some() {
            return Err(DuplicateLifetimeSetting);
        }
        self.methods.push((method.to_vec(), milliseconds));
        Ok(())
    }

    /// Returns a copy of these lifetimes with the method rows that an operator has added.
    pub fn with_operator_method_rows(&self, rows: Arc<MethodSpecs>) -> Self {
        Self {
            rows,
            ..self.clone()
        }
    }

    /// Returns the row of a method: an operator's, or else the method table's.
    pub(crate) fn effective_method_row(&self, method: &[u8]) -> &'static MethodRow {
        let theirs = self.rows.find_operator_method_row(method);
        theirs.unwrap_or_else(|| methods::find_method_row(method))
    }

    /// Returns the lifetime in milliseconds that an operator has set for a method, or `None` if the
    /// class decides.
    pub fn lifetime_for_method(&self, method: &[u8]) -> Option<u64> {
        self.methods
            .iter()
            .find(|(name, _)| name == method)
            .map(|(_, milliseconds)| *milliseconds)
    }

    /// Returns the lifetime of a class in milliseconds: an operator's, or else the default.
    pub fn lifetime_for_class(&self, class: LifetimeClass) -> u64 {
        self.lifetime_on_chain(class, None)
    }

    /// Returns the lifetime of a class in milliseconds on the chain that was followed at `mark`: the
    /// operator's; without one the block time of the chain, if a new block may change the responses
    /// of the class; otherwise the default.
    pub fn lifetime_on_chain(&self, class: LifetimeClass, mark: Option<&DispatchMark>) -> u64 {
        let block_time = || match class {
            LifetimeClass::Tip | LifetimeClass::Unfinalized => mark?.block_time,
            _ => None,
        };
        self.classes[class as usize]
            .or_else(block_time)
            .unwrap_or(class.default_lifetime_ms())
    }
}

/// The lifetime rules of a JSON-RPC call that are known before its result: method, class and
/// lifetime. The result decides the rest.
#[derive(Clone, Copy, Debug)]
pub struct CallLifetimeRules {
    method_row: &'static MethodRow,
    /// Class while the state of the chain is unknown.
    class: LifetimeClass,
    /// Lifetime that an operator has set for the method, in milliseconds.
    method_lifetime: Option<u64>,
}

/// The facts besides the result by which a response is classified: the call's params, the dispatch
/// mark and the route's lifetimes.
#[derive(Clone, Copy, Debug)]
pub struct ResponseClassificationInput<'a> {
    /// Params of the call.
    pub params: Option<&'a [u8]>,
    /// Dispatch mark of the request, if the chain is followed.
    pub mark: Option<&'a DispatchMark>,
    /// Lifetimes of the route.
    pub valid: &'a CacheLifetimes,
}

/// The `result` or the `error` of a response that is of class `nothing`: an empty result, a revert,
/// or a response that no other class fits.
#[derive(Clone, Copy, Debug)]
pub enum ResultOrError<'a> {
    /// Result of the call.
    Result(&'a [u8]),
    /// Error of the call.
    Error(&'a [u8]),
}

/// The decision how a response is cached: its class, lifetime and the blocks that it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseClassification {
    /// Class of the response.
    pub class: LifetimeClass,
    /// Lifetime in milliseconds.
    pub valid: u64,
    /// Block of the response, if it depends on one block that the call or the response names.
    pub block: Option<u64>,
    /// The highest block on which the response depends, or the head that it reports.
    pub height: Option<u64>,
    /// Block that the response names, unless it was requested by a hash.
    pub of: Option<ResultBlock>,
    /// Block hash by which another machine can check the response.
    pub anchor: Option<BlockAnchor>,
    /// Upgrade of a response about a transaction that does not name the transaction's block.
    pub if_final: Option<FinalityUpgrade>,
    /// Lifetime in milliseconds of a response that may be incomplete because the node did not have
    /// all blocks. If a node returns the same result [some time
    /// later](super::process::confirmations), the response is immutable with this lifetime. Until
    /// then `valid` may be 0.
    pub if_repeated: Option<u64>,
    /// Whether the result contradicts itself.
    pub is_implausible: bool,
    /// Whether the result was parsed: it is one JSON value.
    pub is_read: bool,
}

impl ResponseClassification {
    /// Creates a classification with class, lifetime and height, and no further facts.
    pub(crate) fn new(class: LifetimeClass, valid: u64, height: Option<u64>) -> Self {
        Self {
            class,
            valid,
            block: None,
            height,
            of: None,
            anchor: None,
            if_final: None,
            if_repeated: None,
            is_implausible: false,
            is_read: false,
        }
    }
}

/// The transaction, the finality and the lifetime by which the owner may make an entry immutable,
/// as only the owner knows the block of the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct FinalityUpgrade {
    /// Hash of the transaction.
    pub transaction: [u8; 32],
    /// The highest block that was finalized when the request was sent to the node. The upgrade
    /// applies if the transaction's block is not higher.
    pub last: u64,
    /// Lifetime after the upgrade, in milliseconds.
    pub valid: u64,
}

impl CallLifetimeRules {
    /// Returns the prospect of a call by its method and params, or `None` if its response is never
    /// stored.
    pub fn lifetime_rules_for_call(
        method: &[u8],
        params: Option<&[u8]>,
        valid: &CacheLifetimes,
    ) -> Option<Self> {
        let method_lifetime = valid.lifetime_for_method(method);
        let row = valid.effective_method_row(method);
        let class = match row.class {
            // the operator knows a method that the method table does not have
            methods::MethodClass::Never if method_lifetime.is_some() && !row.is_operators => {
                LifetimeClass::Tip
            }
            methods::MethodClass::Never => return None,
            // the next block differs from node to node; and some nodes accept a number or a tag where
            // others require the hash of a block
            methods::MethodClass::Immutable | methods::MethodClass::Tip
                if depends_on_node_local_block(row, params) =>
            {
                return None
            }
            methods::MethodClass::Immutable => LifetimeClass::Immutable,
            methods::MethodClass::Tip => LifetimeClass::Tip,
            methods::MethodClass::Config => LifetimeClass::Config,
            methods::MethodClass::ByFinality => {
                class_by_finality(block_reference::call_block_reference(row, params))?
            }
        };
        let is_stored = |class| method_lifetime.unwrap_or(valid.lifetime_for_class(class)) > 0;
        // finalized responses may be stored where the others are not
        let may_be = class == LifetimeClass::Unfinalized && is_stored(LifetimeClass::Immutable);
        (is_stored(class) || may_be).then_some(Self {
            method_row: row,
            class,
            method_lifetime,
        })
    }

    /// Whether a later head may change the response, or the response may show a later head.
    pub fn depends_on_head(&self) -> bool {
        !matches!(self.class, LifetimeClass::Immutable | LifetimeClass::Config)
    }

    /// Whether the response may be immutable: the call names a block, a transaction or nothing that
    /// changes. The response shows whether it is.
    pub fn may_be_immutable(&self) -> bool {
        matches!(
            self.class,
            LifetimeClass::Immutable | LifetimeClass::Unfinalized
        )
    }

    /// Whether the response depends on the head, and the namespace follows a node of the Beacon
    /// API, so that new blocks are not noticed.
    pub fn depends_on_unfollowed_api(&self, mark: Option<&DispatchMark>) -> bool {
        self.class == LifetimeClass::Tip
            && mark.is_some_and(|mark| mark.heights != HeightUnit::Blocks)
    }

    /// Decides how a response is cached, by its `result`. Returns `None` if it is not stored.
    pub fn classify_fetched_result(
        &self,
        result: &[u8],
        known: ResponseClassificationInput<'_>,
    ) -> Option<ResponseClassification> {
        match classify_result_content(result) {
            ResultEmptiness::Null => return None,
            ResultEmptiness::EmptyData if self.method_row.returns_raw_encoding() => return None,
            _ => {}
        }
        if known.mark.is_some_and(|mark| mark.is_wrong) {
            return None;
        }
        // the node had no time for some parts, and may have it for the next request
        if self.method_row.is_trace_list() && has_failed_trace(result) {
            return None;
        }
        let verdict = plausible::check_result_plausibility(self.method_row, known.params, result);
        if verdict == ResultPlausibility::Implausible {
            return Some(self.classify_implausible_result(known));
        }
        let classified = self.classify_plausible_result(result, known, verdict)?;
        Some(ResponseClassification {
            is_read: verdict == ResultPlausibility::Read,
            ..classified
        })
    }

    /// Classifies a result that contradicts itself or another result.
    pub fn classify_implausible_result(
        &self,
        known: ResponseClassificationInput<'_>,
    ) -> ResponseClassification {
        let named = CallBlockDependency::dependency_for_call(self.method_row, known.params);
        let lifetime = self
            .empty_result_lifetime(known.valid)
            .min(max_dependency_lifetime(named));
        let height = known.mark.map(|mark| mark.seen);
        ResponseClassification {
            is_implausible: true,
            ..ResponseClassification::new(LifetimeClass::Nothing, lifetime, height)
        }
    }

    /// Returns the row of the method table, or of the operator, that the call's method has.
    pub fn call_method_row(&self) -> &'static MethodRow {
        self.method_row
    }

    /// Classifies a result that does not contradict itself as far as it was read.
    fn classify_plausible_result(
        &self,
        result: &[u8],
        known: ResponseClassificationInput<'_>,
        plausibility: ResultPlausibility,
    ) -> Option<ResponseClassification> {
        let is_empty = classify_result_content(result) == ResultEmptiness::EmptyArray;
        if self.depends_on_unfollowed_api(known.mark) {
            return None;
        }
        let mark = known.mark.filter(|mark| mark.heights == HeightUnit::Blocks);
        let named = CallBlockDependency::dependency_for_call(self.method_row, known.params);
        if self.class == LifetimeClass::Tip {
            return self.classify_head_dependent(named, result, mark, known.valid);
        }
        let reported = block_reference::result_block(self.method_row, result);
        if !self.result_matches_request(named, reported, result) {
            return None;
        }
        let of = reported.filter(|_| !matches!(named, CallBlockDependency::Block(_)));
        let reported_number = reported.map(|reported| reported.number);
        let (block, height) = match named {
            CallBlockDependency::Head
            | CallBlockDependency::MovingTag
            | CallBlockDependency::None => (None, None),
            CallBlockDependency::Earliest(last) => (reported_number, last),
            CallBlockDependency::Number(number) => (Some(number), Some(number)),
            CallBlockDependency::Block(_) | CallBlockDependency::Transaction(_) => {
                (reported_number, reported_number)
            }
            CallBlockDependency::UpTo(last) => (None, Some(last)),
        };
        let at = || height.zip(mark);
        if at().is_some_and(|(height, mark)| mark.head.is_some_and(|head| head < height)) {
            // the next block extends the range; and sequencers report blocks before they seal them,
            // under hashes that no block has later
            return self.classify_head_dependent(named, result, mark, known.valid);
        }
        let is_final = || at().is_some_and(|(height, mark)| mark.is_height_final(height));
        let class = match self.class {
            // a lagging node returns the same for a block that it does not have
            LifetimeClass::Immutable if is_empty => return None,
            // the first block of the node may be another one later
            class if matches!(named, CallBlockDependency::Earliest(_)) => class,
            LifetimeClass::Unfinalized if is_final() && !is_empty => LifetimeClass::Immutable,
            class => class,
        };
        // the chain is not known, or the node will add to the result
        let class = match known.mark {
            Some(mark) if !mark.is_known => LifetimeClass::Unfinalized,
            _ if class == LifetimeClass::Immutable && is_incomplete_block(result) => {
                LifetimeClass::Unfinalized
            }
            _ => class,
        };
        match (named, class) {
            // the node may not have had the blocks without a result
            (CallBlockDependency::UpTo(last), LifetimeClass::Immutable)
                if block_reference::last_block_in_list(result) != Some(last) =>
            {
                self.classify_unconfirmed_range(last, known.valid, mark)
            }
            _ => {
                let classified = self.classification_for_class(class, height, known.valid, mark)?;
                let anchored = AnchoredResult {
                    method: self.method_row,
                    params: known.params,
                    result,
                    named,
                    reported,
                    plausibility,
                };
                Some(ResponseClassification {
                    valid: classified.valid.min(max_dependency_lifetime(named)),
                    of,
                    anchor: anchored.block_anchor().filter(|_| !is_empty),
                    if_final: self.transaction_upgrade(named, result, mark, known.valid),
                    block,
                    ..classified
                })
            }
        }
    }

    /// Classifies a range that is finalized up to its `last` block and may be incomplete.
    fn classify_unconfirmed_range(
        &self,
        last: u64,
        valid: &CacheLifetimes,
        mark: Option<&DispatchMark>,
    ) -> Option<ResponseClassification> {
        let later = self.effective_class_lifetime(LifetimeClass::Immutable, valid, mark);
        let valid = self.effective_class_lifetime(LifetimeClass::Unfinalized, valid, mark);
        (later > 0).then_some(ResponseClassification {
            if_repeated: Some(later),
            ..ResponseClassification::new(LifetimeClass::Unfinalized, valid, Some(last))
        })
    }

    /// Returns the upgrade of a response about a transaction that does not name its block.
    fn transaction_upgrade(
        &self,
        named: CallBlockDependency,
        result: &[u8],
        mark: Option<&DispatchMark>,
        valid: &CacheLifetimes,
    ) -> Option<FinalityUpgrade> {
        let CallBlockDependency::Transaction(Some(transaction)) = named else {
            return None;
        };
        let is_empty = matches!(
            classify_result_content(result),
            ResultEmptiness::EmptyArray | ResultEmptiness::EmptyData
        );
        if self.method_row.in_result != methods::ResultBlockPosition::None || is_empty {
            return None;
        }
        Some(FinalityUpgrade {
            transaction,
            last: mark?.last_final?,
            valid: self.effective_class_lifetime(LifetimeClass::Immutable, valid, mark),
        })
    }

    /// Classifies a complete response that has no other class, by its `result` or `error`. It has a
    /// lifetime of 0 at least, and is shared with all followers.
    pub fn classify_as_empty_result(
        &self,
        outcome: ResultOrError<'_>,
        known: ResponseClassificationInput<'_>,
    ) -> ResponseClassification {
        let is_lasting = match outcome {
            ResultOrError::Result(result) => {
                let is_empty = matches!(
                    classify_result_content(result),
                    ResultEmptiness::Null | ResultEmptiness::EmptyArray
                );
                // a transaction that is sent the next moment is found without a new head
                is_empty && !self.method_row.may_return_pending_transaction()
            }
            ResultOrError::Error(error) => is_revert_error(error),
        };
        let valid = match is_lasting && known.mark.is_none_or(|mark| !mark.is_wrong) {
            true => {
                let named = CallBlockDependency::dependency_for_call(self.method_row, known.params);
                self.empty_result_lifetime(known.valid)
                    .min(max_dependency_lifetime(named))
            }
            false => 0,
        };
        let height = known.mark.map(|mark| mark.seen);
        ResponseClassification::new(LifetimeClass::Nothing, valid, height)
    }

    /// Returns the lifetime of an empty result: an operator's lifetime for the method can only
    /// shorten it.
    fn empty_result_lifetime(&self, valid: &CacheLifetimes) -> u64 {
        let most = valid.lifetime_for_class(LifetimeClass::Nothing);
        self.method_lifetime
            .map_or(most, |lifetime| lifetime.min(most))
    }

    /// Returns the lifetime of a response of this class in milliseconds: the lifetime that the
    /// operator set for the method, or the lifetime of the class on the followed chain.
    fn effective_class_lifetime(
        &self,
        class: LifetimeClass,
        valid: &CacheLifetimes,
        mark: Option<&DispatchMark>,
    ) -> u64 {
        self.method_lifetime
            .unwrap_or_else(|| valid.lifetime_on_chain(class, mark))
    }

    /// Classifies a result that depends on the head. The node may lag behind heads that others have
    /// reported.
    fn classify_head_dependent(
        &self,
        named: CallBlockDependency,
        result: &[u8],
        mark: Option<&DispatchMark>,
        known: &CacheLifetimes,
    ) -> Option<ResponseClassification> {
        let of = mark.and_then(|_| block_reference::result_block(self.method_row, result));
        let height = match (mark, of) {
            (Some(mark), Some(reported)) if matches!(named, CallBlockDependency::Head) => {
                if reported.number < mark.seen {
                    return None;
                }
                Some(reported.number)
            }
            (mark, _) => mark.map(|mark| mark.seen),
        };
        let classified = self.classification_for_class(LifetimeClass::Tip, height, known, mark)?;
        let valid = classified.valid.min(max_dependency_lifetime(named));
        if classify_result_content(result) == ResultEmptiness::EmptyArray
            && self.method_lifetime.is_none()
        {
            let valid = valid.min(self.empty_result_lifetime(known));
            return (valid > 0).then_some(ResponseClassification {
                class: LifetimeClass::Nothing,
                valid,
                ..classified
            });
        }
        Some(ResponseClassification {
            of,
            valid,
            ..classified
        })
    }

    /// Returns the classification of a response of this class, or `None` if its lifetime is 0,
    /// which means that it is not cached.
    fn classification_for_class(
        &self,
        class: LifetimeClass,
        height: Option<u64>,
        valid: &CacheLifetimes,
        mark: Option<&DispatchMark>,
    ) -> Option<ResponseClassification> {
        let valid = self.effective_class_lifetime(class, valid, mark);
        (valid > 0).then(|| ResponseClassification::new(class, valid, height))
    }

    /// Whether the result names the requested block or transaction, as far as it names any.
    fn result_matches_request(
        &self,
        named: CallBlockDependency,
        reported: Option<ResultBlock>,
        result: &[u8],
    ) -> bool {
        match (named, reported) {
            (CallBlockDependency::Number(number), Some(reported)) => reported.number == number,
            (CallBlockDependency::Block(hash), Some(reported)) => reported
                .hash
                .is_none_or(|reported_hash| reported_hash == hash),
            (CallBlockDependency::Transaction(requested), Some(_)) => {
                let transaction = block_reference::result_transaction_hash(self.method_row, result);
                requested
                    .zip(transaction)
                    .is_none_or(|(requested, transaction)| requested == transaction)
            }
            // the transaction is in no block yet, or its block is not named
            (CallBlockDependency::Transaction(_), None) => {
                self.method_row.in_result == methods::ResultBlockPosition::None
            }
            _ => true,
        }
    }
}

/// Maximum lifetime of a response that depends on `named`, in milliseconds. No event reports a move
/// of a tag other than the head.
fn max_dependency_lifetime(named: CallBlockDependency) -> u64 {
    match named {
        CallBlockDependency::MovingTag => LifetimeClass::Tip.default_lifetime_ms(),
        CallBlockDependency::Earliest(_) => LifetimeClass::Unfinalized.default_lifetime_ms(),
        _ => u64::MAX,
    }
}

/// Whether a JSON-RPC error describes a revert. Such an error is the call's own: the call fails
/// with it for every client as long as the state is the same. Other errors describe the node: it
/// lags, or is overloaded.
pub(crate) fn is_revert_error(error: &[u8]) -> bool {
    // 3 is geth's and EIP-1474's extension for a revert with data; without data the code is -32000,
    // Nethermind's and Erigon's are -32015 and -32000
    match find_object_member(error, "code") {
        Some(b"3") => true,
        Some(b"-32000" | b"-32015") => {
            find_object_member(error, "message").is_some_and(|message| {
                let revert = b"revert";
                message
                    .windows(revert.len())
                    .any(|word| word.eq_ignore_ascii_case(revert))
            })
        }
        _ => false,
    }
}

/// Whether a call depends on the node's next block, or on no block that is the same for all nodes.
fn depends_on_node_local_block(method: &MethodRow, params: Option<&[u8]>) -> bool {
    matches!(
        block_reference::call_block_reference(method, params),
        BlockReference::Tag(BlockTag::Pending) | BlockReference::Invalid
    )
}

#[cfg(test)]
mod tests;
