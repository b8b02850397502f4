//! The namespaces that were asked for last: a process has few, and hashing one
//! at every miss would cost more than the rest of what the owner is told.

use std::sync::{Mutex, PoisonError};

use super::purge::first_half;
use crate::bytes::copy_of;
use crate::cache::Namespace;

/// So many are remembered.
const MOST: usize = 8;

/// Longer ones are hashed each time, so that the table stays small. Bytes.
const LONGEST: usize = 1 << 10;

#[derive(Debug, Default)]
pub(super) struct Namespaces(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    known: [(Vec<u8>, Namespace); MOST],
    /// The one that the next new one replaces.
    next: usize,
}

impl Namespaces {
    /// What the owner knows a namespace by, of what it is made of (not
    /// nothing).
    pub(super) fn get(&self, scope: &[u8]) -> Namespace {
        // a name and its hash are replaced together
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = table.known.iter().find(|(bytes, _)| bytes == scope) {
            return *known;
        }
        let namespace = first_half(scope);
        if scope.len() <= LONGEST {
            if let Some(copy) = copy_of(scope) {
                let place = table.next;
                table.known[place] = (copy, namespace);
                table.next = (place + 1) % MOST;
            }
        }
        namespace
    }
}

#[cfg(test)]
mod tests {
    use super::{first_half, Namespaces, LONGEST, MOST};

    #[test]
    fn each_has_its_own_however_many_there_are() {
        let namespaces = Namespaces::default();
        for n in (0..3 * MOST).chain(0..MOST).chain([0, 0, 1]) {
            for length in [1, 30, LONGEST + 1] {
                let scope = vec![u8::try_from(n).unwrap(); length];
                assert_eq!(namespaces.get(&scope), first_half(&scope));
            }
        }
        let table = namespaces.0.lock().unwrap();
        assert!(table.known.iter().all(|(bytes, _)| bytes.len() <= LONGEST));
    }
}
