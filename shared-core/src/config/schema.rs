//! What each setting takes, as JSON Schema (draft 2020-12): for people and programs that
//! write the configurations of hosts in which settings are JSON. Ranges are those that the
//! settings are read with.

use serde_json::{json, Map, Value};

use super::cache::MEMORIES as CACHE_MEMORIES;
use super::cache::{BATCHES, LOOKUPS, MAX_ENTRIES, MAX_REQUESTS, TIMES, WAITS};
use super::policy::{ANSWERS, LIMITS};
use super::ssz::{CONCURRENCIES, HOLDS as SSZ_HOLDS, MAX_SIZES, PRESETS, REQUESTS, WITNESSES};
use super::values::{Range, Unit, GIB, KIB, MIB};
use super::verify;
use super::{BUFFERS, BUFFER_SIZES, COMP_LEVELS, HOLDS, HOLD_TIMES, MAX_ONESHOTS, MEMORIES};
use super::{DECODINGS, ENCODINGS, MIN_LENGTHS, STREAM_LEVELS};
use crate::cache::credentials::Means;
use crate::cache::stale;
use crate::jsonrpc::said::LAST_PARAMETER;

/// What a setting takes.
enum Takes {
    Flag,
    Of(Range),
    /// A number, or that word.
    OfOr(Range, &'static str),
    /// A number, and then perhaps that word.
    OfThen(Range, &'static str),
    /// One value and then perhaps another.
    OneOrTwo(Range, Range),
    Two(Range, Range),
    Word(&'static [&'static str]),
    /// Some of them.
    Words(fn() -> Vec<&'static str>),
    Text,
    /// Words that their own page says more of.
    Line,
    /// Lines, or one.
    Lines,
    Types,
    Valid,
    Methods,
    /// A method, and a size.
    Answers,
    Credentials,
    Rows,
    Rate,
}

use Takes::{Answers, Credentials, Flag, Line, Lines, Methods, Of, OfOr, OfThen, OneOrTwo};
use Takes::{Rate, Rows, Text, Two, Types, Valid, Word, Words};

/// Each setting of a place that all hosts have, and what it is about.
const SETTINGS: &[(&str, Takes, &str)] = &[
    ("enable", Flag, "The switch of everything else."),
    ("types", Types, "The media types to compress."),
    (
        "min_length",
        Of(MIN_LENGTHS),
        "Shorter answers go out as they are.",
    ),
    ("comp_level", Of(COMP_LEVELS), "libdeflate's level."),
    (
        "max_oneshot",
        Of(MAX_ONESHOTS),
        "Longer answers are compressed as they come.",
    ),
    (
        "hold",
        OneOrTwo(HOLDS, HOLD_TIMES),
        "How much of an answer without a length is held, and how long.",
    ),
    (
        "stream_level",
        Of(STREAM_LEVELS),
        "How hard streams are compressed.",
    ),
    (
        "buffers",
        Two(BUFFERS, BUFFER_SIZES),
        "The output buffers of a stream, where the host has none.",
    ),
    (
        "memory",
        Of(MEMORIES),
        "What the process may hold in bodies.",
    ),
    (
        "upstream_encoding",
        Word(ENCODINGS),
        "What the node is asked for.",
    ),
    (
        "request_decoding",
        Word(DECODINGS),
        "What is done with requests that are compressed.",
    ),
    (
        "ssz",
        Flag,
        "SSZ from a node that has JSON only, and the other way round.",
    ),
    ("ssz_preset", Word(PRESETS), "The preset of the chain."),
    (
        "ssz_max_size",
        Of(MAX_SIZES),
        "Longer SSZ is not made, nor read.",
    ),
    (
        "ssz_hold",
        Of(SSZ_HOLDS),
        "How much of the node's JSON is kept beside what is made of it.",
    ),
    (
        "ssz_concurrency",
        OfOr(CONCURRENCIES, "off"),
        "How many long answers are made another format of at a time.",
    ),
    (
        "ssz_request",
        Word(REQUESTS),
        "What becomes of SSZ that clients send.",
    ),
    (
        "ssz_witness",
        Word(WITNESSES),
        "Where the node gives the witness of a payload.",
    ),
    ("cache", Flag, "Whether answers are kept, and given again."),
    (
        "cache_namespace",
        Text,
        "The name of the chain: what is stored is shared by all that have it.",
    ),
    (
        "cache_valid",
        Valid,
        "For how long answers of a class, or of a method, are kept.",
    ),
    ("cache_method", Rows, "What answers of a method depend on."),
    (
        "cache_memory",
        Of(CACHE_MEMORIES),
        "What stored answers may take in memory.",
    ),
    (
        "cache_max_entry",
        Of(MAX_ENTRIES),
        "Longer answers are not stored.",
    ),
    (
        "cache_max_request",
        Of(MAX_REQUESTS),
        "Longer requests are not looked up.",
    ),
    (
        "batch_max",
        OfThen(BATCHES, "deny"),
        "Longer batches are not looked up, or denied.",
    ),
    ("method", Methods, "What may be called, and what may not."),
    (
        "max_answer",
        Answers,
        "How long the answers of a method may be.",
    ),
    (
        "cache_credentials",
        Credentials,
        "What fields that say who asks mean to the cache.",
    ),
    (
        "cache_use_stale",
        Words(stale::words),
        "When an answer that has expired may be sent.",
    ),
    (
        "cache_background_update",
        Flag,
        "Whether who would fetch a new one gets the one that has expired, too.",
    ),
    (
        "cache_lock",
        Flag,
        "Whether one request at a time asks for the same thing.",
    ),
    (
        "cache_lock_timeout",
        Of(WAITS),
        "For how long the others wait.",
    ),
    (
        "verify",
        Rate,
        "Of how many hits the node is asked again, and whether what is wrong is purged.",
    ),
    (
        "cache_path",
        Line,
        "The folder of the store, and what it may take: of a filter only.",
    ),
    (
        "cache_owner",
        Text,
        "The socket of the process that has the store: of a filter only.",
    ),
    (
        "cache_lookup_timeout",
        Of(LOOKUPS),
        "For how long a look-up in the store is waited for: of a filter only.",
    ),
    (
        "cache_head",
        Lines,
        "The node at which the chain is followed, and how.",
    ),
    ("cache_purge", Flag, "Requests purge what their query says."),
    (
        "status",
        Flag,
        "Requests ask how it all goes: a page, JSON, or metrics.",
    ),
];

/// The schema of an object of settings.
pub fn schema() -> Value {
    let settings = SETTINGS.iter().map(|(name, takes, about)| {
        let mut schema = match takes.schema() {
            Value::Object(schema) => schema,
            other => Map::from_iter([("anyOf".to_owned(), other)]),
        };
        schema.insert("description".into(), (*about).into());
        ((*name).to_owned(), Value::Object(schema))
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sszip",
        "description": "The settings of a filter, or of a route. docs/directives.md says more of each.",
        "type": "object",
        "properties": Map::from_iter(settings),
        "additionalProperties": false,
    })
}

impl Takes {
    /// A schema, or a list of those of which one must hold.
    fn schema(&self) -> Value {
        match self {
            Flag => json!([{ "type": "boolean" }, text("[oO][nN]|[oO][fF][fF]")]),
            Of(range) => range.one_of().into(),
            OfOr(range, word) => {
                let mut all = range.one_of();
                all.push(json!({ "const": word }));
                all.into()
            }
            OfThen(range, word) => {
                let mut all = range.one_of();
                all.push(text(&format!(r"(?:{})\s+{word}", range.pattern())));
                let number = json!({ "anyOf": range.one_of() });
                all.push(json!({
                    "type": "array",
                    "prefixItems": [number, { "const": word }],
                    "minItems": 1,
                    "maxItems": 2,
                }));
                all.into()
            }
            OneOrTwo(first, second) => {
                let mut all = first.one_of();
                let (one, two) = (first.pattern(), second.pattern());
                all.push(text(&format!(r"(?:{one})\s+(?:{two})")));
                all.push(list([first, second], 1));
                all.into()
            }
            Two(first, second) => {
                let (one, two) = (first.pattern(), second.pattern());
                json!([
                    text(&format!(r"(?:{one})\s+(?:{two})")),
                    list([first, second], 2)
                ])
            }
            Word([off, others @ ..]) if *off == "off" => {
                let off = [json!(false), json!("off")].into_iter();
                json!({ "enum": off.chain(words(others)).collect::<Vec<_>>() })
            }
            Word(others) => json!({ "enum": others }),
            Words(all) => of_words(&all().join("|")),
            Text => json!({ "type": "string", "pattern": r"^\S+$" }),
            Line => json!([text(r"\S.*"), line()]),
            Lines => {
                let one = json!({ "anyOf": [text(r"\S.*"), line()] });
                json!([
                    text(r"\S.*"),
                    { "type": "array", "items": one, "minItems": 1 }
                ])
            }
            Types => of_words(&types()),
            Valid => {
                let (what, time) = (valid(), TIMES.pattern());
                let one = text(&format!(r"(?:{what})\s+(?:{time})"));
                let many = json!({ "type": "array", "items": one, "minItems": 1 });
                json!([one, many])
            }
            Credentials => {
                let means = Means::NAMES.join("|");
                let one = text(&format!(r"(?:{means})(?:\s+(?:{TOKEN}))*"));
                // what it says each time, or the words of one
                let several = json!({ "pattern": r"\S\s+\S" });
                let many = json!({ "type": "array", "items": one, "contains": several });
                let name = json!({
                    "type": "string",
                    "pattern": format!("^{TOKEN}$"),
                    "not": { "enum": Means::NAMES },
                });
                let words = json!({
                    "type": "array",
                    "prefixItems": [{ "enum": Means::NAMES }],
                    "items": name,
                    "minItems": 1,
                });
                json!([one, many, words])
            }
            Rows => {
                let words = rows();
                let one = text(&format!(r"(?:{NAME})\s+(?:{words})"));
                let several = json!({ "pattern": r"\S\s+\S" });
                let many = json!({ "type": "array", "items": one, "contains": several });
                json!([one, many])
            }
            Rate => {
                let (rate, list) = (verify::RATE, |items: &[Value]| {
                    let number = items.len();
                    json!({ "type": "array", "prefixItems": items, "minItems": number, "maxItems": number })
                });
                json!([
                    { "const": false },
                    text(&format!(r"off|{rate}(?:\s+purge)?")),
                    list(&[text(&format!("off|{rate}"))]),
                    list(&[text(rate), json!({ "const": "purge" })]),
                ])
            }
            Answers => {
                let sizes = ANSWERS.pattern();
                let one = text(&format!(r"(?:{METHOD})\s+(?:{sizes})"));
                let several = json!({ "pattern": r"\S\s+\S" });
                let many = json!({ "type": "array", "items": one, "contains": several });
                json!([one, many])
            }
            Methods => {
                let limits = LIMITS.pattern();
                let one = text(&format!(
                    r"(?:allow|deny|limit=(?:{limits}))(?:\s+(?:{METHOD}))+"
                ));
                let many = json!({ "type": "array", "items": one, "minItems": 1 });
                json!([one, many])
            }
        }
    }
}

/// RFC 9110, 5.6.2.
const TOKEN: &str = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+";

/// A method, without `=`, so that it is none of the words behind it.
const NAME: &str = r"[!#-)+\-./0-<>-\[\]-~]+";

/// A method, or the beginning of some.
const METHOD: &str = r##"[!#-)+\-./0-\[\]-~]+\*?|\*"##;

/// Words with blanks between them, or a list.
fn of_words(word: &str) -> Value {
    let all = text(&format!(r"(?:{word})(?:\s+(?:{word}))*"));
    json!([all, { "type": "array", "items": text(word), "minItems": 1 }])
}

fn line() -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 })
}

fn list(ranges: [&Range; 2], least: usize) -> Value {
    let items = ranges.map(|range| json!({ "anyOf": range.one_of() }));
    json!({ "type": "array", "prefixItems": items, "minItems": least, "maxItems": 2 })
}

fn text(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^(?:{pattern})$") })
}

fn words<'a>(words: &'a [&str]) -> impl Iterator<Item = Value> + 'a {
    words.iter().map(|word| json!(word))
}

fn types() -> String {
    // without `*`, which nobody has in a type
    let token = TOKEN.replace('*', "");
    format!(r"\*|\*/\*|\+{token}|{token}/(?:\*|{token})")
}

/// What answers of a method depend on.
fn rows() -> String {
    let parameter = format!(r"p\[(?:{})\]", digits(0, LAST_PARAMETER as u64));
    let member = r"\.[0-9A-Za-z_]+";
    let asked = format!(r"block={parameter}(?:{member})?");
    let said = format!(r"block=result(?:{member}|\[0\])*{member}");
    let classes = "class=(?:immutable|tip|config|none)";
    format!(
        r"{asked}(?:\s+{said})?|{said}|block=result|range={parameter}|transaction=p\[0\]|{classes}"
    )
}

fn valid() -> String {
    r"immutable|unfinalized|tip|nothing|config|\S*_\S*".into()
}

impl Range {
    /// What a value may be: a number, where there is no unit, or a text.
    fn one_of(&self) -> Vec<Value> {
        let number = match self.unit {
            Unit::Number | Unit::Bytes => {
                json!({ "type": "integer", "minimum": self.least, "maximum": self.most })
            }
            Unit::Milliseconds | Unit::Time if self.least == 0 => json!({ "const": 0 }),
            Unit::Milliseconds | Unit::Time => return vec![text(&self.pattern())],
        };
        vec![number, text(&self.pattern())]
    }

    /// The texts that [`read`](Self::read) takes, as a regular expression.
    fn pattern(&self) -> String {
        let units: &[(&str, u64)] = match self.unit {
            Unit::Number => &[("", 1)],
            Unit::Bytes => &[("", 1), ("[kK]", KIB), ("[mM]", MIB), ("[gG]", GIB)],
            Unit::Milliseconds => &[("ms", 1), ("s", 1000)],
            Unit::Time => &[
                ("ms", 1),
                ("s", 1000),
                ("m", 60_000),
                ("h", 3_600_000),
                ("d", 86_400_000),
            ],
        };
        let of_unit = |(unit, factor): &(&str, u64)| {
            let (least, most) = (self.least.div_ceil(*factor), self.most / factor);
            (least <= most).then(|| format!("0*(?:{}){unit}", digits(least, most)))
        };
        let bare = matches!(self.unit, Unit::Milliseconds | Unit::Time) && self.least == 0;
        let bare = bare.then(|| "0".to_owned());
        let all: Vec<_> = bare
            .into_iter()
            .chain(units.iter().filter_map(of_unit))
            .collect();
        all.join("|")
    }
}

/// The numbers from `least` to `most` without zeros before them.
fn digits(least: u64, most: u64) -> String {
    let mut all = Vec::new();
    let (mut from, mut end) = (least, 9);
    while from <= most {
        while end < from {
            end = end * 10 + 9;
        }
        let to = end.min(most);
        all.push(of_one_length(&from.to_string(), &to.to_string()));
        from = to + 1;
    }
    all.join("|")
}

/// The numbers between two that are as long.
fn of_one_length(least: &str, most: &str) -> String {
    let (Some(low), Some(high)) = (least.chars().next(), most.chars().next()) else {
        return String::new();
    };
    let (lows, highs) = (&least[1..], &most[1..]);
    let rest = lows.len();
    let any = match rest {
        0 => String::new(),
        1 => "[0-9]".to_owned(),
        rest => format!("[0-9]{{{rest}}}"),
    };
    if low == high {
        return format!("{low}{}", grouped(of_one_length(lows, highs)));
    }
    let (zeros, nines) = ("0".repeat(rest), "9".repeat(rest));
    let (mut all, mut low, mut high) = (Vec::new(), low as u8, high as u8);
    if lows != zeros {
        all.push(format!(
            "{}{}",
            low as char,
            grouped(of_one_length(lows, &nines))
        ));
        low += 1;
    }
    let last = (highs != nines).then(|| {
        high -= 1;
        format!(
            "{}{}",
            (high + 1) as char,
            grouped(of_one_length(&zeros, highs))
        )
    });
    if low <= high {
        all.push(format!("[{}-{}]{any}", low as char, high as char));
    }
    all.extend(last);
    all.join("|")
}

fn grouped(pattern: String) -> String {
    match pattern.contains('|') {
        true => format!("(?:{pattern})"),
        false => pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::{digits, Takes, SETTINGS};
    use crate::config::plan::Plan;
    use crate::config::{DirectiveError, Directives};

    #[test]
    fn each_word_is_one() {
        for (name, takes, _) in SETTINGS {
            let words = match takes {
                Takes::Word(words) => words.to_vec(),
                Takes::Words(words) => words(),
                Takes::OfOr(_, word) => vec![*word],
                _ => Vec::new(),
            };
            for word in words {
                let said = Directives::default().set(name, &[word.as_bytes()]);
                assert_eq!(said, Ok(()), "{name} {word}");
            }
        }
    }

    #[test]
    fn each_setting_is_one() {
        for (name, _, _) in SETTINGS {
            let said = Directives::default().set(name, &[b"\0"]);
            let is_of_place = !matches!(said, Err(DirectiveError::Unknown));
            let is_of_process = Plan::default().set(name, &[b"\0"], "/").is_some();
            // which places purge hosts know
            let is_known = is_of_place || is_of_process || ["cache_purge", "status"].contains(name);
            assert!(is_known, "{name}");
        }
    }

    #[test]
    fn ranges_are_written_out() {
        for (least, most, pattern) in [
            (0, 12, "[0-9]|1[0-2]"),
            (1, 3, "[1-3]"),
            (
                64,
                1024,
                "6[4-9]|[7-9][0-9]|[1-9][0-9]{2}|1(?:0(?:[0-1][0-9]|2[0-4]))",
            ),
            (7, 7, "7"),
        ] {
            assert_eq!(digits(least, most), pattern, "{least} to {most}");
        }
    }
}
