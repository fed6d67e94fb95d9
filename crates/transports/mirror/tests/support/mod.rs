//! Certificates, and both ends of a mirror in this process.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use helio_bus::exclusive::{
    ExclusiveError, ExclusiveLog, LogDurability, LogOptions, NewEpoch, Watermark,
};
use helio_bus::{Bus, TopicName};
use helio_mirror::{Dialer, Listener, LogSink, LogSource, MirrorFiles, Options};

/// An authority and what it vouches for, made by `openssl`.
pub(crate) struct Authority(PathBuf);

impl Authority {
    pub(crate) fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).unwrap();
        let authority = Self(folder.to_owned());
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 \
             -subj /CN=authority -keyout ca.key -out ca.crt",
        );
        authority
    }

    /// An authority that was made before.
    pub(crate) fn existing(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    fn openssl(&self, arguments: &str) {
        let words = arguments.split_whitespace();
        let done = Command::new("openssl").args(words).current_dir(&self.0).output();
        let done = done.expect("openssl is on PATH");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Makes a certificate for the local machine.
    pub(crate) fn vouch(&self, name: &str) {
        let names = format!("subjectAltName=DNS:localhost,DNS:{name},IP:127.0.0.1\n");
        fs::write(self.0.join("extensions"), names).unwrap();
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} \
             -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 \
             -extfile extensions -out {name}.crt"
        ));
    }

    pub(crate) fn files(&self, name: &str, allowed: &str) -> MirrorFiles {
        MirrorFiles {
            certificate: self.0.join(format!("{name}.crt")),
            key: self.0.join(format!("{name}.key")),
            authorities: self.0.join("ca.crt"),
            allowed_names: vec![allowed.to_owned()],
        }
    }
}

/// Opens the log of a journal's folder.
pub(crate) fn open(folder: &Path, durability: LogDurability) -> Arc<dyn ExclusiveLog> {
    let bus = Bus::connect(&format!("journal:{}", folder.display())).unwrap();
    let options = LogOptions { durability, ..LogOptions::new("mirror-test") };
    bus.exclusive_log(&TopicName::new("mirrored/log").unwrap(), &options).unwrap()
}

/// Begins an epoch behind all that is stored.
pub(crate) fn begin(log: &dyn ExclusiveLog) -> u64 {
    let number = log.epochs().last().map_or(1, |last| last.number + 1);
    let (start, header) = (log.watermarks().stored, format!("epoch {number}"));
    log.begin_epoch(&NewEpoch { number, start, header: header.as_bytes() }).unwrap();
    number
}

/// Waits for a watermark, also while epochs of a copy begin.
pub(crate) fn reach(log: &dyn ExclusiveLog, mark: Watermark, end: u64) {
    loop {
        match log.wait(mark, end, Some(Duration::from_secs(60))) {
            Ok(_) => return,
            Err(ExclusiveError::Superseded { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// All records, with their offsets.
pub(crate) fn records(log: &dyn ExclusiveLog) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    let first = log.watermarks().first;
    log.scan(first..u64::MAX, Watermark::Stored, &mut |offset, record| {
        all.push((offset, record.to_vec()));
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    all
}

/// Two folders and their certificates.
pub(crate) struct Place {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) authority: Authority,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new(&folder.path().join("certificates"));
        authority.vouch("a");
        authority.vouch("b");
        Self { folder, authority }
    }

    pub(crate) fn log(&self, name: &str) -> Arc<dyn ExclusiveLog> {
        open(&self.folder.path().join(name), LogDurability::Disk)
    }

    pub(crate) fn options(&self, name: &str) -> Options {
        let peer = if name == "a" { "b" } else { "a" };
        Options::new("mirrored/log", self.authority.files(name, peer))
    }

    pub(crate) fn listen(&self, copy: &Arc<dyn ExclusiveLog>) -> Listener {
        let sink = LogSink::new(Arc::clone(copy), LogDurability::Disk).unwrap();
        let options = Options { sink: Some(Box::new(sink)), ..self.options("b") };
        Listener::start("127.0.0.1:0", options).unwrap()
    }

    pub(crate) fn dial(&self, log: &Arc<dyn ExclusiveLog>, listener: &Listener) -> Dialer {
        let source = Some(Box::new(LogSource::new(Arc::clone(log))) as _);
        let options = Options { source, ..self.options("a") };
        Dialer::start(&listener.address().to_string(), options).unwrap()
    }
}
