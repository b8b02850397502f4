//! Types, values and properties for the fuzz targets of SSZ.

use std::sync::LazyLock;

use sszip_core::ssz::{Schema, TypeId};

#[path = "../../tests/ssz/properties.rs"]
pub mod properties;
#[path = "../../tests/ssz/reference.rs"]
pub mod reference;
#[path = "../../tests/ssz/roots.rs"]
pub mod roots;

static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| Schema::compile_type_table(reference::TABLE).expect("a table"));

pub fn choose_type(choices: &mut reference::FuzzedChoices<'_>) -> (&'static Schema, TypeId) {
    let types: Vec<TypeId> = SCHEMA.named_types().map(|(_, ty)| ty).collect();
    (&SCHEMA, types[choices.below(types.len())])
}
