//! Texts of filters, checked against the columns of a stream.

use std::collections::BTreeSet;
use std::sync::Arc;

use helio_filter::{Catalog, Filter, Plan};

use crate::error::CheckFailure;
use crate::python;
use crate::records::{Cost, Language};
use crate::results::result_schema;
use crate::stream::Stream;

/// The line of a text in Python that names its columns.
const COLUMNS: &str = "# columns:";

/// A checked text.
#[derive(Debug, Clone)]
pub struct Checked {
    pub(crate) kind: Kind,
    /// What it reads.
    pub cost: Cost,
    /// The columns that it reads.
    pub columns: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Sql(Arc<Filter>),
    Python,
}

impl Checked {
    /// The ORDER BY with uniform spaces; `None` for first come, first served.
    #[must_use]
    pub fn ranking(&self) -> Option<&str> {
        match &self.kind {
            Kind::Sql(filter) => filter.ranking(),
            Kind::Python => None,
        }
    }

    /// Whether results are whole packets.
    #[must_use]
    pub fn is_packet(&self) -> bool {
        match &self.kind {
            Kind::Sql(filter) => filter.is_packet(),
            Kind::Python => true,
        }
    }

    pub(crate) fn sql(&self) -> Option<&Arc<Filter>> {
        match &self.kind {
            Kind::Sql(filter) => Some(filter),
            Kind::Python => None,
        }
    }
}

/// Checks a text. One in Python is not run: `helio-sandbox` compiles it when it starts.
pub(crate) fn check(
    language: Language,
    text: &str,
    catalog: &Arc<Catalog>,
    stream: &Stream,
) -> Result<Checked, CheckFailure> {
    match language {
        Language::Sql => {
            let filter = Filter::check(text, catalog)?;
            for column in filter.columns(catalog) {
                result_schema(std::slice::from_ref(&column))
                    .map_err(|reason| CheckFailure::Column { column: column.0, reason })?;
            }
            let plan = Plan::new(Arc::clone(catalog), [("filter", &filter)])?;
            let history = plan.history_columns();
            let cost = if history.is_empty() { Cost::Flat } else { Cost::History };
            let columns = plan.flat_columns().iter().chain(history).cloned().collect();
            Ok(Checked { kind: Kind::Sql(Arc::new(filter)), cost, columns })
        }
        Language::Python => {
            let columns = columns_of(text).ok_or(CheckFailure::NoColumns)?;
            for column in &columns {
                python::check_column(stream, column)
                    .map_err(|reason| CheckFailure::Column { column: column.clone(), reason })?;
            }
            Ok(Checked { kind: Kind::Python, cost: Cost::Python, columns })
        }
    }
}

/// The columns that a text in Python names, each once.
fn columns_of(text: &str) -> Option<Vec<String>> {
    let lines = text.lines().take_while(|line| line.is_empty() || line.starts_with('#'));
    let named: BTreeSet<String> = lines
        .filter_map(|line| line.strip_prefix(COLUMNS))
        .flat_map(|names| names.split(','))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    (!named.is_empty()).then(|| named.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_at_the_top_of_a_text() {
        let text = "# A filter.\n# columns: b, a\n# columns: c.d,\nimport numpy\n# columns: e\n";
        assert_eq!(columns_of(text), Some(vec!["a".into(), "b".into(), "c.d".into()]));
        assert_eq!(columns_of("def select(batch): pass\n# columns: a"), None);
    }
}
