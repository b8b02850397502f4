//! A chosen value converts in both directions, in pieces of any length, and each part of it is
//! found by its path.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_fuzz::ssz::{choose_type, properties, reference};

fuzz_target!(|input: &[u8]| {
    let mut choices = reference::FuzzedChoices(input);
    let (schema, ty) = choose_type(&mut choices);
    properties::check_value(schema, ty, &mut choices);
});
