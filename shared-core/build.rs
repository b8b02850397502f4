//! Compiles the RocksDB shim, with the feature `store`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "store")]
    compile_rocks_shim();
}

/// The library is the distribution's (docs/decisions/014).
#[cfg(feature = "store")]
fn compile_rocks_shim() {
    let folder = "src/cache/store";
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .warnings_into_errors(true)
        .extra_warnings(true)
        .file(format!("{folder}/rocks.cc"));
    if std::env::var_os("CARGO_FEATURE_FAULTS").is_some() {
        build.define("SSZIP_ROCKS_FAULTS", None);
    }
    build.compile("sszip_rocks");
    for file in [
        "rocks.cc",
        "rocks_faults.h",
        "rocks_flush.h",
        "rocks_ready.h",
    ] {
        println!("cargo::rerun-if-changed={folder}/{file}");
    }
    println!("cargo::rustc-link-lib=rocksdb");
}
