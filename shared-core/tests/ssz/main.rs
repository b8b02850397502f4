//! The walkers of SSZ, compared with reference walkers on types of each kind, and hash tree
//! roots.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

mod edge_cases;
mod hash_tree_root;
mod properties;
mod recorded_responses;
mod reference;
mod roots;
#[path = "../support/tier.rs"]
mod tier;
mod tree;
mod witness;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use sszip_core::ssz::{Schema, TypeId};

use reference::{FuzzedChoices, TABLE};
use tier::times;

/// Returns the folder of recorded responses, if it exists next to the project.
fn corpus() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    folder.is_dir().then_some(folder)
}

fn schema() -> &'static Schema {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| Schema::compile_type_table(TABLE).unwrap());
    &SCHEMA
}

fn types(schema: &Schema) -> Vec<TypeId> {
    schema.named_types().map(|(_, ty)| ty).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(times(500, 1_500)))]

    #[test]
    fn values_convert_in_both_directions(choices in prop::collection::vec(any::<u8>(), 0..3000)) {
        let schema = schema();
        let mut choices = FuzzedChoices(&choices);
        let types = types(schema);
        let ty = types[choices.below(types.len())];
        properties::check_value(schema, ty, &mut choices);
    }

    #[test]
    fn changed_texts_are_read_as_by_the_reference(
        choices in prop::collection::vec(any::<u8>(), 0..2000),
        at in any::<prop::sample::Index>(),
        change in 0..5,
        byte in prop::sample::select(b"\"\\,:{}[]0x19aFg-+.e nt\x00\xff\xc3".to_vec()),
    ) {
        let schema = schema();
        let mut choices = FuzzedChoices(&choices);
        let types = types(schema);
        let ty = types[choices.below(types.len())];
        let json = reference::choose(schema, ty, &mut choices);
        let mut text = properties::write(&json, &mut choices).into_bytes();
        let at = at.index(text.len());
        match change {
            0 => text.truncate(at),
            1 => text[at] = byte,
            2 => text.insert(at, byte),
            3 => { text.remove(at); }
            _ => text.extend([byte, b' ']),
        }
        properties::check_text(schema, ty, &text, &mut choices);
    }

    #[test]
    fn changed_bytes_are_checked_as_by_the_reference(
        choices in prop::collection::vec(any::<u8>(), 0..2000),
        at in any::<prop::sample::Index>(),
        change in 0..4,
        byte in prop_oneof![any::<u8>(), 0..2_u8, Just(255)],
    ) {
        let schema = schema();
        let mut choices = FuzzedChoices(&choices);
        let types = types(schema);
        let ty = types[choices.below(types.len())];
        let json = reference::choose(schema, ty, &mut choices);
        let mut ssz = reference::to_ssz(schema, ty, &json).unwrap();
        let at = at.index(ssz.len().max(1));
        match (change, ssz.get_mut(at)) {
            (0, Some(at)) => *at = byte,
            (1, Some(_)) => { ssz.remove(at); }
            (2, _) => ssz.insert(at, byte),
            _ => ssz.push(byte),
        }
        properties::check_bytes(schema, ty, &ssz, &mut choices);
    }
}

/// The types include containers that are converted in one step as long as they are valid.
#[test]
fn containers_with_any_changed_byte_are_read_as_by_the_reference() {
    let mut schema = Schema::compile_type_table(TABLE).unwrap();
    for (name, seed) in [("Vote", 3), ("Flags", 9), ("Named", 5), ("LongerNamed", 5)] {
        let ty = schema.parse_type(&format!("List[{name}, 4]")).unwrap();
        let choices: Vec<u8> = (0..200_u8).map(|n| n.wrapping_mul(seed)).collect();
        let one = schema.find_type(name).unwrap();
        let mut choices = FuzzedChoices(&choices);
        let all = (0..3).map(|_| reference::choose(&schema, one, &mut choices));
        let json = reference::Json::Array(all.collect());
        let text = json.write().into_bytes();
        for at in 0..text.len() {
            let byte = text[at];
            let others = [byte ^ 0x80, byte ^ 0x20, byte ^ 1];
            for other in others.iter().chain(b"\"09fF, {}tx\\") {
                let mut changed = text.clone();
                changed[at] = *other;
                properties::check_text(&schema, ty, &changed, &mut FuzzedChoices(&[2, 255, 255]));
            }
        }
        let ssz = reference::to_ssz(&schema, ty, &json).unwrap();
        for at in 0..ssz.len() {
            for other in [ssz[at] ^ 0x80, ssz[at].wrapping_add(1), 0, 255] {
                let mut changed = ssz.clone();
                changed[at] = other;
                properties::check_bytes(&schema, ty, &changed, &mut FuzzedChoices(&[1, 7, 200]));
            }
        }
    }
}
