//! Heads of the directives' sections in docs/directives.md, in the form of nginx.org, with their
//! counterparts in Envoy.

use super::sandbox::WasmFilterConfig;
use super::settings::{
    EnvoySettingScope, NginxDirectiveContext, SettingDefault, SettingDefinition, SettingValueKind,
    SETTINGS,
};
use super::values::{DirectiveError, DirectiveValueRange, DirectiveValueUnit};

/// Column of the text after `Syntax:`, `Default:` and the like.
const TEXT_COLUMN: usize = 10;

/// Returns for each directive its name in nginx and the lines of its section's head.
pub fn directive_section_heads() -> impl Iterator<Item = (String, String)> {
    SETTINGS
        .iter()
        .map(|setting| (setting.nginx_name(), setting.section_head()))
}

impl SettingDefinition {
    /// Returns the name of the directive in nginx: `sszip` for `enable`, and the setting's name
    /// after `sszip_` otherwise.
    fn nginx_name(&self) -> String {
        match self.name {
            "enable" => "sszip".into(),
            name => format!("sszip_{name}"),
        }
    }

    /// Returns the lines above a directive's description: syntax, default, context, version, and
    /// Envoy's counterpart.
    fn section_head(&self) -> String {
        let name = self.nginx_name();
        // a form that is longer than a line is continued below its first argument
        let below = format!("\n{}", " ".repeat(TEXT_COLUMN + name.len() + 1));
        let line = |text: &str| format!("{name} {};", text.replace('\n', &below));
        let syntax: Vec<_> = self.syntax_forms().iter().map(|form| line(form)).collect();
        let default = match self.default {
            SettingDefault::Nothing => vec!["-".into()],
            SettingDefault::Literal(texts) => texts.iter().map(|text| line(text)).collect(),
            SettingDefault::Derived(of) => vec![of.into()],
        };
        [
            format_labelled_lines("Syntax", &syntax),
            format_labelled_lines("Default", &default),
            format_labelled_lines("Context", &[self.context.nginx_contexts().into()]),
            format_labelled_lines("Since", &[self.since.into()]),
            format_labelled_lines("Envoy", &[self.envoy_counterpart()]),
        ]
        .concat()
    }

    fn syntax_forms(&self) -> Vec<String> {
        match self.syntax {
            [] => vec![self.takes.argument_syntax()],
            forms => forms.iter().map(|form| (*form).to_owned()).collect(),
        }
    }

    /// Returns the name of Envoy's setting with its JSON types and its scope, or `-` if there is
    /// none.
    fn envoy_counterpart(&self) -> String {
        let place = match self.envoy {
            EnvoySettingScope::FilterOrRoute | EnvoySettingScope::EnabledByDefault => {
                "in a filter or a route"
            }
            EnvoySettingScope::Filter => "in a filter",
            EnvoySettingScope::Route => "in a route",
            EnvoySettingScope::None => return "-".into(),
        };
        let kinds = match self.takes.accepted_json_types()[..] {
            ["boolean", "string"] if matches!(self.takes, SettingValueKind::Flag) => {
                "true or false".into()
            }
            ref kinds => describe_json_types(kinds),
        };
        let mut all = format!("{}: {kinds}, {place}", self.name);
        if self.envoy == EnvoySettingScope::EnabledByDefault {
            all += "; default true";
        }
        if let Some(Err(DirectiveError::Sandboxed { .. })) =
            WasmFilterConfig::default().set_wasm_filter_setting(self.name, &[])
        {
            all += "; not in the sandbox";
        }
        all
    }
}

/// Formats a named line with its continuation lines.
fn format_labelled_lines(name: &str, lines: &[String]) -> String {
    let first = format!("{:TEXT_COLUMN$}", format!("{name}:"));
    let below = format!("\n{}", " ".repeat(TEXT_COLUMN));
    format!("{first}{}\n", lines.join(&below))
}

/// Replaces the types of JSON Schema with words of the documentation.
fn describe_json_types(kinds: &[&str]) -> String {
    let words: Vec<_> = kinds
        .iter()
        .map(|kind| match *kind {
            "boolean" => "false",
            "integer" => "number",
            "array" => "list",
            _ => "text",
        })
        .collect();
    match &words[..] {
        [words @ .., last] if !words.is_empty() => format!("{} or {last}", words.join(", ")),
        words => words.concat(),
    }
}

impl NginxDirectiveContext {
    /// Returns the contexts as nginx.org lists them.
    fn nginx_contexts(self) -> &'static str {
        match self {
            NginxDirectiveContext::Anywhere => "anywhere",
            NginxDirectiveContext::AnywhereAndIf => "anywhere, and if in location",
            NginxDirectiveContext::Http => "http",
            NginxDirectiveContext::Location => "location",
        }
    }
}

impl SettingValueKind {
    /// Returns the syntax of the argument, or an empty text if the setting defines its own syntax.
    fn argument_syntax(&self) -> String {
        match self {
            SettingValueKind::Flag => "on | off".into(),
            SettingValueKind::Number(range) => range.argument_word().into(),
            SettingValueKind::NumberOrWord(range, word) => {
                format!("{} | {word}", range.argument_word())
            }
            SettingValueKind::NumberThenWord(range, word) => {
                format!("{} [{word}]", range.argument_word())
            }
            SettingValueKind::OneOrTwo(first, second) => {
                format!("{} [{}]", first.argument_word(), second.argument_word())
            }
            SettingValueKind::Two(first, second) => {
                format!("{} {}", first.argument_word(), second.argument_word())
            }
            SettingValueKind::Word(words) => words.join(" | "),
            _ => String::new(),
        }
    }
}

impl DirectiveValueRange {
    fn argument_word(&self) -> &'static str {
        match self.unit {
            DirectiveValueUnit::Number => "N",
            DirectiveValueUnit::Bytes => "SIZE",
            DirectiveValueUnit::Milliseconds | DirectiveValueUnit::Time => "TIME",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{EnvoySettingScope, SettingDefault, SettingDefinition, SettingValueKind, SETTINGS};
    use crate::cache::class::LifetimeClass;
    use crate::cache::process::ProcessResources;
    use crate::config::validated::ValidatedConfig;
    use crate::config::{DirectiveError, RouteConfigBlock};
    use crate::memory::MemoryBudget;

    /// Settings of routes that only hosts read.
    const HOSTS: [&str; 2] = ["cache_purge", "status"];

    fn words(setting: &SettingDefinition) -> Vec<&'static str> {
        match &setting.takes {
            SettingValueKind::Word(words) => words.to_vec(),
            SettingValueKind::Words(words) => words(),
            SettingValueKind::NumberOrWord(_, word) => vec![*word],
            _ => Vec::new(),
        }
    }

    #[test]
    fn words_of_settings_are_accepted_by_their_directives() {
        for setting in SETTINGS {
            for word in words(setting) {
                let result =
                    RouteConfigBlock::default().set_directive(setting.name, &[word.as_bytes()]);
                assert_eq!(result, Ok(()), "{} {word}", setting.name);
            }
        }
    }

    #[test]
    fn settings_are_known_to_a_parser() {
        for setting in SETTINGS
            .iter()
            .filter(|setting| setting.envoy != EnvoySettingScope::None)
        {
            let name = setting.name;
            let result = RouteConfigBlock::default().set_directive(name, &[b"\0"]);
            let is_of_route = !matches!(result, Err(DirectiveError::Unknown));
            let is_of_process = ValidatedConfig::default()
                .set_global_directive(name, &[b"\0"], "/")
                .is_some();
            assert!(
                is_of_route || is_of_process || HOSTS.contains(&name),
                "{name}"
            );
        }
    }

    /// The syntax of a setting is not empty, and contains all its words.
    #[test]
    fn settings_have_a_syntax_with_their_words() {
        for setting in SETTINGS {
            let forms = setting.syntax_forms().concat();
            assert!(!forms.is_empty(), "{}", setting.name);
            let words_of_form: Vec<_> = forms.split([' ', '\n', '|']).collect();
            for word in words(setting) {
                assert!(
                    words_of_form.contains(&word),
                    "{} has no {word}",
                    setting.name
                );
            }
        }
    }

    /// Formats all settings of a route. Lifetimes and credentials are formatted by their effect,
    /// because their own value shows whether they are configured.
    fn effect(directives: &RouteConfigBlock, process: &ProcessResources) -> String {
        let mut config = directives.resolve_route_config(process.clone());
        let classes = ["immutable", "unfinalized", "tip", "nothing", "config"];
        let classes = classes.map(|name| LifetimeClass::from_class_name(name.as_bytes()).unwrap());
        let times = classes.map(|class| config.cache.valid.lifetime_for_class(class));
        let credentials = &config.cache.credentials;
        let bypasses = ["authorization", "cookie"]
            .map(|name| credentials.header_causes_bypass(name.as_bytes()));
        let keyed: Vec<_> = credentials.cache_key_headers().map(str::to_owned).collect();
        config.cache.valid = Arc::default();
        config.cache.credentials = Arc::default();
        format!("{config:?} {times:?} {bypasses:?} {keyed:?}")
    }

    #[test]
    fn configured_defaults_have_no_effect() {
        let process = ProcessResources::from(MemoryBudget::new());
        let nothing = effect(&RouteConfigBlock::default(), &process);
        let mut tried = 0;
        for setting in SETTINGS {
            let (name, SettingDefault::Literal(texts)) = (setting.name, &setting.default) else {
                continue;
            };
            if setting.envoy == EnvoySettingScope::None || HOSTS.contains(&name) {
                continue;
            }
            let (mut directives, mut plan) =
                (RouteConfigBlock::default(), ValidatedConfig::default());
            for text in *texts {
                let values: Vec<_> = text.split(' ').map(str::as_bytes).collect();
                let result = plan.set_global_directive(name, &values, "/");
                let result = result.unwrap_or_else(|| directives.set_directive(name, &values));
                assert_eq!(result, Ok(()), "{name} {text}");
            }
            // not assert_eq: the texts are long
            assert!(effect(&directives, &process) == nothing, "{name}");
            assert_eq!(
                plan.lookup_timeout(),
                ValidatedConfig::default().lookup_timeout()
            );
            tried += 1;
        }
        assert!(tried > 20, "{tried}");
    }
}
