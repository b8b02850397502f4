//! Hints about an input that is not what the command expects.

use serde_json::Value;
use sszip_core::ssz::{
    check_ssz, read_envelope_version, Fork, JsonEnvelopeForm, JsonToSsz, Preset, SszError,
    SszErrorKind,
};

use crate::args::SszTypeOptions;
use crate::input::InputFileReader;

/// Maximum number of characters of a node's error message that are shown.
const MAX_SHOWN_CHARACTERS: usize = 1000;

/// Returns the error message for an input that should be JSON, with a hint at its cause.
pub fn explain_invalid_json_input(
    type_arguments: &SszTypeOptions,
    form: JsonEnvelopeForm,
    pieces: &mut InputFileReader,
    error: &SszError,
) -> String {
    let (json, is_whole) = pieces.read_input_start();
    if let Some(nature) = describe_unsupported_input(json) {
        return format!("{error}; the input is {nature}");
    }
    if json.contains(&0) {
        return format!("{error}; the input is not text; use ssz2json for SSZ");
    }
    if !is_whole {
        return error.to_string();
    }
    if let Some(text) = find_node_error(json) {
        return format!("the node's response is an error: {text}");
    }
    if *error.error_kind() == SszErrorKind::NoValue {
        return match (type_arguments.fork, form) {
            (None, _) => format!("{error}; a value without an envelope needs --fork"),
            (_, JsonEnvelopeForm::Either) => {
                format!("{error}; if the input is the value itself, add --form value")
            }
            _ => error.to_string(),
        };
    }
    if let (Some(fork), Ok(Some(version))) = (type_arguments.fork, read_envelope_version(json)) {
        let named = version.parse::<Fork>().ok();
        if form != JsonEnvelopeForm::Bare && named.is_some_and(|named| named != fork) {
            return format!("the response's version is {version:?}, not {fork}");
        }
    }
    // older forks omit the fields that they do not have
    let read = |fork, preset| {
        let (schema, ty) = type_arguments.resolve_in_fork(fork, preset).ok()?;
        let mut reader = JsonToSsz::new(&schema, ty, form);
        reader.feed_json_piece(json).ok()?;
        reader.finish().ok()
    };
    format!("{error}{}", hint_other_forks(type_arguments, read))
}

/// Returns the error message for an input that should be SSZ, with a hint at its cause.
pub fn explain_invalid_ssz_input(
    type_arguments: &SszTypeOptions,
    ssz: &[u8],
    error: &SszError,
) -> String {
    if let Some(nature) = describe_unsupported_input(ssz) {
        return format!("{error}; the input is {nature}");
    }
    let begin = &ssz[..ssz.len().min(64)];
    let is_text = begin
        .iter()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t'));
    if is_text && matches!(begin.trim_ascii_start().first(), Some(b'{' | b'[' | b'"')) {
        return format!("{error}; the input is JSON; use json2ssz");
    }
    let read = |fork, preset| {
        let (schema, ty) = type_arguments.resolve_in_fork(fork, preset).ok()?;
        check_ssz(&schema, ty, ssz).ok()
    };
    // then the path is wrong
    if type_arguments
        .fork
        .and_then(|fork| read(fork, type_arguments.preset))
        .is_some()
    {
        return error.to_string();
    }
    format!("{error}{}", hint_other_forks(type_arguments, read))
}

/// Returns the error message for an input that should be a JSON array, or `None` if there is no
/// hint.
pub fn explain_missing_array(json: &[u8]) -> Option<String> {
    if let Some(nature) = describe_unsupported_input(json) {
        return Some(format!("not an array: the input is {nature}"));
    }
    let text = find_node_error(json)?;
    Some(format!("the node's response is an error: {text}"))
}

/// Describes the content of an input that is neither JSON nor SSZ, such as gzip or HTML.
pub fn describe_unsupported_input(bytes: &[u8]) -> Option<&'static str> {
    Some(match bytes {
        [] => "empty",
        [0x1f, 0x8b, ..] => "gzip; decompress it with gunzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "Zstandard; decompress it with unzstd",
        [0xff, 0x06, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y', ..] => "Snappy; decompress it",
        [0xef, 0xbb, 0xbf, ..] => "text with a byte order mark; remove it",
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "UTF-16; convert it to UTF-8",
        bytes => match bytes.trim_ascii_start() {
            [b'<', b'!' | b'?' | b'a'..=b'z' | b'A'..=b'Z', ..] => "HTML or XML",
            _ => return None,
        },
    })
}

/// Returns the error message in a node's response: the Beacon API's `{"code", "message"}`, or
/// JSON-RPC's `{"error": {"code", "message"}}`.
fn find_node_error(json: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(json).ok()?;
    let error = match answer.get("error") {
        Some(error @ Value::Object(_)) => error,
        None if answer.get("data").is_some() || answer.get("result").is_some() => return None,
        _ => &answer,
    };
    let message = error.get("message")?.as_str()?;
    let code = ["code", "statusCode"]
        .iter()
        .find_map(|name| error.get(name));
    let text = match code {
        Some(Value::String(code)) => format!("{code}: {message}"),
        Some(code) => format!("{code}: {message}"),
        None => message.into(),
    };
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    Some(text.chars().take(MAX_SHOWN_CHARACTERS).map(shown).collect())
}

/// Returns a hint that names the other forks, or else the other presets, in which the input is
/// valid; of the forks, the newest one and those with the same result.
fn hint_other_forks<T: PartialEq>(
    type_arguments: &SszTypeOptions,
    read: impl Fn(Fork, Preset) -> Option<T>,
) -> String {
    let Some(named) = type_arguments.fork else {
        return String::new();
    };
    let forks = Fork::ALL.iter().filter(|fork| **fork != named);
    let forks: Vec<(&str, T)> = forks
        .filter_map(|fork| Some((fork.name(), read(*fork, type_arguments.preset)?)))
        .collect();
    if let Some((_, newest)) = forks.last() {
        let same = forks.iter().filter(|(_, value)| value == newest);
        let same: Vec<&str> = same.map(|(name, _)| *name).collect();
        return format!("; the input is valid in {}", same.join(", "));
    }
    let presets = Preset::ALL
        .iter()
        .filter(|preset| **preset != type_arguments.preset);
    let presets: Vec<&str> = presets
        .filter(|preset| read(named, **preset).is_some())
        .map(|preset| preset.preset_name())
        .collect();
    match presets.is_empty() {
        true => String::new(),
        false => format!("; the input is valid in preset {}", presets.join(", ")),
    }
}
