//! Columns of topics' samples as Arrow record batches; it knows schemas and bytes, and no bus.
//!
//! A [`Layout`] is the selected columns of one or several schemas, with their Arrow types. A
//! [`Decoder`] reads samples' payloads into them, and gives a [`Batch`] whenever one is wanted. A
//! payload that cannot be read drops only itself: it is reported with its position and the cause.
//!
//! Columns are flat: a record's field is named by its path, `diaSource.snr`. An array of records is
//! a list of structs with the selected members, `prvDiaSources`. Every column may have nulls: an
//! older or newer schema may lack it. [`layout`] has the table of types.
//!
//! To read history only where it is needed, read the flat columns of all samples first
//! ([`Layout::flat`]), and then all columns of the chosen ones:
//!
//! ```
//! use helio_columns::{Decoder, Layout};
//! use helio_core::Codec;
//! use helio_core::codec::Value;
//! use helio_core::schema::build::{array, double, float, record};
//!
//! let schema = record("Wind").field("speed", double()).field("gusts", array(float())).schema()?;
//! let codec = Codec::new(&schema);
//! let payloads: Vec<Vec<u8>> = [7.5, 2.0, 9.25].iter().map(|speed: &f64| {
//!     let mut bytes = Vec::new();
//!     let wind = Value::Record(vec![(*speed).into(), vec![1.0_f32].into()]);
//!     codec.encode(&wind, &mut bytes).map(|()| bytes)
//! }).collect::<Result<_, _>>()?;
//!
//! let all = Layout::new(&[schema.clone()], &["speed", "gusts"])?;
//! let mut flat = Decoder::new(&all.flat()?);
//! for payload in &payloads {
//!     flat.push(&schema, payload)?;
//! }
//! let batch = flat.finish()?;
//! assert_eq!((batch.records.num_rows(), batch.records.num_columns()), (3, 1));
//!
//! let mut chosen = Decoder::new(&all);
//! for row in [0, 2] {
//!     chosen.push(&schema, &payloads[batch.positions[row]])?;
//! }
//! assert_eq!(chosen.finish()?.records.num_columns(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`layout`] | columns and their Arrow types |
//! | [`decoder`] | payloads to batches |
//! | `builders` | the columns of a batch in the making |
//! | [`framing`] | payloads with the number of their schema before them, and container files |
//! | [`export()`] | batches for other languages: Arrow's C data interface |

mod builders;
pub mod decoder;
mod export;
pub mod framing;
pub mod layout;

pub use arrow_array::RecordBatch;
pub use decoder::{Batch, Decoder, PushError, Reason, Rejected};
pub use export::export;
pub use framing::Framing;
pub use layout::Layout;
