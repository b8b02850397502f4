//! Method rows as operators write them: one or two words that specify the block on which a
//! method's responses depend.
//!
//! ```text
//! block=p[1]               block=result.blockNumber      class=tip
//! block=p[0].blockNumber   block=result[0].blockNumber   range=p[0]
//! ```
//!
//! The rows of the method table can be written in the same words ([`method_row_to_words`]), with the same
//! meaning.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::methods::{
    BlockNumberPath, BlockParamPosition, MethodClass, MethodRow, ResultBlockPosition,
    ResultPathStep, ANY_MEMBER,
};
use super::stateful_methods::is_stateful_method;

/// The words of a method row, and their meaning.
pub const ROW_WORD_FORMS: [(&str, &str); 10] = [
    (
        "block=p[N]",
        "the block in parameter N, counted from 0: number, tag, hash, or object of EIP-1898; \
         `latest` if the parameter is absent",
    ),
    (
        "block=p[N].MEMBER",
        "the block in a member of parameter N, which is an object",
    ),
    (
        "block=result.MEMBER",
        "the block whose number is in this member of the result; a result without a number, such \
         as a pending transaction, is not cached. The path may be longer \
         (`result.receipt.blockNumber`), and pass through the first element of a list \
         (`result[0].blockNumber`). The hash is read from the corresponding member, if there is \
         one (`blockHash` for `blockNumber`, `hash` for `number`)",
    ),
    ("block=result", "the head, whose number is the result"),
    (
        "range=p[N]",
        "the blocks from `fromBlock` to `toBlock`, or the block of `blockHash`, in the object of \
         parameter N",
    ),
    (
        "transaction=p[0]",
        "the block of the transaction with this hash, which is not in the result: the receipt is \
         requested from the node",
    ),
    ("class=immutable", "no block: the result never changes"),
    (
        "class=tip",
        "the head: the result expires with the next block",
    ),
    (
        "class=config",
        "the configuration of the chain's nodes, which an upgrade changes",
    ),
    ("class=none", "anything else: the result is not cached"),
];

/// Highest index of a parameter that a row can name.
pub const MAX_PARAMETER_INDEX: usize = 15;

/// The method rows that an operator has written, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MethodSpecs(Vec<&'static MethodRow>);

/// The reason why a method row of an operator was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodSpecError<'a> {
    /// The name is no name of a method.
    Name,
    /// The method has a row already.
    Duplicate,
    /// The method's responses depend on state of the node or the caller, and can't be shared.
    Stateful,
    /// The word is none of [`ROW_WORD_FORMS`].
    Word(&'a [u8]),
    /// The word can't be combined with a word before it.
    Combination(&'a [u8]),
}

impl fmt::Display for MethodSpecError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MethodSpecError::Name => f.write_str("a method name"),
            MethodSpecError::Duplicate => {
                f.write_str("a method that this block does not configure yet")
            }
            MethodSpecError::Stateful => {
                f.write_str("a method without side effects and without state on the node")
            }
            MethodSpecError::Word(_) => {
                for (n, (form, _)) in ROW_WORD_FORMS.iter().enumerate() {
                    let before = match n {
                        0 => "",
                        n if n + 1 == ROW_WORD_FORMS.len() => " or ",
                        _ => ", ",
                    };
                    write!(f, "{before}\"{form}\"")?;
                }
                write!(f, ", where N is a number from 0 to {MAX_PARAMETER_INDEX}")
            }
            MethodSpecError::Combination(_) => f.write_str(
                "omitted: only \"block=p[N]\" can be combined, with \"block=result.MEMBER\"",
            ),
        }
    }
}

impl std::error::Error for MethodSpecError<'_> {}

impl MethodSpecs {
    /// Adds the row of a method; `words` specify the block on which the method's responses depend.
    ///
    /// # Errors
    /// Returns [`MethodSpecError`] and leaves the rows unchanged.
    pub fn add_method_row<'a>(
        &mut self,
        name: &[u8],
        words: &[&'a [u8]],
    ) -> Result<(), MethodSpecError<'a>> {
        let is_of_name = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\,*=".contains(byte);
        let text = std::str::from_utf8(name).ok();
        let is_name = !name.is_empty() && name.iter().all(is_of_name);
        let text = text.filter(|_| is_name).ok_or(MethodSpecError::Name)?;
        let (class, at, in_result) = parse_method_row_words(words)?;
        if class != MethodClass::Never && is_stateful_method(name) {
            return Err(MethodSpecError::Stateful);
        }
        let Err(at_row) = self.row_index(name) else {
            return Err(MethodSpecError::Duplicate);
        };
        self.0.insert(
            at_row,
            intern_operator_method_row(text, class, at, in_result),
        );
        Ok(())
    }

    /// Returns the operator's row of a method, by its exact name.
    pub fn find_operator_method_row(&self, name: &[u8]) -> Option<&'static MethodRow> {
        let place = self.row_index(name).ok()?;
        self.0.get(place).copied()
    }

    /// Returns the index of the row with this name, or as an error the index at which it would be
    /// inserted.
    fn row_index(&self, name: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|row| row.name.as_bytes().cmp(name))
    }
}

/// The meaning of a row's words: the class, and the positions of the block in the call and in the
/// result.
type RowWordMeaning = (MethodClass, BlockParamPosition, ResultBlockPosition);

/// Reads the words of a row. Errors: a word is unknown, or can't be combined with the one before
/// it.
fn parse_method_row_words<'a>(words: &[&'a [u8]]) -> Result<RowWordMeaning, MethodSpecError<'a>> {
    let mut meaning = None;
    for &word in words {
        let (class, at, in_result) =
            parse_method_row_word(word).ok_or(MethodSpecError::Word(word))?;
        meaning = Some(match (meaning, at, in_result) {
            (None, _, _) => (class, at, in_result),
            // first the block in the call, then the block in the result
            (
                Some((MethodClass::ByFinality, in_call, ResultBlockPosition::None)),
                BlockParamPosition::Result,
                ResultBlockPosition::Path(_),
            ) if names_block(in_call) => (class, in_call, in_result),
            _ => return Err(MethodSpecError::Combination(word)),
        });
    }
    meaning.ok_or(MethodSpecError::Word(b""))
}

fn names_block(at: BlockParamPosition) -> bool {
    matches!(
        at,
        BlockParamPosition::Param(_) | BlockParamPosition::ParamMember(..)
    )
}

/// Parses one word of a row; `None` if it is unknown.
fn parse_method_row_word(word: &[u8]) -> Option<RowWordMeaning> {
    let (name, value) = std::str::from_utf8(word).ok()?.split_once('=')?;
    let of_block = |at| (MethodClass::ByFinality, at, ResultBlockPosition::None);
    Some(match (name, value) {
        ("class", "immutable") => (
            MethodClass::Immutable,
            BlockParamPosition::None,
            ResultBlockPosition::None,
        ),
        ("class", "tip") => (
            MethodClass::Tip,
            BlockParamPosition::None,
            ResultBlockPosition::None,
        ),
        ("class", "config") => (
            MethodClass::Config,
            BlockParamPosition::None,
            ResultBlockPosition::None,
        ),
        ("class", "none") => (
            MethodClass::Never,
            BlockParamPosition::None,
            ResultBlockPosition::None,
        ),
        ("transaction", "p[0]") => of_block(BlockParamPosition::Result),
        ("range", value) => match parse_param_index(value)? {
            (n, "") => of_block(BlockParamPosition::Range(n, ANY_MEMBER)),
            _ => return None,
        },
        ("block", "result") => (
            MethodClass::Tip,
            BlockParamPosition::None,
            ResultBlockPosition::Itself,
        ),
        ("block", value) => match value.strip_prefix("result") {
            Some(way) => {
                let in_result = ResultBlockPosition::Path(parse_result_path(way)?);
                (
                    MethodClass::ByFinality,
                    BlockParamPosition::Result,
                    in_result,
                )
            }
            None => of_block(match parse_param_index(value)? {
                (n, "") => BlockParamPosition::Param(n),
                (n, rest) => BlockParamPosition::ParamMember(
                    n,
                    intern_name(parse_path_member(rest)?),
                    ANY_MEMBER,
                ),
            }),
        },
        _ => return None,
    })
}

/// Parses `p[N]`, and returns the number and the text after it.
fn parse_param_index(value: &str) -> Option<(usize, &str)> {
    let (number, rest) = value.strip_prefix("p[")?.split_once(']')?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let is_usual = number == "0" || !number.starts_with('0');
    let number = number
        .parse::<usize>()
        .ok()
        .filter(|_| is_number && is_usual)?;
    (number <= MAX_PARAMETER_INDEX).then_some((number, rest))
}

/// Parses `.MEMBER`, with no text after it.
fn parse_path_member(rest: &str) -> Option<&str> {
    rest.strip_prefix('.')
        .filter(|name| is_plain_member_name(name))
}

/// Whether the name needs no escapes in JSON, and is no path.
fn is_plain_member_name(name: &str) -> bool {
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_of_name)
}

/// Parses a path of `.MEMBER` and `[0]` that ends in a member, and interns it.
fn parse_result_path(mut way: &str) -> Option<&'static BlockNumberPath> {
    let mut steps = Vec::new();
    while !way.is_empty() {
        if let Some(rest) = way.strip_prefix("[0]") {
            steps.push(ResultPathStep::First);
            way = rest;
            continue;
        }
        let rest = way.strip_prefix('.')?;
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        let name = Some(&rest[..end]).filter(|name| is_plain_member_name(name))?;
        steps.push(ResultPathStep::Member(name.to_owned()));
        way = &rest[end..];
    }
    let Some(ResultPathStep::Member(number)) = steps.pop() else {
        return None;
    };
    let hash = match number.strip_suffix("Number") {
        Some(of) => format!("{of}Hash"),
        None if number == "number" => "hash".to_owned(),
        None => String::new(),
    };
    let path = BlockNumberPath {
        steps,
        number,
        hash,
    };
    Some(intern_value(&INTERNED_PATHS, path))
}

/// Rows and their parts, which live as long as the process, so that the key cache refers to them
/// by pointers, as to the rows of the method table. Their number is the number of different
/// rows that operators have ever written: a configuration that is loaded again adds none.
static INTERNED_ROWS: Mutex<Vec<&'static MethodRow>> = Mutex::new(Vec::new());
static INTERNED_PATHS: Mutex<Vec<&'static BlockNumberPath>> = Mutex::new(Vec::new());
static INTERNED_NAMES: Mutex<Vec<&'static String>> = Mutex::new(Vec::new());

/// Returns the row with these values, which is created once and lives as long as the process.
fn intern_operator_method_row(
    name: &str,
    class: MethodClass,
    at: BlockParamPosition,
    in_result: ResultBlockPosition,
) -> &'static MethodRow {
    let row = MethodRow {
        name: intern_name(name),
        class,
        at,
        in_result,
        is_operators: true,
    };
    intern_value(&INTERNED_ROWS, row)
}

/// Returns a copy of the name that is never freed, and is shared by equal names.
fn intern_name(name: &str) -> &'static str {
    intern_value::<String>(&INTERNED_NAMES, name.to_owned()).as_str()
}

/// Returns the equal value in `all`, or adds `new` to it, which then lives as long as the process.
fn intern_value<T: PartialEq + 'static>(all: &Mutex<Vec<&'static T>>, new: T) -> &'static T {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.iter().copied().find(|known| **known == new) {
        return known;
    }
    let new = Box::leak(Box::new(new));
    all.push(new);
    new
}

/// Formats a row in the words of an operator.
pub fn method_row_to_words(row: &MethodRow) -> String {
    let in_result = match row.in_result {
        ResultBlockPosition::None | ResultBlockPosition::Itself => String::new(),
        ResultBlockPosition::Block => "block=result.number".into(),
        ResultBlockPosition::Item => "block=result.blockNumber".into(),
        ResultBlockPosition::First => "block=result[0].blockNumber".into(),
        ResultBlockPosition::Path(path) => path.to_string(),
    };
    let in_call = match (row.class, row.at) {
        (MethodClass::Never, _) => return "class=none".into(),
        (MethodClass::Config, _) => return "class=config".into(),
        (MethodClass::Tip, _) if row.in_result == ResultBlockPosition::Itself => {
            return "block=result".into()
        }
        (MethodClass::Tip, _) => return "class=tip".into(),
        (_, BlockParamPosition::None) => return "class=immutable".into(),
        (_, BlockParamPosition::Result) if in_result.is_empty() => {
            return "transaction=p[0]".into()
        }
        (_, BlockParamPosition::Result) => return in_result,
        (
            _,
            BlockParamPosition::Hash(n)
            | BlockParamPosition::Number(n)
            | BlockParamPosition::Param(n),
        ) => {
            format!("block=p[{n}]")
        }
        (_, BlockParamPosition::ParamMember(n, member, _)) => format!("block=p[{n}].{member}"),
        (_, BlockParamPosition::Range(n, _)) => return format!("range=p[{n}]"),
    };
    match in_result.is_empty() {
        true => in_call,
        false => format!("{in_call} {in_result}"),
    }
}

impl fmt::Display for BlockNumberPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("block=result")?;
        for step in &self.steps {
            match step {
                ResultPathStep::Member(name) => write!(f, ".{name}")?,
                ResultPathStep::First => f.write_str("[0]")?,
            }
        }
        write!(f, ".{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::{method_row_to_words, MethodSpecError, MethodSpecs};
    use crate::jsonrpc::block_reference::{
        call_block_reference, result_block, BlockRangeBound, BlockReference, BlockTag,
    };
    use crate::jsonrpc::methods::{self, MethodClass, MethodRow};

    fn intern_row(words: &str) -> &'static MethodRow {
        let mut rows = MethodSpecs::default();
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        rows.add_method_row(b"acme_x", &words).unwrap();
        rows.find_operator_method_row(b"acme_x").unwrap()
    }

    #[test]
    fn row_is_formatted_as_it_was_written() {
        for words in [
            "block=p[0]",
            "block=p[15]",
            "block=p[1].blockNumber",
            "block=p[2] block=result.number",
            "block=p[0].at block=result[0].blockNumber",
            "block=result",
            "block=result.blockNumber",
            "block=result.receipt.blockNumber",
            "block=result[0].l2BlockNumber",
            "block=result.logs[0][0].of.height",
            "range=p[0]",
            "transaction=p[0]",
            "class=immutable",
            "class=tip",
            "class=config",
            "class=none",
        ] {
            assert_eq!(method_row_to_words(intern_row(words)), words);
            // equal words share one row
            assert!(
                std::ptr::eq(intern_row(words), intern_row(words)),
                "{words}"
            );
        }
    }

    #[test]
    fn table_rows_have_the_same_meaning_as_their_words() {
        const HASH: &str = "\"0x00000000000000000000000000000000000000000000000000000000000000ab\"";
        let objects = [
            r#"{"fromBlock":"0x5","toBlock":"0x9"}"#.to_owned(),
            format!(r#"{{"blockHash":{HASH}}}"#),
            r#"{"blockNumber":"0x5"}"#.into(),
            r#"{"blockNumber":"latest"}"#.into(),
            "\"0x5\"".into(),
            "\"finalized\"".into(),
            "\"5\"".into(),
            HASH.into(),
        ];
        let result =
            format!(r#"{{"number":"0x7","hash":{HASH},"blockNumber":"0x5","blockHash":{HASH}}}"#);
        let results = ["null", "[]", "\"0x5\"", &result, &format!("[{result}]")];
        for ours in methods::all_method_table_rows() {
            let theirs = intern_row(&method_row_to_words(ours));
            let is_same_class = theirs.class == ours.class
                || theirs.class == MethodClass::ByFinality && ours.class == MethodClass::Immutable;
            assert!(is_same_class, "{}", ours.name);
            for result in results {
                let (ours, theirs) = (
                    result_block(ours, result.as_bytes()),
                    result_block(theirs, result.as_bytes()),
                );
                assert_eq!(ours, theirs);
            }
            if matches!(
                ours.class,
                MethodClass::Never | MethodClass::Tip | MethodClass::Config
            ) {
                continue;
            }
            for object in &objects {
                for before in ["", "{},", "[],{},"] {
                    let params = format!("[{before}{object}]");
                    let params = Some(params.as_bytes());
                    let found = call_block_reference(ours, params);
                    // the method table may reject more
                    if found != BlockReference::Invalid {
                        assert_eq!(
                            call_block_reference(theirs, params),
                            found,
                            "{} {params:?}",
                            ours.name
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn unknown_members_are_allowed_unless_a_node_may_read_them_as_known_ones() {
        let block_of =
            |words, params: &str| call_block_reference(intern_row(words), Some(params.as_bytes()));
        let latest = BlockReference::Tag(BlockTag::Latest);
        for (params, block) in [
            (r#"[{"at":"0x5","with":1}]"#, BlockReference::Number(5)),
            (r#"[{"with":"0x5"}]"#, latest),
            (r#"[{"with":"0x5","AT":"0x6"}]"#, BlockReference::Invalid),
            (r#"[{"at":"0x5","\u0041t":"0x6"}]"#, BlockReference::Invalid),
            ("[{\"at\":\"0x5\",\"\u{e1}t\":1}]", BlockReference::Invalid),
            (r#"[{"at":"0x5","at":"0x5"}]"#, BlockReference::Invalid),
            (r#"["0x5"]"#, BlockReference::Invalid),
            (r#"{"at":"0x5"}"#, BlockReference::Invalid),
            ("[]", latest),
        ] {
            assert_eq!(block_of("block=p[0].at", params), block, "{params}");
        }
        let five = BlockReference::Range {
            from: BlockRangeBound::Number(4),
            to: BlockRangeBound::Number(5),
        };
        let range = r#"[{"fromBlock":"0x4","toBlock":"0x5","of":1}]"#;
        assert_eq!(block_of("range=p[0]", range), five);
        let odd = r#"[{"fromBlock":"0x4","toBlock":"0x5","ToBlock":"0x6"}]"#;
        assert_eq!(block_of("range=p[0]", odd), BlockReference::Invalid);
    }

    #[test]
    fn block_number_is_found_in_a_result_without_a_hash() {
        let block_of = |words, result: &str| result_block(intern_row(words), result.as_bytes());
        let number =
            |words, result| block_of(words, result).map(|block| (block.number, block.hash));
        let nested = r#"{"receipt":{"blockNumber":"0x5","blockHash":null}}"#;
        assert_eq!(
            number("block=result.receipt.blockNumber", nested),
            Some((5, None))
        );
        let height = r#"[{"height":7}]"#;
        assert_eq!(number("block=result[0].height", height), Some((7, None)));
        for result in [
            "null",
            "[]",
            r#"{"receipt":null}"#,
            r#"{"receipt":{"blockNumber":null}}"#,
        ] {
            assert_eq!(number("block=result.receipt.blockNumber", result), None);
        }
    }

    #[test]
    fn invalid_row_is_rejected_and_changes_nothing() {
        let mut rows = MethodSpecs::default();
        rows.add_method_row(b"acme_x", &[b"class=tip"]).unwrap();
        let mut refused = |name: &str, words: &[&str], error: &str| {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            let before = rows.clone();
            let message = rows
                .add_method_row(name.as_bytes(), &words)
                .unwrap_err()
                .to_string();
            assert!(message.contains(error), "{name} {words:?}: {message}");
            assert_eq!(rows, before);
        };
        for name in ["", "a b", "trace_*", "a\"b", "a,b", "\u{e9}", "block=p[0]"] {
            refused(name, &["class=tip"], "a method name");
        }
        refused("acme_x", &["class=none"], "does not configure yet");
        for name in ["eth_sendRawTransaction", "personal_x", "debug_setHead"] {
            refused(name, &["class=tip"], "without side effects");
        }
        for word in [
            "",
            "p[0]",
            "block",
            "block=",
            "block=p",
            "block=p[]",
            "block=p[16]",
            "block=p[-1]",
            "block=p[+1]",
            "block=p[01]",
            "block=p[0]x",
            "block=p[0].",
            "block=p[0].a.b",
            "block=p[0][0]",
            "block=result.",
            "block=result[0]",
            "block=result[1].a",
            "block=resultx",
            "block=result..a",
            "block=result.a-b",
            "range=result",
            "range=p[0].a",
            "transaction=p[1]",
            "class=never",
            "class=unfinalized",
            "class=",
            "block=latest",
        ] {
            refused("acme_y", &[word], "\"block=p[N]\", \"block=p[N].MEMBER\"");
        }
        for words in [
            ["class=tip", "block=p[0]"],
            ["block=p[0]", "class=tip"],
            ["block=p[0]", "block=p[1]"],
            ["block=result.number", "block=p[0]"],
            ["range=p[0]", "block=result[0].blockNumber"],
            ["block=p[0]", "block=result"],
        ] {
            refused("acme_y", &words, "omitted");
        }
        refused("acme_y", &[], "\"block=p[N]\"");
        // a stateful method may be declared as not stored
        rows.add_method_row(b"eth_sign", &[b"class=none"]).unwrap();
        assert_eq!(rows.find_operator_method_row(b"acme_"), None);
    }

    #[test]
    fn error_contains_the_word_that_can_not_be_combined() {
        let added =
            MethodSpecs::default().add_method_row(b"acme_x", &[b"block=p[0]", b"class=tip"]);
        assert_eq!(added, Err(MethodSpecError::Combination(b"class=tip")));
    }
}
