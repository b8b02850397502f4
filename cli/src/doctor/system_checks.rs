//! Checks of this machine: nginx's program and configuration, loaded files, the socket and the
//! store's folder.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{statvfs, StatVfsMountFlags};

use super::program::run_program;
use super::report::Row;
use super::Context;
use crate::args::DoctorArguments;

/// Programs that load files of sszip, or are one.
const PROGRAMS: [&str; 3] = ["nginx", "envoy", "sszip-cached"];

/// Name of the owner's socket in the folder of a store.
const SOCKET_NAME: &str = "owner.sock";

/// Maximum number of warnings of `nginx -t` that are reported.
const MAX_WARNINGS: usize = 5;

/// Part of a disk that must be free: a twentieth.
const FREE_PART: u64 = 20;

const RUN_AS_ROOT: &str = "run the command as root";

/// Runs `nginx -t`.
pub fn check_nginx(_: &Context, arguments: &DoctorArguments) -> Vec<Row> {
    const NAME: &str = "nginx";
    let result = match run_program(&arguments.nginx, &["-t"]) {
        Ok(result) => result,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let text = format!("{} is not installed", arguments.nginx.display());
            return vec![Row::skipped(NAME, text, "--nginx names the program")];
        }
        Err(error) => {
            let text = format!("cannot run {} -t: {error}", arguments.nginx.display());
            return vec![Row::failure(
                NAME,
                text,
                "run it in a terminal to see where it stops",
            )];
        }
    };
    let lines = || result.output.lines();
    let last_error = lines().rfind(|line| line.contains("[emerg]"));
    if !result.is_success {
        let text = last_error
            .or_else(|| lines().next_back())
            .unwrap_or("-t fails");
        let row = match text.contains("Permission denied") {
            true => Row::skipped(NAME, text, RUN_AS_ROOT),
            false => Row::failure(
                NAME,
                text,
                "see docs/troubleshooting.md, \"Startup failures\"",
            ),
        };
        return vec![row];
    }
    let warnings = lines().filter(|line| line.contains("[warn]") && line.contains("sszip"));
    let warnings = warnings.take(MAX_WARNINGS);
    let mut rows: Vec<_> = warnings.map(|line| Row::warning(NAME, line, "")).collect();
    if rows.is_empty() {
        rows.push(Row::ok(NAME, "-t accepts the configuration"));
    }
    rows
}

/// Looks for processes that still use files of sszip from before an upgrade.
pub fn check_loaded_files(_: &Context, _: &DoctorArguments) -> Vec<Row> {
    const NAME: &str = "upgrade";
    let (mut rows, mut examined, mut denied) = (Vec::new(), 0, 0);
    for (process, program) in running_programs() {
        match fs::read_to_string(format!("/proc/{process}/maps")) {
            Ok(maps) => {
                examined += 1;
                rows.extend(replaced_file(&maps).map(|file| {
                    Row::warning(
                        NAME,
                        format!("{program} (process {process}) uses {file} from before an upgrade"),
                        "restart it; docs/rollout.md has the way without interruption",
                    )
                }));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => denied += 1,
            // the process has ended
            Err(_) => {}
        }
    }
    if rows.is_empty() && denied > 0 {
        let text = format!("files of {denied} processes cannot be read");
        rows.push(Row::skipped(NAME, text, RUN_AS_ROOT));
    } else if rows.is_empty() && examined > 0 {
        rows.push(Row::ok(NAME, "all processes use the installed files"));
    }
    rows
}

/// Returns the numbers and names of processes that may use files of sszip.
fn running_programs() -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let named = processes.filter_map(|process: u32| {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
        Some((process, name.trim_end().to_owned()))
    });
    named
        .filter(|(_, name)| PROGRAMS.contains(&name.as_str()))
        .collect()
}

/// Returns a mapped file of sszip that was replaced, from the text of `/proc/PID/maps`.
fn replaced_file(maps: &str) -> Option<&str> {
    let mut lines = maps.lines().filter_map(|line| {
        let path = line.strip_suffix(" (deleted)")?;
        Some(&path[path.find('/')?..])
    });
    lines.find(|path| {
        path.rsplit('/')
            .next()
            .is_some_and(|name| name.contains("sszip"))
    })
}

/// Examines the owner's socket.
pub fn check_socket(_: &Context, arguments: &DoctorArguments) -> Vec<Row> {
    const NAME: &str = "socket";
    let Some(socket) = &arguments.socket else {
        return Vec::new();
    };
    let metadata = match fs::metadata(socket) {
        Ok(metadata) => metadata,
        Err(error) => return vec![unreadable(NAME, socket, &error)],
    };
    let path = socket.display();
    let row = if !metadata.file_type().is_socket() {
        Row::failure(NAME, format!("{path} is no socket"), "correct --socket")
    } else {
        let permitted = check_permissions(NAME, socket, &metadata);
        permitted.unwrap_or_else(|| Row::ok(NAME, format!("{path} is for its user only")))
    };
    vec![row]
}

/// Examines the folder of the store, which the owner's socket is in unless sszip-cached owns it.
pub fn check_store_folder(_: &Context, arguments: &DoctorArguments) -> Vec<Row> {
    const NAME: &str = "folder";
    let socket = arguments.socket.as_deref();
    let socket = socket.filter(|it| it.file_name().is_some_and(|name| name == SOCKET_NAME));
    let Some(folder) = socket.and_then(Path::parent) else {
        return Vec::new();
    };
    let metadata = match fs::metadata(folder) {
        Ok(metadata) => metadata,
        Err(error) => return vec![unreadable(NAME, folder, &error)],
    };
    let rows = [
        check_permissions(NAME, folder, &metadata),
        check_disk(NAME, folder),
    ];
    let mut rows: Vec<_> = rows.into_iter().flatten().collect();
    if rows.is_empty() {
        let text = format!("{} is for its user only, with free space", folder.display());
        rows.push(Row::ok(NAME, text));
    }
    rows
}

/// Returns a row if others than the workers' user have a file, or other users may open it.
fn check_permissions(name: &'static str, path: &Path, metadata: &Metadata) -> Option<Row> {
    let (user, mode) = (metadata.uid(), metadata.mode() & 0o777);
    let path = path.display();
    let workers = nginx_worker_user();
    if let Some(worker) = workers.filter(|worker| ![0, user].contains(worker)) {
        return Some(Row::failure(
            name,
            format!("{path} belongs to user {user}, and nginx's workers run as user {worker}"),
            "give both one user: docs/install.md, \"The store's folder\"",
        ));
    }
    (mode & 0o077 != 0).then(|| {
        Row::warning(
            name,
            format!("{path} has mode {mode:04o}: other users may open it"),
            "remove the permissions of group and others",
        )
    })
}

/// Returns the user of nginx's workers on this machine.
fn nginx_worker_user() -> Option<u32> {
    running_programs().into_iter().find_map(|(process, _)| {
        let line = fs::read_to_string(format!("/proc/{process}/cmdline")).ok()?;
        let is_worker = line.starts_with("nginx: worker process");
        let metadata = fs::metadata(format!("/proc/{process}")).ok()?;
        is_worker.then(|| metadata.uid())
    })
}

/// Returns a row if a folder's disk is read-only or almost full.
fn check_disk(name: &'static str, folder: &Path) -> Option<Row> {
    let disk = statvfs(folder).ok()?;
    if disk.f_flag.contains(StatVfsMountFlags::RDONLY) {
        let text = format!("{} is on a read-only file system", folder.display());
        return Some(Row::failure(name, text, "mount it for writing"));
    }
    let is_full = disk.f_bavail < disk.f_blocks / FREE_PART;
    is_full.then(|| {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize) >> 20;
        Row::warning(
            name,
            format!("{} has {free} MB free", folder.display()),
            "make room, or reduce max_size= of the store",
        )
    })
}

fn unreadable(name: &'static str, path: &Path, error: &io::Error) -> Row {
    let text = format!("cannot examine {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied => Row::skipped(name, text, RUN_AS_ROOT),
        _ => Row::failure(name, text, "check the path, and that the owner runs"),
    }
}

#[cfg(test)]
mod tests {
    use super::replaced_file;

    #[test]
    fn replaced_files_of_sszip_are_found_in_maps() {
        let line = "7f00-7f01 r-xp 00000000 08:01 42   /usr/lib/nginx/modules/";
        for (file, expected) in [
            (
                "ngx_http_sszip_module.so (deleted)",
                Some("ngx_http_sszip_module.so"),
            ),
            ("ngx_http_sszip_module.so", None),
            ("ngx_http_lua_module.so (deleted)", None),
        ] {
            let maps = format!("7f00-7f01 rw-s 0 0:1 7 /dev/zero (deleted)\n{line}{file}\n");
            let found = replaced_file(&maps).map(|path| path.rsplit('/').next().unwrap());
            assert_eq!(found, expected, "{maps}");
        }
    }
}
