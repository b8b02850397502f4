//! Links the library so that it stays loaded until the process ends: a host that closes it would
//! unmap the code of running threads and of thread-local destructors.

fn main() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
