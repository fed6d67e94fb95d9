//! The transport's own topics, `_helio.*`.

pub(crate) mod internal_topics;
pub(crate) mod ownership_lease;
pub(crate) mod producers;
