//! Man pages and shell completions, generated from the arguments.

use std::fs;
use std::io::Write;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::CliArguments;
use crate::command_error::EXIT_CODES;
use crate::output::print_text;
use crate::CommandError;

/// Prints the completion script of a shell.
///
/// # Errors
/// Standard output is closed.
pub fn print_completions(shell: Shell) -> Result<(), CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CliArguments::command(), "sszip", &mut script);
    print_text(&String::from_utf8_lossy(&script))
}

/// Writes the man pages of all commands to a folder: `sszip.1`, `sszip-status.1` and so on.
///
/// # Errors
/// A file cannot be written.
pub fn write_man_pages(folder: &Path) -> Result<(), CommandError> {
    for (name, page) in render_man_pages() {
        let path = folder.join(name);
        fs::write(&path, page).map_err(|error| {
            CommandError::Data(format!("cannot write {}: {error}", path.display()))
        })?;
    }
    Ok(())
}

/// Returns the man pages of all commands, with their file names.
fn render_man_pages() -> Vec<(String, Vec<u8>)> {
    let mut command = CliArguments::command().disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    add_man_pages(&command, &mut pages);
    pages
}

fn add_man_pages(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) {
    let man = Man::new(command.clone()).source(concat!("sszip ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    // writes to memory do not fail
    let _ = man.render(&mut page);
    let _ = writeln!(page, ".SH \"EXIT STATUS\"");
    for (code, meaning) in EXIT_CODES {
        let _ = writeln!(page, ".TP\n\\fB{code}\\fR\n{meaning}");
    }
    pages.push((man.get_filename(), page));
    let is_documented = |it: &&Command| !it.is_hide_set() && it.get_name() != "help";
    for subcommand in command.get_subcommands().filter(is_documented) {
        add_man_pages(subcommand, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_man_pages_with_a_purpose_and_the_exit_codes() {
        CliArguments::command().debug_assert();
        let pages = render_man_pages();
        let names: Vec<_> = pages.iter().map(|(name, _)| &name[..]).collect();
        for expected in [
            "sszip.1",
            "sszip-status.1",
            "sszip-top.1",
            "sszip-fleet-purge.1",
        ] {
            assert!(names.contains(&expected), "{names:?}");
        }
        assert!(!names.contains(&"sszip-generate-man.1"));
        for (name, page) in &pages {
            let page = String::from_utf8(page.clone()).unwrap();
            let (command, _) = name.rsplit_once('.').unwrap();
            let purpose = format!("{} \\- ", command.replace('-', "\\-"));
            let after = page.split(&purpose).nth(1).unwrap_or_default();
            let line = after.lines().next().unwrap_or_default();
            assert!(!line.is_empty(), "{name} has no purpose: {page}");
            for (code, _) in EXIT_CODES {
                assert!(page.contains(&format!("\\fB{code}\\fR\n")), "{name}");
            }
        }
    }
}
