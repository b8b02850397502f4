//! Generated documents: `docs/methods.md` equals the method tables, and
//! `configs/envoy/sszip.schema.json` and the head of each section of `docs/directives.md` equal
//! the setting tables, and the tables of `docs/transcoding.md` equal the routes of the Beacon API.
//!
//! After a change of these: `SSZIP_WRITE_DOCS=1 cargo test --test docs`.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

#[path = "support/beacon_routes_page.rs"]
mod beacon_routes_page;
#[path = "support/method_lists.rs"]
mod method_lists;
#[path = "support/methods_page.rs"]
mod methods_page;

use std::fs;
use std::path::Path;

use sszip_core::config::directive_page;
use sszip_core::config::json_schema::settings_json_schema;

/// Returns whether the file has this text; with `SSZIP_WRITE_DOCS` it is written first.
fn is_current(name: &str, text: &str) -> bool {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    if std::env::var_os("SSZIP_WRITE_DOCS").is_some() {
        fs::write(&path, text).unwrap();
    }
    fs::read_to_string(&path).unwrap_or_default() == text
}

#[test]
fn committed_method_table_equals_the_generated_page() {
    assert!(
        is_current("docs/methods.md", &methods_page::methods_page()),
        "docs/methods.md differs from the method table: SSZIP_WRITE_DOCS=1 cargo test --test docs"
    );
}

/// Returns the page with the head of each section as the settings define it. The text below a
/// head is written by hand.
fn insert_directive_heads(mut text: String) -> String {
    for (directive, head) in directive_page::directive_section_heads() {
        let above = format!("\n### {directive}\n\n```\n");
        let at = text.find(&above).map(|at| at + above.len());
        let at = at
            .unwrap_or_else(|| panic!("docs/directives.md has no section {directive} with a head"));
        let end = text[at..].find("```").unwrap();
        text.replace_range(at..at + end, &head);
    }
    text
}

#[test]
fn heads_of_the_directives_equal_the_settings() {
    let name = "docs/directives.md";
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    let text = insert_directive_heads(fs::read_to_string(page).unwrap());
    assert!(
        is_current(name, &text),
        "{name} differs from the settings table: SSZIP_WRITE_DOCS=1 cargo test --test docs"
    );
}

#[test]
fn committed_schema_equals_the_generated_schema() {
    let name = "configs/envoy/sszip.schema.json";
    assert!(
        is_current(name, &format!("{:#}\n", settings_json_schema())),
        "{name} differs from the settings table: SSZIP_WRITE_DOCS=1 cargo test --test docs"
    );
}

#[test]
fn tables_of_the_transcoding_page_equal_the_route_tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let name = "docs/transcoding.md";
    let operations = fs::read_to_string(root.join("tests/beacon/operations.tsv")).unwrap();
    let page = fs::read_to_string(root.join(name)).unwrap();
    let text = beacon_routes_page::insert_route_tables(page, &operations);
    assert!(
        is_current(name, &text),
        "{name} differs from the route tables: SSZIP_WRITE_DOCS=1 cargo test --test docs"
    );
}
