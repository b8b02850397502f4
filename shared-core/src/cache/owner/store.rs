//! The owner's disk is the store.

use std::sync::{Mutex, PoisonError};

use super::disk::{Disk, DiskError, StoreStatus, Stored};
use super::{about, About, Now};
use crate::cache::store::{self, Admission, Event, Header, Record, Status, Store, StoreError};
use crate::cache::Key;

/// Keys that are remembered as filled once, and for how long (milliseconds).
const ADMISSION_KEYS: usize = 1 << 20;
const ADMISSION_AGE: u64 = 24 * 3_600_000;

/// A store, and what is worth a place in it.
pub struct StoreDisk {
    store: Store,
    admission: Mutex<Admission>,
}

impl StoreDisk {
    /// An open store, from `now` on.
    pub fn new(store: Store, now: Now) -> Self {
        Self {
            store,
            admission: Mutex::new(Admission::new(ADMISSION_KEYS, ADMISSION_AGE, now.monotonic)),
        }
    }
}

/// A record of what may not be stored is made only to be judged.
fn class(class: about::Class) -> store::Class {
    match class {
        about::Class::Immutable => store::Class::Immutable,
        about::Class::Resource | about::Class::Unfinalized | about::Class::Tip => {
            store::Class::Aging
        }
    }
}

fn header(about: &About) -> Header<'_> {
    Header {
        class: class(about.class),
        namespace: about.namespace,
        method: about.method.as_deref().unwrap_or_default().as_bytes(),
        block: about.block,
        generation: about.generation,
        stored_at: 0,
        expires_at: 0,
        sequence: 0,
    }
}

fn scope(scope: &about::Scope) -> store::Scope {
    match scope {
        about::Scope::Everything => store::Scope::Everything,
        about::Scope::Namespace(namespace) => store::Scope::Namespace(*namespace),
        about::Scope::Method { namespace, method } => store::Scope::Method {
            namespace: *namespace,
            method: method.as_bytes().into(),
        },
        about::Scope::Blocks {
            namespace,
            from,
            to,
        } => store::Scope::Blocks {
            namespace: *namespace,
            from: *from,
            to: *to,
        },
        about::Scope::Key(key) => store::Scope::Key(*key),
    }
}

impl From<StoreError> for DiskError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TooLarge => Self::TooLong,
            StoreError::Purged => Self::Purged,
            StoreError::Busy => Self::Busy,
            StoreError::Off(_) | StoreError::Marker(_) => Self::Off(error.to_string()),
        }
    }
}

impl Disk for StoreDisk {
    fn generation(&self) -> u64 {
        self.store.generation()
    }

    fn get(&self, key: &Key, now: Now) -> Option<Stored> {
        let stored = self.store.get(key, now.unix)?;
        let header = stored.header()?;
        Some(Stored {
            about: About {
                class: match header.class {
                    store::Class::Immutable => about::Class::Immutable,
                    store::Class::Aging => about::Class::Resource,
                },
                namespace: header.namespace,
                method: match std::str::from_utf8(header.method).ok()? {
                    "" => None,
                    method => Some(method.into()),
                },
                block: header.block,
                generation: header.generation,
            },
            stored_at: header.stored_at,
            expires_at: header.expires_at,
            is_old: stored.is_old(),
            body: stored.to_vec(),
        })
    }

    fn may_have(&self, key: &Key) -> bool {
        self.store.may_have(key)
    }

    fn put(
        &self,
        key: &Key,
        about: &About,
        stored_at: u64,
        expires_at: u64,
        body: &[u8],
    ) -> Result<(), DiskError> {
        let Header {
            class,
            namespace,
            method,
            block,
            generation,
            ..
        } = header(about);
        let record = Record {
            class,
            namespace,
            method,
            block,
            generation,
            stored_at,
            expires_at,
            body,
        };
        Ok(self.store.put(key, &record)?)
    }

    fn purge(&self, purged: &about::Scope) -> Result<u64, DiskError> {
        Ok(self.store.purge(&scope(purged))?.generation)
    }

    fn refuses(&self, key: &Key, about: &About) -> bool {
        self.store.refuses(key, &header(about))
    }

    fn admits(&self, key: &Key, now: Now) -> bool {
        self.admission
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .admit(key, now.monotonic)
    }

    fn flush(&self) -> Result<(), DiskError> {
        Ok(self.store.flush()?)
    }

    fn next_event(&self) -> Option<String> {
        Some(match self.store.next_event()? {
            Event::StoringOff(reason) => format!("nothing is stored any more: {reason}"),
            Event::StoringOn => "entries are stored again".into(),
        })
    }

    fn status(&self) -> StoreStatus {
        let Status {
            entries,
            disk,
            memory,
            written,
            read_errors,
            refused,
            busy,
            off,
            generation: _,
        } = self.store.status();
        StoreStatus {
            entries,
            bytes: disk,
            memory,
            written_wal: written.wal,
            written_flush: written.flush,
            read_errors,
            refused,
            busy,
            off: off.map(|reason| reason.to_string()),
        }
    }
}
