//! Namespaces for which the host's log has a line.

use crate::hash_keys::HashSet;
use std::sync::Mutex;

use crate::cache::Namespace;
use crate::lock::locked;

/// Maximum number of log lines per process, as clients may invent names of namespaces.
const MAX_NAMESPACES: usize = 256;

/// The namespaces about which this process has written a log line.
#[derive(Debug, Default)]
pub struct Reported(Mutex<HashSet<Namespace>>);

impl Reported {
    /// Whether a log line about the namespace has to be written now: returns `true` once for each
    /// namespace.
    pub fn is_due(&self, namespace: &Namespace) -> bool {
        let mut reported = locked(&self.0);
        reported.len() < MAX_NAMESPACES && reported.insert(*namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::{Reported, MAX_NAMESPACES};

    #[test]
    fn namespaces_are_reported_once_up_to_a_limit() {
        let reported = Reported::default();
        assert!(reported.is_due(&[1; 16]) && !reported.is_due(&[1; 16]));
        for number in 0..MAX_NAMESPACES as u64 {
            let mut namespace = [0; 16];
            namespace[..8].copy_from_slice(&number.to_le_bytes());
            reported.is_due(&namespace);
        }
        assert!(!reported.is_due(&[2; 16]));
    }
}
