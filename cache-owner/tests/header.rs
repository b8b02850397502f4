//! `include/sszip_owner.h` equals the header that cbindgen generates from the C ABI's source.
//!
//! After a change of the ABI: `SSZIP_WRITE_HEADER=1 cargo test --test header`.

#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use std::fs;
use std::path::Path;

#[test]
fn checked_in_header_equals_the_generated_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let generated = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/ffi.rs"))
        .generate()
        .unwrap();
    let mut header = Vec::new();
    generated.write(&mut header);
    let header = String::from_utf8(header).unwrap();

    let path = root.join("include/sszip_owner.h");
    if std::env::var_os("SSZIP_WRITE_HEADER").is_some() {
        fs::create_dir_all(root.join("include")).unwrap();
        fs::write(&path, &header).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == header,
        "include/sszip_owner.h is not what src/ffi.rs says: SSZIP_WRITE_HEADER=1 cargo test --test header"
    );
}
