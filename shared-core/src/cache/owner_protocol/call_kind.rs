//! Kinds of calls, and of requests of the Beacon API, by which the owner knows how long a lookup's
//! response takes the node. A kind is a hash: requests with equal hashes are one kind, which costs a
//! lease of the fleet at most.

/// The kind of a request that is neither a JSON-RPC call nor of the Beacon API.
pub const NO_CALL_KIND: u32 = 0;

/// Bit of the kinds of the Beacon API, whose entries have no method.
const RESOURCE_BIT: u32 = 1 << 31;

/// Initial value of FNV-1a.
const FNV_OFFSET: u32 = 0x811c_9dc5;

/// Returns the kind of the calls of a method: a hash of its name, never [`NO_CALL_KIND`].
pub fn call_kind(method: &[u8]) -> u32 {
    (hash_bytes(FNV_OFFSET, method) & !RESOURCE_BIT).max(1)
}

/// Returns the kind of the requests of a route of the Beacon API: a hash of the names in its path.
pub fn resource_kind<'a>(names: impl Iterator<Item = &'a [u8]>) -> u32 {
    let add = |hash, name| hash_bytes(hash_bytes(hash, name), b"/");
    names.fold(FNV_OFFSET, add) | RESOURCE_BIT
}

/// Whether a kind is one of the Beacon API.
pub fn is_resource_kind(kind: u32) -> bool {
    kind & RESOURCE_BIT != 0
}

/// Continues a hash by FNV-1a.
fn hash_bytes(hash: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(hash, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_has_the_published_values_of_fnv_1a() {
        let hash = |bytes: &[u8]| hash_bytes(FNV_OFFSET, bytes);
        assert_eq!(hash(b""), 0x811c_9dc5);
        assert_eq!(hash(b"a"), 0xe40c_292c);
        assert_eq!(hash(b"foobar"), 0xbf9c_f968);
    }

    #[test]
    fn kind_shows_whether_it_is_of_the_beacon_api() {
        let route = |names: &[&'static [u8]]| resource_kind(names.iter().copied());
        for method in [&b"a"[..], b"foobar", b"eth_call", b"trace_block"] {
            assert!(call_kind(method) != NO_CALL_KIND && !is_resource_kind(call_kind(method)));
            assert!(is_resource_kind(route(&[method])));
        }
        assert!(!is_resource_kind(NO_CALL_KIND));
        // names are delimited
        assert_ne!(route(&[b"ab", b"c"]), route(&[b"a", b"bc"]));
    }
}
