//! Values of the fleet: any bytes, any content under a valid tag, and damaged values. Decoding
//! allocates a copy of the entry and little more, and damage is never accepted with a key file.
#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::LazyLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sszip_core::cache::chain::{BlockHash, ChainState, HeightUnit, NamespaceChain};
use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::entry::wire::{self, EncodedEntry};
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::cache::fleet::keyring::{FleetKeyring, VALUE_TAG_LENGTH};
use sszip_core::cache::fleet::sharing::{check_against_chain, is_shareable};
use sszip_core::cache::fleet::value::{
    decode_fleet_value, encode_fleet_value, ChainIdentity, FleetValue, FleetValueParts,
    FleetValueRejection,
};
use sszip_core::cache::freshness::BlockAnchor;
use sszip_core::cache::CacheKey;

#[derive(Arbitrary, Debug)]
enum Input<'a> {
    /// Bytes of a server.
    Raw(&'a [u8]),
    /// Content with a valid tag: a value whose entry and bytes are replaced.
    Tagged {
        is_keyed: bool,
        is_compressed: bool,
        entry: Option<&'a [u8]>,
        changes: Vec<(u16, u8)>,
    },
    /// A value with a key file that is damaged.
    Damaged {
        is_compressed: bool,
        changes: Vec<(u16, u8)>,
        length: Option<u16>,
        more: &'a [u8],
    },
}

const KEY: CacheKey = [7; 32];
const NOW: u64 = 1_700_000_000_000;
const MAX_ENTRY: usize = 16 << 10;

/// Maximum number of bytes that decoding allocates: the headers of the longest head, as references.
const MAX_DECODE_OVERHEAD: usize = 300 << 10;

/// Offsets of the length of the entry and of the method, and of the method.
const ENTRY_LENGTH_OFFSET: usize = 176;
const METHOD_LENGTH_OFFSET: usize = 180;
const METHOD_OFFSET: usize = 184;

/// Hash of the block of the anchor.
const HASH: BlockHash = [6; 32];

/// The system's allocator, with the number of allocated bytes.
struct CountingAllocator;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

// SAFETY: all memory is the system allocator's, with the same layouts
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let present = ALLOCATED.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(present, Relaxed);
        // SAFETY: the caller's layout
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's allocation, which `alloc` has made
        unsafe { System.dealloc(start, layout) }
    }
}

/// The keyrings of readers, and the values of writers with the same keyrings.
struct Templates {
    keyed: FleetKeyring,
    unkeyed: FleetKeyring,
    rotated: FleetKeyring,
    /// By whether there is a key file, then by whether the entry is compressed. The compressed one
    /// is unfinalized and has an anchor.
    values: [[Vec<u8>; 2]; 2],
}

static TEMPLATES: LazyLock<Templates> = LazyLock::new(|| {
    let files = [vec![b'a'; 32], vec![b'b'; 32]];
    let keyed = FleetKeyring::from_key_files(&files[..1]).expect("a key file");
    let rotated = FleetKeyring::from_key_files(&[files[1].clone(), files[0].clone()]);
    let unkeyed = FleetKeyring::unkeyed();
    let anchor = BlockAnchor::ByResult {
        height: 100,
        hash: HASH,
    };
    let values = |keyring| {
        [
            template(b"null", LifetimeClass::Immutable, None, keyring),
            template(
                &b"01".repeat(500),
                LifetimeClass::Unfinalized,
                Some(anchor),
                keyring,
            ),
        ]
    };
    Templates {
        values: [values(&unkeyed), values(&keyed)],
        keyed,
        unkeyed,
        rotated: rotated.expect("two key files"),
    }
});

/// The value of an entry with this result.
fn template(
    result: &[u8],
    class: LifetimeClass,
    anchor: Option<BlockAnchor>,
    keyring: &FleetKeyring,
) -> Vec<u8> {
    let about = StoredEntryAttributes {
        class,
        namespace: [3; 16],
        method: Some("eth_getCode".into()),
        block: Some(100),
        generation: 5,
        epoch: 77,
        height: Some(100),
    };
    let envelope = EnvelopeBytes {
        id: ResponseIdPosition::BeforeResult,
        before: b"{\"id\":"[..].into(),
        between: b",\"result\":"[..].into(),
        after: b"}"[..].into(),
    };
    let gate = CompressionGate {
        min_length: 100,
        level: 1,
    };
    let meta = EntryMetadata {
        fields: vec![(b"content-type".to_vec(), b"application/json".to_vec())],
        class: about.class,
        block_number: about.block,
        follows: Some((about.namespace, about.epoch)),
        height: about.height,
        ..EntryMetadata::default()
    };
    let entry = CacheEntry::from_fetched_result(envelope, result, gate, meta).expect("an entry");
    let entry = EncodedEntry::from_entry(&entry).expect("bytes").to_vec();
    let parts = FleetValueParts {
        key: &KEY,
        about: &about,
        anchor,
        identity: identity(),
        heights: HeightUnit::Blocks,
        position: 41,
        requested_at: NOW - 2_000,
        expires_at: NOW + 60_000,
        stored_at: NOW - 1_000,
        entry: &entry,
    };
    encode_fleet_value(&parts, keyring).expect("a value")
}

fn identity() -> ChainIdentity {
    ChainIdentity {
        chain_id: Some(1),
        genesis: [9; 32],
    }
}

/// Decodes a value, and checks the memory that this takes and the value.
fn decode(bytes: &[u8], keyring: &FleetKeyring) -> Result<FleetValue, FleetValueRejection> {
    let received = bytes.to_vec();
    let before = ALLOCATED.load(Relaxed);
    PEAK.store(before, Relaxed);
    let decoded = decode_fleet_value(received, keyring, &KEY, NOW, MAX_ENTRY);
    // the entry keeps the memory of the value
    let peak = PEAK.load(Relaxed) - before;
    assert!(peak <= MAX_DECODE_OVERHEAD, "{peak}");
    if let Ok(value) = &decoded {
        check_value(value, keyring);
    }
    decoded
}

/// Checks that a value has no state of its writer, and is encoded again without a change.
fn check_value(value: &FleetValue, keyring: &FleetKeyring) {
    let about = &value.about;
    assert_eq!((about.generation, about.epoch), (0, 0));
    let followed = StoredEntryAttributes {
        epoch: 1,
        ..about.clone()
    };
    assert!(is_shareable(&followed, value.anchor.as_ref()));
    assert!(value.entry.len() <= MAX_ENTRY && value.expires_at > NOW);
    let entry = wire::decode_cache_entry(&value.entry, 0, 0, 0).expect("an entry");
    assert_eq!(entry.response_metadata().follows, None);
    assert_eq!(entry.needs_strict_check(), !keyring.is_keyed());
    let dependent = wire::set_chain_dependency(value.entry.clone(), about.class, [8; 16], 5);
    let dependent = wire::decode_cache_entry(&dependent.expect("bytes"), 0, 0, 0);
    let follows = dependent.expect("an entry").response_metadata().follows;
    assert_eq!(follows, Some(([8; 16], 5)));
    let mut chain = ChainState::new_without_blocks(value.heights, 1);
    let highest = about.height.max(about.block).or(Some(0));
    (chain.known, chain.head, chain.last_final) = (true, highest, highest);
    (chain.chain_id, chain.genesis) = (value.identity.chain_id, Some(value.identity.genesis));
    let chain = NamespaceChain::new(chain);
    if let Some(BlockAnchor::ByResult { height, hash }) = value.anchor {
        assert_eq!(Some(height), about.height);
        chain.set_recent_blocks(std::iter::once((height, hash)));
    }
    let servable = check_against_chain(value.clone(), &chain, NOW).expect("a servable value");
    assert_eq!(servable.about.class, about.class);
    assert!(servable.expires_at <= value.expires_at);
    let checked = wire::clear_unchecked_flag(&value.entry).expect("bytes");
    let parts = FleetValueParts {
        key: &KEY,
        about,
        anchor: value.anchor,
        identity: value.identity,
        heights: value.heights,
        position: value.position,
        requested_at: value.requested_at,
        expires_at: value.expires_at,
        stored_at: value.stored_at,
        entry: &checked,
    };
    // a reader with a key file accepts all that one without it accepts
    let keyed = &TEMPLATES.keyed;
    let encoded = encode_fleet_value(&parts, keyed).expect("a value");
    let again = decode_fleet_value(encoded, keyed, &KEY, NOW, MAX_ENTRY).expect("the value");
    let entry = again.entry.clone();
    let expected = FleetValue {
        entry,
        ..value.clone()
    };
    assert_eq!(again, expected);
}

fn change(bytes: &mut [u8], changes: &[(u16, u8)]) {
    for (at, byte) in changes {
        if let Some(changed) = bytes.get_mut(usize::from(*at)) {
            *changed = *byte;
        }
    }
}

/// Replaces the entry of a value's content.
fn replace_entry(content: &mut Vec<u8>, entry: &[u8]) {
    content.truncate(METHOD_OFFSET + usize::from(content[METHOD_LENGTH_OFFSET]));
    content.extend_from_slice(entry);
    let length = (entry.len() as u32).to_le_bytes();
    content[ENTRY_LENGTH_OFFSET..METHOD_LENGTH_OFFSET].copy_from_slice(&length);
}

fuzz_target!(|input: Input| {
    let templates = &*TEMPLATES;
    match input {
        Input::Raw(bytes) => {
            for keyring in [&templates.keyed, &templates.rotated] {
                assert!(decode(bytes, keyring).is_err());
            }
            // a checksum needs no secret
            drop(decode(bytes, &templates.unkeyed));
        }
        Input::Tagged {
            is_keyed,
            is_compressed,
            entry,
            changes,
        } => {
            let keyring = match is_keyed {
                true => &templates.keyed,
                false => &templates.unkeyed,
            };
            let value = &templates.values[usize::from(is_keyed)][usize::from(is_compressed)];
            let mut content = value[..value.len() - VALUE_TAG_LENGTH].to_vec();
            if let Some(entry) = entry {
                replace_entry(&mut content, entry);
            }
            change(&mut content, &changes);
            let tag = keyring.value_tag(&content);
            content.extend_from_slice(&tag);
            let is_accepted = decode(&content, keyring).is_ok();
            if is_keyed {
                assert_eq!(decode(&content, &templates.rotated).is_ok(), is_accepted);
            }
        }
        Input::Damaged {
            is_compressed,
            changes,
            length,
            more,
        } => {
            let value = &templates.values[1][usize::from(is_compressed)];
            let mut damaged = value.clone();
            change(&mut damaged, &changes);
            if let Some(length) = length {
                damaged.truncate(length.into());
            }
            damaged.extend_from_slice(more);
            // the changes may change nothing
            let is_same = damaged == *value;
            for keyring in [&templates.keyed, &templates.rotated] {
                assert_eq!(decode(&damaged, keyring).is_ok(), is_same);
            }
            assert!(decode(&damaged, &templates.unkeyed).is_err());
        }
    }
});
