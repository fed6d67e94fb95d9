//! The workspace's packages, as `cargo metadata` tells them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// A package of the workspace.
#[derive(Debug, Default, Clone)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Its folder, from the checkout's root.
    pub(crate) folder: String,
    /// The first file of its library and of each program, from the checkout's root.
    pub(crate) roots: Vec<String>,
    /// The names of the packages it depends on, for tests and builds too.
    pub(crate) dependencies: Vec<String>,
}

/// Asks cargo for the packages of the workspace at `root`.
pub(crate) fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root);
    let output = command.output().map_err(|e| format!("cannot run cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let answer = serde_json::from_slice(&output.stdout);
    let answer: Value = answer.map_err(|e| format!("cargo metadata printed no JSON: {e}"))?;
    Ok(parse(&answer, root))
}

fn parse(answer: &Value, root: &Path) -> Vec<Package> {
    let root = format!("{}/", root.display());
    let relative = |path: &str| path.strip_prefix(&root).unwrap_or(path).to_owned();
    array(&answer["packages"])
        .map(|package| Package {
            name: string(&package["name"]),
            folder: relative(string(&package["manifest_path"]).trim_end_matches("/Cargo.toml")),
            roots: array(&package["targets"])
                .filter(|target| array(&target["kind"]).any(is_library_or_program))
                .map(|target| relative(&string(&target["src_path"])))
                .collect(),
            dependencies: array(&package["dependencies"]).map(|d| string(&d["name"])).collect(),
        })
        .collect()
}

fn is_library_or_program(kind: &Value) -> bool {
    ["lib", "rlib", "cdylib", "proc-macro", "bin"].iter().any(|known| kind == known)
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_relative_to_the_root() {
        let answer = serde_json::json!({"packages": [{
            "name": "helio-core",
            "manifest_path": "/x/crates/core/Cargo.toml",
            "targets": [
                {"kind": ["lib"], "src_path": "/x/crates/core/src/lib.rs"},
                {"kind": ["test"], "src_path": "/x/crates/core/tests/a.rs"},
            ],
            "dependencies": [{"name": "serde"}],
        }]});
        let packages = parse(&answer, Path::new("/x"));
        assert_eq!(packages[0].folder, "crates/core");
        assert_eq!(packages[0].roots, ["crates/core/src/lib.rs"]);
        assert_eq!(packages[0].dependencies, ["serde"]);
    }
}
