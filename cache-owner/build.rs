//! A host that closes the library would take the code of running threads, and
//! of thread-local destructors, away: it stays until the process ends.

fn main() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
