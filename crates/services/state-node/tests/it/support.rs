//! Stores on a bus in memory.

use std::path::Path;

use helio_bus::Bus;
use helio_state::{
    Previous, PutRequest, RangeRequest, RangeResponse, Revision, WriteRequest, WriteResponse,
};
use helio_state_node::{Options, Store};

pub(crate) fn bus(name: &str) -> Bus {
    Bus::connect(&format!("memory:state-node-{name}")).unwrap()
}

pub(crate) fn open(bus: &Bus, folder: &Path) -> Store {
    Store::open(bus, folder, &Options::new("test")).unwrap()
}

pub(crate) fn put_request(key: &str, value: &str) -> PutRequest {
    let (key, value) = (key.to_owned().into(), Some(value.to_owned().into()));
    PutRequest { key, value, lease: Some(0), previous: Previous::Omit }
}

pub(crate) fn put(store: &Store, key: &str, value: &str) -> Revision {
    match store.write(WriteRequest::Put(put_request(key, value))).wait() {
        Ok(WriteResponse::Put(response)) => response.revision,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn get(key: &str) -> RangeRequest {
    RangeRequest { key: key.to_owned().into(), ..RangeRequest::default() }
}

pub(crate) fn all() -> RangeRequest {
    RangeRequest { range_end: "\0".into(), ..get("\0") }
}

pub(crate) fn value(response: &RangeResponse) -> String {
    String::from_utf8(response.kvs[0].value().to_vec()).unwrap()
}
