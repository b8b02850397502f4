//! State that all filters of the process share.

use std::sync::LazyLock;

use sszip_core::cache::process::Process;

/// The process, as the core's exchanges share it.
pub static PROCESS: LazyLock<Process> = LazyLock::new(Process::default);
