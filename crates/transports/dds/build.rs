//! Checks the prerequisites of Cyclone DDS before building it, which takes minutes.

use std::process::{Command, Stdio};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=LIBCLANG_PATH");
    let cmake = std::env::var("CMAKE").unwrap_or_else(|_| "cmake".to_owned());
    let version = Command::new(&cmake).arg("--version").stdout(Stdio::null()).status();
    assert!(
        version.is_ok_and(|status| status.success()),
        "building the DDS transport needs cmake, and `{cmake}` was not found: `scripts/setup rust \
         .venv` installs it on Debian (package cmake), or build without the feature `dds`"
    );
    if let Err(why) = clang_sys::load() {
        panic!(
            "building the DDS transport needs libclang, which was not found ({why}): \
             `scripts/setup rust .venv` installs it on Debian (package libclang-dev); elsewhere, \
             set LIBCLANG_PATH to its folder (PyPI's wheel `libclang` has it) or build without \
             the feature `dds`"
        );
    }
}
