//! Lifetimes of responses, by the call and by its result.
//!
//! A response that depends on a block *number* may change with a reorganisation of the chain. So it
//! is `unfinalized` and has a short lifetime, unless the owner follows the chain and the block was
//! finalized when the request was sent to the node.

use std::sync::Arc;

use super::chain::{Heights, Mark};
use super::class::Class;
use ends::{class_of, Named};

use crate::jsonrpc::block::{self, BlockReference, ResultBlock, Tag};
use crate::jsonrpc::methods::{self, Method};
use crate::jsonrpc::plausible::{self, Verdict};
use crate::jsonrpc::response::{content, member, Content};
use crate::jsonrpc::said::Rows;
use crate::jsonrpc::unsettled::{has_failed_part, is_to_be_filled_in};

mod ends;

/// Lifetimes by class and by method, and method rows that an operator has added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Valid {
    classes: [Option<u64>; Class::ALL.len()],
    methods: Vec<(Vec<u8>, u64)>,
    rows: Arc<Rows>,
}

/// The error of a lifetime that was set already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaidBefore;

impl Valid {
    /// Sets the lifetime of a class in milliseconds; 0: responses are not stored.
    ///
    /// # Errors
    /// Returns [`SaidBefore`] if the class has a lifetime already.
    pub fn set_class(&mut self, class: Class, milliseconds: u64) -> Result<(), SaidBefore> {
        match self.classes[class as usize].replace(milliseconds) {
            None => Ok(()),
            Some(_) => Err(SaidBefore),
        }
    }

    /// Sets the lifetime of a method's responses, regardless of their class.
    ///
    /// # Errors
    /// Returns [`SaidBefore`] if the method has a lifetime already.
    pub fn set_method(&mut self, method: &[u8], milliseconds: u64) -> Result<(), SaidBefore> {
        if self.method(method).is_some() {
            return Err(SaidBefore);
        }
        self.methods.push((method.to_vec(), milliseconds));
        Ok(())
    }

    /// Returns the same lifetimes with the method rows of an operator.
    pub fn with_rows(&self, rows: Arc<Rows>) -> Self {
        Self {
            rows,
            ..self.clone()
        }
    }

    /// Returns the method row of an operator, or of the method table.
    pub(crate) fn row(&self, method: &[u8]) -> &'static Method {
        let theirs = self.rows.find(method);
        theirs.unwrap_or_else(|| methods::method(method))
    }

    /// Returns the lifetime that an operator has set for a method.
    pub fn method(&self, method: &[u8]) -> Option<u64> {
        self.methods
            .iter()
            .find(|(name, _)| name == method)
            .map(|(_, milliseconds)| *milliseconds)
    }

    /// Returns the lifetime of a class in milliseconds.
    pub fn class(&self, class: Class) -> u64 {
        self.classes[class as usize].unwrap_or(class.default_valid())
    }
}

/// The lifetime rules of a call, before its result is known.
#[derive(Clone, Copy, Debug)]
pub struct Prospect {
    method: &'static Method,
    /// Class while the state of the chain is unknown.
    class: Class,
    /// Lifetime that an operator has set for the method, in milliseconds.
    said: Option<u64>,
}

/// The facts that are known when a result has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Params of the call.
    pub params: Option<&'a [u8]>,
    /// Dispatch mark of the request, if the chain is followed.
    pub mark: Option<&'a Mark>,
    /// Lifetimes of the route.
    pub valid: &'a Valid,
}

/// The outcome of a call whose response has no other class than `nothing`.
#[derive(Clone, Copy, Debug)]
pub enum Came<'a> {
    /// Result of the call.
    Result(&'a [u8]),
    /// Error of the call.
    Error(&'a [u8]),
}

/// The classification of a response: its class, lifetime and dependencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Class of the response.
    pub class: Class,
    /// Lifetime in milliseconds.
    pub valid: u64,
    /// Block of the response, if it depends on one block that the call or the response names.
    pub block: Option<u64>,
    /// The highest block on which the response depends, or the head that it reports.
    pub height: Option<u64>,
    /// Block that the response names, unless it was requested by a hash.
    pub of: Option<ResultBlock>,
    /// Upgrade of a response about a transaction that does not name the transaction's block.
    pub if_final: Option<IfFinal>,
    /// Lifetime in milliseconds of a response that may be incomplete because the node did not have
    /// all blocks. If a node returns the same result [some time later](super::process::repeated),
    /// the response is immutable with this lifetime. Until then [`valid`](Self::valid) may be 0.
    pub if_repeated: Option<u64>,
    /// Whether the result contradicts itself.
    pub is_implausible: bool,
    /// Whether the result was parsed: it is one JSON value.
    pub is_read: bool,
}

impl Judged {
    /// Creates the classification of a response without further facts.
    pub(crate) fn new(class: Class, valid: u64, height: Option<u64>) -> Self {
        Self {
            class,
            valid,
            block: None,
            height,
            of: None,
            if_final: None,
            if_repeated: None,
            is_implausible: false,
            is_read: false,
        }
    }
}

/// The upgrade of an entry by the owner, which knows the blocks of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfFinal {
    /// Hash of the transaction.
    pub transaction: [u8; 32],
    /// The highest block that was finalized when the request was sent to the node. The upgrade
    /// applies if the transaction's block is not higher.
    pub last: u64,
    /// Lifetime after the upgrade, in milliseconds.
    pub valid: u64,
}

impl Prospect {
    /// Returns the prospect of a call, or `None` if its response is never stored.
    pub fn of(method: &[u8], params: Option<&[u8]>, valid: &Valid) -> Option<Self> {
        let said = valid.method(method);
        let row = valid.row(method);
        let class = match row.class {
            // the operator knows a method that the method table does not have
            methods::Class::Never if said.is_some() && !row.is_operators => Class::Tip,
            methods::Class::Never => return None,
            methods::Class::Immutable => Class::Immutable,
            // the next block differs from node to node
            methods::Class::Tip if is_of_no_block(row, params) => return None,
            methods::Class::Tip => Class::Tip,
            methods::Class::Config => Class::Config,
            methods::Class::ByFinality => class_of(block::reference(row, params))?,
        };
        let is_kept = |class| said.unwrap_or(valid.class(class)) > 0;
        // finalized responses may be stored where the others are not
        let may_be = class == Class::Unfinalized && is_kept(Class::Immutable);
        (is_kept(class) || may_be).then_some(Self {
            method: row,
            class,
            said,
        })
    }

    /// Whether a later head may change the response, or the response may show a later head.
    pub fn moves_with_head(&self) -> bool {
        !matches!(self.class, Class::Immutable | Class::Config)
    }

    /// Whether the response depends on the head, and the namespace follows a node of the Beacon
    /// API, so that new blocks are not noticed.
    pub fn is_of_other_api(&self, mark: Option<&Mark>) -> bool {
        self.class == Class::Tip && mark.is_some_and(|mark| mark.heights != Heights::Blocks)
    }

    /// Classifies a response by its `result`. Returns `None` if it is not stored.
    pub fn judge(&self, result: &[u8], known: Known<'_>) -> Option<Judged> {
        let is_empty = match content(result) {
            Content::Null => return None,
            Content::EmptyData if self.method.gives_encoded() => return None,
            Content::EmptyArray => true,
            _ => false,
        };
        if known.mark.is_some_and(|mark| mark.is_wrong) {
            return None;
        }
        // the node had no time for some parts, and may have it for the next request
        if self.method.traces_one_by_one() && has_failed_part(result) {
            return None;
        }
        let verdict = plausible::judge(self.method, known.params, result);
        if verdict == Verdict::Implausible {
            return Some(self.implausible(known));
        }
        let judged = self.judge_plausible(result, known, is_empty)?;
        Some(Judged {
            is_read: verdict == Verdict::Read,
            ..judged
        })
    }

    /// Classifies a result that contradicts itself or another result.
    pub fn implausible(&self, known: Known<'_>) -> Judged {
        let named = Named::by(self.method, known.params);
        let kept_for = self.valid_nothing(known.valid).min(longest(named));
        let height = known.mark.map(|mark| mark.seen);
        Judged {
            is_implausible: true,
            ..Judged::new(Class::Nothing, kept_for, height)
        }
    }

    /// Returns the method.
    pub fn method(&self) -> &'static Method {
        self.method
    }

    /// Classifies a result that does not contradict itself.
    fn judge_plausible(&self, result: &[u8], known: Known<'_>, is_empty: bool) -> Option<Judged> {
        if self.is_of_other_api(known.mark) {
            return None;
        }
        let mark = known.mark.filter(|mark| mark.heights == Heights::Blocks);
        let named = Named::by(self.method, known.params);
        if self.class == Class::Tip {
            return self.judge_tip(named, result, mark, known.valid);
        }
        let said = block::in_result(self.method, result);
        if !self.is_about(named, said, result) {
            return None;
        }
        let of = said.filter(|_| !matches!(named, Named::Block(_)));
        let said = said.map(|said| said.number);
        let (block, height) = match named {
            Named::Head | Named::Moving | Named::Nothing => (None, None),
            Named::Earliest(last) => (said, last),
            Named::Number(number) => (Some(number), Some(number)),
            Named::Block(_) | Named::Transaction(_) => (said, said),
            Named::UpTo(last) => (None, Some(last)),
        };
        let at = || height.zip(mark);
        if at().is_some_and(|(height, mark)| mark.head.is_some_and(|head| head < height)) {
            // the next block extends the range; and sequencers report blocks before they seal them,
            // under hashes that no block has later
            return self.judge_tip(named, result, mark, known.valid);
        }
        let is_final = || at().is_some_and(|(height, mark)| mark.is_final(height));
        let class = match self.class {
            // a lagging node returns the same for a block that it does not have
            Class::Immutable if is_empty => return None,
            // the first block of the node may be another one later
            class if matches!(named, Named::Earliest(_)) => class,
            Class::Unfinalized if is_final() && !is_empty => Class::Immutable,
            class => class,
        };
        // the chain is not known, or the node will add to the result
        let class = match known.mark {
            Some(mark) if !mark.is_known => Class::Unfinalized,
            _ if class == Class::Immutable && is_to_be_filled_in(result) => Class::Unfinalized,
            _ => class,
        };
        match (named, class) {
            // the node may not have had the blocks without a result
            (Named::UpTo(last), Class::Immutable) if block::last_in_list(result) != Some(last) => {
                self.kept_if_repeated(last, known.valid)
            }
            _ => {
                let judged = self.kept(class, height, known.valid)?;
                Some(Judged {
                    valid: judged.valid.min(longest(named)),
                    of,
                    if_final: self.if_final(named, result, mark, known.valid),
                    block,
                    ..judged
                })
            }
        }
    }

    /// Classifies a range that is finalized up to its `last` block and may be incomplete.
    fn kept_if_repeated(&self, last: u64, valid: &Valid) -> Option<Judged> {
        let later = self.valid(Class::Immutable, valid);
        let valid = self.valid(Class::Unfinalized, valid);
        (later > 0).then_some(Judged {
            if_repeated: Some(later),
            ..Judged::new(Class::Unfinalized, valid, Some(last))
        })
    }

    /// Returns the upgrade of a response about a transaction that does not name its block.
    fn if_final(
        &self,
        named: Named,
        result: &[u8],
        mark: Option<&Mark>,
        valid: &Valid,
    ) -> Option<IfFinal> {
        let Named::Transaction(Some(transaction)) = named else {
            return None;
        };
        let says_nothing = matches!(content(result), Content::EmptyArray | Content::EmptyData);
        if self.method.in_result != methods::InResult::None || says_nothing {
            return None;
        }
        Some(IfFinal {
            transaction,
            last: mark?.last_final?,
            valid: self.valid(Class::Immutable, valid),
        })
    }

    /// Classifies a complete response that has no other class, by its `result` or `error`. It has a
    /// lifetime of 0 at least, and is shared with all followers.
    pub fn nothing(&self, came: Came<'_>, known: Known<'_>) -> Judged {
        let is_lasting = match came {
            Came::Result(result) => {
                let is_empty = matches!(content(result), Content::Null | Content::EmptyArray);
                // a transaction that is sent the next moment is found without a new head
                is_empty && !self.method.finds_before_a_block()
            }
            Came::Error(error) => has_reverted(error),
        };
        let valid = match is_lasting && known.mark.is_none_or(|mark| !mark.is_wrong) {
            true => {
                let named = Named::by(self.method, known.params);
                self.valid_nothing(known.valid).min(longest(named))
            }
            false => 0,
        };
        let height = known.mark.map(|mark| mark.seen);
        Judged::new(Class::Nothing, valid, height)
    }

    /// Returns the lifetime of an empty result: an operator's lifetime for the method can only
    /// shorten it.
    fn valid_nothing(&self, valid: &Valid) -> u64 {
        let most = valid.class(Class::Nothing);
        self.said.map_or(most, |said| said.min(most))
    }

    fn valid(&self, class: Class, valid: &Valid) -> u64 {
        self.said.unwrap_or(valid.class(class))
    }

    /// Classifies a result that depends on the head. The node may lag behind heads that others have
    /// reported.
    fn judge_tip(
        &self,
        named: Named,
        result: &[u8],
        mark: Option<&Mark>,
        known: &Valid,
    ) -> Option<Judged> {
        let of = mark.and_then(|_| block::in_result(self.method, result));
        let height = match (mark, of) {
            (Some(mark), Some(said)) if matches!(named, Named::Head) => {
                if said.number < mark.seen {
                    return None;
                }
                Some(said.number)
            }
            (mark, _) => mark.map(|mark| mark.seen),
        };
        let judged = self.kept(Class::Tip, height, known)?;
        let valid = judged.valid.min(longest(named));
        if content(result) == Content::EmptyArray && self.said.is_none() {
            let valid = valid.min(self.valid_nothing(known));
            return (valid > 0).then_some(Judged {
                class: Class::Nothing,
                valid,
                ..judged
            });
        }
        Some(Judged {
            of,
            valid,
            ..judged
        })
    }

    fn kept(&self, class: Class, height: Option<u64>, valid: &Valid) -> Option<Judged> {
        let valid = self.valid(class, valid);
        (valid > 0).then(|| Judged::new(class, valid, height))
    }

    /// Whether the result names the requested block or transaction, as far as it names any.
    fn is_about(&self, named: Named, said: Option<ResultBlock>, result: &[u8]) -> bool {
        match (named, said) {
            (Named::Number(number), Some(said)) => said.number == number,
            (Named::Block(hash), Some(said)) => said.hash.is_none_or(|said| said == hash),
            (Named::Transaction(asked), Some(_)) => {
                let said = block::transaction_in(self.method, result);
                asked.zip(said).is_none_or(|(asked, said)| asked == said)
            }
            // the transaction is in no block yet, or its block is not named
            (Named::Transaction(_), None) => self.method.in_result == methods::InResult::None,
            _ => true,
        }
    }
}

/// Maximum lifetime of a response about such blocks, in milliseconds. No event reports a move of a
/// tag other than the head.
fn longest(named: Named) -> u64 {
    match named {
        Named::Moving => Class::Tip.default_valid(),
        Named::Earliest(_) => Class::Unfinalized.default_valid(),
        _ => u64::MAX,
    }
}

/// Whether a JSON-RPC error describes a revert. Such an error is the call's own: the call fails
/// with it for every client as long as the state is the same. Other errors describe the node: it
/// lags, or is overloaded.
pub(crate) fn has_reverted(error: &[u8]) -> bool {
    // 3 is geth's and EIP-1474's extension for a revert with data; without data the code is -32000,
    // Nethermind's and Erigon's are -32015 and -32000
    match member(error, "code") {
        Some(b"3") => true,
        Some(b"-32000" | b"-32015") => member(error, "message").is_some_and(|message| {
            let revert = b"revert";
            message
                .windows(revert.len())
                .any(|word| word.eq_ignore_ascii_case(revert))
        }),
        _ => false,
    }
}

/// Whether a call depends on the node's next block, or on no block that is the same for all nodes.
fn is_of_no_block(method: &Method, params: Option<&[u8]>) -> bool {
    matches!(
        block::reference(method, params),
        BlockReference::Tag(Tag::Pending) | BlockReference::Invalid
    )
}

#[cfg(test)]
mod tests;
