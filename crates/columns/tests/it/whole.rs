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
        let mut noisy = Decoder::new(&layout);
        for _ in 0..8 {
            let mut bytes = Vec::new();
            codec.encode(&any_value(random, &schema), &mut bytes).unwrap();
            alone.push(&schema, &bytes).unwrap();
            among.push(&schema, &bytes).unwrap();
            // Damage, of which some is unnoticed.
            for _ in 0..4 {
                let mut damaged = bytes.clone();
                if let Some(place) = (!bytes.is_empty()).then(|| random.below(bytes.len())) {
                    damaged[place] = random.next() as u8;
                }
                let rows = noisy.rows();
                let done = noisy.push(&schema, &damaged);
                assert_eq!(noisy.rows(), rows + usize::from(done.is_ok()));
            }
            // A byte too many.
            let rows = among.rows();
            bytes.push(0);
            assert!(among.push(&schema, &bytes).is_err());
            assert_eq!(among.rows(), rows);
        }
        let (alone, among) = (alone.finish().unwrap(), among.finish().unwrap());
        assert_eq!(alone.records, among.records, "{schema}");
        assert_eq!((among.rejected.len(), among.positions.len()), (8, 8));
        let noisy = noisy.finish().unwrap();
        assert_eq!(noisy.positions.len() + noisy.rejected.len(), 32);
        for column in alone.records.columns().iter().chain(noisy.records.columns()) {
            column.to_data().validate_full().unwrap();
            columns += 1;
        }
    }
    assert!(columns > 1000, "{columns} columns");
}
