//! Reads the text of a configuration file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::CommandError;

/// Maximum length of a file.
const MAX_BYTES: u64 = 16 << 20;

/// The beginnings and ends of tags in templates: of Jinja, Go, ERB and the like.
const TEMPLATE_TAGS: [(&str, &str); 4] = [("{{", "}}"), ("{%", "%}"), ("{#", "#}"), ("<%", "%>")];

/// Reads a file, or standard input if its path is `-`. Bytes that are not UTF-8 are replaced.
///
/// # Errors
/// The file can't be read, or is longer than 16 MB.
pub fn read_text_file(path: &Path) -> Result<String, CommandError> {
    let read = match path == Path::new("-") {
        true => read_at_most(io::stdin().lock()),
        false => File::open(path).and_then(read_at_most),
    };
    let bytes = read
        .map_err(|error| CommandError::Data(format!("cannot read {}: {error}", path.display())))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(CommandError::Data(format!(
            "{} is longer than 16 MB: it is no configuration",
            path.display()
        )));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the remedy for a syntax error that the text in one of these lines, from 1 on, causes.
pub fn syntax_remedy(text: &str, lines: &[u32]) -> &'static str {
    let mut numbered = (1_u32..).zip(text.lines());
    match numbered.any(|(number, line)| lines.contains(&number) && has_template_tag(line)) {
        true => "render the template, and check the result",
        false => "correct the file",
    }
}

/// Whether a text begins as a tag of a template does.
pub fn begins_as_template_tag(text: &[u8]) -> bool {
    let mut tags = TEMPLATE_TAGS.iter();
    tags.any(|(open, _)| text.starts_with(open.as_bytes()))
}

/// Returns the last line before a line of YAML that is neither empty nor a comment, if it begins
/// with a tag of a template: the parser misses the value of such a key in the next line. Otherwise
/// 0.
pub fn template_tag_line_before(text: &str, line: u32) -> u32 {
    let lines = text.lines().map(str::trim_start);
    let before = (1_u32..)
        .zip(lines)
        .take_while(|(number, _)| *number < line);
    let last = before
        .filter(|(_, text)| !text.is_empty() && !text.starts_with('#'))
        .last();
    let last = last.filter(|(_, text)| begins_as_template_tag(text.as_bytes()));
    last.map_or(0, |(number, _)| number)
}

/// Whether a line has a tag of a template that begins with a name: `{{ name }}`, `{%- if name %}`.
fn has_template_tag(line: &str) -> bool {
    TEMPLATE_TAGS.iter().any(|(open, close)| {
        let mut tags = line.split(open).skip(1);
        tags.any(|tag| {
            let name = tag.trim_start_matches([' ', '-', '=']);
            let is_name = |letter: char| letter.is_alphabetic() || "_.$".contains(letter);
            name.starts_with(is_name) && name.contains(close)
        })
    })
}

fn read_at_most(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use crate::check::envoy_document::parse_yaml;
    use crate::check::nginx_syntax::parse_nginx_text;
    use crate::CommandError;

    /// Checks that the remedy of an error is to render the template, or is not.
    fn assert_remedy(text: &str, error: Option<CommandError>, is_template: bool) {
        let error = error.unwrap();
        let message = error.message().unwrap();
        let remedy = match is_template {
            true => "; render the template, and check the result",
            false => "; correct the file",
        };
        assert!(message.ends_with(remedy), "{text}: {message}");
    }

    #[test]
    fn errors_of_nginx_are_those_of_a_template_if_a_tag_causes_them() {
        for (text, is_template) in [
            ("listen {{ port }};", true),
            ("http {\n{{- range .Values.servers }}\n}", true),
            ("a {% if n %}2{% endif %};\n", true),
            ("{# managed #}\na 1;", true),
            ("<% if x %>\n}", true),
            ("return 200 \"{{ x | default(\"y\") }}\";", true),
            ("content_by_lua_block { t = {{a, b}} }\nx", false),
            ("# listen {{ port }};\nx", false),
            ("return 200 '{{ x }}';\nx", false),
            ("return 200 '{{1, 2}}'x;", false),
            ("location / {{\n", false),
        ] {
            let error = parse_nginx_text(&"f".into(), text).err();
            assert_remedy(text, error, is_template);
        }
    }

    #[test]
    fn errors_of_yaml_are_those_of_a_template_if_a_tag_causes_them() {
        for (text, is_template) in [
            ("a: {{ b }}", true),
            ("a: 1\n{{ b }}\n# c\n\nd: 2", true),
            ("a: 1\n{% if b %}\nc: 2", true),
            ("a: '{{ b }}'\nc: [", false),
            ("a: |\n  t = {{b, c}}\nd: [", false),
            ("# {{ a }}\nb: [", false),
        ] {
            let error = parse_yaml(&"f".into(), text).err();
            assert_remedy(text, error, is_template);
        }
    }
}
