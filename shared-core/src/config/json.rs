//! A configuration that is JSON, as in Envoy: an object of settings, with the names of
//! docs/directives.md without their prefix.
//!
//! A value is a text as nginx has it (`"64k 10ms"`), a number, true or false, or a list
//! of these; what a file of nginx says several times is a list of what it says each time.

use serde_json::Value;

/// A setting, with its values, for each time that it is used.
pub type Use = (String, Vec<String>);

/// The settings of an object, which is called `what`. An empty text is an empty object:
/// Envoy has no other for a missing one.
///
/// # Errors
/// What is wrong, and what is allowed.
pub fn settings(what: &str, json: &[u8]) -> Result<Vec<Use>, String> {
    if json.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    let value: Value =
        serde_json::from_slice(json).map_err(|error| format!("{what} is not JSON: {error}"))?;
    let Value::Object(settings) = value else {
        return Err(format!("{what} must be an object of settings"));
    };
    let mut all = Vec::new();
    for (name, value) in settings {
        for values in uses(&name, &value)? {
            all.push((name.clone(), values));
        }
    }
    Ok(all)
}

/// Whether a setting that can only be that is `on`.
///
/// # Errors
/// What is allowed.
pub fn is_on(name: &str, values: &[String]) -> Result<bool, String> {
    match values {
        [text] if text.eq_ignore_ascii_case("on") => Ok(true),
        [text] if text.eq_ignore_ascii_case("off") => Ok(false),
        _ => Err(format!(
            "\"{name}\" has an invalid value \"{}\": it must be \"on\" or \"off\"",
            values.join(" ")
        )),
    }
}

/// The values of a setting, of each time that it is used: a file of nginx says some
/// several times, and here there is a list of what it says each time.
fn uses(name: &str, value: &Value) -> Result<Vec<Vec<String>>, String> {
    match value {
        Value::Array(list) if list.iter().any(has_several) => {
            list.iter().map(|one| values(name, one)).collect()
        }
        other => Ok(vec![values(name, other)?]),
    }
}

fn has_several(value: &Value) -> bool {
    match value {
        Value::Array(_) => true,
        Value::String(text) => words(text).count() > 1,
        _ => false,
    }
}

/// Of a list each of its values, of a text each of its words, as in a file of nginx.
fn values(name: &str, value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::Array(list) => list.iter().map(|one| scalar(name, one)).collect(),
        Value::String(text) => Ok(words(text).map(str::to_owned).collect()),
        other => Ok(vec![scalar(name, other)?]),
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace()
}

fn scalar(name: &str, value: &Value) -> Result<String, String> {
    Ok(match value {
        Value::Bool(is_on) => if *is_on { "on" } else { "off" }.to_owned(),
        // of a Struct all numbers are doubles
        Value::Number(number) => match number.as_f64() {
            Some(whole) if whole.fract() == 0.0 && whole.abs() < 9e15 => format!("{whole:.0}"),
            _ => number.to_string(),
        },
        Value::String(text) => text.clone(),
        _ => return Err(not_a_setting(name)),
    })
}

fn not_a_setting(name: &str) -> String {
    format!("\"{name}\" must be a text, a number, true or false, or a list of these")
}
