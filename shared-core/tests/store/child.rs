//! This test binary as another process, to be killed.
//!
//! The child is the test [`child`], which does nothing unless it is told what.
//! It says what was acknowledged on its standard output, in lines that begin
//! with `@`.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{channel, Receiver};

const ROLE: &str = "SSZIP_STORE_CHILD";
const FOLDER: &str = "SSZIP_STORE_FOLDER";
const ARGUMENT: &str = "SSZIP_STORE_ARGUMENT";

/// A child and what it says.
pub struct Running {
    child: Child,
    pub said: Receiver<String>,
}

/// Starts `role` on the store in `folder`.
pub fn start(role: &str, folder: &Path, argument: u64, environment: &[(&str, &str)]) -> Running {
    let command = Command::new(std::env::current_exe().unwrap());
    run(command, role, folder, argument, environment)
}

/// The same where it may mount file systems, which end with it.
pub fn start_where_it_may_mount(role: &str, folder: &Path) -> Running {
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
) -> Running {
    let mut child = command
        .args(["--exact", "child::child", "--nocapture"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .env(ARGUMENT, argument.to_string())
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (tell, said) = channel();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            // libtest writes its own lines, and one without an end
            if let Some((_, said)) = line.split_once('@') {
                let _ = tell.send(said.to_owned());
            }
        }
    });
    Running { child, said }
}

impl Running {
    /// `kill -9`, and all that was said before.
    pub fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.said.iter().collect()
    }

    /// Waits for its own end: whether it was a good one, and all it said.
    pub fn wait(mut self) -> (bool, Vec<String>) {
        let good = self.child.wait().unwrap().success();
        (good, self.said.iter().collect())
    }
}

/// Tells the parent.
pub fn say(line: std::fmt::Arguments<'_>) {
    // libtest's own prints are not wanted here
    let mut out = std::io::stdout().lock();
    writeln!(out, "@{line}").unwrap();
    out.flush().unwrap();
}

#[test]
fn child() {
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
