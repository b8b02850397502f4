//! JSON Schema (draft 2020-12) of the settings, for people and programs that write the
//! configurations of hosts with JSON settings. Ranges are those with which the settings are parsed.

use serde_json::{json, Map, Value};

use super::cache::LIFETIME_RANGE;
use super::log_split::{LOG_SPLIT_BLOCKS, LOG_SPLIT_CONCURRENCY};
use super::policy::{CONCURRENCY_LIMIT_RANGE, RESPONSE_LIMIT_RANGE};
use super::settings::SettingValueKind::{
    ClassLifetimes, MediaTypes, MethodRows, NumberThenWord, OneOrTwo, Rate, Text, Two, Word, Words,
};
use super::settings::SettingValueKind::{
    Credentials, Flag, Line, Lines, LogSplit, Methods, Number, NumberOrWord, ResponseLimits,
};
use super::settings::{
    EnvoySettingScope, SettingDefault, SettingDefinition, SettingValueKind, SETTINGS,
};
use super::values::{DirectiveValueRange, DirectiveValueUnit, GIB, KIB, MIB};
use super::verify;
use crate::cache::credentials::CredentialsPolicy;
use crate::jsonrpc::method_spec::MAX_PARAMETER_INDEX;

/// Returns the JSON Schema of an object of settings, for the documentation and for editors.
pub fn settings_json_schema() -> Value {
    let settings = SETTINGS
        .iter()
        .filter(|setting| setting.envoy != EnvoySettingScope::None);
    let settings = settings.map(|setting| {
        let mut schema = match setting.takes.setting_value_schema() {
            Value::Object(schema) => schema,
            other => Map::from_iter([("anyOf".to_owned(), other)]),
        };
        schema.insert("description".into(), setting.schema_description().into());
        if let Some(default) = setting.default_in_json() {
            schema.insert("default".into(), default);
        }
        (setting.name.to_owned(), Value::Object(schema))
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sszip",
        "description": "The settings of a filter or a route. docs/directives.md describes each of \
         them.",
        "type": "object",
        "properties": Map::from_iter(settings),
        "additionalProperties": false,
    })
}

impl SettingDefinition {
    fn schema_description(&self) -> String {
        let about = self.about.trim_end_matches('.');
        match self.envoy {
            EnvoySettingScope::Filter => format!("{about} (filter only)."),
            EnvoySettingScope::Route => format!("{about} (route only)."),
            EnvoySettingScope::FilterOrRoute
            | EnvoySettingScope::EnabledByDefault
            | EnvoySettingScope::None => {
                format!("{about}.")
            }
        }
    }

    /// Returns the default in Envoy's JSON, or `None` if it is derived from other settings or the
    /// setting has none.
    fn default_in_json(&self) -> Option<Value> {
        let SettingDefault::Literal(texts) = self.default else {
            return None;
        };
        let (takes, is_on) = (
            &self.takes,
            self.envoy == EnvoySettingScope::EnabledByDefault,
        );
        let of = |text: &'static str| match takes {
            Flag => json!(is_on || text == "on"),
            _ => text
                .parse::<u64>()
                .map_or_else(|_| json!(text), |number| json!(number)),
        };
        Some(match texts {
            [text] => of(text),
            texts => texts.iter().copied().map(of).collect(),
        })
    }
}

impl SettingValueKind {
    /// Returns the types of JSON Schema that the setting accepts.
    pub(super) fn accepted_json_types(&self) -> Vec<&'static str> {
        let schema = self.setting_value_schema();
        let alternatives = match &schema {
            Value::Array(alternatives) => alternatives.as_slice(),
            one => std::slice::from_ref(one),
        };
        let mut kinds: Vec<_> = alternatives.iter().flat_map(schema_json_types).collect();
        kinds.sort_by_key(|kind| JSON_TYPES.iter().position(|known| known == kind));
        kinds.dedup();
        kinds
    }

    /// Returns the JSON Schema of the setting's value, or a list of alternative schemas.
    fn setting_value_schema(&self) -> Value {
        match self {
            Flag => json!([{ "type": "boolean" }, text_schema("[oO][nN]|[oO][fF][fF]")]),
            Number(range) => range.range_value_schemas().into(),
            NumberOrWord(range, word) => {
                let mut all = range.range_value_schemas();
                all.push(json!({ "const": word }));
                all.into()
            }
            NumberThenWord(range, word) => {
                let mut all = range.range_value_schemas();
                all.push(text_schema(&format!(
                    r"(?:{})\s+{word}",
                    range.value_text_pattern()
                )));
                let number = json!({ "anyOf": range.range_value_schemas() });
                all.push(json!({
                    "type": "array",
                    "prefixItems": [number, { "const": word }],
                    "minItems": 1,
                    "maxItems": 2,
                }));
                all.into()
            }
            OneOrTwo(first, second) => {
                let mut all = first.range_value_schemas();
                let (one, two) = (first.value_text_pattern(), second.value_text_pattern());
                all.push(text_schema(&format!(r"(?:{one})\s+(?:{two})")));
                all.push(number_list_schema([first, second], 1));
                all.into()
            }
            Two(first, second) => {
                let (one, two) = (first.value_text_pattern(), second.value_text_pattern());
                json!([
                    text_schema(&format!(r"(?:{one})\s+(?:{two})")),
                    number_list_schema([first, second], 2)
                ])
            }
            Word([off, others @ ..]) if *off == "off" => {
                let off = [json!(false), json!("off")].into_iter();
                json!({ "enum": off.chain(word_schemas(others)).collect::<Vec<_>>() })
            }
            Word(others) => json!({ "enum": others }),
            Words(all) => word_list_schema(&all().join("|")),
            Text => json!({ "type": "string", "pattern": r"^\S+$" }),
            Line => json!([text_schema(r"\S.*"), line_schema()]),
            Lines => {
                let one = json!({ "anyOf": [text_schema(r"\S.*"), line_schema()] });
                json!([
                    text_schema(r"\S.*"),
                    { "type": "array", "items": one, "minItems": 1 }
                ])
            }
            MediaTypes => word_list_schema(&media_types_pattern()),
            ClassLifetimes => {
                let (subject, time) = (lifetimes_pattern(), LIFETIME_RANGE.value_text_pattern());
                let one = text_schema(&format!(r"(?:{subject})\s+(?:{time})"));
                let many = json!({ "type": "array", "items": one, "minItems": 1 });
                json!([one, many])
            }
            Credentials => {
                let means = CredentialsPolicy::NAMES.join("|");
                let one = text_schema(&format!(r"(?:{means})(?:\s+(?:{TOKEN_PATTERN}))*"));
                // a list of occurrences, or the words of one occurrence
                let several = json!({ "pattern": r"\S\s+\S" });
                let many = json!({ "type": "array", "items": one, "contains": several });
                let name = json!({
                    "type": "string",
                    "pattern": format!("^{TOKEN_PATTERN}$"),
                    "not": { "enum": CredentialsPolicy::NAMES },
                });
                let words = json!({
                    "type": "array",
                    "prefixItems": [{ "enum": CredentialsPolicy::NAMES }],
                    "items": name,
                    "minItems": 1,
                });
                json!([one, many, words])
            }
            MethodRows => {
                let words = cache_method_regex();
                let one = text_schema(&format!(r"(?:{METHOD_NAME_PATTERN})\s+(?:{words})"));
                let several = json!({ "pattern": r"\S\s+\S" });
                let many = json!({ "type": "array", "items": one, "contains": several });
                json!([one, many])
            }
            Rate => {
                let (rate, list) = (verify::RATE_PATTERN, |items: &[Value]| {
                    let number = items.len();
                    json!({ "type": "array", "prefixItems": items, "minItems": number, "maxItems": number })
                });
                json!([
                    { "const": false },
                    text_schema(&format!(r"off|{rate}(?:\s+purge)?")),
                    list(&[text_schema(&format!("off|{rate}"))]),
                    list(&[text_schema(rate), json!({ "const": "purge" })]),
                ])
            }
            LogSplit => {
                let (blocks, requests) = (
                    LOG_SPLIT_BLOCKS.value_text_pattern(),
                    LOG_SPLIT_CONCURRENCY.value_text_pattern(),
                );
                let concurrent = format!("concurrent=(?:{requests})");
                let mut all = LOG_SPLIT_BLOCKS.range_value_schemas();
                let number = json!({ "anyOf": all });
                all.push(json!({ "const": "off" }));
                all.push(text_schema(&format!(r"(?:{blocks})\s+{concurrent}")));
                all.push(json!({
                    "type": "array",
                    "prefixItems": [number, text_schema(&concurrent)],
                    "minItems": 1,
                    "maxItems": 2,
                }));
                all.into()
            }
            ResponseLimits => {
                let sizes = RESPONSE_LIMIT_RANGE.value_text_pattern();
                let one = text_schema(&format!(r"(?:{METHOD_PATTERN})\s+(?:{sizes})"));
                let several = json!({ "pattern": r"\S\s+\S" });
                let many = json!({ "type": "array", "items": one, "contains": several });
                json!([one, many])
            }
            Methods => {
                let limits = CONCURRENCY_LIMIT_RANGE.value_text_pattern();
                let one = text_schema(&format!(
                    r"(?:allow|deny|limit=(?:{limits}))(?:\s+(?:{METHOD_PATTERN}))+"
                ));
                let many = json!({ "type": "array", "items": one, "minItems": 1 });
                json!([one, many])
            }
        }
    }
}

/// Types of values in JSON Schema.
const JSON_TYPES: [&str; 4] = ["boolean", "integer", "string", "array"];

/// Returns the types that one schema accepts.
fn schema_json_types(schema: &Value) -> Vec<&'static str> {
    let of_value = |value: &Value| match value {
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        _ => "string",
    };
    if let Some(values) = schema["enum"].as_array() {
        return values.iter().map(of_value).collect();
    }
    let named = schema["type"].as_str();
    let named = JSON_TYPES.into_iter().find(|kind| Some(*kind) == named);
    vec![named.unwrap_or_else(|| of_value(&schema["const"]))]
}

/// A token (RFC 9110, 5.6.2).
const TOKEN_PATTERN: &str = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+";

/// A method name without `=`, so that it does not match the words after it.
const METHOD_NAME_PATTERN: &str = r"[!#-)+\-./0-<>-\[\]-~]+";

/// A method name, or a prefix with `*`.
const METHOD_PATTERN: &str = r##"[!#-)+\-./0-\[\]-~]+\*?|\*"##;

/// Returns the schema of words with blanks between them, or of a list of words.
fn word_list_schema(word: &str) -> Value {
    let all = text_schema(&format!(r"(?:{word})(?:\s+(?:{word}))*"));
    json!([all, { "type": "array", "items": text_schema(word), "minItems": 1 }])
}

fn line_schema() -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 })
}

/// Returns the schema of a list of at most two numbers in their ranges, with at least `least` of
/// them.
fn number_list_schema(ranges: [&DirectiveValueRange; 2], least: usize) -> Value {
    let items = ranges.map(|range| json!({ "anyOf": range.range_value_schemas() }));
    json!({ "type": "array", "prefixItems": items, "minItems": least, "maxItems": 2 })
}

fn text_schema(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": format!("^(?:{pattern})$") })
}

fn word_schemas<'a>(words: &'a [&str]) -> impl Iterator<Item = Value> + 'a {
    words.iter().map(|word| json!(word))
}

fn media_types_pattern() -> String {
    // without `*`, which no media type contains
    let token = TOKEN_PATTERN.replace('*', "");
    format!(r"\*|\*/\*|\+{token}|{token}/(?:\*|{token})")
}

/// Returns a regular expression of the words that specify the block on which a method's responses
/// depend.
fn cache_method_regex() -> String {
    let parameter = format!(
        r"p\[(?:{})\]",
        number_range_pattern(0, MAX_PARAMETER_INDEX as u64)
    );
    let member = r"\.[0-9A-Za-z_]+";
    let params = format!(r"block={parameter}(?:{member})?");
    let result = format!(r"block=result(?:{member}|\[0\])*{member}");
    let classes = "class=(?:immutable|tip|config|none)";
    format!(
        r"{params}(?:\s+{result})?|{result}|block=result|range={parameter}|transaction=p\[0\]|{classes}"
    )
}

fn lifetimes_pattern() -> String {
    r"immutable|unfinalized|tip|nothing|config|\S*_\S*".into()
}

impl DirectiveValueRange {
    /// Returns the alternative schemas of a value in the range: a number, where no unit is
    /// required, and a text.
    fn range_value_schemas(&self) -> Vec<Value> {
        let number = match self.unit {
            DirectiveValueUnit::Number | DirectiveValueUnit::Bytes => {
                json!({ "type": "integer", "minimum": self.least, "maximum": self.most })
            }
            DirectiveValueUnit::Milliseconds | DirectiveValueUnit::Time if self.least == 0 => {
                json!({ "const": 0 })
            }
            DirectiveValueUnit::Milliseconds | DirectiveValueUnit::Time => {
                return vec![text_schema(&self.value_text_pattern())]
            }
        };
        vec![number, text_schema(&self.value_text_pattern())]
    }

    /// Returns a regular expression of the texts that [`parse_in_range`](Self::parse_in_range)
    /// accepts.
    fn value_text_pattern(&self) -> String {
        let units: &[(&str, u64)] = match self.unit {
            DirectiveValueUnit::Number => &[("", 1)],
            DirectiveValueUnit::Bytes => &[("", 1), ("[kK]", KIB), ("[mM]", MIB), ("[gG]", GIB)],
            DirectiveValueUnit::Milliseconds => &[("ms", 1), ("s", 1000)],
            DirectiveValueUnit::Time => &[
                ("ms", 1),
                ("s", 1000),
                ("m", 60_000),
                ("h", 3_600_000),
                ("d", 86_400_000),
            ],
        };
        let of_unit = |(unit, factor): &(&str, u64)| {
            let (least, most) = (self.least.div_ceil(*factor), self.most / factor);
            (least <= most).then(|| format!("0*(?:{}){unit}", number_range_pattern(least, most)))
        };
        let bare = matches!(
            self.unit,
            DirectiveValueUnit::Milliseconds | DirectiveValueUnit::Time
        ) && self.least == 0;
        let bare = bare.then(|| "0".to_owned());
        let all: Vec<_> = bare
            .into_iter()
            .chain(units.iter().filter_map(of_unit))
            .collect();
        all.join("|")
    }
}

/// Returns a regular expression of the numbers from `least` to `most` without leading zeros.
fn number_range_pattern(least: u64, most: u64) -> String {
    let mut all = Vec::new();
    let (mut from, mut end) = (least, 9);
    while from <= most {
        while end < from {
            end = end * 10 + 9;
        }
        let to = end.min(most);
        all.push(equal_length_range_pattern(
            &from.to_string(),
            &to.to_string(),
        ));
        from = to + 1;
    }
    all.join("|")
}

/// Returns a regular expression of the numbers between two numbers of equal length.
fn equal_length_range_pattern(least: &str, most: &str) -> String {
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
        return format!(
            "{low}{}",
            group_pattern(equal_length_range_pattern(lows, highs))
        );
    }
    let (zeros, nines) = ("0".repeat(rest), "9".repeat(rest));
    let (mut all, mut low, mut high) = (Vec::new(), low as u8, high as u8);
    if lows != zeros {
        all.push(format!(
            "{}{}",
            low as char,
            group_pattern(equal_length_range_pattern(lows, &nines))
        ));
        low += 1;
    }
    let last = (highs != nines).then(|| {
        high -= 1;
        format!(
            "{}{}",
            (high + 1) as char,
            group_pattern(equal_length_range_pattern(&zeros, highs))
        )
    });
    if low <= high {
        all.push(format!("[{}-{}]{any}", low as char, high as char));
    }
    all.extend(last);
    all.join("|")
}

/// Encloses a pattern with alternatives in a group, so that it can be joined with others.
fn group_pattern(pattern: String) -> String {
    match pattern.contains('|') {
        true => format!("(?:{pattern})"),
        false => pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::number_range_pattern;

    #[test]
    fn ranges_are_converted_to_regular_expressions() {
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
            assert_eq!(
                number_range_pattern(least, most),
                pattern,
                "{least} to {most}"
            );
        }
    }
}
