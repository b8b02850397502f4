//! Any text is read as by the reference reader, whole and in pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sszip_fuzz::ssz::{choose_type, laws, naive};

fuzz_target!(|input: &[u8]| {
    let (choices, text) = input.split_at(input.len().min(16));
    let mut choices = naive::Choices(choices);
    let (schema, ty) = choose_type(&mut choices);
    laws::a_text(schema, ty, text, &mut choices);
});
