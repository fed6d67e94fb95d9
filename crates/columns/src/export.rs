//! Batches for other languages in the same process: Arrow's C data interface.
//!
//! The two structures are those of <https://arrow.apache.org/docs/format/CDataInterface.html>.
//! Python takes them in capsules (`__arrow_c_array__`), so that no Arrow library of Python is
//! needed here.

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_schema::ArrowError;

/// Exports a batch as a struct array and its schema, with the metadata of fields. No column is
/// copied.
///
/// # Safety
/// The call itself is safe. The structures own what they point to: dropping one releases it. A
/// consumer that receives one by pointer must move it (copy its bytes, and mark the source as
/// released by a null `release`), call `release` exactly once, and not use a buffer afterwards. The
/// columns are shared with this batch: nobody may write to them.
///
/// # Errors
/// [`ArrowError`] if a type has no form in the interface, which none of a
/// [`Layout`](crate::Layout) is.
pub fn export(batch: &RecordBatch) -> Result<(FFI_ArrowArray, FFI_ArrowSchema), ArrowError> {
    let schema = FFI_ArrowSchema::try_from(batch.schema().as_ref())?;
    let array = FFI_ArrowArray::new(&StructArray::from(batch.clone()).into_data());
    Ok((array, schema))
}
