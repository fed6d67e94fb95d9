//! Schemas built in code, and the trait of Rust types with a schema.
//!
//! ```
//! use helio_core::schema::build::{array, double, float, record};
//!
//! let wind = record("site.Wind")
//!     .field("speed", double())
//!     .units("m/s")
//!     .field("gusts", array(float()))
//!     .length(64)
//!     .units("m/s")
//!     .schema()?;
//! assert_eq!(wind.field("gusts").and_then(|field| field.length), Some(64));
//! # Ok::<(), helio_core::schema::SchemaError>(())
//! ```

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value as Json, json};

#[cfg(doc)]
use super::NdArray;
use super::{DType, Schema, SchemaError};

/// A type that is not checked yet. The same record, enumeration or fixed may be used many times.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeSpec(Json);

impl TypeSpec {
    /// Adds an attribute to the type, for example `logicalType`.
    #[must_use]
    pub fn attribute(self, key: &str, value: impl Into<Json>) -> Self {
        let mut object = match self.0 {
            Json::Object(object) => object,
            other => Map::from_iter([("type".to_owned(), other)]),
        };
        object.insert(key.to_owned(), value.into());
        Self(Json::Object(object))
    }

    /// Checks the type and returns its schema.
    ///
    /// # Errors
    /// [`SchemaError`] names the record and field that is wrong.
    pub fn schema(&self) -> Result<Schema, SchemaError> {
        let mut json = self.0.clone();
        name_repeated(&mut json, &mut HashMap::new());
        Schema::from_json(&json)
    }
}

impl From<Schema> for TypeSpec {
    fn from(schema: Schema) -> Self {
        Self(schema.to_json())
    }
}

impl From<RecordSpec> for TypeSpec {
    fn from(record: RecordSpec) -> Self {
        let mut object = record.0;
        object.insert("fields".to_owned(), record.1.into());
        Self(Json::Object(object))
    }
}

/// Replaces repeated definitions by the type's name.
fn name_repeated(json: &mut Json, seen: &mut HashMap<String, Json>) {
    if let Json::Object(object) = json {
        let word = object.get("type").and_then(Json::as_str).unwrap_or_default();
        let name = object.get("name").and_then(Json::as_str);
        if let (Some(name), "record" | "enum" | "fixed") = (name, word) {
            let name = name.to_owned();
            if seen.get(&name).is_some_and(|first| *first == Json::Object(object.clone())) {
                *json = Json::String(name);
                return;
            }
            seen.insert(name, Json::Object(object.clone()));
        }
        for key in ["type", "items", "values"] {
            if let Some(inner) = object.get_mut(key) {
                name_repeated(inner, seen);
            }
        }
        let fields = object.get_mut("fields").and_then(Json::as_array_mut);
        for field in fields.into_iter().flatten() {
            if let Some(inner) = field.get_mut("type") {
                name_repeated(inner, seen);
            }
        }
    } else if let Json::Array(branches) = json {
        branches.iter_mut().for_each(|branch| name_repeated(branch, seen));
    }
}

macro_rules! plain {
    ($($name:ident $word:literal)*) => {$(
        #[doc = concat!("The type `", $word, "`.")]
        #[must_use]
        pub fn $name() -> TypeSpec {
            TypeSpec($word.into())
        }
    )*};
}

plain! {
    null "null"
    boolean "boolean"
    int "int"
    long "long"
    float "float"
    double "double"
    bytes "bytes"
    string "string"
}

macro_rules! integers {
    ($($name:ident $word:literal $base:literal)*) => {$(
        #[doc = concat!("An integer of the range of `", $word, "`, in a `", $base, "`.")]
        #[must_use]
        pub fn $name() -> TypeSpec {
            TypeSpec(json!({"type": $base, "logicalType": $word}))
        }
    )*};
}

integers! {
    int8 "int8" "int"
    uint8 "uint8" "int"
    int16 "int16" "int"
    uint16 "uint16" "int"
    uint32 "uint32" "long"
    uint64 "uint64" "long"
}

/// An array of raw elements, in `bytes`; one dimension may be -1. See [`NdArray::new`] for the
/// limits: without them it is plain bytes.
#[must_use]
pub fn ndarray(dtype: DType, shape: &[i32]) -> TypeSpec {
    let dtype = dtype.name();
    TypeSpec(json!({"type": "bytes", "logicalType": "ndarray", "dtype": dtype, "shape": shape}))
}

/// An array of any number of `items`; [`RecordSpec::length`] fixes the number.
#[must_use]
pub fn array(items: impl Into<TypeSpec>) -> TypeSpec {
    TypeSpec(json!({"type": "array", "items": items.into().0}))
}

/// A map of text to `values`.
#[must_use]
pub fn map(values: impl Into<TypeSpec>) -> TypeSpec {
    TypeSpec(json!({"type": "map", "values": values.into().0}))
}

/// One of several types.
#[must_use]
pub fn union(branches: impl IntoIterator<Item = TypeSpec>) -> TypeSpec {
    TypeSpec(branches.into_iter().map(|branch| branch.0).collect())
}

/// An optional `inner`: the union of `null` and it.
#[must_use]
pub fn nullable(inner: impl Into<TypeSpec>) -> TypeSpec {
    union([null(), inner.into()])
}

/// Bytes of one number, under a full name.
#[must_use]
pub fn fixed(name: &str, size: usize) -> TypeSpec {
    TypeSpec(json!({"type": "fixed", "name": name, "size": size}))
}

/// An Avro enumeration under a full name.
#[must_use]
pub fn enumeration(name: &str, symbols: &[&str]) -> TypeSpec {
    TypeSpec(json!({"type": "enum", "name": name, "symbols": symbols}))
}

/// A type that is defined elsewhere in the schema, by its full name: for recursive types.
#[must_use]
pub fn named(name: &str) -> TypeSpec {
    TypeSpec(name.into())
}

/// A record under a full name, to which fields are added.
#[must_use]
pub fn record(name: &str) -> RecordSpec {
    let json = json!({"type": "record", "name": name});
    RecordSpec(json.as_object().cloned().unwrap_or_default(), Vec::new())
}

/// A builder of a record. Attributes after a [`field`](Self::field) describe that field; before the
/// first field, they describe the record.
#[derive(Debug, Clone)]
pub struct RecordSpec(Map<String, Json>, Vec<Json>);

impl RecordSpec {
    /// Adds a field.
    #[must_use]
    pub fn field(mut self, name: &str, kind: impl Into<TypeSpec>) -> Self {
        self.1.push(json!({"name": name, "type": kind.into().0}));
        self
    }

    /// Adds an attribute to the last field, or to the record before any.
    #[must_use]
    pub fn attribute(mut self, key: &str, value: impl Into<Json>) -> Self {
        let last = self.1.last_mut().and_then(Json::as_object_mut);
        last.unwrap_or(&mut self.0).insert(key.to_owned(), value.into());
        self
    }

    /// Sets the unit of the last field's numbers, for example `m/s`.
    #[must_use]
    pub fn units(self, units: &str) -> Self {
        self.attribute("units", units)
    }

    /// Sets the description of the last field, or of the record.
    #[must_use]
    pub fn description(self, text: &str) -> Self {
        self.attribute("description", text)
    }

    /// Sets the fixed number of elements of the last field's array.
    #[must_use]
    pub fn length(self, elements: usize) -> Self {
        self.attribute("length", elements)
    }

    /// Sets the labels of the last field's integers.
    #[must_use]
    pub fn labels(self, labels: &[(&str, i64)]) -> Self {
        let labels: Map<_, _> = labels.iter().map(|(l, n)| ((*l).to_owned(), json!(n))).collect();
        self.attribute("enumeration", labels)
    }

    /// Sets the last field's default, as Avro's JSON.
    #[must_use]
    pub fn default(self, value: impl Into<Json>) -> Self {
        self.attribute("default", value)
    }

    /// Sets aliases of the last field, or of the record.
    #[must_use]
    pub fn aliases(self, names: &[&str]) -> Self {
        self.attribute("aliases", names)
    }

    /// Checks the record and returns its schema.
    ///
    /// # Errors
    /// [`SchemaError`] names the field that is wrong.
    pub fn schema(self) -> Result<Schema, SchemaError> {
        TypeSpec::from(self).schema()
    }
}

/// Rust types with an Avro schema, for typed topics. [`has_schema!`](crate::has_schema) implements
/// it for structures.
pub trait HasSchema {
    /// Returns the type's unchecked schema.
    fn type_spec() -> TypeSpec;

    /// The type's schema.
    ///
    /// # Errors
    /// [`SchemaError`] if the description of the type is invalid.
    fn schema() -> Result<Schema, SchemaError> {
        Self::type_spec().schema()
    }

    /// The schema of a `Vec` of the type: an array, or `bytes` for `u8`.
    #[doc(hidden)]
    fn list_spec() -> TypeSpec {
        array(Self::type_spec())
    }
}

impl HasSchema for u8 {
    fn type_spec() -> TypeSpec {
        int()
    }

    fn list_spec() -> TypeSpec {
        bytes()
    }
}

macro_rules! has_plain_schema {
    ($($rust:ty => $spec:ident)*) => {$(
        impl HasSchema for $rust {
            fn type_spec() -> TypeSpec {
                $spec()
            }
        }
    )*};
}

has_plain_schema! {
    () => null
    bool => boolean
    i8 => int
    i16 => int
    i32 => int
    u16 => int
    i64 => long
    u32 => long
    u64 => uint64
    f32 => float
    f64 => double
    String => string
}

impl<T: HasSchema> HasSchema for Vec<T> {
    fn type_spec() -> TypeSpec {
        T::list_spec()
    }
}

impl<T: HasSchema> HasSchema for Option<T> {
    fn type_spec() -> TypeSpec {
        nullable(T::type_spec())
    }
}

impl<T: HasSchema> HasSchema for Box<T> {
    fn type_spec() -> TypeSpec {
        T::type_spec()
    }
}

impl<T: HasSchema> HasSchema for HashMap<String, T> {
    fn type_spec() -> TypeSpec {
        map(T::type_spec())
    }
}

impl<T: HasSchema> HasSchema for BTreeMap<String, T> {
    fn type_spec() -> TypeSpec {
        map(T::type_spec())
    }
}

/// Implements [`HasSchema`](crate::schema::HasSchema) for a structure: full name, then each field
/// with its type and attributes (any of [`RecordSpec`]'s methods).
///
/// ```
/// use helio_core::schema::HasSchema;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Wind {
///     speed: f64,
///     gusts: Vec<f32>,
/// }
/// helio_core::has_schema!(Wind, "site.Wind", {
///     speed: f64 [units("m/s"), description("ten-minute mean")],
///     gusts: Vec<f32> [length(64), units("m/s")],
/// });
/// assert_eq!(Wind::schema()?.fields().len(), 2);
/// # Ok::<(), helio_core::schema::SchemaError>(())
/// ```
#[macro_export]
macro_rules! has_schema {
    ($rust:ty, $name:literal, {
        $($field:ident : $kind:ty $([$($method:ident($($argument:expr),*)),* $(,)?])?),* $(,)?
    }) => {
        impl $crate::schema::HasSchema for $rust {
            fn type_spec() -> $crate::schema::build::TypeSpec {
                let record = $crate::schema::build::record($name);
                $(
                    let record = record
                        .field(
                            stringify!($field),
                            <$kind as $crate::schema::HasSchema>::type_spec(),
                        )
                        $($(.$method($($argument),*))*)?;
                )*
                record.into()
            }
        }
    };
}
