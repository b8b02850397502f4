//! Any bytes are checked, and written as JSON, as by the reference walkers; bytes that pass the
//! check are restored from their JSON.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_fuzz::ssz::{choose_type, properties, reference};

fuzz_target!(|input: &[u8]| {
    let (choices, bytes) = input.split_at(input.len().min(16));
    let mut choices = reference::FuzzedChoices(choices);
    let (schema, ty) = choose_type(&mut choices);
    properties::check_bytes(schema, ty, bytes, &mut choices);
});
