//! Heads of the directives' sections in docs/directives.md, in the form of nginx.org, with their
//! counterparts in Envoy.

use super::sandbox::SandboxConfig;
use super::settings::{Context, DefaultValue, EnvoyScope, Setting, ValueKind, SETTINGS};
use super::values::{DirectiveError, Range, Unit};

/// Column of the text after `Syntax:`, `Default:` and the like.
const INDENT: usize = 10;

/// Returns for each directive its name in nginx and the lines of its section's head.
pub fn directive_heads() -> impl Iterator<Item = (String, String)> {
    SETTINGS
        .iter()
        .map(|setting| (setting.directive(), setting.head()))
}

impl Setting {
    fn directive(&self) -> String {
        match self.name {
            "enable" => "sszip".into(),
            name => format!("sszip_{name}"),
        }
    }

    fn head(&self) -> String {
        let name = self.directive();
        // a form that is longer than a line is continued below its first argument
        let below = format!("\n{}", " ".repeat(INDENT + name.len() + 1));
        let line = |text: &str| format!("{name} {};", text.replace('\n', &below));
        let syntax: Vec<_> = self.forms().iter().map(|form| line(form)).collect();
        let default = match self.default {
            DefaultValue::Nothing => vec!["-".into()],
            DefaultValue::Literal(texts) => texts.iter().map(|text| line(text)).collect(),
            DefaultValue::Derived(of) => vec![of.into()],
        };
        [
            head_line("Syntax", &syntax),
            head_line("Default", &default),
            head_line("Context", &[self.context.words().into()]),
            head_line("Since", &[self.since.into()]),
            head_line("Envoy", &[self.in_envoy()]),
        ]
        .concat()
    }

    fn forms(&self) -> Vec<String> {
        match self.syntax {
            [] => vec![self.takes.form()],
            forms => forms.iter().map(|form| (*form).to_owned()).collect(),
        }
    }

    fn in_envoy(&self) -> String {
        let place = match self.envoy {
            EnvoyScope::FilterOrRoute | EnvoyScope::On => "in a filter or a route",
            EnvoyScope::Filter => "in a filter",
            EnvoyScope::Route => "in a route",
            EnvoyScope::None => return "-".into(),
        };
        let kinds = match self.takes.kinds()[..] {
            ["boolean", "string"] if matches!(self.takes, ValueKind::Flag) => {
                "true or false".into()
            }
            ref kinds => type_words(kinds),
        };
        let mut all = format!("{}: {kinds}, {place}", self.name);
        if self.envoy == EnvoyScope::On {
            all += "; default true";
        }
        if let Some(Err(DirectiveError::Sandboxed { .. })) =
            SandboxConfig::default().set(self.name, &[])
        {
            all += "; not in the sandbox";
        }
        all
    }
}

/// Formats a named line with its continuation lines.
fn head_line(name: &str, lines: &[String]) -> String {
    let first = format!("{:INDENT$}", format!("{name}:"));
    let below = format!("\n{}", " ".repeat(INDENT));
    format!("{first}{}\n", lines.join(&below))
}

/// Replaces the types of JSON Schema with words of the documentation.
fn type_words(kinds: &[&str]) -> String {
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

impl Context {
    /// Returns the contexts as nginx.org lists them.
    fn words(self) -> &'static str {
        match self {
            Context::Anywhere => "anywhere",
            Context::AnywhereAndIf => "anywhere, and if in location",
            Context::Http => "http",
            Context::Location => "location",
        }
    }
}

impl ValueKind {
    /// Returns the syntax of the argument, or an empty text if the setting defines its own syntax.
    fn form(&self) -> String {
        match self {
            ValueKind::Flag => "on | off".into(),
            ValueKind::Of(range) => range.form().into(),
            ValueKind::OfOr(range, word) => format!("{} | {word}", range.form()),
            ValueKind::OfThen(range, word) => format!("{} [{word}]", range.form()),
            ValueKind::OneOrTwo(first, second) => format!("{} [{}]", first.form(), second.form()),
            ValueKind::Two(first, second) => format!("{} {}", first.form(), second.form()),
            ValueKind::Word(words) => words.join(" | "),
            _ => String::new(),
        }
    }
}

impl Range {
    fn form(&self) -> &'static str {
        match self.unit {
            Unit::Number => "N",
            Unit::Bytes => "SIZE",
            Unit::Milliseconds | Unit::Time => "TIME",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{DefaultValue, EnvoyScope, Setting, ValueKind, SETTINGS};
    use crate::cache::class::Class;
    use crate::cache::process::Process;
    use crate::config::validated::ValidatedConfig;
    use crate::config::{ConfigBlock, DirectiveError};
    use crate::memory::Budget;

    /// Settings of routes that only hosts read.
    const HOSTS: [&str; 2] = ["cache_purge", "status"];

    fn words(setting: &Setting) -> Vec<&'static str> {
        match &setting.takes {
            ValueKind::Word(words) => words.to_vec(),
            ValueKind::Words(words) => words(),
            ValueKind::OfOr(_, word) => vec![*word],
            _ => Vec::new(),
        }
    }

    #[test]
    fn words_of_settings_are_accepted_by_their_directives() {
        for setting in SETTINGS {
            for word in words(setting) {
                let result = ConfigBlock::default().set(setting.name, &[word.as_bytes()]);
                assert_eq!(result, Ok(()), "{} {word}", setting.name);
            }
        }
    }

    #[test]
    fn settings_are_known_to_a_parser() {
        for setting in SETTINGS
            .iter()
            .filter(|setting| setting.envoy != EnvoyScope::None)
        {
            let name = setting.name;
            let result = ConfigBlock::default().set(name, &[b"\0"]);
            let is_of_route = !matches!(result, Err(DirectiveError::Unknown));
            let is_of_process = ValidatedConfig::default()
                .set(name, &[b"\0"], "/")
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
            let forms = setting.forms().concat();
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
    fn effect(directives: &ConfigBlock, process: &Process) -> String {
        let mut config = directives.resolve(process.clone());
        let classes = ["immutable", "unfinalized", "tip", "nothing", "config"];
        let classes = classes.map(|name| Class::from_name(name.as_bytes()).unwrap());
        let times = classes.map(|class| config.cache.valid.class(class));
        let credentials = &config.cache.credentials;
        let bypasses =
            ["authorization", "cookie"].map(|name| credentials.causes_bypass(name.as_bytes()));
        let keyed: Vec<_> = credentials.key_headers().map(str::to_owned).collect();
        config.cache.valid = Arc::default();
        config.cache.credentials = Arc::default();
        format!("{config:?} {times:?} {bypasses:?} {keyed:?}")
    }

    #[test]
    fn configured_defaults_have_no_effect() {
        let process = Process::from(Budget::new());
        let nothing = effect(&ConfigBlock::default(), &process);
        let mut tried = 0;
        for setting in SETTINGS {
            let (name, DefaultValue::Literal(texts)) = (setting.name, &setting.default) else {
                continue;
            };
            if setting.envoy == EnvoyScope::None || HOSTS.contains(&name) {
                continue;
            }
            let (mut directives, mut plan) = (ConfigBlock::default(), ValidatedConfig::default());
            for text in *texts {
                let values: Vec<_> = text.split(' ').map(str::as_bytes).collect();
                let result = plan.set(name, &values, "/");
                let result = result.unwrap_or_else(|| directives.set(name, &values));
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
