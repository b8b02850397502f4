//! Configuration in JSON, as in Envoy: an object of settings with the names of docs/directives.md
//! without their prefix.
//!
//! A value is a text in the syntax of nginx (`"64k 10ms"`), a number, a boolean, or a list of
//! these. A directive that may occur several times in nginx is a list with one element per
//! occurrence.

use serde_json::Value;

/// One occurrence of a setting in a JSON object: its name, and its values as the words of one
/// directive of nginx.
pub type SettingOccurrence = (String, Vec<String>);

/// Reads the settings of a JSON object, which messages call `source`. An empty text is an empty
/// object, because Envoy passes one when the configuration is missing.
///
/// # Errors
/// The problem, and the allowed values.
pub fn parse_json_settings(source: &str, json: &[u8]) -> Result<Vec<SettingOccurrence>, String> {
    if json.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let value: Value =
        serde_json::from_slice(json).map_err(|error| format!("{source} is not JSON: {error}"))?;
    let Value::Object(settings) = value else {
        return Err(format!("{source} must be a JSON object of settings"));
    };
    let mut all = Vec::new();
    for (name, value) in settings {
        for values in split_setting_occurrences(&name, &value)? {
            all.push((name.clone(), values));
        }
    }
    Ok(all)
}

/// Returns whether a boolean setting is `on`.
///
/// # Errors
/// The allowed values.
pub fn parse_on_off(name: &str, values: &[String]) -> Result<bool, String> {
    match values {
        [text] if text.eq_ignore_ascii_case("on") => Ok(true),
        [text] if text.eq_ignore_ascii_case("off") => Ok(false),
        _ => Err(format!(
            "\"{name}\" has an invalid value \"{}\": it must be \"on\" or \"off\"",
            values.join(" ")
        )),
    }
}

/// Returns the values of a setting for each occurrence: settings that may occur several times in
/// nginx are a list here.
fn split_setting_occurrences(name: &str, value: &Value) -> Result<Vec<Vec<String>>, String> {
    match value {
        Value::Array(list) if list.iter().any(has_several_words) => list
            .iter()
            .map(|one| occurrence_values(name, one))
            .collect(),
        other => Ok(vec![occurrence_values(name, other)?]),
    }
}

fn has_several_words(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::String(text) => split_setting_words(text).count() > 1,
        _ => false,
    }
}

/// Returns the values of one occurrence: the elements of a list, or the words of a text, as nginx
/// splits them.
fn occurrence_values(name: &str, value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(list) => list.iter().map(|one| scalar_to_text(name, one)).collect(),
        Value::String(text) => Ok(split_setting_words(text).map(str::to_owned).collect()),
        other => Ok(vec![scalar_to_text(name, other)?]),
    }
}

fn split_setting_words(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace()
}

/// Returns a JSON scalar as nginx's configuration writes it: `on` or `off`, a whole number without
/// a fraction, or the string. An error names the setting.
fn scalar_to_text(name: &str, value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::Bool(is_on) => if *is_on { "on" } else { "off" }.to_owned(),
        // all numbers of a Struct are doubles
        Value::Number(number) => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 && whole.abs() < 9e15 => format!("{whole:.0}"),
            _ => number.to_string(),
        },
        Value::String(text) => text.clone(),
        _ => return Err(value_type_error(name)),
    })
}

fn value_type_error(name: &str) -> String {
    format!("\"{name}\" must be a string, a number, a boolean or a list of these")
}
