//! Certificates for tests. Other packages' tests include it by its path.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// An authority and what it vouches for, made by `openssl`.
pub(crate) struct Authority(tempfile::TempDir);

impl Authority {
    pub(crate) fn new() -> Self {
        let authority = Self(tempfile::tempdir().unwrap());
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
             -subj /CN=authority -keyout ca.key -out ca.crt",
        );
        authority
    }

    fn openssl(&self, arguments: &str) {
        let done = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .expect("openssl is on PATH");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes NAME.crt and NAME.key.
    pub(crate) fn vouch(&self, name: &str, extensions: &str) {
        fs::write(self.path("extensions"), extensions).unwrap();
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /O=observatory/CN={name} \
             -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
             -extfile extensions -out {name}.crt"
        ));
    }
}
