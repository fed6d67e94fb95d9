//! Payloads with the number of their schema before them, and container files.

use helio_core::container::Container;
use helio_core::schema::Schema;
use helio_core::{confluent, single_object};

use crate::decoder::{Decoder, PushError, Reason, Room};

/// What stands around datums in payloads.
#[derive(Clone, Copy)]
pub enum Framing<'s> {
    /// Nothing: all are datums of this schema.
    Datum(&'s Schema),
    /// Confluent's frame: a zero, and the schema's number, which is looked up.
    Confluent(&'s dyn Fn(u32) -> Option<Schema>),
    /// Avro's single-object encoding: two bytes, and the schema's fingerprint, which is looked up.
    SingleObject(&'s dyn Fn(u64) -> Option<Schema>),
    /// Avro object container files, each with its schema and any number of datums.
    Container,
}

impl Decoder {
    /// Adds the rows of a framed payload. All rows of a container file have its position. Of a file
    /// with damage, the rows before it stay; of one larger than a batch, those that fit.
    ///
    /// # Errors
    /// [`PushError`] if the batch is full, or with the reason that the batch reports, too.
    pub fn push_payload(&mut self, framing: Framing<'_>, payload: &[u8]) -> Result<(), PushError> {
        let unknown = |schema: String| Reason::Schema(schema);
        let found = match framing {
            Framing::Datum(schema) => return self.push(schema, payload),
            Framing::Container => return self.push_container(payload),
            Framing::Confluent(schemas) => confluent::unframe(payload)
                .ok_or(Reason::Frame("Confluent"))
                .and_then(|(number, datum)| {
                    let schema = schemas(number).ok_or_else(|| unknown(number.to_string()))?;
                    Ok((schema, datum))
                }),
            Framing::SingleObject(schemas) => single_object::unframe(payload)
                .ok_or(Reason::Frame("single-object"))
                .and_then(|(print, datum)| {
                    let schema = schemas(print).ok_or_else(|| unknown(format!("{print:016x}")))?;
                    Ok((schema, datum))
                }),
        };
        match found {
            Ok((schema, datum)) => self.push(&schema, datum),
            Err(reason) => self.end(Err(reason)),
        }
    }

    fn push_container(&mut self, payload: &[u8]) -> Result<(), PushError> {
        let mut file = match Container::open_cached(payload, &mut self.files) {
            Ok(file) => file,
            Err(error) => return self.end(Err(error.into())),
        };
        let schema = file.schema().clone();
        let rows = self.rows();
        let mut done = Ok(());
        loop {
            let datum = match file.next_datum() {
                Ok(Some(datum)) => datum,
                Ok(None) => return self.end(done),
                Err(error) => return self.end(done.and(Err(error.into()))),
            };
            if self.reserve(datum.len()) == Room::Short {
                if rows > 0 {
                    self.truncate(rows);
                    return Err(PushError::Full);
                }
                return self.end(done.and(Err(Reason::Size(payload.len()))));
            }
            // The first failure is reported; later datums are read.
            let row = self.row(&schema, datum);
            done = done.and(row);
        }
    }
}
