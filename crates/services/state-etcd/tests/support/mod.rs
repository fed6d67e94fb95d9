//! What both binaries of tests share.

pub(crate) mod authority;
pub(crate) mod cases;
pub(crate) mod memory;
pub(crate) mod metrics;
pub(crate) mod play;

use std::path::Path;
use std::sync::Arc;

use helio_bus::Bus;
use helio_state_etcd::{Description, Served, Server, TlsFiles, listen};
use helio_state_node::{Options, Store};

/// A server with an empty store in memory.
pub(crate) fn serve(tls: Option<TlsFiles>) -> Server {
    let listening = listen("127.0.0.1:0", tls).unwrap();
    let url = format!("http://{}", listening.address());
    let description =
        Description { name: "m".into(), client_urls: vec![url], ..Default::default() };
    listening.serve(Arc::new(memory::Memory::new()), description)
}

/// A store of a folder on a bus.
pub(crate) fn open(bus: &Bus, folder: &Path) -> Arc<Store> {
    Arc::new(Store::open(bus, folder, &Options::new("test")).unwrap())
}

/// A server with a store of its own process.
pub(crate) fn serve_node(store: &Arc<Store>) -> Server {
    let listening = listen("127.0.0.1:0", None).unwrap();
    let description = Description { quota_bytes: 8 << 30, ..Description::default() };
    listening.serve(Arc::new(Served::new(Arc::clone(store), 1, 2)), description)
}
