//! The codec for Python objects: a schema is compiled once, into a plan that goes straight between
//! Python objects or numpy arrays and Avro bytes.

mod compile;
mod decode;
mod default;
mod encode;
mod error;
mod plan;
mod union;

pub(crate) use compile::compile;
pub(crate) use decode::{decode, decode_first};
pub(crate) use encode::{encode, encode_field_value, encode_fields};
pub(crate) use error::CodecError;
pub(crate) use plan::Plan;
