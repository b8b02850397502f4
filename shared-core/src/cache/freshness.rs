//! How long an answer stays fresh, by what it says and by what it was asked.
//!
//! Nothing here knows which blocks are final: an answer that hangs on a
//! block's *number* may change with a reorganisation of the chain, so it is
//! `unfinalized` and short-lived however old the block is.

use crate::jsonrpc::block::{self, BlockReference, Bound, Tag};
use crate::jsonrpc::methods::{self, Method};
use crate::jsonrpc::response::{content, Content};

/// Why an answer may be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// It will never change: it hangs on a hash, or on the chain alone.
    Immutable,
    /// It hangs on a block's number and may change until that block is final.
    Unfinalized,
    /// It hangs on the head of the chain and changes with every block.
    Tip,
}

impl Class {
    const ALL: [Class; 3] = [Class::Immutable, Class::Unfinalized, Class::Tip];

    /// The name that configurations and logs use.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Immutable => "immutable",
            Class::Unfinalized => "unfinalized",
            Class::Tip => "tip",
        }
    }

    /// The class of that number, as `as u8` gives it.
    pub fn numbered(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The class of that name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|class| class.name().as_bytes() == name)
    }

    /// Milliseconds where nothing is configured. A slot is 12 s on mainnet and
    /// 2 s on most other chains: what may change is kept for less.
    const fn default_valid(self) -> u64 {
        match self {
            Class::Immutable => 3_600_000,
            Class::Unfinalized => 2_000,
            Class::Tip => 1_000,
        }
    }
}

/// Lifetimes by class, and by method where an operator knows better.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Valid {
    classes: [Option<u64>; Class::ALL.len()],
    methods: Vec<(Vec<u8>, u64)>,
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

    /// What an operator said of a method.
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

/// Whether a method changes something, or belongs to one caller: no
/// configuration can make its answers fit for another.
pub fn is_stateful(method: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 13] = [
        b"admin_",
        b"clique_",
        b"engine_",
        b"eth_getFilter",
        b"eth_new",
        b"eth_send",
        b"eth_sign",
        b"eth_subscribe",
        b"eth_uninstallFilter",
        b"eth_unsubscribe",
        b"miner_",
        b"personal_",
        b"debug_set",
    ];
    PREFIXES.iter().any(|prefix| method.starts_with(prefix))
}

/// What a call's answer may be kept for, as far as the call tells.
#[derive(Clone, Copy, Debug)]
pub struct Prospect {
    method: &'static Method,
    class: Class,
    /// Milliseconds.
    valid: u64,
    /// The answer names its block, or says that it has none yet.
    in_result: bool,
    /// The block that the call names by its number.
    number: Option<u64>,
}

impl Prospect {
    /// Of a call; `None`: its answer is not kept, whatever it is.
    pub fn of(method: &[u8], params: Option<&[u8]>, valid: &Valid) -> Option<Self> {
        let said = valid.method(method);
        let row = methods::method(method);
        let mut number = None;
        let (class, in_result) = match row.class {
            // a method that the table does not know, and the operator does
            methods::Class::Never if said.is_some() => (Class::Tip, false),
            methods::Class::Never => return None,
            methods::Class::Immutable => (Class::Immutable, false),
            methods::Class::Tip => (Class::Tip, false),
            methods::Class::ByFinality => match block::reference(row, params) {
                BlockReference::InResult => (Class::Unfinalized, true),
                named => {
                    if let BlockReference::Number(named) = named {
                        number = Some(named);
                    }
                    (class_of(named)?, false)
                }
            },
        };
        let milliseconds = said.unwrap_or(valid.class(class));
        (milliseconds > 0).then_some(Self {
            method: row,
            class,
            valid: milliseconds,
            in_result,
            number,
        })
    }

    /// The number of the block that the answer is of, if there is one block
    /// that it is of and the call or the `result` names it.
    pub fn block(&self, result: &[u8]) -> Option<u64> {
        let in_result = || Some(block::in_result(self.method, result)?.number);
        match self.class {
            // what it is of is not what it hangs on
            Class::Tip => None,
            _ => self.number.or_else(in_result),
        }
    }

    /// The class and the lifetime in milliseconds, now that the answer's
    /// `result` is known; `None`: it is not kept.
    pub fn judge(&self, result: &[u8]) -> Option<(Class, u64)> {
        match content(result) {
            Content::Null => return None,
            // a node that lags says the same of a block that it does not have
            Content::EmptyArray if self.class == Class::Immutable => return None,
            _ => {}
        }
        if self.in_result
            && self.method.in_result != methods::InResult::None
            && block::in_result(self.method, result).is_none()
        {
            return None;
        }
        Some((self.class, self.valid))
    }
}

fn class_of(reference: BlockReference) -> Option<Class> {
    match reference {
        BlockReference::Hash {
            require_canonical: false,
            ..
        } => Some(Class::Immutable),
        BlockReference::Hash { .. } | BlockReference::Number(_) => Some(Class::Unfinalized),
        BlockReference::Tag(tag) => class_of_tag(tag),
        BlockReference::Range { from, to } => {
            let ends = [from, to].map(|end| match end {
                Bound::Number(_) => Some(Class::Unfinalized),
                Bound::Tag(tag) => class_of_tag(tag),
            });
            match ends {
                [Some(Class::Unfinalized), Some(Class::Unfinalized)] => Some(Class::Unfinalized),
                [Some(_), Some(_)] => Some(Class::Tip),
                _ => None,
            }
        }
        BlockReference::InResult => Some(Class::Unfinalized),
        // a method by finality that is about no block at all
        BlockReference::None | BlockReference::Invalid => None,
    }
}

fn class_of_tag(tag: Tag) -> Option<Class> {
    match tag {
        Tag::Latest | Tag::Safe | Tag::Finalized => Some(Class::Tip),
        Tag::Earliest => Some(Class::Unfinalized),
        Tag::Pending => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, Prospect, Valid};

    const HASH: &str = "\"0x00000000000000000000000000000000000000000000000000000000000000aa\"";

    fn class(method: &str, params: &str) -> Option<Class> {
        Prospect::of(
            method.as_bytes(),
            Some(params.as_bytes()),
            &Valid::default(),
        )
        .map(|prospect| prospect.class)
    }

    fn kept(method: &str, params: &str, result: &str) -> bool {
        Prospect::of(
            method.as_bytes(),
            Some(params.as_bytes()),
            &Valid::default(),
        )
        .is_some_and(|prospect| prospect.judge(result.as_bytes()).is_some())
    }

    #[test]
    fn the_class_follows_the_block_that_is_named() {
        let by_hash = format!("[{HASH},false]");
        assert_eq!(
            class("eth_getBlockByHash", &by_hash),
            Some(Class::Immutable)
        );
        for (block, expected) in [
            ("\"0x10\"", Some(Class::Unfinalized)),
            ("\"latest\"", Some(Class::Tip)),
            ("\"safe\"", Some(Class::Tip)),
            ("\"finalized\"", Some(Class::Tip)),
            ("\"earliest\"", Some(Class::Unfinalized)),
            ("\"pending\"", None),
            ("\"0x0010\"", None),
            ("16", None),
        ] {
            let params = format!("[{block},true]");
            assert_eq!(class("eth_getBlockByNumber", &params), expected, "{block}");
        }
    }

    #[test]
    fn a_missing_block_is_the_latest() {
        let address = "\"0x00000000000000000000000000000000000000aa\"";
        assert_eq!(
            class("eth_getBalance", &format!("[{address}]")),
            Some(Class::Tip)
        );
        assert_eq!(
            class("eth_getLogs", "[{\"fromBlock\":\"0x1\"}]"),
            Some(Class::Tip)
        );
    }

    #[test]
    fn what_changes_something_or_follows_no_block_is_not_kept() {
        for method in [
            "eth_sendRawTransaction",
            "eth_syncing",
            "engine_newPayloadV4",
            "eth_newFilter",
            "eth_getFilterChanges",
            "nobody_knowsThis",
        ] {
            assert_eq!(class(method, "[]"), None, "{method}");
        }
    }

    #[test]
    fn a_null_receipt_is_not_cached_for_ever() {
        let params = format!("[{HASH}]");
        assert!(!kept("eth_getTransactionReceipt", &params, "null"));
        assert!(!kept(
            "eth_getBlockByHash",
            &format!("[{HASH},true]"),
            "null"
        ));
        let pending = "{\"blockHash\":null,\"blockNumber\":null}";
        assert!(!kept("eth_getTransactionByHash", &params, pending));
    }

    #[test]
    fn empty_code_and_zero_balance_are_answers() {
        let params = "[\"0x00000000000000000000000000000000000000aa\",\"0x10\"]";
        assert!(kept("eth_getCode", params, "\"0x\""));
        assert!(kept("eth_getBalance", params, "\"0x0\""));
    }

    #[test]
    fn the_block_of_an_answer_is_the_one_that_call_or_answer_names() {
        let block = |method: &str, params: &str, result: &str| {
            Prospect::of(
                method.as_bytes(),
                Some(params.as_bytes()),
                &Valid::default(),
            )
            .and_then(|prospect| prospect.block(result.as_bytes()))
        };
        let by_hash = format!("[{HASH},true]");
        let result = format!("{{\"number\":\"0x11\",\"hash\":{HASH}}}");
        assert_eq!(
            block("eth_getBlockByNumber", "[\"0x10\",true]", "{}"),
            Some(16)
        );
        assert_eq!(block("eth_getBlockByHash", &by_hash, &result), Some(17));
        assert_eq!(block("eth_getBlockByHash", &by_hash, "{}"), None);
        assert_eq!(
            block("eth_getBlockByNumber", "[\"latest\",true]", &result),
            None
        );
        assert_eq!(block("eth_chainId", "[]", "\"0x1\""), None);
        let range = "[{\"fromBlock\":\"0x1\",\"toBlock\":\"0x5\"}]";
        assert_eq!(block("eth_getLogs", range, "[]"), None);
    }

    #[test]
    fn an_operator_has_the_last_word_except_on_nothing() {
        let mut valid = Valid::default();
        valid.set_class(Class::Tip, 0).unwrap();
        valid.set_method(b"eth_gasPrice", 500).unwrap();
        valid.set_method(b"my_method", 700).unwrap();
        let lifetime = |method: &str| {
            Prospect::of(method.as_bytes(), None, &valid)
                .and_then(|prospect| prospect.judge(b"1"))
                .map(|(_, milliseconds)| milliseconds)
        };
        assert_eq!(lifetime("eth_blockNumber"), None);
        assert_eq!(lifetime("eth_gasPrice"), Some(500));
        assert_eq!(lifetime("my_method"), Some(700));
        assert!(valid.set_class(Class::Tip, 1).is_err());
        assert!(valid.set_method(b"my_method", 1).is_err());
    }
}
