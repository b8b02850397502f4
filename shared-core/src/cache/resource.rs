//! Keys of resources, and their entity tags.

use super::vary_key::VaryKey;
use super::CacheKey;

/// Returns the key of a GET's response, by the vary key of the request and the name of the
/// resource. It never equals the key of a call, which is hashed with another context.
pub(crate) fn resource_cache_key(scope: &VaryKey, name: &[u8]) -> CacheKey {
    let mut hasher = blake3::Hasher::new_derive_key("sszip 1 resource");
    hasher.update(&(scope.vary_key_bytes().len() as u64).to_le_bytes());
    hasher.update(scope.vary_key_bytes());
    hasher.update(name);
    *hasher.finalize().as_bytes()
}

/// Returns the key of a resource in one of its two formats. The keys of both formats differ in one
/// bit, so that each can be derived from the other.
pub(crate) fn cache_key_in_format(mut key: CacheKey, is_ssz: bool) -> CacheKey {
    let last = &mut key[size_of::<CacheKey>() - 1];
    *last = *last & !1 | u8::from(is_ssz);
    key
}

/// Returns the key of the same resource in its other format. For a resource without formats it is a
/// key without an entry, as no hash equals it.
pub fn other_format_key(key: &CacheKey) -> CacheKey {
    let mut other = *key;
    other[size_of::<CacheKey>() - 1] ^= 1;
    other
}

/// Returns a strong entity tag, which is a quoted hash of these bytes.
pub(crate) fn strong_etag(body: &[u8]) -> Vec<u8> {
    let hash = blake3::hash(body).to_hex();
    format!("\"{}\"", &hash[..32]).into_bytes()
}
