//! Batches over Arrow's C data interface.

use arrow_array::ffi::from_ffi;
use arrow_array::{RecordBatch, StructArray};
use arrow_schema::Schema as ArrowSchema;
use helio_columns::{Decoder, Layout, export};
use helio_core::codec::Blocks;

use crate::batches::{packet, schema};

#[test]
#[allow(unsafe_code, reason = "a consumer reads foreign memory")]
fn a_batch_survives_the_c_data_interface() {
    let layout = Layout::new(&[schema()], &["*"]).unwrap();
    let mut decoder = Decoder::new(&layout);
    for number in 0..20 {
        decoder.push(&schema(), &packet(number, number as usize, Blocks::Plain)).unwrap();
    }
    let batch = decoder.finish().unwrap().records;
    let (array, exported) = export(&batch).unwrap();
    let fields = ArrowSchema::try_from(&exported).unwrap();
    assert_eq!(&fields, batch.schema().as_ref(), "names, types and metadata");
    let expected = batch.clone();
    // The structures own the columns.
    drop(batch);
    // SAFETY: both structures are `export`'s own, of one batch, and each is used once.
    let data = unsafe { from_ffi(array, &exported) }.unwrap();
    data.validate_full().unwrap();
    let read = RecordBatch::from(StructArray::from(data));
    assert_eq!(read.columns(), expected.columns());
    assert_eq!(read.num_rows(), 20);
}
