use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::super::disk::{Body, Status, Stored, Waits};
use super::super::tracker::{Identity, Mark, Record};
use super::*;
use crate::cache::class::Class;
use crate::cache::entry::about::About;
use crate::cache::store::Reason;

mod following;
mod forms;
mod inactive;

const KEY: Key = [7; 32];

/// A model of the disk with the behaviour that the owner relies on.
#[derive(Default)]
struct Model {
    entries: Mutex<HashMap<Key, Stored>>,
    filled: Mutex<Vec<Key>>,
    purges: Mutex<Vec<(u64, Scope)>>,
    is_full: Mutex<bool>,
    /// Whether reads need no disk.
    is_ready: Mutex<bool>,
}

impl Model {
    fn generation(&self) -> u64 {
        5 + self.purges.lock().unwrap().len() as u64
    }
}

impl Disk for Arc<Model> {
    fn generation(&self) -> u64 {
        Model::generation(self)
    }

    fn get(&self, key: &Key, _: Now) -> Option<Stored> {
        let stored = self.entries.lock().unwrap().get(key).cloned()?;
        (!self.refuses(key, &stored.header.about)).then_some(stored)
    }

    fn get_ready(&self, key: &Key, now: Now) -> Result<Option<Stored>, Waits> {
        match self.may_have(key) && !*self.is_ready.lock().unwrap() {
            true => Err(Waits),
            false => Ok(self.get(key, now)),
        }
    }

    fn may_have(&self, key: &Key) -> bool {
        self.entries.lock().unwrap().contains_key(key)
    }

    fn put(&self, key: &Key, header: &Header, body: &[u8]) -> Result<(), StoreError> {
        if *self.is_full.lock().unwrap() {
            return Err(StoreError::Off(Reason::DiskFull));
        }
        if body.len() > 100_000 {
            return Err(StoreError::TooLarge);
        }
        let stored = Stored {
            header: header.clone(),
            body: Body::Lent(Arc::new(body.to_vec())),
            is_old: false,
        };
        self.entries.lock().unwrap().insert(*key, stored);
        Ok(())
    }

    fn purge(&self, scope: &Scope) -> Result<u64, StoreError> {
        let generation = Model::generation(self) + 1;
        let mut purges = self.purges.lock().unwrap();
        purges.push((generation, scope.clone()));
        match *self.is_full.lock().unwrap() {
            true => Err(StoreError::Off(Reason::DiskFull)),
            false => Ok(generation),
        }
    }

    fn chain(&self, _: &Namespace) -> Result<Record, StoreError> {
        Ok(Record::default())
    }

    fn keep_identity(&self, _: &Namespace, _: &Identity) -> Result<(), StoreError> {
        Ok(())
    }

    fn keep_mark(&self, _: &Namespace, _: Option<&Mark>) -> Result<(), StoreError> {
        Ok(())
    }

    fn refuses(&self, key: &Key, about: &About) -> bool {
        let purges = self.purges.lock().unwrap();
        purges
            .iter()
            .any(|(generation, scope)| about.generation < *generation && scope.covers(key, about))
    }

    fn admits(&self, key: &Key, _: Now) -> bool {
        let mut filled = self.filled.lock().unwrap();
        let is_second = filled.contains(key);
        filled.push(*key);
        is_second
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn forget(&self, goes: u64, renews: u64, now: Now) {
        let mut entries = self.entries.lock().unwrap();
        entries.retain(|_, stored| now.unix < stored.header.stored_at + goes);
        for stored in entries.values_mut() {
            stored.is_old = now.unix >= stored.header.stored_at + renews;
        }
    }

    fn next_event(&self) -> Option<String> {
        None
    }

    fn status(&self) -> Status {
        Status::default()
    }
}

fn at(monotonic: u64) -> Now {
    Now {
        monotonic,
        unix: 1_000_000 + monotonic,
    }
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn kept_of(class: Class, generation: u64, length: usize) -> Arc<Kept> {
    let about = About {
        class,
        namespace: [1; 16],
        generation,
        ..About::default()
    };
    Arc::new(Kept::new(about, vec![9; length], 60_000, at(0)))
}

fn kept(generation: u64) -> Arc<Kept> {
    kept_of(Class::Immutable, generation, 100)
}

fn owner() -> (Owner, Arc<Model>) {
    let model = Arc::new(Model::default());
    let owner = Owner::new(Box::new(Arc::clone(&model)), 20_000, at(0));
    (owner, model)
}

fn found(look_up: LookUp) -> Found {
    match look_up {
        LookUp::Found(found) => found,
        other => panic!("{other:?}"),
    }
}

fn granted(owner: &Owner, process: &str) -> bool {
    match owner.lease(&KEY, &name(process), 1_000, at(0)) {
        Ok(Lease::Granted) => true,
        Ok(Lease::Pending) => false,
        other => panic!("{other:?}"),
    }
}

/// The queued events of a stream, without `hello` and send leases.
fn received(owner: &Owner, stream: Stream) -> Vec<Event> {
    let events = std::iter::from_fn(|| match owner.next(stream, at(0)) {
        Next::Event(event) => Some(event),
        _ => None,
    });
    events
        .filter(|event| !matches!(event, Event::Hello { .. } | Event::Lease { .. }))
        .collect()
}

#[test]
fn store_is_queried_after_memory_and_fills_it() {
    let (owner, _model) = owner();
    assert!(matches!(owner.look_up(&KEY, at(0)), LookUp::Missing));
    owner.store(&KEY, &kept(5), at(0)).unwrap();
    assert!(matches!(owner.look_up(&KEY, at(0)), LookUp::AskStore));
    let hit = owner.look_up_store(&KEY, at(100)).unwrap();
    assert!(!hit.is_to_be_stored);
    assert_eq!(
        (hit.kept.age(at(100)), hit.kept.fresh(at(100))),
        (100, 59_900)
    );
    assert!(!found(owner.look_up(&KEY, at(200))).is_to_be_stored);
    assert!(owner.look_up_store(&KEY, at(60_000)).is_none());
}

#[test]
fn ready_store_entry_is_found_without_waiting() {
    let (owner, model) = owner();
    *model.is_ready.lock().unwrap() = true;
    owner.store(&KEY, &kept(5), at(0)).unwrap();
    let hit = found(owner.look_up(&KEY, at(100)));
    assert_eq!(hit.kept.fresh(at(100)), 59_900);
    assert!(Arc::ptr_eq(
        &found(owner.look_up(&KEY, at(200))).kept,
        &hit.kept
    ));
    assert!(matches!(owner.look_up(&KEY, at(60_000)), LookUp::Missing));
    let expected = json!({ "store": 1, "memory": 1, "missed": 1 });
    assert_eq!(owner.status()["lookups"], expected);
}

#[test]
fn entry_too_long_for_memory_is_stored_at_once() {
    let (owner, model) = owner();
    assert!(owner.has_room_for(10_000));
    assert!(!owner.has_room_for(50_000));
    let long = kept_of(Class::Resource, 5, 50_000);
    assert_eq!(owner.put(&KEY, &long, None, at(0)), Ok(false));
    // it is sent from the store each time
    for _ in 0..2 {
        let found = owner.look_up_store(&KEY, at(0)).unwrap();
        assert_eq!(found.kept.body().len(), 50_000);
        assert!(owner.memory.peek(&KEY, at(0)).is_none());
    }
    let put = |class, length| owner.put(&KEY, &kept_of(class, 5, length), None, at(0));
    assert_eq!(put(Class::Unfinalized, 50_000), Err(Refused::TooLong));
    assert_eq!(put(Class::Immutable, 200_000), Err(Refused::TooLong));
    *model.is_full.lock().unwrap() = true;
    assert_eq!(
        put(Class::Immutable, 50_000),
        Err(Refused::Off("the disk is full".into()))
    );
    assert_eq!(put(Class::Immutable, 100), Ok(true));
    assert_eq!(put(Class::Tip, 100), Ok(false));
}

#[test]
fn purged_entry_leaves_memory_when_it_is_looked_up_or_swept() {
    let (owner, _model) = owner();
    let keys = [[1; 32], [2; 32], [3; 32]];
    let fill = |generation| {
        for key in &keys {
            owner.put(key, &kept(generation), None, at(0)).unwrap();
        }
    };
    fill(5);
    for (generation, scope) in [
        (6, Scope::Everything),
        (7, Scope::Namespace([1; 16])),
        (8, Scope::Key(keys[2])),
    ] {
        assert_eq!(owner.purge(&scope, || at(0)), Ok(generation));
        // a purge does not search the memory
        assert_eq!(owner.status()["memory"]["entries"], 3, "{scope:?}");
        assert!(!matches!(owner.look_up(&keys[2], at(0)), LookUp::Found(_)));
        assert!(owner.lease(&keys[2], &name("a"), 1, at(0)).is_ok());
        assert_eq!(owner.status()["memory"]["entries"], 2, "{scope:?}");
        // an entry that was filled since stays
        owner.put(&keys[0], &kept(generation), None, at(0)).unwrap();
        let swept = match scope {
            Scope::Key(_) => 0,
            _ => 1,
        };
        assert_eq!(owner.sweep(&scope, generation), swept, "{scope:?}");
        assert!(matches!(owner.look_up(&keys[0], at(0)), LookUp::Found(_)));
        fill(generation);
    }
    owner.purge(&Scope::Key(keys[1]), || at(0)).unwrap();
    assert_eq!(owner.sweep(&Scope::Key(keys[1]), 9), 1);
    assert_eq!(owner.sweep(&Scope::Key(keys[1]), 9), 0);
}

#[test]
fn purge_is_in_effect_and_published_when_it_cannot_be_written() {
    let (owner, model) = owner();
    let stream = owner.arrive(&name("a"), at(0)).unwrap();
    received(&owner, stream);
    owner.put(&KEY, &kept(5), None, at(0)).unwrap();
    *model.is_full.lock().unwrap() = true;
    assert!(owner.purge(&Scope::Key(KEY), || at(0)).is_err());
    assert!(!matches!(owner.look_up(&KEY, at(0)), LookUp::Found(_)));
    let purge = Event::Purge {
        generation: 6,
        key: Some(KEY),
    };
    assert_eq!(received(&owner, stream), [purge]);
}

#[test]
fn close_stores_fresh_entries_of_storable_classes() {
    let (owner, model) = owner();
    for (n, class) in Class::ALL.iter().enumerate() {
        let entry = kept_of(*class, 5, 100);
        owner.put(&[n as u8; 32], &entry, None, at(0)).unwrap();
    }
    owner.close(at(100)).unwrap();
    let mut stored: Vec<_> = model.entries.lock().unwrap().keys().copied().collect();
    stored.sort_unstable();
    assert_eq!(stored, [[0; 32], [5; 32]]);
    owner.put(&KEY, &kept(5), None, at(0)).unwrap();
    owner.close(at(60_000)).unwrap();
    assert_eq!(model.entries.lock().unwrap().len(), 2);
}

#[test]
fn fill_is_not_found_after_a_concurrent_purge_of_its_generation() {
    let (owner, _model) = owner();
    let (accepted, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                let generation = owner.disk.generation();
                let outcome = match owner.put(&KEY, &kept(generation), None, at(0)) {
                    Ok(_) => &accepted,
                    // a purge came between the two
                    Err(_) => &refused,
                };
                outcome.fetch_add(1, Relaxed);
            }
        });
        let began = Instant::now();
        while accepted.load(Relaxed) < 300 || refused.load(Relaxed) < 10 {
            let generation = owner.purge(&Scope::Key(KEY), || at(0)).unwrap();
            let found = owner.look_up(&KEY, at(0));
            let is_late = began.elapsed() > Duration::from_secs(600);
            if is_late
                || matches!(&found, LookUp::Found(hit) if hit.kept.about().generation < generation)
            {
                is_over.store(true, Relaxed);
                panic!("{found:?}, {generation}; {accepted:?} accepted, {refused:?} refused");
            }
        }
        is_over.store(true, Relaxed);
    });
}
