//! Integers of all ranges and arrays of raw elements as Arrow's.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int8Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_schema::{DataType, Field};
use helio_columns::{Decoder, Layout};
use helio_core::Codec;
use helio_core::schema::build::{bytes, int8, ndarray, nullable, record, uint8, uint16, uint32};
use helio_core::schema::{DType, Schema, build::uint64};
use serde_json::{Value as Json, json};

fn numbers() -> Schema {
    record("site.Numbers")
        .field("small", int8())
        .field("byte", uint8())
        .field("half", uint16())
        .field("word", uint32())
        .field("wide", nullable(uint64()))
        .field("pixels", ndarray(DType::Uint16, &[-1, 2]))
        .field("waves", nullable(ndarray(DType::Float64, &[2])))
        .schema()
        .unwrap()
}

fn encoded(schema: &Schema, json: &Json) -> Vec<u8> {
    let codec = Codec::new(schema);
    let mut out = Vec::new();
    codec.encode(&codec.value_from_json(json).unwrap(), &mut out).unwrap();
    out
}

#[test]
fn columns_are_arrows_unsigned_numbers_and_lists_of_elements() {
    let schema = numbers();
    let layout = Layout::new(std::slice::from_ref(&schema), &["*"]).unwrap();
    let list = |of| DataType::List(Field::new("item", of, false).into());
    let kinds: Vec<_> = layout.schema().fields().iter().map(|f| f.data_type().clone()).collect();
    assert_eq!(
        kinds,
        [
            DataType::Int8,
            DataType::UInt8,
            DataType::UInt16,
            DataType::UInt32,
            DataType::UInt64,
            list(DataType::UInt16),
            list(DataType::Float64),
        ]
    );
    let about = layout.schema().field(5).metadata();
    assert_eq!((about["dtype"].as_str(), about["shape"].as_str()), ("uint16", "[-1, 2]"));
    assert_eq!(about["logicalType"], "ndarray");
    let mut decoder = Decoder::new(&layout);
    let most = json!({"small": -128, "byte": 255, "half": 65535, "word": u32::MAX,
        "wide": u64::MAX, "pixels": [[0, 1], [65535, 258]], "waves": [-0.5, "Infinity"]});
    let none = json!({"small": 127, "byte": 0, "half": 0, "word": 0, "wide": null, "pixels": [],
        "waves": null});
    decoder.push(&schema, &encoded(&schema, &most)).unwrap();
    let mut damaged = encoded(&schema, &most);
    damaged.push(0);
    decoder.push(&schema, &damaged).unwrap_err();
    decoder.push(&schema, &encoded(&schema, &none)).unwrap();
    let records = decoder.finish().unwrap().records;
    records.columns().iter().for_each(|column| column.to_data().validate_full().unwrap());
    let column = |place: usize| records.column(place);
    assert_eq!(column(0).as_primitive::<Int8Type>().values()[..], [-128, 127]);
    assert_eq!(column(1).as_primitive::<UInt8Type>().values()[..], [255, 0]);
    assert_eq!(column(2).as_primitive::<UInt16Type>().values()[..], [65535, 0]);
    assert_eq!(column(3).as_primitive::<UInt32Type>().values()[..], [u32::MAX, 0]);
    let wide = column(4).as_primitive::<UInt64Type>();
    assert_eq!((wide.value(0), wide.is_null(1)), (u64::MAX, true));
    let pixels = column(5).as_list::<i32>();
    assert_eq!(pixels.value(0).as_primitive::<UInt16Type>().values()[..], [0, 1, 65535, 258]);
    assert_eq!((pixels.value(1).len(), pixels.is_null(1)), (0, false));
    let waves = column(6).as_list::<i32>();
    assert_eq!(waves.value(0).as_primitive::<Float64Type>().values()[..], [-0.5, f64::INFINITY]);
    assert!(waves.is_null(1));
}

#[test]
fn a_value_outside_the_range_or_shape_is_rejected_alone() {
    let (array, plain) = (ndarray(DType::Uint16, &[2]), bytes());
    let of = |kind| record("R").field("x", kind).schema().unwrap();
    let (schema, old) = (of(array), of(plain));
    let layout = Layout::new(std::slice::from_ref(&schema), &["x"]).unwrap();
    let mut decoder = Decoder::new(&layout);
    decoder.push(&old, &encoded(&old, &json!({"x": "abcd"}))).unwrap();
    let error = decoder.push(&old, &encoded(&old, &json!({"x": "abc"}))).unwrap_err();
    assert!(error.to_string().contains("3 bytes, which are no array of uint16[2]"), "{error}");
    let batch = decoder.finish().unwrap();
    let column = batch.records.column(0).as_list::<i32>();
    assert_eq!(column.value(0).as_primitive::<UInt16Type>().values()[..], [0x6261, 0x6463]);
    assert_eq!((column.len(), batch.rejected.len()), (1, 1));
}
