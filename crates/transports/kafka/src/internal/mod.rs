//! The transport's own topics, `_helio.*`.

pub(crate) mod internal_topics;
pub(crate) mod ownership_lease;
pub(crate) mod producers;
pub(crate) mod table;
pub(crate) mod writer_table;
