//! Names of processes.

use std::sync::Arc;

/// The name by which a process identifies itself to the owner: 1 to 64 letters, digits, `-`, `.`,
/// `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerClientName(Arc<str>);

impl OwnerClientName {
    /// Accepts a name that a process sent, or returns `None` if it is malformed.
    pub fn new(name: &str) -> Option<Self> {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        ((1..=64).contains(&name.len()) && name.bytes().all(is_good)).then(|| Self(name.into()))
    }

    /// Returns a name for the process with this number, which was started at `time`: a number that
    /// no process with the same number has had.
    pub fn for_process(pid: u32, time: u128) -> Self {
        Self(format!("{pid}-{time:x}").into())
    }

    /// Returns the name under which the owner itself has leases. No process can send it.
    pub fn for_owner() -> Self {
        Self("(owner)".into())
    }

    /// Returns the name as the process sent it, for log lines and the status.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
