//! Tests with refused memory for allocations as long as a batch or an entry.

use super::*;
use crate::allocator::faulty::{run_with_refused_allocations, RefusedAllocationCounts};
use crate::allocator::MAX_RESERVE_ALLOCATION;
use crate::cache::entry::wire::decode_cache_entry;

/// Runs `run` with each long allocation refused in turn, until none is refused.
fn each(mut run: impl FnMut(&mut dyn FnMut(&mut dyn FnMut()) -> RefusedAllocationCounts)) {
    for passed in 0.. {
        let mut all = RefusedAllocationCounts::default();
        run(&mut |step| {
            let ((), refusals) =
                run_with_refused_allocations(MAX_RESERVE_ALLOCATION + 1, passed, step);
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
fn found_entry_without_memory_is_a_miss() {
    let long = entry_with_payload(vec![b'p'; 2 * MAX_RESERVE_ALLOCATION]);
    each(|step| {
        let mut host = LinkTestHost::connected();
        host.look_up_for_waiter(1, true);
        let id = host.take_id();
        let bytes = host.frame_of(&[found_under(id, 0, &long)]);
        let refusals = step(&mut || {
            if !host.pass_bytes_to_link(&bytes) {
                host.link().handle_connection_closed(&host.shared, host.now);
            }
        });
        assert_eq!(host.woken(), [1]);
        assert_eq!(host.answer(1).is_none(), refusals.all > 0);
    });
}

#[test]
fn batch_lookup_without_memory_is_woken_at_once() {
    // three in one frame are longer than the longest allocation that is never refused
    let keys: Vec<CacheKey> = (0..1_000_u64)
        .map(|n| *blake3::hash(&n.to_le_bytes()).as_bytes())
        .collect();
    each(|step| {
        let mut host = LinkTestHost::connected();
        for waiter in [5, 6, 7] {
            let (keys, waiter) = (keys.clone(), test_waiter(waiter));
            assert!(host
                .link()
                .lookup_batch_at_owner(keys, shareable_batch(0), waiter, host.now));
        }
        let refusals = step(&mut || {
            host.link()
                .pass_unwritten_pieces(&host.shared, host.now, |_| 0);
        });
        let failed = if refusals.all > 0 { vec![7] } else { vec![] };
        assert_eq!(host.woken(), failed);
        let bytes = host.written_bytes();
        host.receive_from_link(&bytes);
        let sent = host.take_messages().len();
        assert_eq!(sent + failed.len(), 3);
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
