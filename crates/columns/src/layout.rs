//! Columns and their Arrow types.
//!
//! | Avro | Arrow |
//! | --- | --- |
//! | `boolean`, `int`, `long`, `float`, `double` | Boolean, Int32, Int64, Float32, Float64 |
//! | `bytes`, `string` | Binary, Utf8 |
//! | `fixed` | FixedSizeBinary up to 64 bytes, else Binary |
//! | `enum` | Dictionary of Int32 and Utf8; its values are the symbols |
//! | `null` | Null |
//! | `array` | List; its item is a value, or a Struct of the selected members |
//! | `map` | Map of Utf8 and the value |
//! | `record` | none outside arrays and maps: its fields are columns named by their paths |
//! | union with `null` | the other type |
//! | union of several types | as a record of its branches, of which all but one are null |
//! | `date`, `time-millis`, `time-micros` | Date32, Time32, Time64 |
//! | `timestamp-…`, `local-timestamp-…` | Timestamp with the zone UTC, or without one |
//! | `int8` to `uint64` | Int8, UInt8, Int16, UInt16, UInt32, UInt64 |
//! | `ndarray` | List of the elements, last index first to vary; metadata `dtype` and `shape` |
//! | other logical types | the type below, and the metadata `logicalType` |
//!
//! A field's `units` and `description` are the metadata of the same names; `enumeration` is the
//! JSON of its labels.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Fields, Schema as ArrowSchema, SchemaRef, TimeUnit};
use helio_core::projection::{Kind, Shape, ShapeError, Slot};
use helio_core::schema::{DType, LogicalType, Schema};

use crate::builders::MAX_FIXED;

/// Columns that are read from samples of one or several schemas. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Layout(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    schemas: Vec<Schema>,
    paths: Vec<String>,
    shape: Shape,
    fields: Vec<Arc<Field>>,
    schema: SchemaRef,
}

impl Layout {
    /// Selects columns by their paths, in this order; see [`Shape`] for paths.
    ///
    /// # Errors
    /// [`ShapeError`] names a path that is in none of the schemas, or a field whose types in the
    /// schemas have no common type.
    pub fn new<P: AsRef<str>>(schemas: &[Schema], paths: &[P]) -> Result<Self, ShapeError> {
        let shape = Shape::new(schemas, paths)?;
        let fields = fields(shape.slots());
        let columns: Fields = shape.columns().iter().map(|slot| fields[*slot].clone()).collect();
        let schema = Arc::new(ArrowSchema::new(columns));
        let paths = paths.iter().map(|path| path.as_ref().to_owned()).collect();
        Ok(Self(Arc::new(Inner { schemas: schemas.to_vec(), paths, shape, fields, schema })))
    }

    /// Returns the layout for a further schema, too. Columns may get wider types.
    ///
    /// # Errors
    /// [`ShapeError`] names a field whose types in the schemas have no common type.
    pub fn with(&self, schema: &Schema) -> Result<Self, ShapeError> {
        let mut schemas = self.0.schemas.clone();
        schemas.push(schema.clone());
        Self::new(&schemas, &self.0.paths)
    }

    /// Returns the layout without lists and maps.
    ///
    /// # Errors
    /// None that [`Layout::new`] did not report.
    pub fn flat(&self) -> Result<Self, ShapeError> {
        let slots = self.0.shape.slots();
        let columns = self.0.shape.columns().iter().map(|slot| &slots[*slot]);
        let flat = columns.filter(|slot| !matches!(slot.kind, Kind::List | Kind::Map));
        let paths: Vec<&str> = flat.map(|slot| slot.name.as_str()).collect();
        Self::new(&self.0.schemas, &paths)
    }

    /// The schema of its batches.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        &self.0.schema
    }

    /// The columns in Avro's terms.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The Arrow field of each slot.
    pub(crate) fn fields(&self) -> &[Arc<Field>] {
        &self.0.fields
    }
}

/// The Arrow field of each slot. Slots come after their holders.
fn fields(slots: &[Slot]) -> Vec<Arc<Field>> {
    let unknown = Arc::new(Field::new("", DataType::Null, true));
    let mut fields = vec![unknown; slots.len()];
    for (place, slot) in slots.iter().enumerate().rev() {
        let child = |child: &usize| fields[*child].clone();
        let kind = data_type(slot, slot.children.iter().map(child).collect());
        let field = Field::new(&slot.name, kind, true).with_metadata(metadata(slot));
        fields[place] = Arc::new(field);
    }
    fields
}

fn data_type(slot: &Slot, children: Fields) -> DataType {
    use LogicalType as L;
    let utc = || Some(Arc::from("UTC"));
    match (&slot.kind, slot.logical) {
        (Kind::Int, Some(L::Date)) => DataType::Date32,
        (Kind::Int, Some(L::TimeMillis)) => DataType::Time32(TimeUnit::Millisecond),
        (Kind::Long, Some(L::TimeMicros)) => DataType::Time64(TimeUnit::Microsecond),
        (Kind::Long, Some(L::TimestampMillis)) => DataType::Timestamp(TimeUnit::Millisecond, utc()),
        (Kind::Long, Some(L::TimestampMicros)) => DataType::Timestamp(TimeUnit::Microsecond, utc()),
        (Kind::Long, Some(L::TimestampNanos)) => DataType::Timestamp(TimeUnit::Nanosecond, utc()),
        (Kind::Long, Some(L::LocalTimestampMillis)) => {
            DataType::Timestamp(TimeUnit::Millisecond, None)
        }
        (Kind::Long, Some(L::LocalTimestampMicros)) => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        (Kind::Long, Some(L::LocalTimestampNanos)) => {
            DataType::Timestamp(TimeUnit::Nanosecond, None)
        }
        (Kind::Int | Kind::Long, Some(L::Integer(dtype))) => number(dtype),
        (Kind::Bytes, Some(L::NdArray(array))) => {
            DataType::List(Field::new("item", number(array.dtype()), false).into())
        }
        (Kind::Null, _) => DataType::Null,
        (Kind::Boolean, _) => DataType::Boolean,
        (Kind::Int, _) => DataType::Int32,
        (Kind::Long, _) => DataType::Int64,
        (Kind::Float, _) => DataType::Float32,
        (Kind::Double, _) => DataType::Float64,
        (Kind::Bytes, _) => DataType::Binary,
        (Kind::String, _) => DataType::Utf8,
        (Kind::Fixed(size), _) if *size <= MAX_FIXED => DataType::FixedSizeBinary(*size as i32),
        (Kind::Fixed(_), _) => DataType::Binary,
        (Kind::Enum(_), _) => DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into()),
        (Kind::List, _) => DataType::List(item(&children)),
        (Kind::Map, _) => {
            let key = Arc::new(Field::new("key", DataType::Utf8, false));
            let value = Arc::new(item(&children).as_ref().clone().with_name("value"));
            let entries = DataType::Struct(Fields::from(vec![key, value]));
            DataType::Map(Field::new("entries", entries, false).into(), false)
        }
        (Kind::Record, _) => DataType::Struct(children),
    }
}

/// The Arrow type of a number.
fn number(dtype: DType) -> DataType {
    match dtype {
        DType::Int8 => DataType::Int8,
        DType::Uint8 => DataType::UInt8,
        DType::Int16 => DataType::Int16,
        DType::Uint16 => DataType::UInt16,
        DType::Int32 => DataType::Int32,
        DType::Uint32 => DataType::UInt32,
        DType::Int64 => DataType::Int64,
        DType::Uint64 => DataType::UInt64,
        DType::Float32 => DataType::Float32,
        DType::Float64 => DataType::Float64,
    }
}

/// The only child of a list or map.
fn item(children: &Fields) -> Arc<Field> {
    let none = || Arc::new(Field::new("item", DataType::Null, true));
    children.first().cloned().unwrap_or_else(none)
}

fn metadata(slot: &Slot) -> HashMap<String, String> {
    let labels = slot.enumeration.as_ref().map(|labels| {
        let labels = labels.iter().map(|(label, number)| (label.clone(), (*number).into()));
        serde_json::Value::Object(labels.collect()).to_string()
    });
    let logical = match slot.logical {
        Some(LogicalType::Decimal { precision, scale }) => {
            Some(format!("decimal({precision}, {scale})"))
        }
        Some(LogicalType::Uuid) => Some("uuid".to_owned()),
        Some(LogicalType::NdArray(_)) => Some("ndarray".to_owned()),
        Some(LogicalType::Duration) => Some("duration".to_owned()),
        _ => None,
    };
    let array = match slot.logical {
        Some(LogicalType::NdArray(array)) => Some(array),
        _ => None,
    };
    let known = [
        ("dtype", array.map(|array| array.dtype().to_string())),
        ("shape", array.map(|array| format!("{:?}", array.shape()))),
        ("logicalType", logical),
        ("units", slot.units.clone()),
        ("description", slot.description.clone()),
        ("enumeration", labels),
    ];
    known.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?))).collect()
}
