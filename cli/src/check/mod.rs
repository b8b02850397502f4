//! `sszip check`: a linter of the configurations of nginx and Envoy (docs/checking.md).

mod envoy_access;
mod envoy_document;
mod envoy_filters;
mod envoy_rules;
mod findings;
mod lua_block;
mod nginx_access;
mod nginx_include;
mod nginx_routes;
mod nginx_rules;
mod nginx_scope;
mod nginx_syntax;
mod nginx_upstreams;
mod text_file;
mod wildcards;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::rc::Rc;

use serde_json::Value;

use self::findings::{Finding, FindingLevel};
use crate::args::{CheckArguments, ConfigFormat};
use crate::output::print_text;
use crate::CommandError;

/// Runs `sszip check`.
///
/// # Errors
/// A file can't be read or parsed, or is of another kind, after the others have been checked; or a
/// finding is an error; with `--strict`, any finding.
pub fn run_check(arguments: &CheckArguments) -> Result<(), CommandError> {
    let (mut findings, mut problems) = (Vec::new(), Vec::new());
    let mut is_usage_error = false;
    for path in &arguments.files {
        match check_file(path, arguments.format) {
            Ok(found) => findings.extend(found),
            Err(CommandError::Data(problem)) => problems.push(problem),
            Err(CommandError::Usage(problem)) => {
                is_usage_error = true;
                problems.push(problem);
            }
            Err(error) => return Err(error),
        }
    }
    remove_repeated(&mut findings);
    let is_any_checked = problems.len() < arguments.files.len();
    if is_any_checked || arguments.json {
        print_findings(arguments, &findings)?;
    }
    if is_any_checked {
        print_summary(&findings);
    }
    let is_error = |finding: &Finding| finding.level == FindingLevel::Error;
    let problem = problems.join("\nsszip: ");
    match problems.is_empty() {
        false if is_usage_error => Err(CommandError::Usage(problem)),
        false => Err(CommandError::Data(problem)),
        true if findings.iter().any(is_error) => Err(CommandError::Findings),
        true if arguments.strict && !findings.is_empty() => Err(CommandError::Findings),
        true => Ok(()),
    }
}

/// Prints the findings.
fn print_findings(arguments: &CheckArguments, findings: &[Finding]) -> Result<(), CommandError> {
    print_text(&match arguments.json {
        true => {
            let all: Value = findings.iter().map(Finding::to_json).collect();
            format!("{all:#}\n")
        }
        false => findings.iter().fold(String::new(), |mut text, finding| {
            // writes to a String do not fail
            let _ = writeln!(text, "{finding}");
            text
        }),
    })
}

/// Prints the numbers of findings to standard error.
fn print_summary(findings: &[Finding]) {
    let is_error = |finding: &&Finding| finding.level == FindingLevel::Error;
    let errors = findings.iter().filter(is_error).count();
    let warnings = findings.len() - errors;
    let summary = format!("sszip: errors: {errors}, warnings: {warnings}");
    // a closed standard error does not change the exit code
    let _ = writeln!(io::stderr(), "{summary}");
}

fn check_file(path: &Path, format: Option<ConfigFormat>) -> Result<Vec<Finding>, CommandError> {
    let extension = path.extension().and_then(|it| it.to_str());
    let format = match (format, extension) {
        (None, Some("toml")) => {
            return Err(CommandError::Usage(format!(
                "{} is a configuration of sszip-cached; check it with sszip-cached --check {0}",
                path.display()
            )));
        }
        (None, Some("yaml" | "yml" | "json")) => ConfigFormat::Envoy,
        (None, _) => ConfigFormat::Nginx,
        (Some(format), _) => format,
    };
    Ok(match format {
        ConfigFormat::Envoy => {
            let text = text_file::read_text_file(path)?;
            let file: Rc<str> = path.display().to_string().into();
            let documents = envoy_document::parse_yaml(&file, &text)?;
            envoy_rules::check_envoy_documents(&file, &documents)
        }
        ConfigFormat::Nginx => {
            nginx_rules::check_nginx_config(nginx_include::load_nginx_config(path)?)
        }
    })
}

/// Removes findings that an alias of YAML, or a file that is included twice, repeats.
fn remove_repeated(findings: &mut Vec<Finding>) {
    let mut known = std::collections::HashSet::new();
    findings.retain(|finding| known.insert(finding.to_string()));
}
