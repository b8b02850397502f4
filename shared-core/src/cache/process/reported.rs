//! Namespaces that the host's log has a line about.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::cache::Namespace;
use crate::lock::locked;

/// Lines of a process: clients may make names of namespaces up.
const MOST: usize = 256;

/// Namespaces that have been reported by this process.
#[derive(Debug, Default)]
pub struct Reported(Mutex<HashSet<Namespace>>);

impl Reported {
    /// Whether a namespace is to be reported now: once.
    pub fn is_due(&self, namespace: &Namespace) -> bool {
        let mut reported = locked(&self.0);
        reported.len() < MOST && reported.insert(*namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::{Reported, MOST};

    #[test]
    fn namespace_is_reported_once_and_not_many_are() {
        let reported = Reported::default();
        assert!(reported.is_due(&[1; 16]) && !reported.is_due(&[1; 16]));
        for number in 0..MOST as u64 {
            let mut namespace = [0; 16];
            namespace[..8].copy_from_slice(&number.to_le_bytes());
            reported.is_due(&namespace);
        }
        assert!(!reported.is_due(&[2; 16]));
    }
}
