//! Links the module with `nodelete`: its threads run until the process ends,
//! even if Envoy unloads it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
