//! What both binaries of tests share.

pub(crate) mod cases;
pub(crate) mod memory;
pub(crate) mod play;

use std::sync::Arc;

use helio_state_etcd::{Description, Server, TlsFiles, listen};

/// A server with an empty store in memory.
pub(crate) fn serve(tls: Option<TlsFiles>) -> Server {
    let listening = listen("127.0.0.1:0", tls).unwrap();
    let url = format!("http://{}", listening.address());
    let description =
        Description { name: "m".into(), client_urls: vec![url], ..Default::default() };
    listening.serve(Arc::new(memory::Memory::new()), description)
}
