//! `include/sszip.h` equals the output of cbindgen for the source of the C ABI.
//!
//! After a change of the ABI: `SSZIP_WRITE_HEADER=1 cargo test --test abi`.

use std::fs;
use std::path::Path;

#[test]
fn committed_header_equals_the_generated_header() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    // file by file: cbindgen would wrap a feature-gated module in #ifdef
    let generated = [
        "known_header",
        "types",
        "config",
        "validated_config",
        "exchange",
        "cache",
        "job",
        "link",
        "status",
        "script",
        "variable",
    ]
    .iter()
    .fold(
        cbindgen::Builder::new().with_config(config),
        |builder, file| builder.with_src(root.join(format!("src/ffi/{file}.rs"))),
    )
    .generate()
    .unwrap();
    let mut header = Vec::new();
    generated.write(&mut header);
    let header = String::from_utf8(header).unwrap();

    let path = root.join("include/sszip.h");
    if std::env::var_os("SSZIP_WRITE_HEADER").is_some() {
        fs::write(&path, &header).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == header,
        "include/sszip.h is not what src/ffi says: SSZIP_WRITE_HEADER=1 cargo test --test abi"
    );
}
