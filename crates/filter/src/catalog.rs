//! What filters may name: the columns of a schema, regions and watch lists.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Schema};

use crate::error::nearest;
use crate::sky::Region;
use crate::types::Type;
use crate::watch_list::LiveWatchList;

/// Which columns hold an alert's position and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Right ascension, in degrees, of `in_moc` and `in_watchlist`.
    pub ra: String,
    /// Declination, in degrees.
    pub dec: String,
    /// The alert's time, in days.
    pub time: String,
    /// The field of every history column with a point's time, on the same scale.
    pub history_time: String,
}

impl Layout {
    /// Rubin's alerts.
    #[must_use]
    pub fn rubin() -> Self {
        Self::named("diaSource", "midpointMjdTai")
    }

    /// ZTF's alerts.
    #[must_use]
    pub fn ztf() -> Self {
        Self::named("candidate", "jd")
    }

    fn named(record: &str, time: &str) -> Self {
        Self {
            ra: format!("{record}.ra"),
            dec: format!("{record}.dec"),
            time: format!("{record}.{time}"),
            history_time: time.to_owned(),
        }
    }
}

/// A column of one value an alert.
#[derive(Debug, Clone)]
pub(crate) struct FlatColumn {
    pub(crate) name: String,
    pub(crate) arrow: DataType,
    /// `None` where expressions cannot use it.
    pub(crate) ty: Option<Type>,
}

/// A column of many points an alert.
#[derive(Debug, Clone)]
pub(crate) struct HistoryColumn {
    pub(crate) name: String,
    pub(crate) fields: Vec<FlatColumn>,
    /// The field with a point's time, if the column has one.
    pub(crate) time: Option<usize>,
}

/// What a name of the schema stands for, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Named {
    Flat(usize),
    History(usize),
    Field { history: usize, field: usize },
}

/// What filters may name.
#[derive(Debug, Clone)]
pub struct Catalog {
    layout: Layout,
    flat: Vec<FlatColumn>,
    histories: Vec<HistoryColumn>,
    names: HashMap<String, Named>,
    regions: BTreeMap<String, Arc<Region>>,
    watch_lists: BTreeMap<String, Arc<LiveWatchList>>,
}

impl Catalog {
    /// The columns of a schema. A top-level field is named by its path, such as `diaSource.snr`;
    /// a list of records, such as `prvDiaSources`, is a history column.
    #[must_use]
    pub fn new(schema: &Schema, layout: Layout) -> Self {
        let mut catalog = Self {
            layout,
            flat: Vec::new(),
            histories: Vec::new(),
            names: HashMap::new(),
            regions: BTreeMap::new(),
            watch_lists: BTreeMap::new(),
        };
        for field in schema.fields() {
            match history_fields(field.data_type()) {
                Some(fields) => catalog.add_history(field.name(), fields),
                None => catalog.add_flat(field.name(), field.data_type()),
            }
        }
        catalog
    }

    /// Adds a region by its name, or replaces it.
    #[must_use]
    pub fn with_region(mut self, name: impl Into<String>, region: Region) -> Self {
        self.regions.insert(name.into(), Arc::new(region));
        self
    }

    /// Adds a watch list by its name, or replaces it.
    #[must_use]
    pub fn with_watch_list(mut self, name: impl Into<String>, list: Arc<LiveWatchList>) -> Self {
        self.watch_lists.insert(name.into(), list);
        self
    }

    fn add_flat(&mut self, name: &str, arrow: &DataType) {
        self.names.insert(name.to_owned(), Named::Flat(self.flat.len()));
        self.flat.push(flat_column(name, arrow));
    }

    fn add_history(&mut self, name: &str, fields: &arrow_schema::Fields) {
        let history = self.histories.len();
        self.names.insert(name.to_owned(), Named::History(history));
        let fields: Vec<_> =
            fields.iter().map(|field| flat_column(field.name(), field.data_type())).collect();
        for (index, field) in fields.iter().enumerate() {
            let named = Named::Field { history, field: index };
            self.names.insert(format!("{name}.{}", field.name), named);
        }
        let is_time = |field: &FlatColumn| {
            field.name == self.layout.history_time && field.ty == Some(Type::Float64)
        };
        let time = fields.iter().position(is_time);
        self.histories.push(HistoryColumn { name: name.to_owned(), fields, time });
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn named(&self, name: &str) -> Option<Named> {
        self.names.get(name).copied()
    }

    pub(crate) fn nearest_name(&self, name: &str) -> Option<String> {
        nearest(name, self.names.keys())
    }

    pub(crate) fn flat(&self, index: usize) -> &FlatColumn {
        &self.flat[index]
    }

    pub(crate) fn flat_count(&self) -> usize {
        self.flat.len()
    }

    pub(crate) fn history(&self, index: usize) -> &HistoryColumn {
        &self.histories[index]
    }

    pub(crate) fn history_count(&self) -> usize {
        self.histories.len()
    }

    pub(crate) fn region(&self, name: &str) -> Option<&Arc<Region>> {
        self.regions.get(name)
    }

    pub(crate) fn region_names(&self) -> impl Iterator<Item = &String> {
        self.regions.keys()
    }

    pub(crate) fn watch_list(&self, name: &str) -> Option<&Arc<LiveWatchList>> {
        self.watch_lists.get(name)
    }

    pub(crate) fn watch_list_names(&self) -> impl Iterator<Item = &String> {
        self.watch_lists.keys()
    }
}

fn flat_column(name: &str, arrow: &DataType) -> FlatColumn {
    FlatColumn { name: name.to_owned(), arrow: arrow.clone(), ty: Type::of(arrow) }
}

fn history_fields(arrow: &DataType) -> Option<&arrow_schema::Fields> {
    let DataType::List(item) = arrow else { return None };
    let DataType::Struct(fields) = item.data_type() else { return None };
    Some(fields)
}
