//! Values that programs keep by a name: in the hot tier, beside answers and at their
//! expense, and, where there is one, with the owner of a store.
//!
//! A value's key is a hash of its name under a key of its own, so that no value is ever
//! found where an answer is looked for, or the other way round. For the owner it is a
//! resource (RFC 9111) like any other, of a namespace of its own.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::cache::class::Class;
use crate::cache::entry::about::About;
use crate::cache::entry::{Entry, Envelope, Meta, Payload};
use crate::cache::link::{purge_request, request_text, Head, Message};
use crate::cache::process::ownership::Owner;
use crate::cache::process::Shared;
use crate::cache::scope::named;
use crate::cache::Key;
use crate::memory;

/// The namespace of all of them, as an operator purges it.
pub const NAMESPACE: &str = "sszip.lua";

/// By whom they are stored: nobody has a lease for them.
const PROCESS: &str = "lua";

/// What tells their keys from those of answers.
const KEY: &[u8; 32] = b"sszip: values that scripts keep.";

/// For longer than that nothing is kept: a hundred years, in milliseconds.
const LONGEST: u64 = 100 * 365 * 86_400_000;

/// Why something is not kept, or not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lack {
    /// There is no hot tier.
    #[error("nothing is cached here: sszip_cache is on nowhere")]
    Cache,
    /// Too long for it.
    #[error("the value is too long for this worker's share of sszip_cache_memory")]
    Room,
    /// None was given.
    #[error("no memory")]
    Memory,
    /// It is not there.
    #[error("the cache's owner can't be asked now")]
    Down,
    /// It does not say how it goes.
    #[error("the cache's owner does not answer as it should")]
    Owner,
}

/// What a value is kept under.
pub fn key_of(name: &[u8]) -> Key {
    *blake3::keyed_hash(KEY, name).as_bytes()
}

/// The value of that name that is in memory. `now` is in milliseconds of the look-ups'
/// clock, here and below.
///
/// # Errors
/// [`Lack`].
pub fn get(shared: &Shared, name: &[u8], now: u64) -> Result<Option<Bytes>, Lack> {
    let hot = shared.hot().ok_or(Lack::Cache)?;
    if !shared.may_send(now) {
        return Ok(None);
    }
    let Some(entry) = hot.get(&key_of(name), now) else {
        return Ok(None);
    };
    entry.plain().map(Some).ok_or(Lack::Memory)
}

/// Keeps a value for so many milliseconds, here. If there is an owner: the request that
/// stores it there.
///
/// # Errors
/// [`Lack`]; nothing is under that name then.
pub fn set(
    shared: &Shared,
    name: &[u8],
    value: &[u8],
    ttl: u64,
    now: u64,
) -> Result<Option<Vec<u8>>, Lack> {
    let hot = shared.hot().ok_or(Lack::Cache)?;
    let key = key_of(name);
    let kept = (!memory::is_short()).then(|| Bytes::copy_of(value));
    let Some(value) = kept.flatten() else {
        drop(hot.remove(&key));
        return Err(Lack::Memory);
    };
    let meta = Meta {
        status: 200,
        class: Class::Resource,
        ..Meta::default()
    };
    let entry = Entry::new(Envelope::none(), Payload::Raw(value), meta);
    let entry = Arc::new(entry.stored(now, ttl.min(LONGEST)));
    if !hot.insert(key, Arc::clone(&entry)) {
        return Err(Lack::Room);
    }
    let Some(owner) = asked(shared)? else {
        return Ok(None);
    };
    let namespace = named(NAMESPACE.as_bytes());
    let about = About::of(&entry, namespace, None, owner.generation()).ok_or(Lack::Memory)?;
    let message = Message::store(&key, &entry, &about, None, PROCESS, now);
    let text = message.and_then(request_text).ok_or(Lack::Memory)?;
    Ok(Some(text))
}

/// Forgets a value, here. If there is an owner: the request that purges it everywhere.
///
/// # Errors
/// [`Lack`].
pub fn delete(shared: &Shared, name: &[u8]) -> Result<Option<Vec<u8>>, Lack> {
    let hot = shared.hot().ok_or(Lack::Cache)?;
    let key = key_of(name);
    drop(hot.remove(&key));
    if asked(shared)?.is_none() {
        return Ok(None);
    }
    let purge = format!("{{\"key\":\"{}\"}}", const_hex::encode(key));
    let text = Message::purge(&purge).and_then(request_text);
    text.map(Some).ok_or(Lack::Memory)
}

/// The request that purges what `query` says (docs/caching.md, Purging); `None`: there is no
/// owner.
///
/// # Errors
/// What is wrong with the query, or [`Lack`] as a text.
pub fn purge(shared: &Shared, query: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let body = purge_request(query, None).map_err(|bad| bad.to_string())?;
    if asked(shared).map_err(|lack| lack.to_string())?.is_none() {
        return Ok(None);
    }
    let text = Message::purge(&body).and_then(request_text);
    text.map(Some).ok_or_else(|| Lack::Memory.to_string())
}

/// The owner, if there is one, which is to be asked now: a connection to one that is away is
/// not tried for each value.
fn asked(shared: &Shared) -> Result<Option<&dyn Owner>, Lack> {
    match shared.owner() {
        Some(owner) if !owner.is_up() => Err(Lack::Down),
        owner => Ok(owner),
    }
}

/// The request that looks a value up with the owner, and the last purge that holds here,
/// which [`take`] has to know; `None`: there is no owner.
///
/// # Errors
/// [`Lack`].
pub fn look_up(shared: &Shared, name: &[u8]) -> Result<Option<(Vec<u8>, u64)>, Lack> {
    let Some(owner) = asked(shared)? else {
        return Ok(None);
    };
    let generation = owner.generation();
    let text = request_text(Message::look_up(&key_of(name), None)).ok_or(Lack::Memory)?;
    Ok(Some((text, generation)))
}

/// What an owner has answered to [`look_up`]: the value, which is kept here too, unless
/// there was a purge since `generation` was the last. `None`: it has none.
///
/// # Errors
/// [`Lack`].
pub fn take(
    shared: &Shared,
    name: &[u8],
    (head, body): (&[u8], &[u8]),
    generation: u64,
    now: u64,
) -> Result<Option<Bytes>, Lack> {
    let head = Head::parse(head).ok().flatten().ok_or(Lack::Owner)?;
    let mut answer = head.response;
    match answer.status {
        _ if answer.generation.is_none() => return Err(Lack::Owner),
        200 => {}
        404 => return Ok(None),
        _ => return Err(Lack::Owner),
    }
    answer.body = Vec::new();
    answer
        .body
        .try_reserve_exact(body.len())
        .map_err(|_| Lack::Memory)?;
    answer.body.extend_from_slice(body);
    // what is no entry is as good as none
    let entry = answer.entry(now).filter(|entry| !entry.is_unread());
    let Some(entry) = entry.map(Arc::new) else {
        return Ok(None);
    };
    if entry.inflates() > 0 {
        // values are stored as they are: nobody has bounded what this one is decoded to
        return Err(Lack::Owner);
    }
    let value = entry.plain().ok_or(Lack::Memory)?;
    if let Some(hot) = shared.hot() {
        let key = key_of(name);
        if shared.generation() == generation && hot.insert(key, Arc::clone(&entry)) {
            // or a purge has come in between
            if shared.generation() != generation {
                hot.remove_this(&key, &entry);
            }
        }
    }
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{delete, get, key_of, look_up, set, take, Lack};
    use crate::cache::entry::wire::Encoded;
    use crate::cache::entry::{Entry, Envelope, Gate, Meta, Payload};
    use crate::cache::process::Shared;

    fn shared() -> Shared {
        let shared = Shared::default();
        shared.start(1 << 20, 1 << 20, 1);
        shared
    }

    #[test]
    fn a_value_is_there_until_its_time_is_over() {
        let shared = shared();
        assert_eq!(get(&shared, b"a", 0), Ok(None));
        for value in [&b"one"[..], b"", b"\0\xff\0"] {
            assert_eq!(set(&shared, b"a", value, 5000, 1000), Ok(None));
            assert_eq!(&get(&shared, b"a", 5999).unwrap().unwrap()[..], value);
            assert_eq!(get(&shared, b"b", 5999), Ok(None));
        }
        assert_eq!(get(&shared, b"a", 6000), Ok(None));
        set(&shared, b"a", b"x", u64::MAX, 1000).unwrap();
        assert!(get(&shared, b"a", 1 << 40).unwrap().is_some());
        assert_eq!(delete(&shared, b"a"), Ok(None));
        assert_eq!(get(&shared, b"a", 1000), Ok(None));
    }

    #[test]
    fn what_can_not_be_kept_replaces_what_was_there() {
        let shared = shared();
        set(&shared, b"a", b"old", 5000, 0).unwrap();
        let long = vec![b'x'; 1 << 20];
        assert_eq!(set(&shared, b"a", &long, 5000, 0), Err(Lack::Room));
        assert_eq!(get(&shared, b"a", 0), Ok(None));
    }

    #[test]
    fn without_a_cache_nothing_is_kept() {
        let shared = Shared::default();
        assert_eq!(set(&shared, b"a", b"b", 1, 0), Err(Lack::Cache));
        assert_eq!(get(&shared, b"a", 0), Err(Lack::Cache));
        assert_eq!(delete(&shared, b"a"), Err(Lack::Cache));
        assert!(look_up(&shared, b"a").unwrap().is_none());
    }

    #[test]
    fn no_name_is_the_key_of_an_answer() {
        assert_ne!(&key_of(b"a"), blake3::hash(b"a").as_bytes());
        assert_ne!(key_of(b""), key_of(b"\0"));
    }

    /// Head and body of the owner's answer that has an entry.
    fn answered(entry: Entry) -> (Vec<u8>, Vec<u8>) {
        let body = Encoded::of(&Arc::new(entry)).unwrap().to_vec();
        let head = format!(
            "HTTP/1.1 200 OK\r\nsszip-generation: 7\r\nsszip-fresh: 500\r\n\
             content-length: {}\r\nage: 2\r\n\r\n",
            body.len()
        );
        (head.into_bytes(), body)
    }

    #[test]
    fn coded_value_is_not_decoded() {
        let shared = shared();
        let gate = Gate {
            min_length: 0,
            level: 1,
        };
        let long = vec![b'v'; 5000];
        let coded = Entry::code(Envelope::none(), &long, gate, Meta::default()).unwrap();
        let (head, body) = answered(coded);
        let said = take(&shared, b"a", (&head, &body), 0, 100);
        assert_eq!(said, Err(Lack::Owner));
        assert_eq!(get(&shared, b"a", 100), Ok(None));
    }

    #[test]
    fn entry_of_the_owner_is_kept_here_unless_it_was_purged() {
        let shared = shared();
        let entry = Entry::new(
            Envelope::none(),
            Payload::Raw(b"value".to_vec().into()),
            Meta::default(),
        );
        let (head, body) = answered(entry);
        let found = take(&shared, b"a", (&head, &body), 9, 100);
        assert_eq!(&found.unwrap().unwrap()[..], b"value");
        // the generation here is 0
        assert_eq!(get(&shared, b"a", 100), Ok(None));
        take(&shared, b"a", (&head, &body), 0, 100).unwrap();
        assert_eq!(&get(&shared, b"a", 599).unwrap().unwrap()[..], b"value");
        assert_eq!(get(&shared, b"a", 600), Ok(None));
        let damaged = take(&shared, b"a", (&head, &body[1..]), 0, 100);
        assert_eq!(damaged, Ok(None));
        let none = b"HTTP/1.1 404 Not Found\r\nsszip-generation: 7\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(take(&shared, b"a", (none, b""), 0, 0), Ok(None));
        for other in [
            &b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 503 Busy\r\nsszip-generation: 7\r\ncontent-length: 0\r\n\r\n",
            b"HTTP/1.1 200",
            b"no HTTP\r\n\r\n",
        ] {
            let said = take(&shared, b"a", (other, b""), 0, 0);
            assert_eq!(said, Err(Lack::Owner));
        }
    }
}
