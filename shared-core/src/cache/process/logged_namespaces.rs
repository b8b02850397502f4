//! Namespaces for which the host's log has a line.

use crate::hash_keys::HashSet;
use std::sync::Mutex;

use crate::cache::CacheNamespace;
use crate::lock::lock_ignoring_poison;

/// Maximum number of log lines per process, as clients may invent names of namespaces.
const MAX_NAMESPACES: usize = 256;

/// The namespaces about which this process has written a log line.
#[derive(Debug, Default)]
pub struct LoggedNamespaces(Mutex<HashSet<CacheNamespace>>);

impl LoggedNamespaces {
    /// Whether a log line about the namespace has to be written now: returns `true` once for each
    /// namespace.
    pub fn should_log_namespace(&self, namespace: &CacheNamespace) -> bool {
        let mut reported = lock_ignoring_poison(&self.0);
        reported.len() < MAX_NAMESPACES && reported.insert(*namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::{LoggedNamespaces, MAX_NAMESPACES};

    #[test]
    fn namespaces_are_reported_once_up_to_a_limit() {
        let reported = LoggedNamespaces::default();
        assert!(
            reported.should_log_namespace(&[1; 16]) && !reported.should_log_namespace(&[1; 16])
        );
        for number in 0..MAX_NAMESPACES as u64 {
            let mut namespace = [0; 16];
            namespace[..8].copy_from_slice(&number.to_le_bytes());
            reported.should_log_namespace(&namespace);
        }
        assert!(!reported.should_log_namespace(&[2; 16]));
    }
}
