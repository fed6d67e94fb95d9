//! What exported files have.

use std::path::Path;

use helio_alerts::rubin::Version;
use helio_core::container::Container;
use parquet::file::reader::{FileReader as _, SerializedFileReader};

use crate::support::parts;

/// The values of the first column of Parquet files, which is the alert's identifier.
pub(crate) fn parquet_ids(folder: &Path) -> Vec<i64> {
    let mut ids = Vec::new();
    for bytes in parts(folder, ".parquet") {
        let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            let (_, field) = row.get_column_iter().next().unwrap();
            ids.push(field.to_string().parse().unwrap());
        }
    }
    ids
}

/// The datums of Avro files, with their schemas' versions.
pub(crate) fn avro_datums(folder: &Path) -> Vec<(Version, Vec<u8>)> {
    let mut datums = Vec::new();
    for bytes in parts(folder, ".avro") {
        let mut file = Container::open(&bytes).unwrap();
        let id = file.schema().id();
        let version = Version::ALL.into_iter().find(|one| one.schema().id() == id).unwrap();
        while let Some(datum) = file.next_datum().unwrap() {
            datums.push((version, datum.to_vec()));
        }
    }
    datums
}
