//! One resource in two formats. The converted response is stored in addition to the original,
//! and an entry is not sent after a newer one in the other format with another value: a client
//! that requests both would see two states of one resource, and go back in time.

use crate::bytes::Bytes;
use crate::cache::class::Class;
use crate::cache::entry::Entry;
use crate::cache::resource::{key_of, of_form};
use crate::cache::scope::Scope;
use crate::cache::Key;
use crate::memory;
use crate::transcode::chain::Chain;
use crate::transcode::{Format, Negotiated, Transcoder};

/// Returns the key under which a resource is stored.
pub(in crate::exchange) fn key_in(scope: &Scope, name: &[u8], ssz: Option<Negotiated>) -> Key {
    let key = key_of(scope, name);
    match ssz.and_then(Negotiated::format) {
        Some(format) => of_form(key, format == Format::Ssz),
        None => key,
    }
}

/// Whether two entries of one resource, in two formats, have the same value; `false` if they
/// can't be compared. `may_take` receives the bytes that decoding both needs.
pub(in crate::exchange) fn say_the_same(
    negotiated: Negotiated,
    chain: &Chain,
    max_ssz: u64,
    one: &Entry,
    other: &Entry,
    may_take: impl FnOnce(usize) -> bool,
) -> bool {
    let is = |class| one.meta().class == class && other.meta().class == class;
    if is(Class::Immutable) {
        return true;
    }
    if one.meta().status != 200 || other.meta().status != 200 {
        return one.meta().status == other.meta().status;
    }
    let needed = one.decoding_takes().saturating_add(other.decoding_takes());
    if memory::is_short() || !memory::is_there(needed) || !may_take(needed) {
        return false;
    }
    let ssz_of = |entry: &Entry| {
        let plain = entry.decoded()?;
        let fields = &entry.meta().fields;
        let fields = fields
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()));
        let mut types = fields
            .clone()
            .filter(|(name, _)| name.eq_ignore_ascii_case(b"content-type"));
        match Format::of(types.next()?.1)? {
            Format::Ssz => Some(plain),
            Format::Json => {
                let gives = *negotiated.gives;
                let made = Transcoder::new(gives, Format::Ssz, chain, max_ssz, fields);
                let mut made = made.ok()?;
                made.feed(&plain).ok()?;
                let may_take = &mut |room| room as u64 <= max_ssz;
                let mut body = made.finish(&plain, may_take).ok()?.body;
                body.in_order()?;
                Some(Bytes::from(body.into_pieces().0))
            }
        }
    };
    match (ssz_of(one), ssz_of(other)) {
        (Some(one), Some(other)) => *one == *other,
        _ => false,
    }
}
