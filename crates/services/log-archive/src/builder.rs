//! Records of many packets, put into packets of the archive.

use std::collections::HashMap;

use helio_logging::{Audiences, Entry, Names, Numbers, Origin, PacketWriter, PushError, RecordRef};

/// Where a record comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordSource<'a> {
    /// The packet that it lies in, as no other one is called until [`Builder::forget`].
    pub(crate) packet: (u32, u64),
    /// Its producer, where it names none.
    pub(crate) producer: &'a str,
    /// Its number among its producer's.
    pub(crate) sequence: u64,
}

/// A packet's bytes, and its records' numbers.
#[derive(Debug, Default)]
pub(crate) struct UncompressedBlock {
    pub(crate) packet: Vec<u8>,
    pub(crate) sequences: Vec<u64>,
}

/// Fills a packet with records as they lie in others: bodies are copied, not looked at.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    packet: PacketWriter,
    sequences: Vec<u64>,
    /// What was named in which packet, by the number it was registered under.
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

    /// Adds a record. Where the packet is full, it is as it was.
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
        self.packet.push_entry(&Entry {
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

    /// From now on packets may be called what others were.
    pub(crate) fn forget(&mut self) {
        self.names.clear();
    }

    /// Gives the packet, and is empty then; none where it is already. In it records are numbered
    /// from 0, so that each says its place.
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
