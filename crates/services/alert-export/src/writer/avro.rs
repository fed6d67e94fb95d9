//! Avro object container files: the packets as they were published, a file for each schema.

use std::io::Write as _;

use helio_core::Schema;
use helio_core::container;
use xxhash_rust::xxh3::xxh3_128;

use super::{Chosen, Finished, Rows, Target};
use crate::ExportError;
use crate::alert::Alert;
use crate::error::AtPath;
use crate::folder::PartFile;
use crate::options::{Compression, Format, StampsChoice};

/// The files in the making.
pub(crate) struct AvroFiles {
    compression: container::Compression,
    stamps: StampsChoice,
    files: Vec<AvroFile>,
    /// A packet without its stamps.
    buffer: Vec<u8>,
}

struct AvroFile {
    schema: Schema,
    blocks: container::Writer,
    file: PartFile,
    rows: Rows,
}

impl AvroFiles {
    pub(super) fn new(compression: Compression, stamps: StampsChoice) -> Self {
        let compression = match compression {
            Compression::Deflate => container::Compression::Deflate,
            Compression::Snappy => container::Compression::Snappy,
            Compression::None | Compression::Zstd => container::Compression::Null,
        };
        Self { compression, stamps, files: Vec::new(), buffer: Vec::new() }
    }

    /// Writes alerts. Their datums were checked: a damaged one would damage all behind it.
    pub(super) fn write(
        &mut self,
        chosen: &Chosen<'_>,
        target: &mut Target<'_>,
    ) -> Result<Vec<usize>, ExportError> {
        for row in &chosen.rows {
            self.append(&chosen.alerts[*row], target)?;
        }
        Ok(Vec::new())
    }

    fn append(&mut self, alert: &Alert, target: &mut Target<'_>) -> Result<(), ExportError> {
        let place = self.start(alert.layout.schema(), target)?;
        let datum = match self.stamps {
            StampsChoice::Inline => &alert.datum[..],
            StampsChoice::None => {
                self.buffer.clear();
                match alert.layout.split(&alert.datum, &mut self.buffer).map(drop) {
                    Ok(()) => &self.buffer,
                    // A length that is not in its shortest form: such a packet stays whole.
                    Err(_) => &alert.datum[..],
                }
            }
        };
        let AvroFile { blocks, file, rows, .. } = &mut self.files[place];
        blocks.append(datum);
        rows.add(alert);
        file.write_all(&blocks.take()).at(file_path(file).as_path())
    }

    /// The place of a schema's file, which is started if there is none.
    pub(super) fn start(
        &mut self,
        schema: &Schema,
        target: &mut Target<'_>,
    ) -> Result<usize, ExportError> {
        if let Some(place) = self.files.iter().position(|file| file.schema.id() == schema.id()) {
            return Ok(place);
        }
        let file = target.create(Format::Avro)?;
        // Any bytes will do as marker between blocks that packets do not have by chance; the same
        // ones make the same file after a kill.
        let sync = xxh3_128(file.name().as_bytes()).to_le_bytes();
        let blocks = container::Writer::new(schema, self.compression, sync);
        self.files.push(AvroFile { schema: schema.clone(), blocks, file, rows: Rows::new() });
        Ok(self.files.len() - 1)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.file.bytes()).sum()
    }

    pub(super) fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows.rows).sum()
    }

    pub(super) fn finish(&mut self) -> Result<Vec<Finished>, ExportError> {
        let files = std::mem::take(&mut self.files);
        files.into_iter().map(AvroFile::finish).collect()
    }
}

impl AvroFile {
    fn finish(mut self) -> Result<Finished, ExportError> {
        self.file.write_all(&self.blocks.finish()).at(file_path(&self.file).as_path())?;
        self.rows.finish(self.file, Some(self.schema.id().to_string()))
    }
}

fn file_path(file: &PartFile) -> std::path::PathBuf {
    file.path().to_owned()
}
