//! State that all filters of the process share.

use std::sync::LazyLock;

use sszip_core::cache::process::ProcessResources;

/// The process, as the core's exchanges share it.
pub static PROCESS: LazyLock<ProcessResources> = LazyLock::new(ProcessResources::default);
