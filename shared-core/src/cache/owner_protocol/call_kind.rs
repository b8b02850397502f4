//! Kinds of calls, by which the owner knows how long a lookup's response takes the node.

/// The kind of a request that is no JSON-RPC call.
pub const NO_CALL_KIND: u32 = 0;

/// Returns the kind of the calls of a method: a hash of its name, never [`NO_CALL_KIND`]. Methods
/// with equal hashes are one kind, which costs a lease of the fleet at most.
pub fn call_kind(method: &[u8]) -> u32 {
    // FNV-1a
    let hash = method.iter().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    });
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_the_hashes_of_the_specification() {
        assert_eq!(call_kind(b""), 0x811c_9dc5);
        assert_eq!(call_kind(b"a"), 0xe40c_292c);
        assert_eq!(call_kind(b"foobar"), 0xbf9c_f968);
    }
}
