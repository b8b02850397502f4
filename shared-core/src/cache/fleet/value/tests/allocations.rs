//! Tests of the memory in which a value is decoded.

use super::*;

#[test]
fn entry_keeps_the_allocation_of_its_value() {
    for keyring in [keyring(b""), keyring(b"a")] {
        let value = encoded(&keyring);
        let allocation = value.as_ptr();
        let decoded = decode_fleet_value(value, &keyring, &KEY, NOW, MAX_ENTRY).unwrap();
        assert_eq!(decoded.entry.as_ptr(), allocation);
        // its longer head has room, too
        let FleetValue { about, entry, .. } = decoded;
        let dependent = wire::set_chain_dependency(entry, about.class, about.namespace, u64::MAX);
        let dependent = dependent.unwrap();
        assert_eq!(dependent.as_ptr(), allocation);
    }
}
