//! The format of a value in the fleet: an entry with all that another owner has to know about it.
//!
//! Integers are little endian. Unused fields are 0.
//!
//! | offset | length | content                                                              |
//! |-------:|-------:|----------------------------------------------------------------------|
//! |      0 |      4 | `SZF`, version                                                       |
//! |      4 |      1 | flags: 1 tag with a key file, 2 block, 4 height, 8 chain id, 16 anchor by the request, 32 anchor by the result |
//! |      5 |      1 | class: 0 `immutable`, 1 `unfinalized`                                |
//! |      6 |      1 | [version of the entry's format](wire::ENTRY_FORMAT_VERSION)          |
//! |      7 |      1 | unit of heights: 0 blocks, 1 slots                                   |
//! |      8 |      8 | chain id                                                             |
//! |     16 |     32 | hash of the chain's first block                                      |
//! |     48 |     16 | namespace                                                            |
//! |     64 |     32 | cache key                                                            |
//! |     96 |   8, 8 | block, height                                                        |
//! |    112 |     32 | hash of the [anchor](BlockAnchor); its height is the value's         |
//! |    144 |      8 | position of the writer in the stream of purges                       |
//! |    152 |   8, 8 | time of the request to the node, time of expiry (ms since 1970)      |
//! |    168 |      8 | time at which the value was written (ms since 1970)                  |
//! |    176 |      4 | length of the entry                                                  |
//! |    180 |      1 | length of the method; 0: none                                        |
//! |    181 |      3 | unused                                                               |
//! |    184 |        | method, entry                                                        |
//! |   last |     32 | [tag](FleetKeyring::value_tag) of all bytes before it                |
//!
//! A value of class `unfinalized` has an anchor. With an anchor by the result, all of the response
//! belongs to one block: the value's height is that block's, and so is its block if it has one.
//!
//! The entry has no namespace and no epoch of an owner, and was checked strictly by the writer. A
//! reader without a key file can't know that: it checks the entry again, before it is sent.

mod header;

use std::ops::Range;

pub use self::header::FleetValueRejection;
use self::header::{
    ValueHeader, ANCHOR_FLAGS, BLOCK_FLAG, CHAIN_ID_FLAG, HEADER_LENGTH, HEIGHT_FLAG, HEIGHT_UNITS,
    KEYED_FLAG, MAGIC, REQUEST_ANCHOR_FLAG, RESULT_ANCHOR_FLAG,
};
use super::keyring::{FleetKeyring, VALUE_TAG_LENGTH};
use crate::cache::chain::{BlockHash, HeightUnit};
use crate::cache::class::LifetimeClass;
use crate::cache::entry::store_attributes::{StoredEntryAttributes, MAX_METHOD_LENGTH};
use crate::cache::entry::wire;
use crate::cache::freshness::BlockAnchor;
use crate::cache::CacheKey;

pub use crate::cache::chain::ChainIdentity;

/// Maximum length of a value without its entry, in bytes.
const MAX_OVERHEAD: usize = HEADER_LENGTH + MAX_METHOD_LENGTH + VALUE_TAG_LENGTH;

/// The classes of values, by their numbers in the format.
const CLASSES: [LifetimeClass; 2] = [LifetimeClass::Immutable, LifetimeClass::Unfinalized];

/// Identity length in bytes up to which a reader without a key file checks any entry, and the
/// maximum ratio to the entry's length beyond it: the check decompresses the payload.
const MAX_CHECKED_LENGTH: u64 = 1 << 20;
const MAX_CHECKED_RATIO: u64 = 64;

/// The parts of a value that is written to the fleet.
#[derive(Clone, Copy, Debug)]
pub struct FleetValueParts<'a> {
    /// Cache key of the entry.
    pub key: &'a CacheKey,
    /// Attributes of the entry. Its generation and epoch are not written.
    pub about: &'a StoredEntryAttributes,
    /// Block hash by which a reader compares the entry with its own chain.
    pub anchor: Option<BlockAnchor>,
    /// Identity of the chain of the entry's namespace.
    pub identity: ChainIdentity,
    /// Unit of the chain's heights.
    pub heights: HeightUnit,
    /// Position in the stream of purges: no purge up to it covers the entry.
    pub position: u64,
    /// Time at which the request was sent to the node, in milliseconds since 1970.
    pub requested_at: u64,
    /// Time from which on the entry is stale, in milliseconds since 1970.
    pub expires_at: u64,
    /// Present time, in milliseconds since 1970.
    pub stored_at: u64,
    /// Serialized entry.
    pub entry: &'a [u8],
}

/// A value of the fleet whose own checks have succeeded. It may be used if the
/// [chain](super::sharing::check_against_chain) and the purges after its position permit it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetValue {
    /// Attributes of the entry, with generation 0 and epoch 0.
    pub about: StoredEntryAttributes,
    /// Block hash by which the entry is compared with the chain of this owner. The height of an
    /// anchor by the result is the height of the entry.
    pub anchor: Option<BlockAnchor>,
    /// Identity of the chain of the entry's namespace.
    pub identity: ChainIdentity,
    /// Unit of the chain's heights.
    pub heights: HeightUnit,
    /// Position of the writer in the stream of purges.
    pub position: u64,
    /// Time at which the request was sent to the node, in milliseconds since 1970. At most a minute
    /// after the present time.
    pub requested_at: u64,
    /// Time from which on the entry is stale, in milliseconds since 1970. At most 30 days after the
    /// present time.
    pub expires_at: u64,
    /// Time at which the value was written, in milliseconds since 1970.
    pub stored_at: u64,
    /// Serialized entry without a chain dependency; unchecked if there is no key file.
    pub entry: Vec<u8>,
}

/// Encodes a value. Returns `None` if the entry can't be shared (it is invalid, unchecked or of
/// another class, it is unfinalized and has no anchor, it contradicts its attributes or its anchor,
/// or its readers could not check it), or if memory is refused.
pub fn encode_fleet_value(parts: &FleetValueParts<'_>, keyring: &FleetKeyring) -> Option<Vec<u8>> {
    let about = parts.about;
    let class = number_in(&CLASSES, &about.class)?;
    let heights = number_in(&HEIGHT_UNITS, &parts.heights)?;
    let method = about.method.as_deref().unwrap_or_default().as_bytes();
    let entry = wire::without_chain_dependency(parts.entry)?;
    if method_of_bytes(method)? != about.method
        || !is_entry_of_attributes(&entry, about, keyring.is_keyed())
        || !is_anchor_of_attributes(parts.anchor, about)
        || !may_be_without_anchor(about.class) && parts.anchor.is_none()
    {
        return None;
    }
    let (anchor_flag, anchor_hash) = match parts.anchor {
        None => (0, BlockHash::default()),
        Some(BlockAnchor::ByRequest(hash)) => (REQUEST_ANCHOR_FLAG, hash),
        Some(BlockAnchor::ByResult { hash, .. }) => (RESULT_ANCHOR_FLAG, hash),
    };
    let flags = [
        (keyring.is_keyed(), KEYED_FLAG),
        (about.block.is_some(), BLOCK_FLAG),
        (about.height.is_some(), HEIGHT_FLAG),
        (parts.identity.chain_id.is_some(), CHAIN_ID_FLAG),
        (parts.anchor.is_some(), anchor_flag),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set);
    let flags = flags.fold(0_u8, |all, (_, flag)| all | *flag);
    let heights_of_entry = [about.block.unwrap_or(0), about.height.unwrap_or(0)];
    let numbers = [
        parts.position,
        parts.requested_at,
        parts.expires_at,
        parts.stored_at,
    ];
    let mut value = Vec::new();
    let length = HEADER_LENGTH + method.len() + entry.len() + VALUE_TAG_LENGTH;
    value.try_reserve_exact(length).ok()?;
    value.extend_from_slice(&MAGIC);
    value.extend_from_slice(&[flags, class, wire::ENTRY_FORMAT_VERSION, heights]);
    value.extend_from_slice(&parts.identity.chain_id.unwrap_or(0).to_le_bytes());
    value.extend_from_slice(&parts.identity.genesis);
    value.extend_from_slice(&about.namespace);
    value.extend_from_slice(parts.key);
    for height in heights_of_entry {
        value.extend_from_slice(&height.to_le_bytes());
    }
    value.extend_from_slice(&anchor_hash);
    for number in numbers {
        value.extend_from_slice(&number.to_le_bytes());
    }
    value.extend_from_slice(&u32::try_from(entry.len()).ok()?.to_le_bytes());
    value.extend_from_slice(&[u8::try_from(method.len()).ok()?, 0, 0, 0]);
    value.extend_from_slice(method);
    value.extend_from_slice(&entry);
    value.extend_from_slice(&keyring.value_tag(&value));
    Some(value)
}

/// Decodes the value of `key` at `now_unix`, in milliseconds since 1970. Its entry may have
/// `max_entry` bytes, and keeps the allocation of the value. Nothing is allocated before the tag is
/// verified.
///
/// # Errors
/// Returns [`FleetValueRejection`] if the bytes are no value that may be used under this key, or
/// memory is refused.
pub fn decode_fleet_value(
    bytes: Vec<u8>,
    keyring: &FleetKeyring,
    key: &CacheKey,
    now_unix: u64,
    max_entry: usize,
) -> Result<FleetValue, FleetValueRejection> {
    let (value, entry_range) = check_value_bytes(&bytes, keyring, key, now_unix, max_entry)?;
    let mut entry = bytes;
    entry.truncate(entry_range.end);
    drop(entry.drain(..entry_range.start));
    if !keyring.is_keyed() {
        wire::set_unchecked_flag(&mut entry).ok_or(FleetValueRejection::Entry)?;
    }
    Ok(FleetValue { entry, ..value })
}

/// Checks the bytes of a value. Returns the value without its entry, and the place of the entry in
/// the bytes.
fn check_value_bytes(
    bytes: &[u8],
    keyring: &FleetKeyring,
    key: &CacheKey,
    now_unix: u64,
    max_entry: usize,
) -> Result<(FleetValue, Range<usize>), FleetValueRejection> {
    if bytes.len() > max_entry.saturating_add(MAX_OVERHEAD) {
        return Err(FleetValueRejection::TooLong);
    }
    let (fixed, variable) = bytes
        .split_first_chunk::<HEADER_LENGTH>()
        .ok_or(FleetValueRejection::Truncated)?;
    let header = ValueHeader::parse(fixed)?;
    let (method, entry) = header.split_variable_part(variable, max_entry)?;
    let (content, tag) = bytes
        .split_last_chunk::<VALUE_TAG_LENGTH>()
        .ok_or(FleetValueRejection::Truncated)?;
    let is_keyed = keyring.is_keyed();
    if header.is_keyed() != is_keyed || !keyring.verifies_value(tag, content) {
        return Err(FleetValueRejection::Tag);
    }
    if header.key != *key {
        return Err(FleetValueRejection::Key);
    }
    let class = CLASSES
        .get(usize::from(header.class))
        .filter(|class| may_be_without_anchor(**class) || header.flags & ANCHOR_FLAGS != 0)
        .ok_or(FleetValueRejection::Class)?;
    let expires_at = header.expiry_at(now_unix)?;
    let about = StoredEntryAttributes {
        class: *class,
        namespace: header.namespace,
        method: method_of_bytes(method).ok_or(FleetValueRejection::Entry)?,
        block: header.block,
        generation: 0,
        epoch: 0,
        height: header.height,
    };
    let anchor = header.block_anchor()?;
    if !is_anchor_of_attributes(anchor, &about) || !is_entry_of_attributes(entry, &about, is_keyed)
    {
        return Err(FleetValueRejection::Entry);
    }
    let entry_start = HEADER_LENGTH + method.len();
    let entry_range = entry_start..entry_start + entry.len();
    let value = FleetValue {
        about,
        anchor,
        identity: header.identity,
        heights: header.heights,
        position: header.position,
        requested_at: header.requested_at,
        expires_at,
        stored_at: header.stored_at,
        entry: Vec::new(),
    };
    Ok((value, entry_range))
}

/// Returns the number of one of `all` in the format.
fn number_in<T: PartialEq>(all: &[T], one: &T) -> Option<u8> {
    let number = all.iter().position(|other| other == one)?;
    u8::try_from(number).ok()
}

/// Returns the method name that these bytes are; no bytes are no method. Returns `None` if no
/// method has such a name.
fn method_of_bytes(bytes: &[u8]) -> Option<Option<Box<str>>> {
    if bytes.len() > MAX_METHOD_LENGTH || !bytes.iter().all(u8::is_ascii_graphic) {
        return None;
    }
    let method = std::str::from_utf8(bytes).ok()?;
    Some((!method.is_empty()).then(|| method.into()))
}

/// Whether entries of the class may be shared without an anchor: the reader's finality decides then.
fn may_be_without_anchor(class: LifetimeClass) -> bool {
    class == LifetimeClass::Immutable
}

/// Whether the anchor of an entry agrees with its attributes: the whole result belongs to the block
/// of an anchor by the result.
fn is_anchor_of_attributes(anchor: Option<BlockAnchor>, about: &StoredEntryAttributes) -> bool {
    match anchor {
        None | Some(BlockAnchor::ByRequest(_)) => true,
        Some(BlockAnchor::ByResult { height, .. }) => {
            about.height == Some(height) && about.block.is_none_or(|block| block == height)
        }
    }
}

/// Whether these bytes are an entry that owners may share and that has these attributes. Without a
/// key file, the reader must be able to check it strictly.
fn is_entry_of_attributes(entry: &[u8], about: &StoredEntryAttributes, is_keyed: bool) -> bool {
    let Some(properties) = wire::read_shared_entry_properties(entry) else {
        return false;
    };
    let length = entry.len() as u64;
    let max_checked = MAX_CHECKED_LENGTH.max(length.saturating_mul(MAX_CHECKED_RATIO));
    let is_checkable = properties.is_call_response && properties.identity_length <= max_checked;
    properties.class == about.class
        && properties.block == about.block
        && properties.height == about.height
        && !properties.is_unchecked
        && !properties.has_chain_dependency
        && (is_keyed || is_checkable)
}

#[cfg(test)]
mod tests;
