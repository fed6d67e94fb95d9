//! A file of packets that the bus does not take, first in, first out.
//!
//! Format (little-endian): `HLSP`, version 1 (4 bytes), where the oldest packet begins (8 bytes),
//! and packets, one behind the other; each says its own length. One process at a time has it (a
//! lock on the file). What a killed process has left is read by the next one; a packet that it was
//! writing is cut.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::{LogError, Spill};
use crate::packet::{self, MAX_PACKET_BYTES};

const MAGIC: &[u8; 8] = b"HLSP\x01\0\0\0";
const HEADER: u64 = 16;

pub(super) struct SpillFile {
    file: File,
    path: PathBuf,
    /// Where the oldest packet begins.
    first: u64,
    end: u64,
    most: u64,
}

impl SpillFile {
    pub(super) fn open(spill: &Spill) -> Result<Self, LogError> {
        let failed = |reason: String| LogError::Spill { file: spill.file.clone(), reason };
        let words = |error: io::Error| failed(error.to_string());
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&spill.file);
        let file = file.map_err(words)?;
        file.try_lock().map_err(|_| {
            failed("another process has it; give each process a file of its own".to_owned())
        })?;
        let end = file.metadata().map_err(words)?.len();
        let mut header = [0; HEADER as usize];
        if end < HEADER {
            let (path, most) = (spill.file.clone(), spill.bytes);
            let mut spill = Self { file, path, first: HEADER, end: HEADER, most };
            spill.clear().map_err(words)?;
            return Ok(spill);
        }
        file.read_exact_at(&mut header, 0).map_err(words)?;
        let (magic, first) = header.split_at(MAGIC.len());
        let first = u64::from_le_bytes(std::array::from_fn(|place| first[place]));
        if magic != MAGIC || !(HEADER..=end).contains(&first) {
            return Err(failed("it is no spill file of version 1; name another one".to_owned()));
        }
        Ok(Self { file, path: spill.file.clone(), first, end, most: spill.bytes })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first == self.end
    }

    pub(super) fn bytes(&self) -> u64 {
        self.end - self.first
    }

    /// Whether the next packet fits, however large it is.
    pub(super) fn has_room(&self) -> bool {
        self.end + MAX_PACKET_BYTES as u64 <= self.most
    }

    /// Adds a packet; false where there is no room for it, or it cannot be written.
    pub(super) fn push(&mut self, packet: &[u8]) -> bool {
        let end = self.end + packet.len() as u64;
        if end > self.most || self.file.write_all_at(packet, self.end).is_err() {
            return false;
        }
        self.end = end;
        true
    }

    /// Puts packets before all others, by writing the file anew; false where that cannot be done.
    /// It is for the end: the new file is nobody's until it is opened.
    pub(super) fn prepend<'a>(&mut self, packets: impl Iterator<Item = &'a [u8]>) -> bool {
        self.written_anew(packets).is_ok()
    }

    fn written_anew<'a>(&mut self, packets: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let anew = self.path.with_extension("new");
        let mut out = io::BufWriter::new(File::create(&anew)?);
        out.write_all(MAGIC)?;
        out.write_all(&HEADER.to_le_bytes())?;
        let mut end = HEADER;
        for packet in packets {
            end += packet.len() as u64;
            out.write_all(packet)?;
        }
        self.file.seek(SeekFrom::Start(self.first))?;
        end += io::copy(&mut (&self.file).take(self.bytes()), &mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()?;
        std::fs::rename(&anew, &self.path)?;
        (self.first, self.end) = (HEADER, end);
        Ok(())
    }

    /// Takes the oldest packet; none where there is no whole one any more.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let packet = self.oldest();
        match &packet {
            Some(packet) => self.first += packet.len() as u64,
            // Cut by the end of whoever wrote it, or damaged: what is behind it cannot be found.
            None => self.first = self.end,
        }
        let kept = match self.is_empty() {
            true => self.clear(),
            false => self.file.write_all_at(&self.first.to_le_bytes(), MAGIC.len() as u64),
        };
        // Where this cannot be written, the next process reads some packets again.
        kept.ok().and(packet)
    }

    fn oldest(&self) -> Option<Vec<u8>> {
        let mut header = [0; packet::HEADER_BYTES];
        self.file.read_exact_at(&mut header, self.first).ok()?;
        let bytes = packet::length(&header)?;
        if bytes > MAX_PACKET_BYTES || self.bytes() < bytes as u64 {
            return None;
        }
        let mut packet = vec![0; bytes];
        self.file.read_exact_at(&mut packet, self.first).ok()?;
        packet::Packet::parse(&packet).is_ok().then_some(packet)
    }

    fn clear(&mut self) -> io::Result<()> {
        (self.first, self.end) = (HEADER, HEADER);
        self.file.set_len(0)?;
        self.file.write_all_at(MAGIC, 0)?;
        self.file.write_all_at(&HEADER.to_le_bytes(), MAGIC.len() as u64)
    }
}
