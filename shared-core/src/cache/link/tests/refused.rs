//! Tests with refused memory for allocations as long as a batch or an entry.

use super::{bytes_of, entry, test_waiter, LinkTestHost};
use crate::allocator::faulty::{with_refused_allocations, RefusedAllocations};
use crate::allocator::MAX_RESERVE_ALLOCATION;
use crate::cache::entry::wire::{decode_cache_entry, EncodedEntry};
use crate::cache::entry::{CacheEntry, EntryMetadata, EntryPayload, EnvelopeBytes};
use crate::cache::process::owner_client::OwnerClient;

/// Runs `run` with each long allocation refused in turn, until none is refused.
fn each(mut run: impl FnMut(&mut dyn FnMut(&mut dyn FnMut()) -> RefusedAllocations)) {
    for passed in 0.. {
        let mut all = RefusedAllocations::default();
        run(&mut |step| {
            let ((), refusals) = with_refused_allocations(MAX_RESERVE_ALLOCATION + 1, passed, step);
            all += refusals;
            refusals
        });
        if all.all == 0 {
            assert!(passed > 0, "nothing was long");
            return;
        }
    }
}

#[test]
fn batch_lookup_without_memory_is_woken_at_once() {
    let keys: Vec<_> = (0..2000u64)
        .map(|n| *blake3::hash(&n.to_le_bytes()).as_bytes())
        .collect();
    each(|step| {
        let mut host = LinkTestHost::with_greeted_owner();
        let is_sent = host.link().lookup_batch_at_owner(
            keys.clone(),
            &super::SPACE,
            test_waiter(5),
            host.now,
        );
        assert!(is_sent);
        // the connection is open: it sends at once
        host.run();
        host.receive(1, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(host.woken(), [5]);
        host.sent.clear();
        assert!(host.link().lookup_batch_at_owner(
            keys.clone(),
            &super::SPACE,
            test_waiter(6),
            host.now
        ));
        let (shared, link, now) = (&host.shared, host.link(), host.now);
        let refusals = step(&mut || {
            link.send_and_expire_requests(shared, now);
        });
        if refusals.all > 0 {
            assert_eq!(host.woken(), [6]);
        } else {
            host.run();
            assert_eq!(host.sent.len(), 1);
        }
    });
}

#[test]
fn entry_without_memory_for_a_copy_is_none() {
    let part = |byte: u8| vec![byte; 2 * MAX_RESERVE_ALLOCATION].into_boxed_slice();
    let envelope = EnvelopeBytes {
        before: part(b'b'),
        between: part(b'c'),
        after: part(b'd'),
        ..entry().response_envelope().clone()
    };
    let payload = EntryPayload::Raw(vec![b'p'; 2 * MAX_RESERVE_ALLOCATION].into());
    let long = CacheEntry::new(envelope, payload, EntryMetadata::default());
    let bytes = bytes_of(&long);
    each(|step| {
        let mut read = None;
        let refusals = step(&mut || read = decode_cache_entry(&bytes, 0, 0, 0));
        assert_eq!(read.is_none(), refusals.all > 0);
        let mut written = None;
        let refusals = step(&mut || written = EncodedEntry::from_entry(&long));
        assert_eq!(written.is_none(), refusals.all > 0);
        let same = written.is_none_or(|written| bytes.starts_with(&written.head));
        assert!(same);
    });
}
