//! State that all filters of the process share.

use std::sync::LazyLock;

use sszip_core::cache::process::ProcessHandle;

/// The process, as the core's exchanges share it.
pub static PROCESS: LazyLock<ProcessHandle> = LazyLock::new(ProcessHandle::default);
