//! The calls of clients, and the responses of nodes.

use sszip_core::cache::class::LifetimeClass;
use sszip_core::cache::entry::store_attributes::StoredEntryAttributes;
use sszip_core::cache::entry::wire::{decode_cache_entry, EncodedEntry};
use sszip_core::cache::entry::{
    CacheEntry, CompressionGate, EntryMetadata, EnvelopeBytes, ResponseIdPosition,
};
use sszip_core::cache::freshness::BlockAnchor;
use sszip_core::cache::{CacheKey, CacheNamespace};

use crate::blocks::{hash_of, BlockId, BlockPath};

pub const NAMESPACE: CacheNamespace = [0xab; 16];

/// A call of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ModelCall {
    /// A block by its number.
    Block(u64),
    /// The logs of one block, as a range.
    Logs(u64),
    /// The state at a number, whose result names no block.
    State(u64),
    /// A block by its hash.
    BlockByHash(BlockId),
}

/// The result of a node: the block that it is about, and its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelResult {
    pub height: u64,
    pub block: BlockId,
    /// Time of the fetch among fetches and purges.
    pub fetched_at: u64,
    pub machine: usize,
}

/// A response of a node, as a process stores it.
pub struct ModelResponse {
    pub about: StoredEntryAttributes,
    pub anchor: Option<BlockAnchor>,
    pub entry: Vec<u8>,
}

impl ModelCall {
    pub fn cache_key(self) -> CacheKey {
        let (kind, number) = match self {
            Self::Block(height) => (1, height),
            Self::Logs(height) => (2, height),
            Self::State(height) => (3, height),
            Self::BlockByHash(block) => (4, block.into()),
        };
        let mut state: u64 = kind << 32 | number;
        [(); 32].map(|()| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
    }

    pub fn method(self) -> &'static str {
        match self {
            Self::Block(_) => "eth_getBlockByNumber",
            Self::Logs(_) => "eth_getLogs",
            Self::State(_) => "eth_getBalance",
            Self::BlockByHash(_) => "eth_getBlockByHash",
        }
    }

    /// Returns the block of the response of a node with this chain; `None` if it does not have it.
    pub fn block_on(self, path: &BlockPath) -> Option<(u64, BlockId)> {
        match self {
            Self::Block(height) | Self::Logs(height) | Self::State(height) => {
                Some((height, path.block_at(height)?))
            }
            Self::BlockByHash(block) => Some((path.height_of(block)?, block)),
        }
    }

    /// Returns the attributes and the anchor of a response, as a process determines them.
    fn attributes(
        self,
        height: u64,
        block: BlockId,
        is_final: bool,
    ) -> (StoredEntryAttributes, Option<BlockAnchor>) {
        let hash = hash_of(block);
        let (anchor, is_immutable) = match self {
            Self::Block(_) | Self::Logs(_) => {
                (Some(BlockAnchor::ByResult { height, hash }), is_final)
            }
            Self::State(_) => (None, is_final),
            Self::BlockByHash(_) => (Some(BlockAnchor::ByRequest(hash)), true),
        };
        let about = StoredEntryAttributes {
            class: match is_immutable {
                true => LifetimeClass::Immutable,
                false => LifetimeClass::Unfinalized,
            },
            namespace: NAMESPACE,
            method: Some(self.method().into()),
            block: (!matches!(self, Self::Logs(_))).then_some(height),
            height: Some(height),
            ..StoredEntryAttributes::default()
        };
        (about, anchor)
    }
}

impl ModelResult {
    /// Returns the response with this result, under the purge generation and the epoch of its
    /// dispatch.
    pub fn to_response(
        self,
        call: ModelCall,
        is_final: bool,
        generation: u64,
        epoch: u64,
    ) -> ModelResponse {
        let (about, anchor) = call.attributes(self.height, self.block, is_final);
        let about = StoredEntryAttributes {
            generation,
            epoch,
            ..about
        };
        let envelope = EnvelopeBytes {
            id: ResponseIdPosition::BeforeResult,
            before: b"{\"jsonrpc\":\"2.0\",\"id\":"[..].into(),
            between: b",\"result\":"[..].into(),
            after: b"}"[..].into(),
        };
        let gate = CompressionGate {
            min_length: 1_000,
            level: 1,
        };
        let meta = EntryMetadata {
            fields: vec![(b"content-type".to_vec(), b"application/json".to_vec())],
            class: about.class,
            block_number: about.block,
            follows: Some((NAMESPACE, epoch)),
            height: about.height,
            ..EntryMetadata::default()
        };
        let result = format!(
            "\"{} {} {} {}\"",
            self.height, self.block, self.fetched_at, self.machine
        );
        let entry = CacheEntry::from_fetched_result(envelope, result.as_bytes(), gate, meta);
        ModelResponse {
            about,
            anchor,
            entry: EncodedEntry::from_entry(&entry.unwrap()).unwrap().to_vec(),
        }
    }

    /// Reads the result and the class of an entry that a client receives.
    pub fn from_entry(bytes: &[u8]) -> (Self, LifetimeClass) {
        let entry = decode_cache_entry(bytes, 0, 0, 1).unwrap();
        assert!(!entry.needs_strict_check());
        let payload = EncodedEntry::from_entry(&entry).unwrap().payload.to_vec();
        let text = String::from_utf8(payload).unwrap();
        let mut words = text.trim_matches('"').split(' ');
        let mut number = || words.next().unwrap().parse::<u64>().unwrap();
        let result = Self {
            height: number(),
            block: number() as BlockId,
            fetched_at: number(),
            machine: number() as usize,
        };
        (result, entry.response_metadata().class)
    }
}
