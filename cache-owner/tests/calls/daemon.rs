//! An owner without sockets. Requests are decoded and responses are built by the code that does so
//! for sockets.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use hyper::http::request::Builder;
use hyper::{Response, StatusCode};
use sszip_core::cache::chain::{Heights, Move};
use sszip_core::cache::entry::about::{About, Scope};
use sszip_core::cache::link::{Answer, Message};
use sszip_core::cache::owner::disk::{Body, Disk, Header, Status, StoreError, Stored, Waits};
use sszip_core::cache::owner::leases::Lease;
use sszip_core::cache::owner::state::{LookUp, Refused};
use sszip_core::cache::owner::tracker::{Identity, Mark, Record};
use sszip_core::cache::owner::{Now, Owner};
use sszip_core::cache::{Key, Namespace};
use sszip_owner::answer;
use sszip_owner::request::{self, Problem, Request};

/// A store without limits that outlives its owners.
#[derive(Default)]
pub struct Model {
    entries: Mutex<HashMap<Key, Stored>>,
    purges: Mutex<Vec<(u64, Scope)>>,
}

pub struct Shelf(pub Arc<Model>);

impl Disk for Shelf {
    fn generation(&self) -> u64 {
        5 + self.0.purges.lock().unwrap().len() as u64
    }

    fn get(&self, key: &Key, _: Now) -> Option<Stored> {
        let stored = self.0.entries.lock().unwrap().get(key).cloned()?;
        (!self.refuses(key, &stored.header.about)).then_some(stored)
    }

    fn get_ready(&self, key: &Key, now: Now) -> Result<Option<Stored>, Waits> {
        Ok(self.get(key, now))
    }

    fn may_have(&self, key: &Key) -> bool {
        self.0.entries.lock().unwrap().contains_key(key)
    }

    fn put(&self, key: &Key, header: &Header, body: &[u8]) -> Result<(), StoreError> {
        assert!(header.about.class.may_be_stored());
        let stored = Stored {
            header: header.clone(),
            body: Body::Lent(Arc::new(body.to_vec())),
            is_old: false,
        };
        self.0.entries.lock().unwrap().insert(*key, stored);
        Ok(())
    }

    fn purge(&self, scope: &Scope) -> Result<u64, StoreError> {
        let generation = self.generation() + 1;
        let mut purges = self.0.purges.lock().unwrap();
        purges.push((generation, scope.clone()));
        Ok(generation)
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
        let purges = self.0.purges.lock().unwrap();
        let mut purges = purges.iter();
        purges.any(|(generation, scope)| about.generation < *generation && scope.covers(key, about))
    }

    fn admits(&self, _: &Key, _: Now) -> bool {
        true
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn forget(&self, _: u64, _: u64, _: Now) {}

    fn next_event(&self) -> Option<String> {
        None
    }

    fn status(&self) -> Status {
        Status::default()
    }
}

/// The identity of a request.
pub type Id = u64;

/// A lookup that waits.
struct Waiting {
    message: Message,
    key: Key,
    until: u64,
}

pub struct Daemon {
    pub owner: Owner,
    waiting: BTreeMap<Id, Waiting>,
}

/// The outcome of a request.
enum Outcome {
    Answer(Response<answer::Answer>),
    Waits(Key, u64),
}

impl Daemon {
    /// Starts an owner that follows the chain and knows nothing of it.
    pub fn start(shelf: &Arc<Model>, namespace: Namespace, now: Now) -> Self {
        let owner = Owner::new(Box::new(Shelf(Arc::clone(shelf))), 1 << 20, now);
        owner.follow(namespace, Heights::Blocks, now);
        Self {
            owner,
            waiting: BTreeMap::new(),
        }
    }

    pub fn moved(&self, namespace: &Namespace, moves: &[Move]) {
        for step in moves {
            self.owner.moved(namespace, *step);
        }
    }

    /// Handles a request. Returns `None` if the response comes later.
    pub fn serve(&mut self, id: Id, message: Message, now: Now) -> Option<Answer> {
        match self.answer(&message, true, now) {
            Ok(answer) => Some(answer),
            Err((key, until)) => {
                let waiting = Waiting {
                    message,
                    key,
                    until,
                };
                self.waiting.insert(id, waiting);
                None
            }
        }
    }

    /// The responses to lookups whose wait has ended.
    pub fn waited(&mut self, now: Now) -> Vec<(Id, Answer)> {
        self.owner.tick(now);
        let ended = self.owner.take_woken().leases;
        let is_over =
            |_: &Id, it: &mut Waiting| it.until <= now.monotonic || ended.contains(&it.key);
        let over: Vec<_> = extract(&mut self.waiting, is_over);
        over.into_iter()
            .filter_map(|(id, it)| Some((id, self.answer(&it.message, false, now).ok()?)))
            .collect()
    }

    /// Drops a waiting lookup whose client has gone.
    pub fn forget(&mut self, id: Id) {
        self.waiting.remove(&id);
    }

    fn answer(&self, message: &Message, waits: bool, now: Now) -> Result<Answer, (Key, u64)> {
        let builder = Builder::new().method(message.method).uri(&message.target);
        let fields = message.fields.iter();
        let builder = fields.fold(builder, |builder, (name, value)| {
            builder.header(*name, value)
        });
        let (head, ()) = builder.body(()).unwrap().into_parts();
        let body = message.whole_body().unwrap();
        let generation = self.owner.disk().generation();
        let about = request::about(&head.headers).unwrap();
        let request = request::read(&head).unwrap();
        let handled = self.act(request, &body, waits, now);
        let mut response = match handled {
            Ok(Outcome::Waits(key, until)) => return Err((key, until)),
            Ok(Outcome::Answer(response)) => response,
            Err(problem) => answer::problem(&problem),
        };
        let told = |about: request::About| (about, self.owner.told(&about.namespace));
        answer::say(response.headers_mut(), generation, about.map(told));
        Ok(to_host(response))
    }

    fn act(
        &self,
        request: Request,
        body: &[u8],
        waits: bool,
        now: Now,
    ) -> Result<Outcome, Problem> {
        let owner = &self.owner;
        Ok(Outcome::Answer(match request {
            Request::LookUp { key, lease } => {
                let found = match (owner.look_up(&key, now), lease) {
                    (LookUp::Found(found), _) => Ok(found),
                    (_, None) => Err(None),
                    (_, Some(wanted)) => {
                        let leased = owner.lease(&key, &wanted.process, wanted.time, now);
                        if let (Ok(Lease::Pending), true) = (&leased, waits && wanted.wait > 0) {
                            return Ok(Outcome::Waits(key, now.monotonic + wanted.wait));
                        }
                        match leased {
                            Ok(lease) => Err(Some(lease)),
                            Err(found) => Ok(found),
                        }
                    }
                };
                match found {
                    Ok(found) => answer::entry(found, now),
                    Err(lease) => answer::missing(lease),
                }
            }
            Request::LookUps => {
                let keys = request::keys(body)?;
                let found = keys
                    .into_iter()
                    .filter_map(|key| match owner.look_up(&key, now) {
                        LookUp::Found(found) => Some((key, found)),
                        _ => None,
                    });
                answer::entries(found.collect(), now)
            }
            Request::Put(put) => {
                let kept = Arc::new(owner.kept(put.about, body.to_vec(), put.fresh, now));
                let process = put.process.as_ref();
                let kept = match owner.put(&put.key, &kept, process, now) {
                    Ok(true) => {
                        owner.store(&put.key, &kept, now).unwrap();
                        Ok(())
                    }
                    Ok(false) => Ok(()),
                    Err(refused) => Err(refused),
                };
                match kept {
                    Ok(()) => answer::empty(StatusCode::CREATED),
                    Err(Refused::Purged | Refused::Replaced) => answer::empty(StatusCode::CONFLICT),
                    Err(refused) => panic!("{refused:?}"),
                }
            }
            Request::GiveBack { key, process } => {
                owner.give_back(&key, &process, now);
                answer::empty(StatusCode::NO_CONTENT)
            }
            other => panic!("{other:?}"),
        }))
    }
}

fn extract<K: Ord + Copy, V>(
    from: &mut BTreeMap<K, V>,
    mut is_it: impl FnMut(&K, &mut V) -> bool,
) -> Vec<(K, V)> {
    let keys: Vec<K> = from
        .iter_mut()
        .filter_map(|(key, value)| is_it(key, value).then_some(*key))
        .collect();
    let taken = keys.iter().filter_map(|key| from.remove_entry(key));
    taken.collect()
}

/// The response as a host passes it on.
fn to_host(response: Response<answer::Answer>) -> Answer {
    let (head, body) = response.into_parts();
    let answer::Answer::Whole(pieces) = body else {
        panic!("a stream");
    };
    let mut answer = Answer {
        status: head.status.as_u16(),
        body: pieces.into_iter().flatten().collect(),
        ..Answer::default()
    };
    let mut length = 0;
    for (name, value) in &head.headers {
        length += name.as_str().len() + value.len() + 4;
        answer.field(name.as_str(), value.as_bytes()).unwrap();
    }
    assert!(length < 3_000, "{length}");
    answer
}
