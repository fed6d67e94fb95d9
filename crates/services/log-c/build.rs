//! Gives the shared library its name: programs that are linked by its path find it elsewhere.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libhelio_log.so");
}
