//! Tests of direct calls of an owner in this process.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;

use super::*;
use crate::cache::link::direct_owner::{DirectOwner, DirectReply};
use crate::cache::owner_protocol::process_message::StoreRequest;

const SESSION: u64 = 1;

/// A direct call that the owner has received.
#[derive(Debug, PartialEq)]
enum DirectCall {
    Lookup(u64, CacheKey, Option<u32>, u16),
    Store(u64, Box<StoreRequest>),
    Release(u64, CacheKey),
}

/// An owner that replies by a script.
#[derive(Default)]
struct ScriptedOwner {
    calls: Mutex<Vec<DirectCall>>,
    /// Replies to lookups; further lookups are not handled.
    replies: Mutex<VecDeque<DirectReply>>,
    /// The event of another thread during the next lookup.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    has_stopped: Mutex<bool>,
}

impl fmt::Debug for ScriptedOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.calls.fmt(f)
    }
}

impl ScriptedOwner {
    fn record_call(&self, call: DirectCall) -> bool {
        self.calls.lock().unwrap().push(call);
        !*self.has_stopped.lock().unwrap()
    }

    fn take_calls(&self) -> Vec<DirectCall> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    fn reply(&self, reply: DirectReply) {
        self.replies.lock().unwrap().push_back(reply);
    }

    fn reply_with_entry(&self, generation: u64, entry: &CacheEntry) {
        self.reply(DirectReply::Found {
            generation,
            fresh: 500,
            age: 200,
            bytes: bytes_of(entry),
        });
    }
}

impl DirectOwner for ScriptedOwner {
    fn lookup(
        &self,
        session: u64,
        key: &CacheKey,
        lease: Option<u32>,
        fleet_wait: u16,
    ) -> Option<DirectReply> {
        if !self.record_call(DirectCall::Lookup(session, *key, lease, fleet_wait)) {
            return None;
        }
        let reply = self.replies.lock().unwrap().pop_front();
        if let Some(meanwhile) = self.meanwhile.lock().unwrap().take() {
            meanwhile();
        }
        reply
    }

    fn store(&self, session: u64, store: &StoreRequest) -> bool {
        self.record_call(DirectCall::Store(session, Box::new(store.clone())))
    }

    fn release(&self, session: u64, key: &CacheKey) -> bool {
        self.record_call(DirectCall::Release(session, *key))
    }
}

/// Creates a host with an owner that direct calls reach.
fn host_and_owner() -> (LinkTestHost, Arc<ScriptedOwner>) {
    let owner = Arc::<ScriptedOwner>::default();
    let direct = Arc::clone(&owner);
    let host = LinkTestHost::new_attached(|link, shared| link.attach_direct_owner(direct, shared));
    host.start_hot_tier();
    (host, owner)
}

fn connected_host_and_owner() -> (LinkTestHost, Arc<ScriptedOwner>) {
    let (mut host, owner) = host_and_owner();
    host.open_session(0, 5_000);
    (host, owner)
}

/// Begins a flight of `KEY`, with a follower.
fn lead_with_follower(host: &LinkTestHost, follower: usize) -> FlightLeadership {
    let flights = &host.shared.flights;
    let Some(CoalescingRole::Leader(token)) = flights.join_flight(KEY, test_waiter(99)) else {
        panic!("the flight exists already");
    };
    let joined = flights.join_flight(KEY, test_waiter(follower));
    assert!(matches!(joined, Some(CoalescingRole::Follower)));
    token
}

/// Looks `KEY` up for the leader of its flight, waiter 99.
fn look_up(host: &LinkTestHost, token: FlightLeadership) -> OwnerLookup {
    let options = OwnerLookupOptions {
        leases: true,
        ..OwnerLookupOptions::default()
    };
    look_up_with_options(host, token, options)
}

fn look_up_with_options(
    host: &LinkTestHost,
    token: FlightLeadership,
    options: OwnerLookupOptions,
) -> OwnerLookup {
    let (link, waiter) = (host.link(), test_waiter(99));
    link.lookup_at_owner(&host.shared.flights, token, waiter, options, host.now)
}

/// Whether the owner was queried by a message.
fn is_pending(lookup: &OwnerLookup) -> bool {
    matches!(lookup, OwnerLookup::Pending)
}

#[test]
fn found_entry_is_returned_by_the_call_and_shared_with_followers() {
    let (mut host, owner) = connected_host_and_owner();
    let token = lead_with_follower(&host, 1);
    owner.reply_with_entry(0, &entry());
    let OwnerLookup::Found(found) = look_up(&host, token) else {
        panic!();
    };
    assert_eq!(found.response_metadata().expires_at, host.now + 500);
    assert_eq!(found.response_metadata().requested_at, host.now - 200);
    assert_eq!(host.woken(), [1]);
    assert!(Arc::ptr_eq(&host.answer(1).unwrap(), &found));
    assert!(host.is_hot(KEY));
    assert_eq!(host.shared.flights.flight_count(), 0);
    let lookup = DirectCall::Lookup(SESSION, KEY, Some(60_000), 0);
    assert_eq!(owner.take_calls(), [lookup]);
    host.run();
    assert!(host.take_messages().is_empty());
}

#[test]
fn entry_found_before_a_purge_is_not_shared_after_it() {
    for purged in [
        PurgeEventScope::Everything,
        PurgeEventScope::Key(KEY),
        PurgeEventScope::Key([8; 32]),
    ] {
        let (mut host, owner) = connected_host_and_owner();
        let bytes = host.frame_of(&[purge_event(1, 1, purged)]);
        let (link, shared, now) = (Arc::clone(&host.link), Arc::clone(&host.shared), host.now);
        *owner.meanwhile.lock().unwrap() = Some(Box::new(move || {
            assert!(link.pass_read_buffer(|room| room[..bytes.len()].copy_from_slice(&bytes)));
            link.report_read_bytes(&shared, bytes.len(), now);
        }));
        let token = lead_with_follower(&host, 1);
        owner.reply_with_entry(0, &entry());
        assert!(is_pending(&look_up(&host, token)), "{purged:?}");
        assert!(host.woken().is_empty() && !host.is_hot(KEY));
        host.run();
        let [applied, lookup] = &host.take_messages()[..] else {
            panic!("two messages are expected");
        };
        let expected = ProcessMessage::Applied {
            event: 1,
            generation: 1,
        };
        assert_eq!(*applied, expected);
        // an entry that the purge does not cover is found by the message
        host.send(found_under(request_id(lookup).unwrap(), 1, &entry()));
        assert!(host.is_hot(KEY));
    }
}

#[test]
fn entry_found_in_a_session_that_was_lost_is_not_shared() {
    let (mut host, owner) = connected_host_and_owner();
    let (link, shared, now) = (Arc::clone(&host.link), Arc::clone(&host.shared), host.now);
    *owner.meanwhile.lock().unwrap() = Some(Box::new(move || {
        link.handle_connection_closed(&shared, now);
    }));
    let token = lead_with_follower(&host, 1);
    owner.reply_with_entry(0, &entry());
    let lookup = look_up(&host, token);
    assert!(matches!(lookup, OwnerLookup::Missing(_)));
    assert!(host.woken().is_empty() && !host.is_hot(KEY));
    host.is_open = false;
    host.run();
}

#[test]
fn response_fetched_before_a_purge_is_not_shared_after_it() {
    for is_purged in [false, true] {
        let (mut host, _owner) = connected_host_and_owner();
        let generation = host.shared.purge_generation();
        let token = lead_with_follower(&host, 1);
        if is_purged {
            host.purge_event(1, PurgeEventScope::Everything);
        }
        let entry = Arc::new(entry());
        host.shared.publish_to_followers(token, entry, generation);
        assert_eq!(host.woken(), [1]);
        assert_eq!(host.answer(1).is_none(), is_purged);
    }
}

#[test]
fn invalid_entry_is_a_miss() {
    let (host, owner) = connected_host_and_owner();
    let token = lead_with_follower(&host, 1);
    owner.reply(DirectReply::Found {
        generation: 0,
        fresh: 500,
        age: 0,
        bytes: b"rubbish".to_vec(),
    });
    assert!(matches!(look_up(&host, token), OwnerLookup::Missing(_)));
    assert_eq!(host.shared.take_invalid_count(), 1);
}

#[test]
fn lease_of_a_direct_lookup_is_released_by_a_call_when_the_flight_ends_without_an_entry() {
    for (decision, is_leased) in [
        (LeaseReply::Granted, true),
        (LeaseReply::Full, false),
        (LeaseReply::NoLease, false),
    ] {
        let (mut host, owner) = connected_host_and_owner();
        let token = lead_with_follower(&host, 1);
        owner.reply(DirectReply::Missing(decision));
        let OwnerLookup::Missing(token) = look_up(&host, token) else {
            panic!();
        };
        owner.take_calls();
        // the follower fails, too
        host.shared.hand_over_flight(token);
        let token = host.lead(1).unwrap();
        assert!(owner.take_calls().is_empty());
        host.finish_without_response(token);
        let released = is_leased.then_some(DirectCall::Release(SESSION, KEY));
        assert_eq!(owner.take_calls(), Vec::from_iter(released));
        assert!(host.take_messages().is_empty());
    }
}

#[test]
fn lease_is_not_requested_if_the_fetch_of_another_process_is_of_no_use() {
    for (leases, skips_wait) in [(false, false), (true, true)] {
        let (host, owner) = connected_host_and_owner();
        let token = lead_with_follower(&host, 1);
        owner.reply(DirectReply::Missing(LeaseReply::NoLease));
        let options = OwnerLookupOptions {
            leases,
            skips_wait,
            is_shareable: false,
            call_kind: 0,
        };
        let lookup = look_up_with_options(&host, token, options);
        assert!(matches!(lookup, OwnerLookup::Missing(_)));
        let call = DirectCall::Lookup(SESSION, KEY, None, 0);
        assert_eq!(owner.take_calls(), [call]);
    }
}

#[test]
fn direct_lookup_of_a_shareable_response_has_the_lookup_timeout_as_its_wait() {
    let (host, owner) = connected_host_and_owner();
    let token = lead_with_follower(&host, 1);
    owner.reply(DirectReply::Missing(LeaseReply::NoLease));
    let options = OwnerLookupOptions {
        is_shareable: true,
        ..OwnerLookupOptions::default()
    };
    let lookup = look_up_with_options(&host, token, options);
    assert!(matches!(lookup, OwnerLookup::Missing(_)));
    let call = DirectCall::Lookup(SESSION, KEY, None, 20);
    assert_eq!(owner.take_calls(), [call]);
}

#[test]
fn lookup_that_is_pending_or_not_handled_is_sent_as_a_message() {
    for reply in [Some(DirectReply::Missing(LeaseReply::Pending)), None] {
        let (mut host, owner) = connected_host_and_owner();
        owner.replies.lock().unwrap().extend(reply);
        let token = lead_with_follower(&host, 1);
        assert!(is_pending(&look_up(&host, token)));
        host.run();
        let id = host.take_id();
        host.send(found(id));
        assert_eq!(host.woken(), [1, 99]);
        assert!(host.answer(1).is_some());
    }
}

#[test]
fn direct_calls_begin_with_the_first_send_lease_and_end_with_the_session() {
    let (mut host, owner) = host_and_owner();
    let calls = |host: &LinkTestHost, key: u8| {
        owner.reply(DirectReply::Missing(LeaseReply::NoLease));
        host.look_up_key([key; 32], key.into(), true);
        owner.take_calls()
    };
    for (session, key) in [(7, 10), (8, 20)] {
        host.run();
        assert_eq!(calls(&host, key), []);
        host.last_event = 0;
        host.send(welcome(session, 0));
        // the states of the chains may follow
        assert_eq!(calls(&host, key + 1), []);
        host.send_lease(5_000);
        let lookup = DirectCall::Lookup(session, [key + 2; 32], Some(60_000), 0);
        assert_eq!(calls(&host, key + 2), [lookup]);
        host.break_connection();
        assert_eq!(calls(&host, key + 3), []);
        host.pass(RETRY);
    }
}

#[test]
fn entry_is_stored_by_a_call_or_by_a_message_if_the_call_is_not_handled() {
    let (mut host, owner) = connected_host_and_owner();
    host.store_at_owner(3, b"abc".to_vec());
    let calls = owner.take_calls();
    let [DirectCall::Store(SESSION, store)] = &calls[..] else {
        panic!("{calls:?}");
    };
    assert_eq!((store.key, store.id, store.age), ([3; 32], 0, 0));
    assert_eq!((store.fresh, store.if_final), (10_000, None));
    assert_eq!(store.total, store.entry.byte_length() as u64);
    host.run();
    assert!(host.take_messages().is_empty());

    *owner.has_stopped.lock().unwrap() = true;
    host.store_at_owner(3, b"abc".to_vec());
    host.run();
    assert_eq!(host.take_messages(), [ProcessMessage::Store(store.clone())]);
    host.link().release_lease(KEY);
    host.run();
    assert_eq!(host.take_messages(), [ProcessMessage::Release(KEY)]);
}

#[test]
fn long_entry_is_stored_by_messages() {
    let (mut host, owner) = connected_host_and_owner();
    host.store_at_owner(3, vec![b'1'; 300 << 10]);
    host.run();
    assert!(owner.take_calls().is_empty());
    let messages = host.take_messages();
    assert!(matches!(
        &messages[..],
        [ProcessMessage::Store(_), ProcessMessage::Chunk { .. }]
    ));
}

#[test]
fn expired_entry_is_not_stored_and_its_lease_is_released() {
    let (host, owner) = connected_host_and_owner();
    let entry = entry().with_lifetime(0, 999);
    let about = StoredEntryAttributes::attributes_for_entry(&entry, [0; 16], None, 0).unwrap();
    host.link().store_at_owner(
        KEY,
        Arc::new(entry),
        about,
        OwnerStoreOptions::default(),
        host.now,
    );
    assert_eq!(owner.take_calls(), [DirectCall::Release(SESSION, KEY)]);
}
