//! A second process of this test binary, to be killed.
//!
//! The child runs the test [`role_runs_in_a_process_of_its_own`], which returns at once unless a role is set. It reports
//! acknowledged operations on its standard output, in lines that begin with `@`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};

const ROLE: &str = "SSZIP_STORE_CHILD";
const FOLDER: &str = "SSZIP_STORE_FOLDER";
const ARGUMENT: &str = "SSZIP_STORE_ARGUMENT";

/// A child process of the test binary, and the reports that it writes.
pub struct StoreProcess {
    child: Child,
    pub reports: Receiver<String>,
}

/// Starts `role` on the store in `folder`.
pub fn start(
    role: &str,
    folder: &Path,
    argument: u64,
    environment: &[(&str, &str)],
) -> StoreProcess {
    let command = Command::new(std::env::current_exe().unwrap());
    run(command, role, folder, argument, environment)
}

/// Starts `role` in a mount namespace of its own, whose file systems are unmounted with it.
pub fn start_in_mount_namespace(role: &str, folder: &Path) -> StoreProcess {
    let mut command = Command::new("unshare");
    command.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.arg(std::env::current_exe().unwrap());
    run(command, role, folder, 0, &[])
}

fn run(
    mut command: Command,
    role: &str,
    folder: &Path,
    argument: u64,
    environment: &[(&str, &str)],
) -> StoreProcess {
    let mut child = command
        .args([
            "--exact",
            "child::role_runs_in_a_process_of_its_own",
            "--nocapture",
        ])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .env(ARGUMENT, argument.to_string())
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (sender, reports) = channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // libtest writes lines of its own, and one without an end
            if let Some((_, text)) = line.split_once('@') {
                let _ = sender.send(text.to_owned());
            }
        }
    });
    StoreProcess { child, reports }
}

impl StoreProcess {
    /// Kills the child, and returns all of its reports.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.reports.iter().collect()
    }

    /// Waits for the end of the child, and returns whether it succeeded, with all of its reports.
    pub fn wait(mut self) -> (bool, Vec<String>) {
        let good = self.child.wait().unwrap().success();
        (good, self.reports.iter().collect())
    }
}

/// Sends a report to the parent.
pub fn report(line: std::fmt::Arguments<'_>) {
    // the print macros of libtest would capture the line
    let mut out = std::io::stdout().lock();
    writeln!(out, "@{line}").unwrap();
    out.flush().unwrap();
}

#[test]
fn role_runs_in_a_process_of_its_own() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let folder = std::env::var_os(FOLDER).unwrap();
    let folder = Path::new(&folder);
    let argument = std::env::var(ARGUMENT).unwrap().parse().unwrap();
    match role.as_str() {
        "write" => super::crash::write(folder, argument),
        "mark" => super::crash::mark(folder, argument),
        "fill" => super::damage::fill_and_wait(folder),
        "full-disk" => super::disk::full(folder),
        "full-at-a-purge" => super::disk::full_at_a_purge(folder),
        "full-again" => super::disk::full_again(folder),
        "read-only" => super::disk::read_only(folder),
        #[cfg(feature = "faults")]
        "purge-once" => super::steps::purge_once(folder),
        #[cfg(feature = "faults")]
        "purge-twice" => super::steps::purge_twice(folder),
        #[cfg(feature = "faults")]
        "power" => super::power::write(folder, argument),
        role => panic!("no role {role}"),
    }
}
