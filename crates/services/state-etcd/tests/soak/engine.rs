//! A real etcd, with its clients, started by `tests/engines/kube`.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

fn program() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/engines/kube")
}

/// An etcd of its own, stopped when it is dropped, or when this process has ended.
pub(crate) struct Etcd {
    started: Value,
}

impl Etcd {
    /// Starts one; none where this machine has no Go to build it.
    pub(crate) fn start() -> Option<Self> {
        let owner = std::process::id().to_string();
        let start = Command::new(program()).args(["start", "--json", "--owner", &owner]).output();
        let start = start.unwrap();
        let errors = String::from_utf8_lossy(&start.stderr);
        if start.status.code() == Some(3) {
            eprintln!("{errors}");
            return None;
        }
        assert!(start.status.success(), "{errors}");
        Some(Self { started: serde_json::from_slice(&start.stdout).unwrap() })
    }

    pub(crate) fn url(&self) -> &str {
        self.started["url"].as_str().unwrap()
    }

    /// The path of one of etcd's programs, such as `etcdctl`.
    pub(crate) fn program(&self, name: &str) -> &str {
        self.started["programs"][name].as_str().unwrap()
    }

    pub(crate) fn version(&self) -> &str {
        self.started["version"].as_str().unwrap()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let folder = self.started["dir"].as_str().unwrap();
        let stopped = Command::new(program()).args(["stop", "--dir", folder]).status();
        assert!(stopped.unwrap().success());
    }
}
