//! The list of types.

use std::fmt::Write;

use sszip_core::ssz::schema::{SszType, TypeKind};
use sszip_core::ssz::{Fork, Preset, Schema};

use crate::resolve_type::suggest_type;

/// Lists the types with their sizes, or the fields of one.
pub fn format_type_listing(
    fork: Fork,
    preset: Preset,
    name: Option<&str>,
) -> Result<String, String> {
    let schema = Schema::for_fork(fork, preset);
    let Some(name) = name else {
        let width = schema
            .named_types()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or(0);
        let line = |(name, ty)| {
            format!(
                "{name:width$}  {}\n",
                format_type_size(schema.type_by_id(ty))
            )
        };
        return Ok(schema.named_types().map(line).collect());
    };
    let Some(ty) = schema.find_type(name) else {
        let suggestion = suggest_type(name, Some(fork), preset);
        return Err(format!("{fork} has no type {name}{suggestion}"));
    };
    let ty = schema.type_by_id(ty);
    let mut text = format!("{}: {}\n", ty.name, format_type_size(ty));
    if let TypeKind::Container(container) = &ty.kind {
        for field in &container.fields {
            let of = &schema.type_by_id(field.ty).name;
            // a write to a String does not fail
            let _ = writeln!(text, "    {}: {of}", field.json_name);
        }
    }
    Ok(text)
}

fn format_type_size(ty: &SszType) -> String {
    match ty.size {
        Some(size) => format!("{size} bytes"),
        None => format!("{} bytes or more", ty.min_size),
    }
}
