//! A separate site for each test, on each transport.
#![allow(dead_code, reason = "each test program uses some of it")]

pub(crate) mod faults;

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helio_bus::Bus;
use helio_component::{CallBuilder, Interface, Remote};
use helio_core::sal::Interfaces;

/// Guards tests against hanging; a healthy test never reaches it.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(60);

const INTERFACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/interfaces");

/// A URL of one test, and the interfaces of our own observatory.
pub(crate) struct Site {
    url: String,
    interfaces: Interfaces,
    /// Removed with the site.
    _folder: Option<tempfile::TempDir>,
}

impl Site {
    fn new(url: String, folder: Option<tempfile::TempDir>) -> Self {
        let interfaces = helio_bus::read_interfaces(INTERFACES).unwrap();
        Self { url, interfaces, _folder: folder }
    }

    /// A site in memory.
    pub(crate) fn memory() -> Self {
        static SITES: AtomicU64 = AtomicU64::new(0);
        let number = SITES.fetch_add(1, Ordering::Relaxed);
        Self::new(format!("memory:site{number}"), None)
    }

    /// A site in a journal.
    pub(crate) fn journal() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::new(format!("journal:{}", folder.path().display()), Some(folder))
    }

    /// Its URL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A separate connection.
    pub(crate) fn bus(&self) -> Bus {
        Bus::connect(&self.url).unwrap()
    }

    /// All interfaces.
    pub(crate) fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    /// The interface of a component.
    pub(crate) fn interface(&self, component: &str) -> Interface {
        Interface::of(&self.interfaces, component).unwrap()
    }

    /// The interface of the mount in a release with a different text.
    pub(crate) fn other_mount(&self, text: &str, other: &str) -> Interface {
        let folder = std::path::Path::new(INTERFACES);
        let names = ["SALSubsystems.xml", "SALGenerics.xml", "MTMount/MTMount_Commands.xml"];
        let files = names.map(|name| {
            let whole = std::fs::read_to_string(folder.join(name)).unwrap();
            (name, whole.replace(text, other))
        });
        Interface::of(&Interfaces::load(files).unwrap(), "MTMount").unwrap()
    }

    pub(crate) fn mount(&self) -> Interface {
        self.interface("MTMount")
    }
}

/// The mount's command to move, with all its fields.
pub(crate) fn move_to(remote: &Remote, azimuth: f64) -> CallBuilder {
    remote.command("moveToTarget").set("azimuth", azimuth).set("elevation", 45.0)
}

/// This test program, restricted to one test of a module; `module` is its `module_path!()`. If no
/// test has that name, it runs none and succeeds: the caller must check that the test ran.
pub(crate) fn only(module: &str, test: &str) -> Command {
    let module = module.split_once("::").map_or("", |(_, module)| module);
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", &format!("{module}::{test}"), "--nocapture"]);
    program
}

/// Runs a test in memory and in a journal.
pub(crate) fn on_every_transport(test: impl Fn(&Site)) {
    test(&Site::memory());
    test(&Site::journal());
}
