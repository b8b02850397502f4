//! The fields of fixed length of a value in the fleet.

use crate::cache::chain::{BlockHash, ChainIdentity, HeightUnit};
use crate::cache::entry::wire;
use crate::cache::fleet::keyring::VALUE_TAG_LENGTH;
use crate::cache::freshness::BlockAnchor;
use crate::cache::{CacheKey, CacheNamespace};

named_enum! {
    /// The reason why the bytes of a value are not used. Each of them is a miss.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    FleetValueRejection
    /// The value is longer than the limit.
    TooLong "too_long",
    /// The value is shorter or longer than its lengths specify.
    Truncated "truncated",
    /// The bytes are no value, or a value of another version of the format or of the entry's format.
    Version "version",
    /// The value is damaged, or its writer has another key file.
    Tag "tag",
    /// The value is the value of another cache key.
    Key "key",
    /// Values of the class are not shared, or not without an anchor.
    Class "class",
    /// The entry has expired, or its times are impossible.
    Time "time",
    /// The entry is invalid or contradicts the value's header, or memory is refused.
    Entry "entry",
}

/// Magic and version. The version changes with every change of the format; values of another
/// version are misses.
pub(super) const MAGIC: [u8; 4] = *b"SZF\x01";

/// Length of all that precedes the method, in bytes.
pub(super) const HEADER_LENGTH: usize = 184;

pub(super) const KEYED_FLAG: u8 = 1;
pub(super) const BLOCK_FLAG: u8 = 2;
pub(super) const HEIGHT_FLAG: u8 = 4;
pub(super) const CHAIN_ID_FLAG: u8 = 8;
pub(super) const REQUEST_ANCHOR_FLAG: u8 = 16;
pub(super) const RESULT_ANCHOR_FLAG: u8 = 32;
pub(super) const ANCHOR_FLAGS: u8 = REQUEST_ANCHOR_FLAG | RESULT_ANCHOR_FLAG;
pub(super) const ALL_FLAGS: u8 =
    KEYED_FLAG | BLOCK_FLAG | HEIGHT_FLAG | CHAIN_ID_FLAG | ANCHOR_FLAGS;

/// The units of heights, by their numbers in the format.
pub(super) const HEIGHT_UNITS: [HeightUnit; 2] = [HeightUnit::Blocks, HeightUnit::Slots];

/// Maximum time by which the clock of a writer may be ahead, in milliseconds.
const MAX_CLOCK_DIFFERENCE_MS: u64 = 60_000;

/// Maximum remaining lifetime of an entry at its reader, in milliseconds: 30 days.
pub(super) const MAX_LIFETIME_MS: u64 = 30 * 86_400_000;

/// The fields of fixed length of a value.
pub(super) struct ValueHeader {
    pub(super) flags: u8,
    pub(super) class: u8,
    pub(super) heights: HeightUnit,
    pub(super) identity: ChainIdentity,
    pub(super) namespace: CacheNamespace,
    pub(super) key: CacheKey,
    pub(super) block: Option<u64>,
    pub(super) height: Option<u64>,
    pub(super) anchor_hash: BlockHash,
    pub(super) position: u64,
    pub(super) requested_at: u64,
    pub(super) expires_at: u64,
    pub(super) stored_at: u64,
    pub(super) entry_length: usize,
    pub(super) method_length: usize,
}

impl ValueHeader {
    /// Parses the fields. Only the format is checked.
    pub(super) fn parse(bytes: &[u8; HEADER_LENGTH]) -> Result<Self, FleetValueRejection> {
        let mut fields = FieldReader { rest: bytes };
        if fields.read_bytes::<4>()? != MAGIC {
            return Err(FleetValueRejection::Version);
        }
        let [flags, class, entry_version, heights] = fields.read_bytes::<4>()?;
        if flags & !ALL_FLAGS != 0 || entry_version != wire::ENTRY_FORMAT_VERSION {
            return Err(FleetValueRejection::Version);
        }
        let heights = HEIGHT_UNITS
            .get(usize::from(heights))
            .ok_or(FleetValueRejection::Version)?;
        let chain_id = fields.read_optional_number(flags & CHAIN_ID_FLAG)?;
        let header = Self {
            flags,
            class,
            heights: *heights,
            identity: ChainIdentity {
                chain_id,
                genesis: fields.read_bytes()?,
            },
            namespace: fields.read_bytes()?,
            key: fields.read_bytes()?,
            block: fields.read_optional_number(flags & BLOCK_FLAG)?,
            height: fields.read_optional_number(flags & HEIGHT_FLAG)?,
            anchor_hash: fields.read_bytes()?,
            position: fields.read_number()?,
            requested_at: fields.read_number()?,
            expires_at: fields.read_number()?,
            stored_at: fields.read_number()?,
            entry_length: usize::try_from(u32::from_le_bytes(fields.read_bytes()?))
                .map_err(|_| FleetValueRejection::TooLong)?,
            method_length: usize::from(u8::from_le_bytes(fields.read_bytes()?)),
        };
        let has_anchor = flags & ANCHOR_FLAGS != 0;
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        match (has_anchor || is_zero(&header.anchor_hash)) && is_zero(fields.rest) {
            true => Ok(header),
            false => Err(FleetValueRejection::Version),
        }
    }

    /// Returns the anchor; one by the result has the height of the value.
    pub(super) fn block_anchor(&self) -> Result<Option<BlockAnchor>, FleetValueRejection> {
        let hash = self.anchor_hash;
        match (self.flags & ANCHOR_FLAGS, self.height) {
            (0, _) => Ok(None),
            (REQUEST_ANCHOR_FLAG, _) => Ok(Some(BlockAnchor::ByRequest(hash))),
            (RESULT_ANCHOR_FLAG, Some(height)) => Ok(Some(BlockAnchor::ByResult { height, hash })),
            // an anchor without its height, or two anchors
            _ => Err(FleetValueRejection::Version),
        }
    }

    pub(super) fn is_keyed(&self) -> bool {
        self.flags & KEYED_FLAG != 0
    }

    /// Returns the method and the entry in the bytes after the header, which have exactly the
    /// lengths of the header.
    pub(super) fn split_variable_part<'a>(
        &self,
        bytes: &'a [u8],
        max_entry: usize,
    ) -> Result<(&'a [u8], &'a [u8]), FleetValueRejection> {
        if self.entry_length > max_entry {
            return Err(FleetValueRejection::TooLong);
        }
        let (method, rest) = bytes
            .split_at_checked(self.method_length)
            .ok_or(FleetValueRejection::Truncated)?;
        let (entry, tag) = rest
            .split_at_checked(self.entry_length)
            .ok_or(FleetValueRejection::Truncated)?;
        match tag.len() == VALUE_TAG_LENGTH {
            true => Ok((method, entry)),
            false => Err(FleetValueRejection::Truncated),
        }
    }

    /// Returns the limited time of expiry, if the times are possible and the entry is fresh.
    pub(super) fn expiry_at(&self, now: u64) -> Result<u64, FleetValueRejection> {
        // the clock of the writer may be wrong: that costs hits
        let latest = now.saturating_add(MAX_CLOCK_DIFFERENCE_MS);
        let is_past = self.requested_at <= latest && self.stored_at <= latest;
        match is_past && self.expires_at > now.max(self.requested_at) {
            true => Ok(self.expires_at.min(now.saturating_add(MAX_LIFETIME_MS))),
            false => Err(FleetValueRejection::Time),
        }
    }
}

/// Reader of fields of fixed length, one after the other.
struct FieldReader<'a> {
    rest: &'a [u8],
}

impl FieldReader<'_> {
    fn read_bytes<const N: usize>(&mut self) -> Result<[u8; N], FleetValueRejection> {
        let (field, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(FleetValueRejection::Truncated)?;
        self.rest = rest;
        Ok(*field)
    }

    fn read_number(&mut self) -> Result<u64, FleetValueRejection> {
        Ok(u64::from_le_bytes(self.read_bytes()?))
    }

    /// Reads a number that is present if `flag` is not 0. The field of an absent number is 0.
    fn read_optional_number(&mut self, flag: u8) -> Result<Option<u64>, FleetValueRejection> {
        match (flag, self.read_number()?) {
            (0, 0) => Ok(None),
            (0, _) => Err(FleetValueRejection::Version),
            (_, number) => Ok(Some(number)),
        }
    }
}
