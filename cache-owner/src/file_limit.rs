//! The limit of open files of the process. The store keeps all of its files open, and each
//! connection is one.

use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};

/// Raises the process's limit of open files to the highest that it may set itself: many systems
/// start processes with a soft limit of 1,024.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // if it is refused, the limit stays
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Returns the maximum number of connections: `most`, or fewer if that is more than half of the
/// files that the process may open; the store needs the other half.
pub fn max_connections(most: usize) -> usize {
    let files = getrlimit(Resource::Nofile).current;
    let files = files.and_then(|files| usize::try_from(files).ok());
    files.map_or(most, |files| most.min(files / 2).max(1))
}
