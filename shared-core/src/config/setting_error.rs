//! Error texts for settings of hosts that use the core's names, and for directives of nginx.

use super::settings::{EnvoySettingScope, SETTINGS};
use super::suggest::nearest_word;
use super::DirectiveError;

/// Formats the error of a setting for the operator: its name, the problem, and for an unknown name
/// the nearest known one.
pub fn describe_setting_error(name: &str, error: &DirectiveError) -> String {
    let settings = SETTINGS
        .iter()
        .filter(|it| it.envoy != EnvoySettingScope::None);
    let suggestion = match error {
        DirectiveError::Unknown => nearest_word(name, settings.map(|it| it.name)),
        _ => None,
    };
    match suggestion {
        Some(suggestion) => format!("\"{name}\" {error}; did you mean \"{suggestion}\"?"),
        None => format!("\"{name}\" {error}"),
    }
}

/// Replaces the core's names of directives in a message by nginx's, which have a prefix.
pub fn replace_setting_names_by_directives(message: &str) -> String {
    message
        .replace("\"cache", "\"sszip_cache")
        .replace("\"method\"", "\"sszip_method\"")
        .replace("\"enable on\"", "\"sszip on\"")
}

#[cfg(test)]
mod tests {
    use super::{describe_setting_error, DirectiveError};

    #[test]
    fn unknown_settings_are_described_with_the_nearest_one() {
        for (name, text) in [
            (
                "complevel",
                "\"complevel\" is an unknown setting; did you mean \"comp_level\"?",
            ),
            (
                "cach",
                "\"cach\" is an unknown setting; did you mean \"cache\"?",
            ),
            ("frobnicate", "\"frobnicate\" is an unknown setting"),
        ] {
            assert_eq!(describe_setting_error(name, &DirectiveError::Unknown), text);
        }
        let other = describe_setting_error("cach", &DirectiveError::OneValue);
        assert_eq!(other, "\"cach\" takes exactly one value");
    }
}
