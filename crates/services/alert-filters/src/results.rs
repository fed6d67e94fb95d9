//! Results: what a user gets of a chosen alert, in the user's encoding.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use bytes::Bytes;
use helio_columns::Decoder;
use helio_core::Schema;
use helio_core::codec::{Codec, Value};
use helio_core::schema::HasSchema;
use helio_core::schema::build::{self, RecordSpec, TypeSpec, nullable};
use helio_filter::Plan;
use serde::{Deserialize, Serialize};

use crate::check::Checked;
use crate::error::ServiceError;
use crate::names::FilterId;
use crate::records::{Content, Format};
use crate::store::FilterStore;
use crate::stream::Packet;

/// The record of results with selected columns.
const RESULT: &str = "helio.alerts.Result";
/// Filters whose plans for SELECT are kept.
const MAX_SELECTORS: usize = 4_096;

/// A result without the packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// The alert.
    pub alert: i64,
    /// Its visit.
    pub visit: i64,
    /// Its partition of the topic of alerts.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
}

helio_core::has_schema!(Reference, "helio.alerts.Reference", {
    alert: i64 [],
    visit: i64 [],
    partition: i32 [description("of the topic of alerts")],
    offset: i64 [description("in the partition")],
});

/// A datum with its schema.
#[derive(Debug, Clone)]
pub(crate) struct Datum {
    pub(crate) schema: Arc<Schema>,
    pub(crate) bytes: Bytes,
}

/// A result as it is published.
#[derive(Debug, Clone)]
pub(crate) struct Encoded {
    /// The schema that the bus frames it by.
    pub(crate) schema: Option<Arc<Schema>>,
    pub(crate) key: Bytes,
    pub(crate) payload: Bytes,
}

/// Encodes data as a user wants them.
pub(crate) fn encode(data: Vec<Datum>, format: Format) -> Result<Vec<Encoded>, String> {
    let mut last: Option<Encoder> = None;
    let encoded = data.into_iter().map(|Datum { schema, bytes }| {
        let encoder = match last.take() {
            Some(known) if known.schema == schema => known,
            _ => Encoder::new(schema, format),
        };
        last.insert(encoder).encode(bytes)
    });
    encoded.collect()
}

/// Encodes data of a schema.
struct Encoder {
    schema: Arc<Schema>,
    format: Encoding,
}

enum Encoding {
    Confluent,
    Fink { key: Bytes },
    Json(Codec),
}

impl Encoder {
    fn new(schema: Arc<Schema>, format: Format) -> Self {
        let format = match format {
            Format::Confluent => Encoding::Confluent,
            Format::Fink => Encoding::Fink { key: schema.to_json().to_string().into() },
            Format::Json => Encoding::Json(Codec::new(&schema)),
        };
        Self { schema, format }
    }

    fn encode(&self, payload: Bytes) -> Result<Encoded, String> {
        Ok(match &self.format {
            Encoding::Confluent => {
                Encoded { schema: Some(Arc::clone(&self.schema)), key: Bytes::new(), payload }
            }
            Encoding::Fink { key } => Encoded { schema: None, key: key.clone(), payload },
            Encoding::Json(codec) => {
                let value = codec.decode(&payload).map_err(|error| error.to_string())?;
                let json = codec.value_to_json(&value).map_err(|error| error.to_string())?;
                Encoded { schema: None, key: Bytes::new(), payload: json.to_string().into() }
            }
        })
    }
}

/// A reference as a datum.
pub(crate) fn reference(reference: &Reference) -> Datum {
    static REFERENCE: LazyLock<(Arc<Schema>, Codec)> = LazyLock::new(|| {
        let schema = Reference::schema().expect("the schema is compiled in");
        let codec = Codec::new(&schema);
        (Arc::new(schema), codec)
    });
    let (schema, codec) = &*REFERENCE;
    let mut bytes = Vec::new();
    codec.serialize(reference, &mut bytes).expect("a reference fits its schema");
    Datum { schema: Arc::clone(schema), bytes: bytes.into() }
}

/// A packet as it lies in the log.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) packet: Packet<'static>,
    /// The datum in the engine's memory.
    pub(crate) bytes: Bytes,
}

/// A whole packet, with its stamps or without.
pub(crate) fn packet(stored: &Stored, content: Content) -> Datum {
    let schema = Arc::new(stored.packet.schema().clone());
    let layout = &stored.packet.layout;
    let mut metadata = Vec::new();
    let is_whole = content == Content::WithStamps
        || layout.stamps().len() == 0
        || layout.split(&stored.bytes, &mut metadata).is_err();
    let bytes = if is_whole { stored.bytes.clone() } else { metadata.into() };
    Datum { schema, bytes }
}

/// The columns of a filter's SELECT.
struct Selector {
    made_of: (u64, u64),
    checked: Checked,
    plan: Option<SelectPlan>,
}

struct SelectPlan {
    plan: Plan,
    flat: Decoder,
    history: Decoder,
    schema: Arc<Schema>,
    codec: Codec,
}

/// Makes results' contents by the filters that chose them.
#[derive(Default)]
pub(crate) struct Selectors(BTreeMap<FilterId, Selector>);

impl Selectors {
    /// Whether a filter's results are made from packets, and not from the columns of its SELECT.
    pub(crate) fn is_packet(
        &mut self,
        store: &mut FilterStore,
        id: &FilterId,
    ) -> Result<bool, String> {
        Ok(self.selector(store, id)?.checked.is_packet())
    }

    /// The columns of a filter's SELECT, of packets that it matches. Where it does not match any
    /// more, as a watch list has changed, columns of light curves are null.
    pub(crate) fn select(
        &mut self,
        store: &mut FilterStore,
        id: &FilterId,
        packets: &[&Stored],
    ) -> Result<Vec<Datum>, String> {
        let Some(plan) = self.selector(store, id)?.plan.as_mut() else {
            return Err("its results are whole packets".to_owned());
        };
        plan.select(packets)
    }

    fn selector(
        &mut self,
        store: &mut FilterStore,
        id: &FilterId,
    ) -> Result<&mut Selector, String> {
        let catalog = store.catalog();
        let made_of = (store.stream.generation(), store.lists.generation());
        let is_old = |selector: &Selector| selector.made_of != made_of;
        if self.0.get(id).is_none_or(is_old) {
            let version = store.definitions().version(id).cloned();
            let version = version.ok_or("there is no such version")?;
            let checked = store.check(version.language, &version.text);
            let checked = checked.map_err(|error| error.to_string())?;
            let plan = match checked.sql().filter(|filter| !filter.is_packet()) {
                Some(filter) => {
                    let named = [("filter", &**filter)];
                    let plan = Plan::new(catalog.clone(), named).map_err(|e| e.to_string())?;
                    Some(SelectPlan::new(store, plan, &filter.columns(&catalog))?)
                }
                None => None,
            };
            if self.0.len() >= MAX_SELECTORS {
                self.0.clear();
            }
            self.0.insert(id.clone(), Selector { made_of, checked, plan });
        }
        self.0.get_mut(id).ok_or_else(|| "there is no such filter".to_owned())
    }
}

impl SelectPlan {
    fn new(
        store: &FilterStore,
        plan: Plan,
        columns: &[(String, DataType)],
    ) -> Result<Self, String> {
        let schema = result_schema(columns)?;
        let decoder =
            |names: &[String]| store.stream.columns(names).map(|columns| Decoder::new(&columns));
        let flat = decoder(plan.flat_columns()).map_err(|error| error.to_string())?;
        let history = decoder(plan.history_columns()).map_err(|error| error.to_string())?;
        let codec = Codec::new(&schema);
        Ok(Self { plan, flat, history, schema: Arc::new(schema), codec })
    }

    fn select(&mut self, packets: &[&Stored]) -> Result<Vec<Datum>, String> {
        let records = decode(&mut self.flat, packets.iter().copied())?;
        let mut clock = || std::time::Duration::ZERO;
        let flat = self.plan.run_flat(records, &mut clock).map_err(|error| error.to_string())?;
        let needs = flat.rows_needing_history().to_vec();
        let history = match needs.is_empty() {
            true => None,
            false => {
                let needed = needs.iter().map(|row| packets[*row as usize]);
                Some(decode(&mut self.history, needed)?)
            }
        };
        let matches = self.plan.run_history(flat, history, &mut clock);
        let matches = matches.map_err(|error| error.to_string())?;
        let all: Vec<u32> = (0..packets.len() as u32).collect();
        let selected = match self.plan.select(&matches, 0, &all) {
            Ok(selected) => return self.datums(&selected, &all, packets.len()),
            Err(_) => self.plan.select(&matches, 0, &matches.outcomes()[0].rows),
        };
        let rows = &matches.outcomes()[0].rows;
        self.datums(&selected.map_err(|error| error.to_string())?, rows, packets.len())
    }

    /// A datum for each packet; those that are not among the rows have nulls.
    fn datums(
        &self,
        selected: &RecordBatch,
        rows: &[u32],
        packets: usize,
    ) -> Result<Vec<Datum>, String> {
        let datum = |packet: usize| {
            let place = rows.binary_search(&(packet as u32)).ok();
            let cell = |array: &ArrayRef| place.map_or(Value::Null, |place| value(array, place));
            let value = Value::Record(selected.columns().iter().map(cell).collect());
            let mut bytes = Vec::new();
            self.codec.encode(&value, &mut bytes).map_err(|error| error.to_string())?;
            Ok(Datum { schema: Arc::clone(&self.schema), bytes: bytes.into() })
        };
        (0..packets).map(datum).collect()
    }
}

fn decode<'s>(
    decoder: &mut Decoder,
    packets: impl Iterator<Item = &'s Stored>,
) -> Result<RecordBatch, String> {
    for stored in packets {
        decoder.push(stored.packet.schema(), &stored.bytes).map_err(|error| error.to_string())?;
    }
    Ok(decoder.finish().map_err(|error| error.to_string())?.records)
}

/// The schema of a SELECT's columns. Avro's names have no dots: `diaSource.snr` is `diaSource_snr`.
pub(crate) fn result_schema(columns: &[(String, DataType)]) -> Result<Schema, String> {
    let mut names = BTreeSet::new();
    let mut record: RecordSpec = build::record(RESULT);
    for (name, arrow) in columns {
        let kind = avro(arrow).ok_or_else(|| format!("{name} is {arrow}, which no result has"))?;
        record = record.field(&unique(name, &mut names), nullable(kind));
        record = record.description(name).default(serde_json::Value::Null);
    }
    record.schema().map_err(|error| error.to_string())
}

fn unique(name: &str, names: &mut BTreeSet<String>) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut clean: String = name.chars().map(legal).collect();
    if clean.starts_with(|c: char| c.is_ascii_digit()) || clean.is_empty() {
        clean.insert(0, '_');
    }
    let mut number = 2;
    let mut unique = clean.clone();
    while !names.insert(unique.clone()) {
        unique = format!("{clean}_{number}");
        number += 1;
    }
    unique
}

/// The Avro type of a column, if results can have it.
fn avro(arrow: &DataType) -> Option<TypeSpec> {
    let logical = |kind: TypeSpec, name: &str| kind.attribute("logicalType", name);
    Some(match arrow {
        DataType::Boolean => build::boolean(),
        DataType::Int32 => build::int(),
        DataType::Int64 => build::long(),
        DataType::Float32 => build::float(),
        DataType::Float64 => build::double(),
        DataType::Utf8 => build::string(),
        DataType::Binary => build::bytes(),
        DataType::Dictionary(_, values) if **values == DataType::Utf8 => build::string(),
        DataType::Date32 => logical(build::int(), "date"),
        DataType::Timestamp(TimeUnit::Millisecond, Some(_)) => {
            logical(build::long(), "timestamp-millis")
        }
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => {
            logical(build::long(), "timestamp-micros")
        }
        _ => return None,
    })
}

fn value(array: &ArrayRef, row: usize) -> Value {
    use arrow_array::types as t;
    fn number<T: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> T::Native {
        array.as_primitive::<T>().value(row)
    }
    if array.is_null(row) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Boolean => Value::Boolean(array.as_boolean().value(row)),
        DataType::Int32 => Value::Int(number::<Int32Type>(array, row)),
        DataType::Int64 => Value::Long(number::<Int64Type>(array, row)),
        DataType::Float32 => Value::Float(number::<Float32Type>(array, row)),
        DataType::Float64 => Value::Double(number::<Float64Type>(array, row)),
        DataType::Utf8 => Value::String(array.as_string::<i32>().value(row).to_owned()),
        DataType::Binary => Value::Bytes(array.as_binary::<i32>().value(row).to_vec()),
        DataType::Date32 => Value::Int(number::<t::Date32Type>(array, row)),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            Value::Long(number::<t::TimestampMillisecondType>(array, row))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Value::Long(number::<t::TimestampMicrosecondType>(array, row))
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_dictionary::<Int32Type>();
            let text = dictionary.downcast_dict::<arrow_array::StringArray>();
            let key = dictionary.keys().value(row);
            let text = text.map(|text| text.values().value(usize::try_from(key).unwrap_or(0)));
            Value::String(text.unwrap_or_default().to_owned())
        }
        // The schema admits no others.
        _ => Value::Null,
    }
}

impl Stored {
    /// A packet of the log; its bytes stay where they are if they have no frame.
    pub(crate) fn of(packet: Packet<'_>, payload: &Bytes) -> Self {
        let bytes = match &packet.datum {
            std::borrow::Cow::Borrowed(datum) => payload.slice_ref(datum),
            std::borrow::Cow::Owned(datum) => Bytes::copy_from_slice(datum),
        };
        let packet = Packet { layout: packet.layout, datum: std::borrow::Cow::Borrowed(&[]) };
        Self { packet, bytes }
    }
}

impl From<String> for ServiceError {
    fn from(reason: String) -> Self {
        Self::Batch(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_names_that_avro_can_have() {
        let columns = [("a.b", DataType::Float32), ("a_b", DataType::Utf8), ("1", DataType::Int64)];
        let columns = columns.map(|(name, kind)| (name.to_owned(), kind));
        let schema = result_schema(&columns).unwrap();
        let names: Vec<_> = schema.fields().iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["a_b", "a_b_2", "_1"]);
        let list = DataType::new_list(DataType::Int32, true);
        assert!(result_schema(&[("l".to_owned(), list)]).unwrap_err().contains("no result has"));
    }

    #[test]
    fn a_reference_has_three_encodings() {
        let one = Reference { alert: 7, visit: 5, partition: 1, offset: 900 };
        let encoded = |format| encode(vec![reference(&one)], format).unwrap().remove(0);
        let framed = encoded(Format::Confluent);
        assert!(framed.schema.is_some() && framed.key.is_empty());
        let fink = encoded(Format::Fink);
        let schema = Schema::parse(std::str::from_utf8(&fink.key).unwrap()).unwrap();
        assert_eq!(Codec::new(&schema).deserialize::<Reference>(&fink.payload).unwrap(), one);
        let json = encoded(Format::Json);
        assert_eq!(serde_json::from_slice::<Reference>(&json.payload).unwrap(), one);
    }
}
