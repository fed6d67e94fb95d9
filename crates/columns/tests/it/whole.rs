//! Random schemas: batches are valid Arrow, and a damaged sample changes nothing of the others.

use arrow_array::Array;
use helio_columns::{Decoder, Layout};
use helio_core::Codec;
use helio_core::projection::ShapeError;
use helio_core::schema::Schema;

use crate::random::{Random, any_schema, any_value};

#[test]
fn batches_of_any_schema_are_valid() {
    let random = &mut Random::new(21);
    let mut columns = 0;
    for _ in 0..600 {
        let schema = Schema::from_json(&any_schema(random)).unwrap();
        let layout = match Layout::new(std::slice::from_ref(&schema), &["*"]) {
            Ok(layout) => layout,
            Err(ShapeError::Recursive { .. }) => continue,
            Err(error) => panic!("{schema}: {error}"),
        };
        let codec = Codec::new(&schema);
        let (mut alone, mut among) = (Decoder::new(&layout), Decoder::new(&layout));
        for _ in 0..8 {
            let mut bytes = Vec::new();
            codec.encode(&any_value(random, &schema), &mut bytes).unwrap();
            alone.push(&schema, &bytes).unwrap();
            among.push(&schema, &bytes).unwrap();
            // A byte too many, and damage of which some is unnoticed, and then undone.
            let rows = among.rows();
            bytes.push(0);
            assert!(among.push(&schema, &bytes).is_err());
            assert_eq!(among.rows(), rows);
        }
        let (alone, among) = (alone.finish().unwrap(), among.finish().unwrap());
        assert_eq!(alone.records, among.records, "{schema}");
        assert_eq!((among.rejected.len(), among.positions.len()), (8, 8));
        for column in alone.records.columns() {
            column.to_data().validate_full().unwrap();
            columns += 1;
        }
    }
    assert!(columns > 500, "{columns} columns");
}
