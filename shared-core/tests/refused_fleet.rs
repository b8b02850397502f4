//! Allocations that are refused to the readers of a fleet's values and purge records at each point
//! where one can be: the result is right, or an error reports that memory is missing.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "support/refused.rs"]
mod support;

use std::sync::Arc;

use sszip_core::allocator::faulty::run_with_refused_allocations;
use sszip_core::allocator::{ReserveAllocator, MAX_RESERVE_ALLOCATION};
use sszip_core::cache::chain::{ChainIdentity, HeightUnit};
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::{PurgeScope, StoredEntryAttributes};
use sszip_core::cache::entry::wire::{decode_cache_entry, EncodedEntry};
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::cache::fleet::keyring::FleetKeyring;
use sszip_core::cache::fleet::reply_limit::{ReplyLengthGuard, ReplyLimits, ReplyViolation};
use sszip_core::cache::fleet::stream_record::{
    encode_record, PublishedPurge, PurgeRecordKind, RawStreamRecord, StreamId,
};
use sszip_core::cache::fleet::stream_sync::{
    StreamCommand, StreamLimits, StreamReply, StreamSync, POLL_INTERVAL_MS,
};
use sszip_core::cache::fleet::value::{
    decode_fleet_value, encode_fleet_value, FleetValue, FleetValueParts, FleetValueRejection,
};
use sszip_core::cache::owner::ClockReading;
use sszip_core::cache::CacheKey;

use support::repeat_with_refusals;

#[global_allocator]
static ALLOCATOR: ReserveAllocator = ReserveAllocator;

const KEY: CacheKey = [7; 32];
const NOW: u64 = 1_700_000_000_000;
const MAX_ENTRY: usize = 1 << 20;

/// Number of headers that a shared entry may have, whose table is longer than the reserve for small
/// allocations.
const HEADERS: usize = 2_600;

fn about() -> StoredEntryAttributes {
    StoredEntryAttributes {
        class: LifetimeClass::Immutable,
        namespace: [3; 16],
        block: Some(100),
        height: Some(100),
        epoch: 1,
        ..StoredEntryAttributes::default()
    }
}

/// Returns an entry with this number of headers and with a long result.
fn entry_bytes(headers: usize) -> Vec<u8> {
    let envelope = EnvelopeBytes {
        id: ResponseIdPosition::BeforeResult,
        before: b"{\"id\":"[..].into(),
        between: b",\"result\":"[..].into(),
        after: b"}"[..].into(),
    };
    // not compressed
    let gate = CompressionGate {
        min_length: u64::MAX,
        level: 1,
    };
    let meta = EntryMetadata {
        fields: vec![(b"a".to_vec(), Vec::new()); headers],
        class: LifetimeClass::Immutable,
        block_number: Some(100),
        height: Some(100),
        ..EntryMetadata::default()
    };
    let result = format!("\"{}\"", "r".repeat(3 * MAX_RESERVE_ALLOCATION));
    let entry = CacheEntry::from_fetched_result(envelope, result.as_bytes(), gate, meta).unwrap();
    EncodedEntry::from_entry(&entry).unwrap().to_vec()
}

fn encode_value(entry: &[u8], keyring: &FleetKeyring) -> Option<Vec<u8>> {
    let about = about();
    let parts = FleetValueParts {
        key: &KEY,
        about: &about,
        anchor: None,
        identity: ChainIdentity {
            chain_id: Some(1),
            genesis: [9; 32],
        },
        heights: HeightUnit::Blocks,
        position: 41,
        requested_at: NOW,
        expires_at: NOW + 60_000,
        stored_at: NOW,
        entry,
    };
    encode_fleet_value(&parts, keyring)
}

/// Decodes a copy of a value. An entry whose head needs memory that is refused is rejected as
/// invalid.
fn decode_value(value: &[u8], keyring: &FleetKeyring) -> Result<FleetValue, String> {
    let mut copy = Vec::new();
    let is_copied = copy.try_reserve_exact(value.len()).is_ok();
    if !is_copied {
        return Err("no memory for the copy".into());
    }
    copy.extend_from_slice(value);
    decode_fleet_value(copy, keyring, &KEY, NOW, MAX_ENTRY).map_err(|rejection| {
        assert_eq!(rejection, FleetValueRejection::Entry);
        "no memory".into()
    })
}

fn keyrings() -> [FleetKeyring; 2] {
    let keyed = FleetKeyring::from_key_files(&[vec![b'k'; 32]]).unwrap();
    [FleetKeyring::unkeyed(), keyed]
}

#[test]
fn value_is_right_or_rejected_when_long_allocations_are_refused() {
    let from = MAX_RESERVE_ALLOCATION + 1;
    for keyring in keyrings() {
        for headers in [1, HEADERS] {
            let entry = entry_bytes(headers);
            let value = encode_value(&entry, &keyring).unwrap();
            let encode = || encode_value(&entry, &keyring).ok_or("no memory");
            assert!(repeat_with_refusals(from, &value, encode) > 0);
            let expected = decode_value(&value, &keyring).unwrap();
            let decode = || decode_value(&value, &keyring);
            assert!(repeat_with_refusals(from, &expected, decode) > 0);
        }
    }
}

#[test]
fn entry_of_a_value_is_right_or_absent_when_long_allocations_are_refused() {
    let from = MAX_RESERVE_ALLOCATION + 1;
    let entry = entry_bytes(HEADERS);
    let decode = || {
        let decoded = decode_cache_entry(&entry, NOW, 0, 1_000).ok_or("no memory")?;
        Ok::<_, &str>(decoded.response_metadata().fields.len())
    };
    assert!(repeat_with_refusals(from, &HEADERS, decode) > 1);
}

/// Returns a stream of purges, which has several pages.
fn stream(keyring: &FleetKeyring) -> Vec<RawStreamRecord> {
    let record = |at: u64| {
        let id = StreamId::from_position(NOW + at);
        let purge = PublishedPurge {
            kind: match at {
                0 => PurgeRecordKind::NewStream,
                _ => PurgeRecordKind::Purge,
            },
            name: u128::from(at).to_be_bytes(),
            scope: match at {
                0 => PurgeScope::Everything,
                _ => PurgeScope::Namespace([1; 16]),
            },
        };
        let fields = encode_record(&purge, &[7; 8], id, keyring);
        let fields = fields.map(|(name, value)| (name.as_bytes().to_vec(), value));
        RawStreamRecord {
            id,
            fields: fields.to_vec(),
        }
    };
    (0..3_000).map(record).collect()
}

/// Reads a stream for some seconds. Returns the number of its records, once all are known.
fn read_stream(
    stream: &[RawStreamRecord],
    keyring: &Arc<FleetKeyring>,
) -> Result<usize, &'static str> {
    let limits = StreamLimits::default();
    let keyring = Arc::clone(keyring);
    let mut sync = StreamSync::new(keyring, [7; 8], limits, None, Vec::new(), 0);
    for step in 0..30 {
        let now = ClockReading {
            monotonic: 10_000 + step * POLL_INTERVAL_MS,
            unix: NOW,
        };
        match sync.next_command(now) {
            Some(StreamCommand::ReadRange { from, count }) => {
                let from = from.unwrap_or_default();
                let records = stream.iter().filter(|record| record.id >= from);
                let page = records.take(count).cloned().collect();
                sync.complete_command(StreamReply::Records(page), now);
            }
            Some(_) => return Ok(sync.purge_log().unwrap().record_count()),
            None => {}
        }
    }
    Err("no memory")
}

#[test]
fn stream_is_known_or_read_again_when_long_allocations_are_refused() {
    let keyring = Arc::new(FleetKeyring::unkeyed());
    let stream = stream(&keyring);
    let read = || read_stream(&stream, &keyring);
    let failures = repeat_with_refusals(MAX_RESERVE_ALLOCATION + 1, &stream.len(), read);
    assert!(failures > 0);
}

#[test]
fn long_value_is_not_received_when_its_memory_is_refused() {
    let limits = ReplyLimits {
        bulk: 1 << 20,
        elements: 1,
        reply: 2 << 20,
    };
    let scan = |reply: &[u8], from| {
        let mut guard = ReplyLengthGuard::new(limits);
        run_with_refused_allocations(from, 0, || guard.scan(reply)).0
    };
    let long = b"$200000\r\n";
    assert_eq!(scan(long, usize::MAX), Ok(()));
    let from = MAX_RESERVE_ALLOCATION + 1;
    assert_eq!(scan(long, from), Err(ReplyViolation::Memory));
    assert_eq!(scan(b"$20000\r\n", from), Ok(()));
}
