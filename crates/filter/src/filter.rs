//! A checked filter.

use std::sync::Arc;

use arrow_schema::DataType;

use crate::catalog::Catalog;
use crate::error::CheckError;
use crate::sql::{self, Parts, Source};

/// A filter's text, parsed and type-checked against a catalog.
#[derive(Debug, Clone)]
pub struct Filter {
    text: Arc<str>,
    pub(crate) parts: Parts,
}

impl Filter {
    /// Checks a text such as `SELECT diaSourceId FROM alerts WHERE diaSource.snr > 10`.
    ///
    /// # Errors
    ///
    /// The first part that is not in the language, with its place, or the limit it exceeds.
    pub fn check(text: &str, catalog: &Catalog) -> Result<Self, CheckError> {
        Ok(Self { text: text.into(), parts: sql::check(text, catalog)? })
    }

    /// The text as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The ORDER BY with uniform spaces and keywords, `None` for first come, first served. The
    /// active filters of a user share it.
    #[must_use]
    pub fn ranking(&self) -> Option<&str> {
        self.parts.ranking.as_deref()
    }

    /// Whether the results are whole packets: `SELECT *`.
    #[must_use]
    pub fn is_packet(&self) -> bool {
        self.parts.select.is_none()
    }

    /// The names and Arrow types of the results' columns; empty for whole packets.
    #[must_use]
    pub fn columns(&self, catalog: &Catalog) -> Vec<(String, DataType)> {
        let select = self.parts.select.iter().flatten();
        select
            .map(|column| {
                let arrow = match column.source {
                    Source::Computed(node) => self.parts.tree.node(node).ty.arrow(),
                    Source::Column(index) => catalog.flat(index).arrow.clone(),
                };
                (column.name.clone(), arrow)
            })
            .collect()
    }
}
