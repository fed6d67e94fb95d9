//! Copies records of many packets into packets of the archive.

use std::collections::HashMap;

use helio_logging::{
    Audiences, Names, Numbers, Origin, PacketWriter, PushError, RecordEntry, RecordRef,
};

/// The source of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordSource<'a> {
    /// The record's packet: an identifier that is unique until [`Builder::forget`].
    pub(crate) packet: (u32, u64),
    /// The producer of records that name none.
    pub(crate) producer: &'a str,
    /// The record's sequence.
    pub(crate) sequence: u64,
}

/// A packet's bytes, and its records' sequences.
#[derive(Debug, Default)]
pub(crate) struct UncompressedBlock {
    pub(crate) packet: Vec<u8>,
    pub(crate) sequences: Vec<u64>,
}

/// Fills a packet with records of other packets. Bodies are copied without being parsed.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    packet: PacketWriter,
    sequences: Vec<u64>,
    /// The registered numbers of the combinations in each source packet.
    names: HashMap<((u32, u64), Names), u64>,
    registered: u64,
}

impl Builder {
    pub(crate) fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.packet.bytes()
    }

    /// Adds a record. A full packet stays unchanged.
    pub(crate) fn push(
        &mut self,
        record: RecordRef<'_>,
        source: RecordSource<'_>,
    ) -> Result<(), PushError> {
        let Self { names, registered, .. } = self;
        let number = *names.entry((source.packet, record.names())).or_insert_with(|| {
            *registered += 1;
            *registered
        });
        match self.packet.push_known(number, record.time(), record.level(), record.body()) {
            Some(pushed) => pushed?,
            None => self.push_new(record, source, number)?,
        }
        self.sequences.push(source.sequence);
        Ok(())
    }

    fn push_new(
        &mut self,
        record: RecordRef<'_>,
        source: RecordSource<'_>,
        number: u64,
    ) -> Result<(), PushError> {
        let producer = Some(record.producer()).filter(|name| !name.is_empty());
        let origin = Origin {
            host: record.host().to_owned(),
            process: record.process().to_owned(),
            producer: producer.unwrap_or(source.producer).to_owned(),
        };
        let audiences = Audiences {
            everyone: record.is_for_everyone(),
            names: record.audiences().map(str::to_owned).collect(),
        };
        let site = record.site().map(|site| site.to_site());
        self.packet.push_entry(&RecordEntry {
            time: record.time(),
            level: record.level(),
            logger: record.logger(),
            audiences: &audiences,
            origin: &origin,
            site: site.as_ref(),
            registered: Some(number),
            body: record.body(),
        })
    }

    /// Allows packets' identifiers to be reused.
    pub(crate) fn forget(&mut self) {
        self.names.clear();
    }

    /// Returns the packet and empties the builder; none if it is empty. Records are numbered from
    /// 0, so that a record's number is its index.
    pub(crate) fn finish(&mut self) -> Option<UncompressedBlock> {
        self.names.clear();
        if self.is_empty() {
            return None;
        }
        let numbers = Numbers { lane: None, first: 0, shed: 0 };
        let packet = self.packet.finish(numbers).to_vec();
        Some(UncompressedBlock { packet, sequences: std::mem::take(&mut self.sequences) })
    }
}
