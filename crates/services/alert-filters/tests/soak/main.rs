//! The long tests of helio-alert-filters.
