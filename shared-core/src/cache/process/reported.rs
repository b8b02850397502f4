//! Namespaces for which the host's log has a line.

use crate::hash_keys::HashSet;
use std::sync::Mutex;

use crate::cache::Namespace;
use crate::lock::lock_ignoring_poison;

/// Maximum number of log lines per process, as clients may invent names of namespaces.
const MAX_NAMESPACES: usize = 256;

/// The namespaces about which this process has written a log line.
#[derive(Debug, Default)]
pub struct ReportedNamespaces(Mutex<HashSet<Namespace>>);

impl ReportedNamespaces {
    /// Whether a log line about the namespace has to be written now: returns `true` once for each
    /// namespace.
    pub fn is_report_due(&self, namespace: &Namespace) -> bool {
        let mut reported = lock_ignoring_poison(&self.0);
        reported.len() < MAX_NAMESPACES && reported.insert(*namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::{ReportedNamespaces, MAX_NAMESPACES};

    #[test]
    fn namespaces_are_reported_once_up_to_a_limit() {
        let reported = ReportedNamespaces::default();
        assert!(reported.is_report_due(&[1; 16]) && !reported.is_report_due(&[1; 16]));
        for number in 0..MAX_NAMESPACES as u64 {
            let mut namespace = [0; 16];
            namespace[..8].copy_from_slice(&number.to_le_bytes());
            reported.is_report_due(&namespace);
        }
        assert!(!reported.is_report_due(&[2; 16]));
    }
}
