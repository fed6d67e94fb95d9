//! Dependencies point one way: core, journal, bus, transports, services, doors.

use std::collections::BTreeMap;

use crate::Finding;
use crate::metadata::Package;

/// A layer: the folders it consists of, from the bottom up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Core,
    /// What transports and services share, and what knows nothing else of ours.
    Ground,
    Journal,
    Bus,
    Transport,
    /// The list of all transports, for doors.
    AllTransports,
    /// What several services share, and no door of `make demo`.
    Library,
    /// By which the other services log, too.
    Logging,
    Service,
    /// What the programs of the command line share.
    Console,
    Door,
    /// Programs of the house, which depend on nothing of ours.
    Tool,
}

fn layer(folder: &str) -> Option<Layer> {
    Some(match folder {
        "crates/core" => Layer::Core,
        "crates/tls" => Layer::Ground,
        "crates/journal" => Layer::Journal,
        "crates/bus" => Layer::Bus,
        "crates/cli" | "crates/gateway" | "crates/services/log-c" | "python" => Layer::Door,
        "crates/alerts-cli" => Layer::Door,
        "crates/console" => Layer::Console,
        "crates/columns" | "crates/filter" | "crates/http" | "crates/sandbox" => Layer::Library,
        "crates/xtask" => Layer::Tool,
        "crates/services/logging" => Layer::Logging,
        "crates/transports/all" => Layer::AllTransports,
        _ if folder.starts_with("crates/transports/") => Layer::Transport,
        _ if folder.starts_with("crates/services/") => Layer::Service,
        _ if folder.starts_with("clients/") => Layer::Door,
        _ => return None,
    })
}

/// Whether a package of one layer may depend on one of another.
fn may_use(from: Layer, to: Layer) -> bool {
    match from {
        Layer::Tool | Layer::Ground => false,
        // No service knows a transport or the journal: what it has is the bus.
        Layer::Logging | Layer::Library => matches!(to, Layer::Core | Layer::Ground | Layer::Bus),
        Layer::Service => {
            matches!(to, Layer::Core | Layer::Ground | Layer::Bus | Layer::Logging | Layer::Library)
        }
        Layer::Console => matches!(to, Layer::Core | Layer::Bus | Layer::AllTransports),
        _ => to < from,
    }
}

/// Services that other services may use: the service, and how the folders of its users begin.
const FAMILIES: &[(&str, &str)] = &[
    ("crates/services/alerts", "crates/services/alert-"),
    ("crates/services/state", "crates/services/state-"),
    ("crates/services/state-node", "crates/services/state-etcd"),
    ("crates/services/state-etcd", "crates/services/state-load"),
];

/// Whether a service belongs to another one, and may use it.
fn is_satellite(folder: &str, of: &str) -> bool {
    FAMILIES.iter().any(|(service, users)| *service == of && folder.starts_with(users))
}

pub(crate) fn check(packages: &[Package]) -> Vec<Finding> {
    let by_name: BTreeMap<&str, &Package> = packages.iter().map(|p| (p.name.as_str(), p)).collect();
    packages.iter().flat_map(|package| check_package(package, &by_name)).collect()
}

fn check_package(package: &Package, all: &BTreeMap<&str, &Package>) -> Vec<Finding> {
    let manifest = format!("{}/Cargo.toml", package.folder);
    let finding = |message: String| Finding::new(&manifest, 1, "layers", message);
    let Some(from) = layer(&package.folder) else {
        let message = format!("{} is in no layer; name it in xtask's layers.rs", package.folder);
        return vec![finding(message)];
    };
    let ours = package.dependencies.iter().filter_map(|name| all.get(name.as_str()));
    let may = |to: &&&Package| {
        // A crate that names itself switches a feature on for its own tests.
        to.name == package.name
            || is_satellite(&package.folder, &to.folder)
            || layer(&to.folder).is_none_or(|to| may_use(from, to))
    };
    ours.filter(|to| !may(to))
        .map(|to| finding(format!("{} ({from:?}) must not depend on {}", package.name, to.name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, dependencies: &[&str]) -> Package {
        Package {
            name: name.into(),
            folder: folder.into(),
            roots: Vec::new(),
            dependencies: dependencies.iter().map(|d| (*d).to_owned()).collect(),
        }
    }

    fn findings(dependency: (&str, &str), dependent: &str) -> usize {
        check(&[package("a", dependency.0, &[]), package("b", dependent, &[dependency.1])]).len()
    }

    #[test]
    fn a_lower_layer_may_be_used() {
        assert_eq!(findings(("crates/core", "a"), "crates/journal"), 0);
        assert_eq!(findings(("crates/bus", "a"), "python"), 0);
        assert_eq!(findings(("crates/transports/dds", "a"), "crates/transports/all"), 0);
        assert_eq!(findings(("crates/transports/all", "a"), "crates/services/log-c"), 0);
        assert_eq!(findings(("crates/bus", "a"), "crates/services/alerts"), 0);
        assert_eq!(findings(("crates/core", "serde"), "crates/core"), 0);
    }

    #[test]
    fn a_higher_layer_and_a_neighbour_may_not() {
        assert_eq!(findings(("crates/bus", "a"), "crates/core"), 1);
        assert_eq!(findings(("crates/transports/dds", "a"), "crates/transports/kafka"), 1);
        assert_eq!(findings(("crates/cli", "a"), "python"), 1);
        assert_eq!(findings(("crates/transports/all", "a"), "crates/transports/kafka"), 1);
    }

    #[test]
    fn a_service_knows_the_bus_only() {
        assert_eq!(findings(("crates/transports/dds", "a"), "crates/services/alerts"), 1);
        assert_eq!(findings(("crates/transports/all", "a"), "crates/services/alerts"), 1);
        assert_eq!(findings(("crates/journal", "a"), "crates/services/state"), 1);
        assert_eq!(findings(("crates/services/state", "a"), "crates/services/alerts"), 1);
    }

    #[test]
    fn services_log_and_what_they_log_by_is_the_bus_alone() {
        assert_eq!(findings(("crates/services/logging", "a"), "crates/services/alerts"), 0);
        assert_eq!(findings(("crates/services/logging", "a"), "crates/transports/dds"), 1);
        assert_eq!(findings(("crates/services/alerts", "a"), "crates/services/logging"), 1);
        assert_eq!(findings(("crates/services/alerts", "a"), "crates/services/alert-filters"), 0);
        assert_eq!(findings(("crates/services/alert-filters", "a"), "crates/services/alerts"), 1);
        assert_eq!(findings(("crates/journal", "a"), "crates/services/logging"), 1);
    }

    #[test]
    fn libraries_lie_between_the_bus_and_services() {
        assert_eq!(findings(("crates/bus", "a"), "crates/columns"), 0);
        assert_eq!(findings(("crates/columns", "a"), "crates/services/alerts"), 0);
        assert_eq!(findings(("crates/columns", "a"), "python"), 0);
        assert_eq!(findings(("crates/columns", "a"), "crates/filter"), 1);
        assert_eq!(findings(("crates/columns", "a"), "crates/services/logging"), 1);
        assert_eq!(findings(("crates/services/logging", "a"), "crates/columns"), 1);
    }

    #[test]
    fn programs_share_a_console_that_knows_no_service() {
        assert_eq!(findings(("crates/console", "a"), "crates/alerts-cli"), 0);
        assert_eq!(findings(("crates/transports/all", "a"), "crates/console"), 0);
        assert_eq!(findings(("crates/services/alerts", "a"), "crates/console"), 1);
        assert_eq!(findings(("crates/cli", "a"), "crates/alerts-cli"), 1);
    }

    #[test]
    fn every_package_is_in_a_layer() {
        assert_eq!(check(&[package("x", "crates/misc", &[])]).len(), 1);
    }
}
