//! An owner in the same process that replies on a thread of its own, after any delay.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use sszip_core::cache::chain::Chains;
use sszip_core::cache::entry::about::About;
use sszip_core::cache::entry::wire::{decode, Encoded};
use sszip_core::cache::entry::Entry;
use sszip_core::cache::freshness::IfFinal;
use sszip_core::cache::process::flights::{Outcome, Token};
use sszip_core::cache::process::ownership::{Owner, Said};
use sszip_core::cache::process::wake::Waiter;
use sszip_core::cache::process::Shared;
use sszip_core::cache::{Key, Namespace};

#[derive(Debug)]
pub struct Owned {
    questions: Mutex<Option<Sender<Question>>>,
    /// Entries that look-ups of several keys have found.
    found: Mutex<HashMap<Waiter, (u64, Entries)>>,
    generation: AtomicU64,
    chains: Chains,
}

type Entries = Vec<(Key, Arc<Entry>)>;

#[derive(Debug)]
enum Question {
    One(Key, Token, bool, u64),
    Several(Vec<Key>, Waiter, u64),
    Store(Key, Arc<Entry>, u64),
    /// The sender receives a message when the purge is in effect.
    Purge(Sender<()>),
}

/// The owner's thread, which ends when this is dropped.
pub struct Running {
    pub owned: Arc<Owned>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(shared: &Arc<Shared>) -> Self {
        let (questions, asked) = channel();
        let owned = Arc::new(Owned {
            questions: Mutex::new(Some(questions)),
            found: Mutex::default(),
            generation: AtomicU64::new(1),
            chains: Chains::default(),
        });
        shared.join(owned.clone());
        let (owner, shared) = (Arc::clone(&owned), Arc::downgrade(shared));
        let thread = std::thread::spawn(move || owner.serve(&asked, &shared));
        Self {
            owned,
            thread: Some(thread),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.owned.questions.lock().unwrap().take();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A stored entry: its bytes, its expiry time and the time of its storage.
struct Kept {
    bytes: Vec<u8>,
    expires_at: u64,
    stored_at: u64,
}

impl Kept {
    fn entry(&self, now: u64) -> Option<Entry> {
        let fresh = self
            .expires_at
            .checked_sub(now)
            .filter(|fresh| *fresh > 0)?;
        decode(&self.bytes, now, now.saturating_sub(self.stored_at), fresh)
    }
}

impl Owned {
    fn put(&self, question: Question) -> Result<(), Question> {
        match &*self.questions.lock().unwrap() {
            Some(questions) => questions.send(question).map_err(|error| error.0),
            None => Err(question),
        }
    }

    /// Removes all entries, and returns when the purge is in effect.
    pub fn purge(&self) {
        let (done, holds) = channel();
        self.put(Question::Purge(done)).unwrap();
        holds.recv().unwrap();
    }

    fn serve(&self, asked: &Receiver<Question>, shared: &Weak<Shared>) {
        let mut kept: HashMap<Key, Kept> = HashMap::new();
        let find = |kept: &HashMap<Key, Kept>, key: &Key, now| {
            let entry = Arc::new(kept.get(key)?.entry(now)?);
            Some(entry)
        };
        for question in asked {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let keep = |key, entry: &Arc<Entry>| {
                if let Some(hot) = shared.hot() {
                    hot.insert(key, Arc::clone(entry));
                }
            };
            match question {
                Question::One(key, token, leases, now) => match find(&kept, &key, now) {
                    Some(entry) => {
                        keep(key, &entry);
                        shared.finish(token, Outcome::Answer(entry));
                    }
                    None if leases => shared.hand_on(token),
                    None => shared.finish(token, Outcome::Alone),
                },
                Question::Several(keys, waiter, now) => {
                    let entries = keys.iter().filter_map(|key| {
                        let entry = find(&kept, key, now)?;
                        keep(*key, &entry);
                        Some((*key, entry))
                    });
                    let found = (self.generation(), entries.collect());
                    self.found.lock().unwrap().insert(waiter, found);
                    shared.wake([waiter]);
                }
                Question::Store(key, entry, generation) => {
                    let is_current = generation == self.generation();
                    if let (Some(encoded), true) = (Encoded::of(&entry), is_current) {
                        let meta = entry.meta();
                        let bytes = [&encoded.head[..], &encoded.payload].concat();
                        let (expires_at, stored_at) = (meta.expires_at, meta.stored_at);
                        kept.insert(
                            key,
                            Kept {
                                bytes,
                                expires_at,
                                stored_at,
                            },
                        );
                    }
                }
                Question::Purge(done) => {
                    kept.clear();
                    self.generation.fetch_add(1, Ordering::AcqRel);
                    shared.drop_from_memory(None);
                    done.send(()).unwrap();
                }
            }
        }
    }
}

impl Owner for Owned {
    fn is_up(&self) -> bool {
        true
    }

    fn ask(
        &self,
        key: Key,
        token: Token,
        _namespace: &Namespace,
        leases: bool,
        _in_vain: bool,
        now: u64,
    ) -> Result<(), Token> {
        match self.put(Question::One(key, token, leases, now)) {
            Err(Question::One(_, token, ..)) => Err(token),
            _ => Ok(()),
        }
    }

    fn ask_for_all(&self, keys: Vec<Key>, _: &Namespace, waiter: Waiter, now: u64) -> bool {
        self.put(Question::Several(keys, waiter, now)).is_ok()
    }

    fn claim_all(&self, waiter: Waiter) -> Entries {
        match self.found.lock().unwrap().remove(&waiter) {
            Some((generation, entries)) if generation == self.generation() => entries,
            _ => Vec::new(),
        }
    }

    fn store(&self, key: Key, entry: Arc<Entry>, about: About, _: Option<IfFinal>) {
        // after the end of the thread nothing is stored
        let _ = self.put(Question::Store(key, entry, about.generation));
    }

    /// There are no other processes to return a lease to.
    fn give_back(&self, _key: Key) {}

    fn may_send(&self, _monotonic: u64) -> bool {
        true
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn chains(&self) -> &Chains {
        &self.chains
    }

    /// No client sends a purge request.
    fn ask_to_purge(&self, _: &[u8], _: Option<&[u8]>, _: Waiter, _: u64) -> Option<Said> {
        None
    }

    fn claim_said(&self, _: Waiter) -> Option<Said> {
        None
    }
}
