//! Any text is read as by the reference reader, whole and in pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_fuzz::ssz::{choose_type, properties, reference};

fuzz_target!(|input: &[u8]| {
    let (choices, text) = input.split_at(input.len().min(16));
    let mut choices = reference::FuzzedChoices(choices);
    let (schema, ty) = choose_type(&mut choices);
    properties::check_text(schema, ty, text, &mut choices);
});
