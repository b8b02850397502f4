//! What a resource is stored under, and what it is told from others by.

use super::scope::Scope;
use super::Key;

/// The key of a resource. It never is one of a call: those hash another tag.
pub(crate) fn key_of(scope: &Scope, name: &[u8]) -> Key {
    let mut hasher = blake3::Hasher::new_derive_key("sszip 1 resource");
    hasher.update(&(scope.bytes().len() as u64).to_le_bytes());
    hasher.update(scope.bytes());
    hasher.update(name);
    *hasher.finalize().as_bytes()
}

/// The key of a resource in one of its two formats. Those of both differ in one
/// bit, so that whoever has one knows the other.
pub(crate) fn of_form(mut key: Key, is_ssz: bool) -> Key {
    let last = &mut key[size_of::<Key>() - 1];
    *last = *last & !1 | u8::from(is_ssz);
    key
}

/// The key of the same resource in its other format. What has no formats has none
/// under that key: it is no hash that anything has.
pub fn other_form(key: &Key) -> Key {
    let mut other = *key;
    other[size_of::<Key>() - 1] ^= 1;
    other
}

/// A strong entity tag of these bytes.
pub(crate) fn tag_of(body: &[u8]) -> Vec<u8> {
    let hash = blake3::hash(body).to_hex();
    format!("\"{}\"", &hash[..32]).into_bytes()
}
