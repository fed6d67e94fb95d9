//! Loads as Kubernetes makes for stores with etcd's API, and audits of what they were answered.
//!
//! It knows etcd's protocol as a client, and what its own writers wrote. It must not know which
//! store answers, nor how that is started or killed.
//!
//! Operation. One thread has all writers and watches of a load. Each value begins with a number
//! that no other write has, so that an audit recognises each write wherever it is found. The audit
//! itself is a function of what was recorded: it reads no clock and no store.

pub mod audit;
pub mod history;
pub mod load;
pub mod objects;
pub mod speed;
pub mod summary;
mod watcher;
mod writer;
