//! The transport's own topics, `_helio.*`: topics' declarations, schemas and writers. Read
//! `internal_topics` first.

pub(crate) mod internal_topics;
pub(crate) mod ownership_lease;
pub(crate) mod producers;
pub(crate) mod table;
pub(crate) mod writer_table;
