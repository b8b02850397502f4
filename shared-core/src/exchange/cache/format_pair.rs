//! One resource in two formats. The converted response is stored in addition to the original,
//! and an entry is not sent after a newer one in the other format with another value: a client
//! that requests both would see two states of one resource, and go back in time.

use crate::bytes::SharedBytes;
use crate::cache::class::LifetimeClass;
use crate::cache::entry::CacheEntry;
use crate::cache::resource::{cache_key_in_format, resource_cache_key};
use crate::cache::vary_key::VaryKey;
use crate::cache::CacheKey;
use crate::memory;
use crate::transcode::chain_spec::PresetAndForkDigests;
use crate::transcode::{BodyFormat, TranscodeRequest, Transcoder};

/// Returns the key under which a resource is stored in the format that is negotiated.
pub(in crate::exchange) fn key_for_negotiated_format(
    scope: &VaryKey,
    name: &[u8],
    ssz: Option<TranscodeRequest>,
) -> CacheKey {
    let key = resource_cache_key(scope, name);
    match ssz.and_then(TranscodeRequest::client_format) {
        Some(format) => cache_key_in_format(key, format == BodyFormat::Ssz),
        None => key,
    }
}

/// Whether two entries of one resource, in two formats, have the same value; `false` if they
/// can't be compared. `may_take` receives the bytes that decoding both needs.
pub(in crate::exchange) fn have_equal_entry_values(
    negotiated: TranscodeRequest,
    chain: &PresetAndForkDigests,
    max_ssz: u64,
    one: &CacheEntry,
    other: &CacheEntry,
    may_take: impl FnOnce(usize) -> bool,
) -> bool {
    let is =
        |class| one.response_metadata().class == class && other.response_metadata().class == class;
    if is(LifetimeClass::Immutable) {
        return true;
    }
    if one.response_metadata().status != 200 || other.response_metadata().status != 200 {
        return one.response_metadata().status == other.response_metadata().status;
    }
    let needed = one
        .decode_memory_bytes()
        .saturating_add(other.decode_memory_bytes());
    if memory::is_memory_short() || !memory::can_allocate_now(needed) || !may_take(needed) {
        return false;
    }
    let ssz_of = |entry: &CacheEntry| {
        let plain = entry.decode_payload()?;
        let fields = &entry.response_metadata().fields;
        let fields = fields
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()));
        let mut types = fields
            .clone()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"content-type"));
        match BodyFormat::from_content_type(types.next()?.1)? {
            BodyFormat::Ssz => Some(plain),
            BodyFormat::Json => {
                let gives = *negotiated.gives;
                let made = Transcoder::new(gives, BodyFormat::Ssz, chain, max_ssz, fields);
                let mut made = made.ok()?;
                made.feed_body_piece(&plain).ok()?;
                let may_take = &mut |room| room as u64 <= max_ssz;
                let mut body = made.finish_conversion(&plain, may_take).ok()?.body;
                body.move_parts_into_order()?;
                Some(SharedBytes::from(body.into_buffer_with_order().0))
            }
        }
    };
    match (ssz_of(one), ssz_of(other)) {
        (Some(one), Some(other)) => *one == *other,
        _ => false,
    }
}
