//! How long an answer stays fresh, by what it says and by what it was asked.
//!
//! An answer that hangs on a block's *number* may change with a reorganisation
//! of the chain, so it is `unfinalized` and short-lived, unless the owner
//! follows the chain and the block was final when the node was asked.

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

/// Lifetimes by class, and by method where an operator knows better; and what answers
/// depend on, where an operator has said that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Valid {
    classes: [Option<u64>; Class::ALL.len()],
    methods: Vec<(Vec<u8>, u64)>,
    rows: Arc<Rows>,
}

/// It has been said already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaidBefore;

impl Valid {
    /// Sets the lifetime of a class. Milliseconds; 0: not stored.
    ///
    /// # Errors
    /// [`SaidBefore`].
    pub fn set_class(&mut self, class: Class, milliseconds: u64) -> Result<(), SaidBefore> {
        match self.classes[class as usize].replace(milliseconds) {
            None => Ok(()),
            Some(_) => Err(SaidBefore),
        }
    }

    /// Sets the lifetime of a method's answers, whatever their class.
    ///
    /// # Errors
    /// [`SaidBefore`].
    pub fn set_method(&mut self, method: &[u8], milliseconds: u64) -> Result<(), SaidBefore> {
        if self.method(method).is_some() {
            return Err(SaidBefore);
        }
        self.methods.push((method.to_vec(), milliseconds));
        Ok(())
    }

    /// The same lifetimes, with what an operator has said that answers depend on.
    pub fn with_rows(&self, rows: Arc<Rows>) -> Self {
        Self {
            rows,
            ..self.clone()
        }
    }

    /// The row of a method, as an operator has said it or as the table has it.
    pub(crate) fn row(&self, method: &[u8]) -> &'static Method {
        let theirs = self.rows.find(method);
        theirs.unwrap_or_else(|| methods::method(method))
    }

    /// What an operator said of a method's lifetime.
    pub fn method(&self, method: &[u8]) -> Option<u64> {
        self.methods
            .iter()
            .find(|(name, _)| name == method)
            .map(|(_, milliseconds)| *milliseconds)
    }

    /// How long answers of a class stay fresh, in milliseconds.
    pub fn class(&self, class: Class) -> u64 {
        self.classes[class as usize].unwrap_or(class.default_valid())
    }
}

/// What a call's answer may be kept for, as far as the call tells.
#[derive(Clone, Copy, Debug)]
pub struct Prospect {
    method: &'static Method,
    /// As long as nothing is known of the chain.
    class: Class,
    /// What an operator said of the method, in milliseconds.
    said: Option<u64>,
}

/// What is known when an answer has come.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The call's.
    pub params: Option<&'a [u8]>,
    /// What was known of the chain when the node was asked, if it is followed.
    pub mark: Option<&'a Mark>,
    /// Lifetimes.
    pub valid: &'a Valid,
}

/// What came of a call that is kept as nothing else.
#[derive(Clone, Copy, Debug)]
pub enum Came<'a> {
    /// Its result.
    Result(&'a [u8]),
    /// Its error.
    Error(&'a [u8]),
}

/// What an answer is kept as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Why it may be kept.
    pub class: Class,
    /// For how long, in milliseconds.
    pub valid: u64,
    /// The block that it is of, if there is one block that it is of and call or
    /// answer names it.
    pub block: Option<u64>,
    /// The highest block that it depends on, or the head that it tells of.
    pub height: Option<u64>,
    /// The block that it says it is of, where it was not asked for by a hash.
    pub of: Option<ResultBlock>,
    /// It is of a transaction, and of that transaction's block nothing is said.
    pub if_final: Option<IfFinal>,
    /// It may be cut short, by a node that did not have all of it: if one says
    /// the same [some time later](super::process::repeated), it is immutable, for so many
    /// milliseconds. Until then [`valid`](Self::valid) may be 0.
    pub if_repeated: Option<u64>,
    /// It contradicts itself.
    pub is_implausible: bool,
    /// Its result was read: it is one JSON value.
    pub is_read: bool,
}

impl Judged {
    /// Of an answer of which nothing else is known.
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

/// What else an answer may be kept as, by whoever knows where a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IfFinal {
    /// The transaction's hash.
    pub transaction: [u8; 32],
    /// If its block is this one or a lower one, it was final when the node was
    /// asked.
    pub last: u64,
    /// The answer may then be kept so long, in milliseconds.
    pub valid: u64,
}

impl Prospect {
    /// Of a call; `None`: its answer is not kept, whatever it is.
    pub fn of(method: &[u8], params: Option<&[u8]>, valid: &Valid) -> Option<Self> {
        let said = valid.method(method);
        let row = valid.row(method);
        let class = match row.class {
            // a method that the table does not know, and the operator does
            methods::Class::Never if said.is_some() && !row.is_operators => Class::Tip,
            methods::Class::Never => return None,
            methods::Class::Immutable => Class::Immutable,
            // what the node would do next is its own
            methods::Class::Tip if is_of_no_block(row, params) => return None,
            methods::Class::Tip => Class::Tip,
            methods::Class::Config => Class::Config,
            methods::Class::ByFinality => class_of(block::reference(row, params))?,
        };
        let is_kept = |class| said.unwrap_or(valid.class(class)) > 0;
        // what is final may be kept where the rest is not
        let may_be = class == Class::Unfinalized && is_kept(Class::Immutable);
        (is_kept(class) || may_be).then_some(Self {
            method: row,
            class,
            said,
        })
    }

    /// Whether a later head may change the answer, or the answer show that there is one.
    pub fn moves_with_head(&self) -> bool {
        !matches!(self.class, Class::Immutable | Class::Config)
    }

    /// Whether the answer depends on the head, and the namespace follows a node of the
    /// Beacon API: it is not known then when there is a new block.
    pub fn is_of_other_api(&self, mark: Option<&Mark>) -> bool {
        self.class == Class::Tip && mark.is_some_and(|mark| mark.heights != Heights::Blocks)
    }

    /// What the answer is kept as, now that its `result` is known; `None`: it
    /// is not kept.
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
        // the node had no time for it, and may have when it is asked again
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

    /// The class of a result that contradicts itself or another result.
    pub fn implausible(&self, known: Known<'_>) -> Judged {
        let named = Named::by(self.method, known.params);
        let kept_for = self.valid_nothing(known.valid).min(longest(named));
        let height = known.mark.map(|mark| mark.seen);
        Judged {
            is_implausible: true,
            ..Judged::new(Class::Nothing, kept_for, height)
        }
    }

    /// The method.
    pub fn method(&self) -> &'static Method {
        self.method
    }

    /// The same of a result that does not contradict itself.
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
            // with the next block there will be more of a range; and sequencers tell
            // of blocks before they seal them, under hashes that no block has then
            return self.judge_tip(named, result, mark, known.valid);
        }
        let is_final = || at().is_some_and(|(height, mark)| mark.is_final(height));
        let class = match self.class {
            // a node that lags says the same of a block that it does not have
            Class::Immutable if is_empty => return None,
            // which one is the first may be another one by then
            class if matches!(named, Named::Earliest(_)) => class,
            Class::Unfinalized if is_final() && !is_empty => Class::Immutable,
            class => class,
        };
        // nobody knows which chain it is of, or its node will have more to say
        let class = match known.mark {
            Some(mark) if !mark.is_known => Class::Unfinalized,
            _ if class == Class::Immutable && is_to_be_filled_in(result) => Class::Unfinalized,
            _ => class,
        };
        match (named, class) {
            // nobody knows whether the node had the blocks that it left out
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

    /// What a range is kept as that is final up to its `last` block, and may be
    /// cut short.
    fn kept_if_repeated(&self, last: u64, valid: &Valid) -> Option<Judged> {
        let later = self.valid(Class::Immutable, valid);
        let valid = self.valid(Class::Unfinalized, valid);
        (later > 0).then_some(Judged {
            if_repeated: Some(later),
            ..Judged::new(Class::Unfinalized, valid, Some(last))
        })
    }

    /// What an answer about a transaction is that does not name its block.
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

    /// What a whole answer is kept as that is kept as nothing else, the value
    /// of its `result` or `error` being known: at the least, with a lifetime
    /// of 0, it is an answer to all who were waiting for it.
    pub fn nothing(&self, came: Came<'_>, known: Known<'_>) -> Judged {
        let is_lasting = match came {
            Came::Result(result) => {
                let is_empty = matches!(content(result), Content::Null | Content::EmptyArray);
                // one that is sent the next moment is found, without a new head
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

    /// An operator who knows a method does not know that there is nothing.
    fn valid_nothing(&self, valid: &Valid) -> u64 {
        let most = valid.class(Class::Nothing);
        self.said.map_or(most, |said| said.min(most))
    }

    fn valid(&self, class: Class, valid: &Valid) -> u64 {
        self.said.unwrap_or(valid.class(class))
    }

    /// What hangs on the head. The node may be behind what others have said.
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

    /// Whether an answer is about what was asked for, as far as it says.
    fn is_about(&self, named: Named, said: Option<ResultBlock>, result: &[u8]) -> bool {
        match (named, said) {
            (Named::Number(number), Some(said)) => said.number == number,
            (Named::Block(hash), Some(said)) => said.hash.is_none_or(|said| said == hash),
            (Named::Transaction(asked), Some(_)) => {
                let said = block::transaction_in(self.method, result);
                asked.zip(said).is_none_or(|(asked, said)| asked == said)
            }
            // it is in no block yet, or does not say so
            (Named::Transaction(_), None) => self.method.in_result == methods::InResult::None,
            _ => true,
        }
    }
}

/// The longest that an answer about that may be kept, in milliseconds: nobody is told when
/// a place moves that is not the head.
fn longest(named: Named) -> u64 {
    match named {
        Named::Moving => Class::Tip.default_valid(),
        Named::Earliest(_) => Class::Unfinalized.default_valid(),
        _ => u64::MAX,
    }
}

/// Whether the error is the call's own: it fails as long as the state is this
/// one, whoever asks. Others tell of the node: it is behind, or busy.
/// Whether a JSON-RPC error tells of a revert.
pub(crate) fn has_reverted(error: &[u8]) -> bool {
    // 3 is geth's and EIP-1474's extension for what reverted with data; without
    // data it is -32000, Nethermind's and Erigon's are -32015 and -32000
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

/// Whether a call is about what the node would do next, or about no block that every node
/// takes for the same one.
fn is_of_no_block(method: &Method, params: Option<&[u8]>) -> bool {
    matches!(
        block::reference(method, params),
        BlockReference::Tag(Tag::Pending) | BlockReference::Invalid
    )
}

#[cfg(test)]
mod tests;
