//! Packets: records of one producer that travel as one sample.
//!
//! Constraints. A packet is self-contained: it has the texts and call sites that its records refer
//! to, so a consumer can read it without any earlier packet. Time, level, logger and audiences have
//! fixed positions, so a record can be skipped without reading its body. Foreign bytes give an
//! error, never a panic; their cost in time and memory is proportional to their number.
//!
//! Format: `docs/formats/log.md`. A header, the texts, the sites, the origins, an entry of
//! [`ENTRY_BYTES`] for each record, the bodies.
//!
//! Operation. [`PacketWriter::push`] adds records until it is [full](PushError::Full), and
//! [`PacketWriter::finish`] returns the bytes. [`Packet::parse`] checks them once; after that only
//! the bodies can be malformed.

use std::collections::HashMap;

use helio_core::Tai;
use thiserror::Error;

use crate::body::{Body, Fields};
use crate::level::Level;
use crate::record::{Audiences, Record, Site, Style};
use crate::wire::{Bytes, Malformed};

/// The most bytes of a packet: the smallest limit of the transports, Kafka's default
/// `message.max.bytes`, minus some room for headers.
pub const MAX_PACKET_BYTES: usize = 1_000_000;
/// The most bytes of a record: a quarter of a packet, so that one record delays no others.
pub const MAX_RECORD_BYTES: usize = 250_000;
/// The most records of a packet.
pub const MAX_RECORDS: usize = 65_535;
/// The most audiences in a packet: the number of bits in an entry.
pub const MAX_AUDIENCES: usize = 31;

const MAGIC: [u8; 4] = *b"HLOG";
const VERSION: u8 = 1;
/// Bytes of a packet's header.
pub(crate) const HEADER_BYTES: usize = 48;
const CHECKSUM: std::ops::Range<usize> = 44..48;
const SITE_BYTES: usize = 24;
const ORIGIN_BYTES: usize = 12;
const ENTRY_BYTES: usize = 28;
/// The bit of records for all audiences.
pub(crate) const EVERYONE: u32 = 1 << 31;

/// The origin of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Origin {
    /// The machine.
    pub host: String,
    /// The process.
    pub process: String,
    /// The producer, if it is not the sample's, as for forwarded records.
    pub producer: String,
}

/// A record to be added to a packet.
#[derive(Debug, Clone, Copy)]
pub struct RecordEntry<'a> {
    /// The time of the event.
    pub time: Tai,
    /// The severity.
    pub level: Level,
    /// The logger's name.
    pub logger: &'a str,
    /// The readers that the record is meant for.
    pub audiences: &'a Audiences,
    /// The origin.
    pub origin: &'a Origin,
    /// The call site, if known.
    pub site: Option<&'a Site>,
    /// The caller's number of this combination of logger, audiences, origin and site. The writer
    /// looks up the combination once per packet.
    pub registered: Option<u64>,
    /// The body.
    pub body: &'a [u8],
}

/// Why a record was not added to a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PushError {
    /// The packet has no room: finish it, and add the record to the next one.
    #[error("the packet is full")]
    Full,
    /// The record does not fit into any packet.
    #[error("the record has {0} bytes, the limit is {MAX_RECORD_BYTES}; shorten it")]
    TooLarge(usize),
    /// The record has more audiences than an entry has bits.
    #[error("the record is for {0} audiences, the limit is {MAX_AUDIENCES}; give it to everyone")]
    Audiences(usize),
}

/// The numbers in a packet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// The level of the packet's topic; none outside of topics, as in a file.
    pub lane: Option<Level>,
    /// The first record's number among its producer's in the topic, from 1.
    pub first: u64,
    /// The number of records for the topic that the producer has dropped before this packet.
    pub shed: u64,
}

/// An entry's references into its packet: logger, site, audiences and origin. They are comparable
/// only within one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Names {
    logger: u32,
    site: u32,
    audiences: u32,
    origin: u16,
}

const NO_SITE: u32 = u32::MAX;

/// Writes packets. After the first few packets it allocates memory only for new texts and sites.
#[derive(Debug, Default)]
pub struct PacketWriter {
    audiences: Vec<String>,
    texts: HashMap<String, u32>,
    ends: Vec<u32>,
    text: Vec<u8>,
    sites: HashMap<Site, u32>,
    site_bytes: Vec<u8>,
    origins: HashMap<Origin, u16>,
    origin_bytes: Vec<u8>,
    registered: HashMap<u64, Names>,
    entries: Vec<u8>,
    bodies: Vec<u8>,
    finished: Vec<u8>,
}

impl PacketWriter {
    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() / ENTRY_BYTES
    }

    /// Whether there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The packet's size so far, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let audiences = self.audiences.iter().map(|name| name.len() + 4).sum::<usize>();
        let texts = self.text.len() + 4 * self.ends.len();
        let named = texts + self.site_bytes.len() + self.origin_bytes.len();
        HEADER_BYTES + audiences + named + self.entries.len() + self.bodies.len()
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`PushError`]; the packet is as it was then.
    pub fn push(&mut self, record: &Record) -> Result<(), PushError> {
        let mut body = Body::default();
        body.record(record);
        let (host, process) = (record.host.clone(), record.process.clone());
        let origin = Origin { host, process, producer: record.producer.clone() };
        self.push_entry(&RecordEntry {
            time: record.time,
            level: record.level,
            logger: &record.logger,
            audiences: &record.audiences,
            origin: &origin,
            site: (record.site != Site::default()).then_some(&record.site),
            registered: None,
            body: body.as_bytes(),
        })
    }

    /// Adds a record with an encoded body.
    ///
    /// # Errors
    /// [`PushError`]; the packet is as it was then.
    pub fn push_entry(&mut self, entry: &RecordEntry<'_>) -> Result<(), PushError> {
        let known = entry.registered.and_then(|number| self.registered.get(&number)).copied();
        let known_bytes = if known.is_some() { entry.named_bytes() } else { 0 };
        self.has_room(entry.bytes() - known_bytes)?;
        let named = match known {
            Some(named) => named,
            None => self.named(entry)?,
        };
        self.put(entry.time, entry.level, named, entry.body);
        Ok(())
    }

    /// Adds a record whose combination is registered in this packet. Returns none if the number is
    /// new to the packet; use [`push_entry`](Self::push_entry) then.
    ///
    /// # Errors
    /// [`PushError`]; the packet is as it was then.
    pub fn push_known(
        &mut self,
        registered: u64,
        time: Tai,
        level: Level,
        body: &[u8],
    ) -> Option<Result<(), PushError>> {
        let named = *self.registered.get(&registered)?;
        let bytes = ENTRY_BYTES + body.len();
        Some(self.has_room(bytes).map(|()| self.put(time, level, named, body)))
    }

    fn has_room(&self, bytes: usize) -> Result<(), PushError> {
        if bytes > MAX_RECORD_BYTES {
            return Err(PushError::TooLarge(bytes));
        }
        let full = self.len() == MAX_RECORDS || self.bytes() + bytes > MAX_PACKET_BYTES;
        if full { Err(PushError::Full) } else { Ok(()) }
    }

    fn put(&mut self, time: Tai, level: Level, named: Names, body: &[u8]) {
        self.bodies.extend_from_slice(body);
        self.entries.extend_from_slice(&time.nanos().to_le_bytes());
        self.entries.extend_from_slice(&named.logger.to_le_bytes());
        self.entries.extend_from_slice(&named.site.to_le_bytes());
        self.entries.extend_from_slice(&named.audiences.to_le_bytes());
        self.entries.extend_from_slice(&(self.bodies.len() as u32).to_le_bytes());
        self.entries.extend_from_slice(&[level.number(), 0]);
        self.entries.extend_from_slice(&named.origin.to_le_bytes());
    }

    fn named(&mut self, entry: &RecordEntry<'_>) -> Result<Names, PushError> {
        let audiences = self.audience_bits(entry.audiences)?;
        let origin = self.origin(entry.origin)?;
        let logger = self.text(entry.logger);
        let site = entry.site.map_or(NO_SITE, |site| self.site(site));
        let named = Names { logger, site, audiences, origin };
        entry.registered.iter().for_each(|number| _ = self.registered.insert(*number, named));
        Ok(named)
    }

    fn audience_bits(&mut self, audiences: &Audiences) -> Result<u32, PushError> {
        let new = |name: &&String| !self.audiences.contains(name);
        let mut names: Vec<_> = audiences.names.iter().filter(new).collect();
        names.sort_unstable();
        names.dedup();
        if self.audiences.len() + names.len() > MAX_AUDIENCES {
            let empty = self.audiences.is_empty();
            return Err(if empty { PushError::Audiences(names.len()) } else { PushError::Full });
        }
        let names: Vec<_> = names.into_iter().cloned().collect();
        self.audiences.extend(names);
        let place = |name: &String| self.audiences.iter().position(|known| known == name);
        let bits = audiences.names.iter().filter_map(place).fold(0, |bits, at| bits | 1 << at);
        Ok(if audiences.everyone { bits | EVERYONE } else { bits })
    }

    fn origin(&mut self, origin: &Origin) -> Result<u16, PushError> {
        if let Some(number) = self.origins.get(origin) {
            return Ok(*number);
        }
        let number = u16::try_from(self.origins.len()).map_err(|_| PushError::Full)?;
        for text in [&origin.host, &origin.process, &origin.producer] {
            let text = self.text(text);
            self.origin_bytes.extend_from_slice(&text.to_le_bytes());
        }
        self.origins.insert(origin.clone(), number);
        Ok(number)
    }

    fn site(&mut self, site: &Site) -> u32 {
        if let Some(number) = self.sites.get(site) {
            return *number;
        }
        let number = self.sites.len() as u32;
        let names = site.names.join("\n");
        for text in [&site.template, &site.file, &site.routine, &names] {
            let text = self.text(text);
            self.site_bytes.extend_from_slice(&text.to_le_bytes());
        }
        self.site_bytes.extend_from_slice(&site.line.to_le_bytes());
        self.site_bytes.extend_from_slice(&[site.style as u8, 0, 0, 0]);
        self.sites.insert(site.clone(), number);
        number
    }

    /// A text's number, not counting the audiences before it, as more may follow.
    fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.ends.len() as u32;
        self.text.extend_from_slice(text.as_bytes());
        self.ends.push(self.text.len() as u32);
        self.texts.insert(text.to_owned(), number);
        number
    }

    /// Returns the packet's bytes and empties the writer.
    pub fn finish(&mut self, numbers: Numbers) -> &[u8] {
        let mut out = std::mem::take(&mut self.finished);
        out.clear();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, numbers.lane.map_or(0, Level::number)]);
        out.extend_from_slice(&(self.audiences.len() as u16).to_le_bytes());
        for count in [self.len(), self.ends.len(), self.sites.len(), self.origins.len()] {
            out.extend_from_slice(&(count as u32).to_le_bytes());
        }
        out.extend_from_slice(&numbers.first.to_le_bytes());
        out.extend_from_slice(&numbers.shed.to_le_bytes());
        out.extend_from_slice(&(self.bytes() as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let mut end = 0;
        for name in &self.audiences {
            end += name.len() as u32;
            out.extend_from_slice(&end.to_le_bytes());
        }
        self.ends.iter().for_each(|text| out.extend_from_slice(&(end + text).to_le_bytes()));
        self.audiences.iter().for_each(|name| out.extend_from_slice(name.as_bytes()));
        let parts = [&self.text, &self.site_bytes, &self.origin_bytes, &self.entries, &self.bodies];
        parts.into_iter().for_each(|part| out.extend_from_slice(part));
        let sum = checksum(&out).to_le_bytes();
        out[CHECKSUM].copy_from_slice(&sum);
        self.clear();
        self.finished = out;
        &self.finished
    }

    fn clear(&mut self) {
        self.audiences.clear();
        self.texts.clear();
        self.sites.clear();
        self.origins.clear();
        self.registered.clear();
        self.ends.clear();
        let bytes = [
            &mut self.text,
            &mut self.site_bytes,
            &mut self.origin_bytes,
            &mut self.entries,
            &mut self.bodies,
        ];
        bytes.into_iter().for_each(Vec::clear);
    }
}

impl RecordEntry<'_> {
    /// The most bytes that the entry takes in a packet.
    pub(crate) fn bytes(&self) -> usize {
        self.named_bytes() + ENTRY_BYTES + self.body.len()
    }

    /// The most bytes that its references take in a packet.
    fn named_bytes(&self) -> usize {
        let origin = self.origin;
        let site = self.site.map_or(0, |site| {
            let names = site.names.iter().map(|name| name.len() + 1).sum::<usize>();
            SITE_BYTES + 4 * 4 + site.template.len() + site.file.len() + site.routine.len() + names
        });
        let origins = ORIGIN_BYTES + 3 * 4 + origin.host.len() + origin.process.len();
        let audiences = self.audiences.names.iter().map(|name| name.len() + 4).sum::<usize>();
        4 + self.logger.len() + site + origins + origin.producer.len() + audiences
    }
}

impl Audiences {
    /// Whether an empty packet has bits for all of them.
    ///
    /// # Errors
    /// [`PushError::Audiences`].
    pub(crate) fn fit(&self) -> Result<(), PushError> {
        if self.names.len() <= MAX_AUDIENCES {
            return Ok(());
        }
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > MAX_AUDIENCES { Err(PushError::Audiences(names.len())) } else { Ok(()) }
    }
}

/// The checksum of everything but itself.
fn checksum(packet: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&packet[..CHECKSUM.start]);
    crc32c::crc32c_append(sum, &packet[CHECKSUM.end..])
}

/// Replaces a packet's numbers, which are assigned when it is published, possibly long after it was
/// finished.
///
/// # Errors
/// [`PacketError::Damaged`] if the bytes are not a packet.
pub(crate) fn renumber(packet: &mut [u8], numbers: Numbers) -> Result<(), PacketError> {
    if packet.len() < HEADER_BYTES || !packet.starts_with(&MAGIC) {
        return Err(PacketError::Damaged("it ends in its header"));
    }
    packet[5] = numbers.lane.map_or(0, Level::number);
    packet[24..32].copy_from_slice(&numbers.first.to_le_bytes());
    packet[32..40].copy_from_slice(&numbers.shed.to_le_bytes());
    let sum = checksum(packet).to_le_bytes();
    packet[CHECKSUM].copy_from_slice(&sum);
    Ok(())
}

/// The length of the packet with this header, in bytes.
pub(crate) fn length(header: &[u8; HEADER_BYTES]) -> Option<usize> {
    let length = u32::from_le_bytes(std::array::from_fn(|place| header[40 + place]));
    header.starts_with(&MAGIC).then_some(length as usize)
}

/// An error in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PacketError {
    /// The magic bytes are missing.
    #[error("no log packet: it does not begin with \"HLOG\"")]
    Magic,
    /// The version is unknown.
    #[error("the log packet has version {0}, this program reads {VERSION}; use a newer one")]
    Version(u8),
    /// The packet is truncated, or its checksum is wrong.
    #[error("the log packet is cut or damaged: {0}")]
    Damaged(&'static str),
}

/// A record's body is malformed: its producer wrote it wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the log record's body is malformed")]
pub struct BodyError;

/// A call site in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteRef<'a> {
    /// The message with placeholders for its arguments; empty if it has none.
    pub template: &'a str,
    /// The notation of the placeholders.
    pub style: Style,
    /// The source file.
    pub file: &'a str,
    /// The line in the file, from 1; 0 if unknown.
    pub line: u32,
    /// The function.
    pub routine: &'a str,
    names: &'a str,
}

impl<'a> SiteRef<'a> {
    /// The names of the arguments, in order.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.names.split('\n').filter(|_| !self.names.is_empty())
    }

    /// An owned copy.
    #[must_use]
    pub fn to_site(self) -> Site {
        Site {
            template: self.template.to_owned(),
            style: self.style,
            names: self.names().map(str::to_owned).collect(),
            file: self.file.to_owned(),
            line: self.line,
            routine: self.routine.to_owned(),
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct OriginRef<'a> {
    host: &'a str,
    process: &'a str,
    producer: &'a str,
}

/// A parsed and checked packet.
#[derive(Debug, Clone)]
pub struct Packet<'a> {
    numbers: Numbers,
    audiences: usize,
    texts: Vec<&'a str>,
    sites: Vec<SiteRef<'a>>,
    origins: Vec<OriginRef<'a>>,
    entries: &'a [[u8; ENTRY_BYTES]],
    bodies: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks bytes.
    ///
    /// # Errors
    /// [`PacketError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(PacketError::Magic);
        }
        match bytes.get(4) {
            Some(&VERSION) => {}
            Some(&other) => return Err(PacketError::Version(other)),
            None => return Err(PacketError::Damaged("it ends in its header")),
        }
        let header = bytes.get(..HEADER_BYTES);
        let header = header.ok_or(PacketError::Damaged("it ends in its header"))?;
        let said = u32::from_le_bytes([header[44], header[45], header[46], header[47]]);
        if checksum(bytes) != said {
            return Err(PacketError::Damaged("its checksum is another"));
        }
        Self::tables(bytes).map_err(|Malformed| PacketError::Damaged("its tables are wrong"))
    }

    fn tables(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut header = Bytes(&bytes[5..]);
        let lane = match header.byte()? {
            0 => None,
            number => Some(Level::new(number).ok_or(Malformed)?),
        };
        let audiences = usize::from(header.u16()?);
        let counts = [header.u32()?, header.u32()?, header.u32()?, header.u32()?];
        let [records, texts, sites, origins] = counts.map(|count| count as usize);
        let numbers = Numbers { lane, first: header.u64()?, shed: header.u64()? };
        if header.u32()? as usize != bytes.len() || audiences > MAX_AUDIENCES {
            return Err(Malformed);
        }
        let mut rest = Bytes(&bytes[HEADER_BYTES..]);
        let texts = read_texts(&mut rest, audiences + texts)?;
        // References to texts do not count the audiences.
        let text = |number: u32| texts.get(audiences + number as usize).copied().ok_or(Malformed);
        let size = |count: usize, each: usize| count.checked_mul(each).ok_or(Malformed);
        let mut table = Bytes(rest.take(size(sites, SITE_BYTES)?)?);
        let sites = (0..sites).map(|_| read_site(&mut table, text)).collect::<Result<_, _>>()?;
        let mut table = Bytes(rest.take(size(origins, ORIGIN_BYTES)?)?);
        let mut origin = || {
            let [host, process, producer] = [table.u32()?, table.u32()?, table.u32()?];
            let (host, process) = (text(host)?, text(process)?);
            Ok(OriginRef { host, process, producer: text(producer)? })
        };
        let origins = (0..origins).map(|_| origin()).collect::<Result<_, _>>()?;
        let (entries, _) = rest.take(size(records, ENTRY_BYTES)?)?.as_chunks();
        let packet = Self { numbers, audiences, texts, sites, origins, entries, bodies: rest.0 };
        packet.check()?;
        Ok(packet)
    }

    /// Checks the entries' references and the order of their bodies.
    fn check(&self) -> Result<(), Malformed> {
        let bits = EVERYONE | ((1 << self.audiences) - 1);
        let mut end = 0;
        for record in self.records() {
            let site = record.u32(12);
            let right = record.u32(20) >= end
                && self.audiences + (record.u32(8) as usize) < self.texts.len()
                && (site == NO_SITE || (site as usize) < self.sites.len())
                && record.u32(16) & !bits == 0
                && Level::new(record.entry()[24]).is_some()
                && usize::from(record.u16(26)) < self.origins.len();
            if !right {
                return Err(Malformed);
            }
            end = record.u32(20);
        }
        if end as usize == self.bodies.len() { Ok(()) } else { Err(Malformed) }
    }

    /// The numbers in the header.
    #[must_use]
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no records: the packet only reports shed records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The records, in order.
    pub fn records(&self) -> impl ExactSizeIterator<Item = RecordRef<'_>> {
        (0..self.entries.len()).map(|place| RecordRef { packet: self, place })
    }

    /// The number of texts besides the audiences.
    pub(crate) fn text_count(&self) -> usize {
        self.texts.len() - self.audiences
    }

    pub(crate) fn site_count(&self) -> usize {
        self.sites.len()
    }

    pub(crate) fn origin_count(&self) -> usize {
        self.origins.len()
    }

    /// The record at an index, from 0.
    #[must_use]
    pub fn record(&self, place: usize) -> Option<RecordRef<'_>> {
        (place < self.len()).then_some(RecordRef { packet: self, place })
    }

    /// The audiences of its records.
    #[must_use]
    pub fn audiences(&self) -> &[&'a str] {
        &self.texts[..self.audiences]
    }
}

fn read_texts<'a>(bytes: &mut Bytes<'a>, count: usize) -> Result<Vec<&'a str>, Malformed> {
    let (ends, _) = bytes.take(count.checked_mul(4).ok_or(Malformed)?)?.as_chunks();
    let mut start = 0;
    let text = |end: &[u8; 4]| {
        let end = u32::from_le_bytes(*end);
        let length = end.checked_sub(start).ok_or(Malformed)?;
        start = end;
        std::str::from_utf8(bytes.take(length as usize)?).map_err(|_| Malformed)
    };
    ends.iter().map(text).collect()
}

fn read_site<'a>(
    table: &mut Bytes<'_>,
    text: impl Fn(u32) -> Result<&'a str, Malformed>,
) -> Result<SiteRef<'a>, Malformed> {
    let [template, file, routine, names] = [table.u32()?, table.u32()?, table.u32()?, table.u32()?];
    let line = table.u32()?;
    let style = match table.u32()? {
        0 => Style::Braces,
        1 => Style::Percent,
        _ => return Err(Malformed),
    };
    let (template, file) = (text(template)?, text(file)?);
    Ok(SiteRef { template, style, file, line, routine: text(routine)?, names: text(names)? })
}

/// A record in its packet.
#[derive(Debug, Clone, Copy)]
pub struct RecordRef<'a> {
    packet: &'a Packet<'a>,
    place: usize,
}

impl<'a> RecordRef<'a> {
    fn entry(self) -> &'a [u8; ENTRY_BYTES] {
        &self.packet.entries[self.place]
    }

    fn u16(self, at: usize) -> u16 {
        u16::from_le_bytes([self.entry()[at], self.entry()[at + 1]])
    }

    fn u32(self, at: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|place| self.entry()[at + place]))
    }

    /// The time of the event.
    #[must_use]
    pub fn time(self) -> Tai {
        Tai::from_nanos(i64::from_le_bytes(std::array::from_fn(|place| self.entry()[place])))
    }

    /// The severity.
    #[must_use]
    pub fn level(self) -> Level {
        Level::new(self.entry()[24]).expect("it was checked")
    }

    /// The logger's name.
    #[must_use]
    pub fn logger(self) -> &'a str {
        self.packet.texts[self.packet.audiences + self.logger_number()]
    }

    /// The logger's number among the packet's texts.
    pub(crate) fn logger_number(self) -> usize {
        self.u32(8) as usize
    }

    /// A bit for each of the packet's audiences; the highest one means everyone.
    pub(crate) fn audience_bits(self) -> u32 {
        self.u32(16)
    }

    /// The site's number; larger than any if there is none.
    pub(crate) fn site_number(self) -> usize {
        self.u32(12) as usize
    }

    pub(crate) fn origin_number(self) -> usize {
        usize::from(self.u16(26))
    }

    /// The record's references. Code that copies records resolves each combination once per packet.
    #[must_use]
    pub fn names(self) -> Names {
        let (logger, site, audiences) = (self.u32(8), self.u32(12), self.audience_bits());
        Names { logger, site, audiences, origin: self.u16(26) }
    }

    /// Whether the record is for all audiences.
    #[must_use]
    pub fn is_for_everyone(self) -> bool {
        self.audience_bits() & EVERYONE != 0
    }

    /// The record's audiences by name.
    pub fn audiences(self) -> impl Iterator<Item = &'a str> {
        let bits = self.audience_bits();
        let names = self.packet.audiences().iter().enumerate();
        names.filter(move |(place, _)| bits & (1 << place) != 0).map(|(_, name)| *name)
    }

    /// The call site.
    #[must_use]
    pub fn site(self) -> Option<&'a SiteRef<'a>> {
        self.packet.sites.get(self.site_number())
    }

    fn origin(self) -> OriginRef<'a> {
        self.packet.origins[self.origin_number()]
    }

    /// The machine.
    #[must_use]
    pub fn host(self) -> &'a str {
        self.origin().host
    }

    /// The process.
    #[must_use]
    pub fn process(self) -> &'a str {
        self.origin().process
    }

    /// The producer; empty if it is the sample's.
    #[must_use]
    pub fn producer(self) -> &'a str {
        self.origin().producer
    }

    /// The record's number among its producer's in the topic, from 1.
    #[must_use]
    pub fn sequence(self) -> u64 {
        self.packet.numbers.first.wrapping_add(self.place as u64)
    }

    /// The bytes of the body.
    #[must_use]
    pub fn body(self) -> &'a [u8] {
        let end = self.u32(20) as usize;
        let before = self.place.checked_sub(1);
        let start = before.map_or(0, |place| RecordRef { place, ..self }.u32(20) as usize);
        &self.packet.bodies[start..end]
    }

    /// The fields of the body.
    pub fn fields(self) -> impl Iterator<Item = Result<crate::body::Field<'a>, BodyError>> {
        Fields::of(self.body()).map(|field| field.map_err(|Malformed| BodyError))
    }

    /// An owned copy.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn to_record(self) -> Result<Record, BodyError> {
        let mut record = Record {
            time: self.time(),
            level: self.level(),
            logger: self.logger().to_owned(),
            site: self.site().map_or_else(Site::default, |site| site.to_site()),
            host: self.host().to_owned(),
            process: self.process().to_owned(),
            producer: self.producer().to_owned(),
            audiences: Audiences {
                everyone: self.is_for_everyone(),
                names: self.audiences().map(str::to_owned).collect(),
            },
            sequence: self.sequence(),
            ..Record::default()
        };
        for field in self.fields() {
            record.take(field?);
        }
        Ok(record)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::fields::TextField;
    use crate::record::{Stack, audience};
    use crate::value::Value;
    use crate::value::tests::values;
    use helio_core::TraceId;
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    const NUMBERS: Numbers = Numbers { lane: Some(Level::ERROR), first: 41, shed: 3 };

    /// With every field, as a mount's record may be.
    pub(crate) fn whole() -> Record {
        let time = Tai::from_nanos(1_790_000_037_123_456_789);
        Record {
            observed: Some(Tai::from_nanos(1_790_000_037_200_000_000)),
            text: None,
            arguments: vec![Value::Int(-3), Value::Double(0.25), Value::from("azimuth")],
            site: Site {
                template: "axis {axis} is {}° off after {} tries".to_owned(),
                style: Style::Braces,
                names: vec![String::new(), String::new(), "axis".to_owned()],
                file: "mount/axis.cpp".to_owned(),
                line: 120,
                routine: "Axis::track".to_owned(),
            },
            host: "dv11-abm".to_owned(),
            process: "mountContainer:4711".to_owned(),
            thread: "control".to_owned(),
            context: "tracking".to_owned(),
            audiences: Audiences::of([audience::OPERATOR, audience::SCILOG]),
            array: "Array002".to_owned(),
            antenna: "DV11".to_owned(),
            stack: Some(Stack { id: "dv11-99".to_owned(), level: 1 }),
            log_id: "AxisOff".to_owned(),
            uri: "https://example.org/axis".to_owned(),
            trace: Some(TraceId([7; 16])),
            span: Some([8; 8]),
            flags: 1,
            data: vec![("encoder".to_owned(), Value::Map(vec![("a".to_owned(), true.into())]))],
            producer: "CONTROL/DV11".to_owned(),
            sequence: 41,
            // Fields that were added after the golden files stay absent.
            ..Record::new(time, Level::ERROR, "CONTROL/DV11/Mount", "")
        }
    }

    fn audiences() -> impl Strategy<Value = Audiences> {
        let names = vec("[A-Z]", 0..4).prop_map(|mut names| {
            names.sort();
            names.dedup();
            names
        });
        (any::<bool>(), names).prop_map(|(everyone, names)| Audiences { everyone, names })
    }

    prop_compose! {
        fn sites()(
            (template, file, routine) in (".{0,12}", ".{0,6}", ".{0,6}"),
            names in vec("[a-z]{1,4}", 0..3),
            (line, percent) in (any::<u32>(), any::<bool>()),
        ) -> Site {
            let style = if percent { Style::Percent } else { Style::Braces };
            Site { template, style, names, file, line, routine }
        }
    }

    /// A record with a text in each member.
    fn with_texts(texts: Vec<String>) -> Record {
        let mut record = Record::default();
        for (field, text) in TextField::ALL.into_iter().zip(texts) {
            field.member_mut(&mut record).into_iter().for_each(|member| text.clone_into(member));
        }
        record
    }

    prop_compose! {
        pub(crate) fn records()(
            (time, observed) in (any::<i64>(), option::of(any::<i64>())),
            (level, logger, text) in (1..=11_u8, "[a-z/]{0,8}", option::of(".{0,40}")),
            (arguments, data) in (vec(values(), 0..4), vec((".{0,6}", values()), 0..4)),
            (site, audiences) in (sites(), audiences()),
            texts in vec(".{0,3}", TextField::ALL.len()),
            stack in option::of((".{0,4}", any::<i32>())),
            (producer, flags) in ("[a-b]{0,1}", any::<u8>()),
            (trace, span) in (option::of(any::<[u8; 16]>()), option::of(any::<[u8; 8]>())),
        ) -> Record {
            Record {
                time: Tai::from_nanos(time),
                observed: observed.map(Tai::from_nanos),
                level: Level::new(level).unwrap(),
                logger, text, arguments, site, audiences,
                stack: stack.map(|(id, level)| Stack { id, level }),
                trace: trace.map(TraceId),
                span, flags, data, producer,
                ..with_texts(texts)
            }
        }
    }

    pub(crate) fn packed(records: &[Record]) -> Vec<u8> {
        let mut writer = PacketWriter::default();
        records.iter().for_each(|record| writer.push(record).unwrap());
        let bytes = writer.bytes();
        let finished = writer.finish(NUMBERS).to_vec();
        assert_eq!(finished.len(), bytes);
        assert!(writer.is_empty());
        finished
    }

    proptest! {
        #[test]
        fn records_come_back(records in vec(records(), 0..8)) {
            let bytes = packed(&records);
            let packet = Packet::parse(&bytes).unwrap();
            prop_assert_eq!(packet.numbers(), NUMBERS);
            prop_assert_eq!(packet.len(), records.len());
            for (place, (read, mut record)) in packet.records().zip(records).enumerate() {
                record.sequence = 41 + place as u64;
                // Bits of a packet have the order in which its audiences came.
                let mut read = read.to_record().unwrap();
                read.audiences.names.sort();
                prop_assert_eq!(read, record);
            }
        }

        #[test]
        fn damaged_tables_are_an_error_and_never_a_panic(
            records in vec(records(), 1..4),
            changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = packed(&records);
            for (place, byte) in changes {
                let place = place.index(bytes.len());
                bytes[place] = byte;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            if bytes.len() >= HEADER_BYTES {
                // As one who writes packets wrong would: with the right checksum.
                let sum = checksum(&bytes).to_le_bytes();
                bytes[CHECKSUM].copy_from_slice(&sum);
            }
            if let Ok(packet) = Packet::parse(&bytes) {
                packet.records().for_each(|record| _ = record.to_record());
            }
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let golden = include_bytes!("../tests/golden/packet-1.bin");
        let mut second = Record::new(Tai::from_nanos(-1), Level::ERROR, "a", "plain");
        second.audiences = Audiences::everyone();
        let bytes = packed(&[whole(), second]);
        if std::env::var_os("HELIO_GOLDEN").is_some() {
            let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
            std::fs::write(folder.join("packet-1.bin"), &bytes).unwrap();
        }
        assert!(
            bytes == golden,
            "version 1 is for ever; a change of it needs a version of its own"
        );
        let packet = Packet::parse(golden).unwrap();
        let first = packet.records().next().unwrap().to_record().unwrap();
        assert_eq!(first, whole());
        assert_eq!(first.message(), "axis azimuth is -3° off after 0.25 tries");
    }

    #[test]
    fn any_cut_and_any_other_byte_is_told() {
        let bytes = packed(&[whole()]);
        for length in 0..bytes.len() {
            assert!(Packet::parse(&bytes[..length]).is_err(), "{length}");
        }
        for place in 0..bytes.len() {
            let mut other = bytes.clone();
            other[place] ^= 1;
            assert!(Packet::parse(&other).is_err(), "{place}");
        }
        let newer = [&bytes[..4], &[2], &bytes[5..]].concat();
        assert_eq!(Packet::parse(&newer).unwrap_err(), PacketError::Version(2));
        assert_eq!(Packet::parse(b"{}").unwrap_err(), PacketError::Magic);
    }

    #[test]
    fn what_is_registered_is_looked_at_once_a_packet() {
        let (site, audiences) = (whole().site, Audiences::default());
        let origin = Origin { host: "h".to_owned(), ..Origin::default() };
        let mut writer = PacketWriter::default();
        let entry = |logger| RecordEntry {
            time: Tai::default(),
            level: Level::INFO,
            logger,
            audiences: &audiences,
            origin: &origin,
            site: Some(&site),
            registered: Some(5),
            body: &[],
        };
        writer.push_entry(&entry("first")).unwrap();
        let bytes = writer.bytes();
        writer.push_entry(&entry("again")).unwrap();
        assert_eq!(writer.bytes(), bytes + ENTRY_BYTES);
        writer.finish(NUMBERS);
        writer.push_entry(&entry("next")).unwrap();
        let next = writer.finish(NUMBERS);
        assert_eq!(Packet::parse(next).unwrap().records().next().unwrap().logger(), "next");
    }

    #[test]
    fn packets_are_full_and_records_too_large_at_their_limits() {
        let mut writer = PacketWriter::default();
        let large = Record::new(Tai::default(), Level::INFO, "a", &"m".repeat(MAX_RECORD_BYTES));
        assert!(matches!(writer.push(&large), Err(PushError::TooLarge(_))));
        let small = Record::new(Tai::default(), Level::INFO, "a", &"m".repeat(200_000));
        let taken = (0..9).take_while(|_| writer.push(&small).is_ok()).count();
        assert_eq!((taken, writer.push(&small)), (4, Err(PushError::Full)));
        assert!(writer.finish(NUMBERS).len() <= MAX_PACKET_BYTES);

        let names = |count: usize| (0..count).map(|n| format!("a{n}"));
        let mut many = Record::new(Tai::default(), Level::INFO, "a", "");
        many.audiences = Audiences::of(names(MAX_AUDIENCES + 1));
        assert_eq!(writer.push(&many), Err(PushError::Audiences(32)));
        many.audiences = Audiences::of(names(MAX_AUDIENCES));
        assert_eq!(writer.push(&many), Ok(()));
        many.audiences = Audiences::of(["other"]);
        assert_eq!(writer.push(&many), Err(PushError::Full));
        let finished = writer.finish(NUMBERS).to_vec();
        let packet = Packet::parse(&finished).unwrap();
        assert_eq!(packet.records().next().unwrap().audiences().count(), MAX_AUDIENCES);
        assert_eq!(writer.push(&many), Ok(()));
    }
}
