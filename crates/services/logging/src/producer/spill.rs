//! A file of packets that the bus does not accept, first in, first out.
//!
//! Format (little-endian): `HLSP`, version 1 (4 bytes), the offset of the oldest packet (8 bytes),
//! and packets, one after the other; each contains its own length. One process at a time owns the
//! file (by a lock on it). The next process reads the packets that a killed process has left; an
//! incomplete packet is truncated.
//!
//! Operation. A packet that was taken out stays in the file until it is settled. If the process is
//! killed before that, the next one may send the packet again.

use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::{LogError, Spill};
use crate::level::Level;
use crate::packet::{self, HEADER_BYTES, MAX_PACKET_BYTES, Packet};

const MAGIC: &[u8; 8] = b"HLSP\x01\0\0\0";
const HEADER: u64 = 16;

/// A packet's summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PacketInfo {
    pub(super) lane: Level,
    pub(super) records: u64,
    bytes: u32,
}

impl PacketInfo {
    /// Reads a packet's summary; none if this is not a packet.
    fn of(header: &[u8; HEADER_BYTES]) -> Option<Self> {
        let legal = HEADER_BYTES..=MAX_PACKET_BYTES;
        let bytes = packet::length(header).filter(|bytes| legal.contains(bytes))?;
        let records = u32::from_le_bytes(std::array::from_fn(|place| header[8 + place]));
        let lane = Level::new(header[5]).unwrap_or_default();
        Some(Self { lane, records: records.into(), bytes: u32::try_from(bytes).ok()? })
    }
}

/// A packet read from the file.
#[derive(Debug)]
pub(super) struct SpilledPacket {
    /// Its offset, until it is settled.
    pub(super) at: u64,
    pub(super) about: PacketInfo,
    /// The bytes; none if they are no longer readable.
    pub(super) packet: Option<Vec<u8>>,
}

pub(super) struct SpillFile {
    file: File,
    path: PathBuf,
    /// The offset of the next packet to be read.
    first: u64,
    end: u64,
    most: u64,
    /// The packets from there on.
    left: VecDeque<PacketInfo>,
    /// The offsets of packets that were read and are not settled.
    taken: BTreeSet<u64>,
    /// The number of packets ever written, and of those read.
    put: u64,
    out: u64,
    /// Records that another process has left.
    pub(super) inherited: u64,
    /// Its incomplete packet.
    pub(super) cut: Option<PacketInfo>,
}

impl SpillFile {
    pub(super) fn open(spill: &Spill) -> Result<Self, LogError> {
        let failed = |reason: String| LogError::Spill { file: spill.file.clone(), reason };
        let words = |error: io::Error| failed(error.to_string());
        let file = loop {
            let mut options = OpenOptions::new();
            let file = options.read(true).write(true).create(true).truncate(false);
            let file = file.open(&spill.file).map_err(words)?;
            file.try_lock().map_err(|_| {
                failed("another process has it; give each process a file of its own".to_owned())
            })?;
            // The previous owner may have just replaced the file.
            if is_at(&file, &spill.file).map_err(words)? {
                break file;
            }
        };
        let end = file.metadata().map_err(words)?.len();
        let mut open = Self {
            file,
            path: spill.file.clone(),
            first: HEADER,
            end: HEADER,
            most: spill.bytes,
            left: VecDeque::new(),
            taken: BTreeSet::new(),
            put: 0,
            out: 0,
            inherited: 0,
            cut: None,
        };
        if end < HEADER {
            open.clear().map_err(words)?;
            return Ok(open);
        }
        let mut header = [0; HEADER as usize];
        open.file.read_exact_at(&mut header, 0).map_err(words)?;
        let (magic, first) = header.split_at(MAGIC.len());
        let first = u64::from_le_bytes(std::array::from_fn(|place| first[place]));
        if magic != MAGIC || !(HEADER..=end).contains(&first) {
            return Err(failed("it is not a spill file of version 1; name another one".to_owned()));
        }
        (open.first, open.end) = (first, first);
        open.look_through(end).map_err(words)?;
        Ok(open)
    }

    /// Scans the packets and truncates an incomplete one at the end, which would hide packets
    /// written after it.
    fn look_through(&mut self, end: u64) -> io::Result<()> {
        let mut header = [0; HEADER_BYTES];
        while self.end + HEADER_BYTES as u64 <= end {
            self.file.read_exact_at(&mut header, self.end)?;
            let Some(about) = PacketInfo::of(&header) else { break };
            self.inherited += about.records;
            if self.end + u64::from(about.bytes) > end {
                self.cut = Some(about);
                break;
            }
            self.end += u64::from(about.bytes);
            self.left.push_back(about);
            self.put += 1;
        }
        if self.end < end { self.file.set_len(self.end) } else { Ok(()) }
    }

    /// Whether no packet is left to be read.
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Whether all packets that were read are settled, too.
    pub(super) fn is_clear(&self) -> bool {
        self.left.is_empty() && self.taken.is_empty()
    }

    /// Whether a packet of this lane is left to be read.
    pub(super) fn has(&self, lane: Level) -> bool {
        self.left.iter().any(|about| about.lane == lane)
    }

    /// The bytes of unsettled packets.
    pub(super) fn bytes(&self) -> u64 {
        self.end - self.oldest()
    }

    /// The number of packets ever written.
    pub(super) fn put(&self) -> u64 {
        self.put
    }

    /// The number of packets ever read.
    pub(super) fn out(&self) -> u64 {
        self.out
    }

    /// Whether a packet of any size fits.
    pub(super) fn has_room(&self) -> bool {
        self.end + MAX_PACKET_BYTES as u64 <= self.most
    }

    /// The offset of the oldest unsettled packet.
    fn oldest(&self) -> u64 {
        self.taken.first().copied().unwrap_or(self.first)
    }

    /// Adds a packet; false if there is no room, or writing fails.
    pub(super) fn push(&mut self, packet: &[u8]) -> bool {
        let Some(about) = packet.first_chunk().and_then(PacketInfo::of) else { return false };
        let end = self.end + packet.len() as u64;
        if end > self.most || self.file.write_all_at(packet, self.end).is_err() {
            return false;
        }
        self.end = end;
        self.left.push_back(about);
        self.put += 1;
        true
    }

    /// Puts packets before all others by rewriting the file; false if that fails. It is for the
    /// end: the new file has no owner until it is opened.
    pub(super) fn prepend<'a>(&mut self, packets: impl Iterator<Item = &'a [u8]>) -> bool {
        self.written_anew(packets).is_ok()
    }

    fn written_anew<'a>(&mut self, packets: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        // Appended to the whole name: files that differ only in their extension stay distinct.
        let mut anew = self.path.clone().into_os_string();
        anew.push(".new");
        let mut out = io::BufWriter::new(File::create(&anew)?);
        out.write_all(MAGIC)?;
        out.write_all(&HEADER.to_le_bytes())?;
        let mut end = HEADER;
        for packet in packets {
            end += packet.len() as u64;
            out.write_all(packet)?;
        }
        self.file.seek(SeekFrom::Start(self.first))?;
        end += io::copy(&mut (&self.file).take(self.end - self.first), &mut out)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()?;
        std::fs::rename(&anew, &self.path)?;
        self.taken.clear();
        (self.first, self.end) = (HEADER, end);
        Ok(())
    }

    /// Reads the oldest packet; it stays in the file until it is [settled](Self::settled).
    pub(super) fn pop(&mut self) -> Option<SpilledPacket> {
        let about = self.left.pop_front()?;
        let at = self.first;
        self.first += u64::from(about.bytes);
        self.out += 1;
        self.taken.insert(at);
        let mut packet = vec![0; about.bytes as usize];
        let read = self.file.read_exact_at(&mut packet, at).is_ok();
        let packet = (read && Packet::parse(&packet).is_ok()).then_some(packet);
        Some(SpilledPacket { at, about, packet })
    }

    /// Settles a packet that has arrived or was dropped.
    pub(super) fn settled(&mut self, at: u64) {
        let before = self.oldest();
        self.taken.remove(&at);
        let kept = if self.is_clear() {
            self.clear()
        } else if self.oldest() > before {
            self.file.write_all_at(&self.oldest().to_le_bytes(), MAGIC.len() as u64)
        } else {
            Ok(())
        };
        // If this write fails, the next process sends some packets again.
        _ = kept;
    }

    fn clear(&mut self) -> io::Result<()> {
        (self.first, self.end) = (HEADER, HEADER);
        self.file.set_len(0)?;
        self.file.write_all_at(MAGIC, 0)?;
        self.file.write_all_at(&HEADER.to_le_bytes(), MAGIC.len() as u64)
    }
}

/// Whether an open file is the one at a path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{Numbers, PacketWriter};
    use crate::record::Record;
    use helio_core::Tai;
    use proptest::prelude::*;

    fn packet(text: &str) -> Vec<u8> {
        let mut writer = PacketWriter::default();
        writer.push(&Record::new(Tai::default(), Level::INFO, "a", text)).unwrap();
        writer.finish(Numbers { lane: Some(Level::INFO), first: 1, shed: 0 }).to_vec()
    }

    fn folder() -> (tempfile::TempDir, Spill) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("spill");
        (folder, Spill { file, bytes: 1 << 20 })
    }

    fn packets(spill: &Spill) -> Vec<Vec<u8>> {
        let mut open = SpillFile::open(spill).unwrap();
        std::iter::from_fn(|| open.pop()).map(|taken| taken.packet.unwrap()).collect()
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let (_folder, spill) = folder();
        let mut open = SpillFile::open(&spill).unwrap();
        let all = [packet("one"), packet("two")];
        assert!(all.iter().all(|packet| open.push(packet)));
        let header = |first: usize| [b"HLSP\x01\0\0\0", &(first as u64).to_le_bytes()[..]].concat();
        let written = std::fs::read(&spill.file).unwrap();
        assert!(written == [header(16), all.concat()].concat());
        let one = open.pop().unwrap();
        open.settled(one.at);
        assert_eq!(std::fs::read(&spill.file).unwrap()[..16], header(16 + all[0].len()));
        drop(open);
        assert_eq!(packets(&spill), all[1..]);
    }

    #[test]
    fn what_was_taken_and_not_settled_is_there_for_the_next_process() {
        let (_folder, spill) = folder();
        let all = [packet("one"), packet("two"), packet("three")];
        let mut open = SpillFile::open(&spill).unwrap();
        assert!(all.iter().all(|packet| open.push(packet)));
        let (one, two) = (open.pop().unwrap(), open.pop().unwrap());
        open.settled(two.at);
        assert_eq!(open.bytes(), all.iter().map(Vec::len).sum::<usize>() as u64);
        open.settled(one.at);
        // It is killed.
        drop(open);
        assert_eq!(packets(&spill), all[2..]);
        // Nothing was settled.
        assert_eq!(packets(&spill), all[2..]);
    }

    #[test]
    fn what_is_written_behind_a_packet_that_was_not_written_whole_is_found() {
        let (_folder, spill) = folder();
        let (one, two, three) = (packet("one"), packet("two"), packet("three"));
        for cut in 0..two.len() {
            _ = std::fs::remove_file(&spill.file);
            let mut open = SpillFile::open(&spill).unwrap();
            assert!(open.push(&one) && open.push(&two));
            drop(open);
            let file = OpenOptions::new().write(true).open(&spill.file).unwrap();
            file.set_len(HEADER + (one.len() + cut) as u64).unwrap();
            let mut open = SpillFile::open(&spill).unwrap();
            let known = u64::from(cut >= HEADER_BYTES);
            assert_eq!(open.inherited, 1 + known, "{cut}");
            assert_eq!(open.cut.map_or(0, |cut| cut.records), known, "{cut}");
            assert!(open.push(&three));
            drop(open);
            assert_eq!(packets(&spill), [one.clone(), three.clone()], "{cut}");
        }
    }

    #[test]
    fn a_damaged_packet_is_one_packet_less_and_its_records_are_known() {
        let (_folder, spill) = folder();
        let (one, two) = (packet("one"), packet("two"));
        let mut open = SpillFile::open(&spill).unwrap();
        assert!(open.push(&one) && open.push(&two));
        open.file.write_all_at(b"?", HEADER + one.len() as u64 - 1).unwrap();
        let damaged = open.pop().unwrap();
        assert_eq!((damaged.packet, damaged.about.records), (None, 1));
        assert_eq!(open.pop().unwrap().packet, Some(two));
    }

    #[test]
    fn files_whose_names_differ_in_their_extension_only_are_two() {
        let (folder, _) = folder();
        let spill = |name| Spill { file: folder.path().join(name), bytes: 1 << 20 };
        let (a, b) = (spill("mount.1"), spill("mount.2"));
        let mut both = [SpillFile::open(&a).unwrap(), SpillFile::open(&b).unwrap()];
        // Who else writes anew at the moment has the file of that name.
        std::fs::create_dir(folder.path().join("mount.new")).unwrap();
        let (one, two) = (packet("one"), packet("two"));
        assert!(both[0].prepend([&one[..]].into_iter()));
        assert!(both[1].prepend([&two[..]].into_iter()));
        drop(both);
        assert_eq!((packets(&a), packets(&b)), (vec![one], vec![two]));
    }

    #[test]
    fn a_file_of_another_version_is_refused_and_left_alone() {
        let (_folder, spill) = folder();
        let other = b"HLSP\x02\0\0\0what comes then";
        std::fs::write(&spill.file, other).unwrap();
        assert!(matches!(SpillFile::open(&spill), Err(LogError::Spill { .. })));
        assert_eq!(std::fs::read(&spill.file).unwrap(), other);
    }

    proptest! {
        #[test]
        fn any_bytes_behind_the_header_are_packets_or_cut(bytes: Vec<u8>, first in 0..64_u64) {
            let (_folder, spill) = folder();
            let mut file = [MAGIC, &first.to_le_bytes()[..]].concat();
            file.extend_from_slice(&bytes);
            file.extend_from_slice(&packet("one"));
            std::fs::write(&spill.file, file).unwrap();
            if let Ok(mut open) = SpillFile::open(&spill) {
                let two = packet("two");
                prop_assert!(open.push(&two));
                let last = std::iter::from_fn(|| open.pop()).last();
                prop_assert_eq!(last.and_then(|taken| taken.packet), Some(two));
            }
        }
    }
}
