//! Rebuilds damaged headers of segments, the control page and the producers' file.
//!
//! Constraints: a rebuilt header is used only if its own checksum or the checksum of the segment's
//! first frame, which contains the segment's id, confirms it. The damaged bytes are kept beside the
//! file (`*.hdr`, `*.damaged`), until an operator discards them. Without room on the disk for them,
//! nothing is rebuilt: the records are missing until a later recovery.
//!
//! Operation: one wrong bit is found by the checksum alone. Otherwise the header's words come from
//! the neighbours: each segment begins where the one before ends, and names that one's id.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use helio_core::Tai;

use crate::JournalError;
use crate::control::{CONTROL_BYTES, Control, FIRST_POS, NO_TIME};
use crate::env::Env;
use crate::error::IoContext;
use crate::hash::{correct_bit, mix};
use crate::map::{Map, Mode, reserve};
use crate::partition::Partition;
use crate::segment::{self, HEADER_BYTES, Head, Seal, Segment, SegmentHold};

/// Extension of a segment's damaged header.
pub(crate) const HEADER_EXTENSION: &str = "hdr";
/// Extension of a damaged small file.
pub(crate) const DAMAGED_EXTENSION: &str = "damaged";
/// The limit of recoveries whose segment ids are tried.
const MAX_EPOCHS: u64 = 1000;

/// Writes a copy of the damaged beginning of a file beside it, unless there is one already.
pub(crate) fn preserve(
    path: &Path,
    extension: &str,
    bytes: usize,
    env: &Env,
) -> Result<(), JournalError> {
    let target = path.with_extension(extension);
    if target.exists() {
        return Ok(());
    }
    let mut copy = Vec::new();
    let mut file = File::open(path).at("open", path)?;
    io::Read::read_to_end(&mut io::Read::take(&mut file, bytes as u64), &mut copy)
        .at("read", path)?;
    env.publish(&target, &copy)
}

/// The places at which a segment may begin: position, offset, latest time before.
type Base = (u64, u64, Tai);

impl Partition {
    /// Keeps a copy of a segment's header before it is rebuilt.
    pub(crate) fn preserve_header(&self, seq: u64) -> Result<(), JournalError> {
        let path = segment::path(&self.dir, seq);
        preserve(&path, HEADER_EXTENSION, HEADER_BYTES as usize, &self.env)
    }

    /// Rebuilds the damaged headers of segments, in order, as far as they can be confirmed. Returns
    /// whether there were any.
    pub(crate) fn rebuild_headers(&self) -> Result<bool, JournalError> {
        let mut any = false;
        // Retired segments are none of the log.
        let first = self.control.beginning().map_or(0, |begin| begin.seq);
        for seq in self.files()?.into_iter().filter(|seq| *seq >= first) {
            if self.segment(seq)?.is_some() {
                continue;
            }
            match self.rebuild_header(seq) {
                // Its records are missing until a recovery finds room for the damaged bytes.
                Err(JournalError::NoRoom { .. }) => {}
                rebuilt => any |= rebuilt?,
            }
        }
        Ok(any)
    }

    fn rebuild_header(&self, seq: u64) -> Result<bool, JournalError> {
        let path = segment::path(&self.dir, seq);
        let file = OpenOptions::new().read(true).write(true).open(&path).at("open", &path)?;
        let len = file.metadata().at("look at", &path)?.len();
        let mut page = [0; HEADER_BYTES as usize];
        if len <= HEADER_BYTES || file.read_exact_at(&mut page, 0).is_err() {
            return Ok(false);
        }
        let map = Map::of(&file, len as usize, Mode::Write).at("map", &path)?;
        let Some(head) = self.confirmed(seq, &page, len - HEADER_BYTES, &map)? else {
            return Ok(false);
        };
        self.preserve_header(seq)?;
        Segment::restore(&map, head);
        Ok(true)
    }

    /// Returns the header that the file's own checksums confirm.
    fn confirmed(
        &self,
        seq: u64,
        page: &[u8; HEADER_BYTES as usize],
        room: u64,
        map: &Map,
    ) -> Result<Option<Head>, JournalError> {
        // A segment that a former recovery could not read ends where a later one begins: records
        // that were cut off do not come back.
        let later = self.files()?.into_iter().filter(|later| *later > seq);
        let mut upto = u64::MAX;
        for later in later {
            if let Some(segment) = self.segment(later)? {
                upto = segment.head.base_offset;
                break;
            }
        }
        let corrected = Head::corrected(page).filter(|head| head.seq == seq);
        if let Some(head) = corrected.filter(|head| head.base_offset <= upto)
            && (head.id == segment::live(page) || segment::begins_with_frame(map, &head))
        {
            return Ok(Some(head));
        }
        let raw = Head::unchecked(page);
        let before = self.segment(seq.saturating_sub(1))?;
        let next = self.segment(seq + 1)?;
        let mut ids = vec![segment::live(page), raw.id];
        ids.extend(next.map(|next| next.head.prev_id));
        let epochs = 0..=self.control.recovered().count.min(MAX_EPOCHS);
        ids.extend(epochs.map(|epoch| segment_id(self.control.seed(), seq, epoch)));
        let begin = self.control.beginning();
        let prev_id = before.as_ref().map_or(raw.prev_id, |before| before.head.id);
        for (base_pos, base_offset, base_time) in self.bases(seq, &raw, before.as_ref()) {
            for id in ids.iter().copied().filter(|id| *id != 0) {
                let capacity = raw.capacity.min(room) / 8 * 8;
                let capacity = if capacity == 0 { room / 8 * 8 } else { capacity };
                let created = raw.created.min(self.env.running_time());
                // Segments before a compacted one are removed, so a damaged flag does not count.
                let compacted = raw.compacted && begin.is_some_and(|begin| begin.seq == seq);
                let head = Head {
                    id,
                    seq,
                    base_pos,
                    base_offset,
                    base_time,
                    capacity,
                    prev_id,
                    compacted,
                    version: segment::VERSION,
                    created,
                };
                if base_offset < upto && segment::begins_with_frame(map, &head) {
                    return Ok(Some(Head { version: segment::sealed_version(map, head), ..head }));
                }
            }
        }
        Ok(None)
    }

    /// Returns where a segment may begin: behind the one before it, at the log's beginning, or
    /// where its own damaged header says. Without a record of the beginning, the first segment
    /// begins where logs do.
    fn bases(&self, seq: u64, raw: &Head, before: Option<&Segment>) -> Vec<Base> {
        let mut bases = Vec::new();
        if let Some(before) = before {
            let seal = before.sealed().ok().flatten();
            let Seal { end, offset, time, .. } = seal.unwrap_or_else(|| before.end_of_frames());
            bases.push((end, offset, time));
        }
        let begin = self.control.beginning().filter(|begin| begin.seq == seq);
        bases.extend(begin.map(|begin| (begin.pos, begin.offset, raw.base_time)));
        if begin.is_none() && seq == 1 {
            bases.push((FIRST_POS, 0, NO_TIME));
        }
        bases.push((raw.base_pos, raw.base_offset, raw.base_time));
        // No frame is there, though a header of zeros says so.
        bases.retain(|(pos, ..)| *pos >= FIRST_POS);
        bases
    }
}

/// Returns the id of a segment that is not compacted. No id is used twice: recoveries count.
pub(crate) fn segment_id(seed: u64, seq: u64, recoveries: u64) -> u64 {
    mix(seed ^ mix(seq) ^ recoveries.rotate_left(32)) | 1
}

/// Puts a partition's control page in order, so that it can be attached: creates a missing one, and
/// rebuilds a damaged head. Its words stay: each has a check of its own, and recovery judges them.
pub(crate) fn restore_control(
    env: &Env,
    path: &Path,
    create: impl Fn(&Path) -> Result<(), JournalError>,
) -> Result<(), JournalError> {
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let dir = path.parent().unwrap_or(path);
            fs::create_dir_all(dir).at("create", dir)?;
            let temporary = env.temporary(dir);
            create(&temporary)?;
            link(&temporary, path)?;
            // The folder may be new, too.
            env.sync_dir(dir)?;
            return dir.parent().map_or(Ok(()), |topic| env.sync_dir(topic));
        }
        other => other.at("open", path)?,
    };
    let mut page = [0; CONTROL_BYTES];
    let len = file.metadata().at("look at", path)?.len().min(CONTROL_BYTES as u64) as usize;
    file.read_exact_at(&mut page[..len], 0).at("read", path)?;
    if len == CONTROL_BYTES && Control::is_head(&page) {
        return Ok(());
    }
    preserve(path, DAMAGED_EXTENSION, CONTROL_BYTES, env)?;
    let head: [u8; Control::HEAD_BYTES] = match correct_bit(&page[..Control::HEAD_BYTES]) {
        Some(head) if len == CONTROL_BYTES && Control::is_head(&head) => {
            head.try_into().unwrap_or([0; Control::HEAD_BYTES])
        }
        // Another process of this boot may use its seed.
        _ if Control::is_marked(&page, env.boot) => {
            return Err(JournalError::damaged(path, "partition's control page"));
        }
        _ => Control::head(env.random()),
    };
    reserve(&file, CONTROL_BYTES as u64).at("allocate", path)?;
    file.write_all_at(&head, 0).at("write", path)
}

/// The numbers that a topic's records carry.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UsedNumbers {
    /// One more than the highest number of a producer.
    pub(crate) producers: u32,
    /// The highest incarnation.
    pub(crate) incarnation: u64,
}

/// Collects the numbers that the readable records of all partitions of a topic carry.
pub(crate) fn used_numbers(topic: &Path) -> Result<UsedNumbers, JournalError> {
    let mut used = UsedNumbers::default();
    for entry in fs::read_dir(topic).at("list", topic)? {
        let dir = entry.at("list", topic)?.path();
        let number = dir.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
        if number.is_none() || !dir.is_dir() {
            continue;
        }
        for file in fs::read_dir(&dir).at("list", &dir)? {
            let name = file.at("list", &dir)?.file_name();
            let seq = name.to_str().and_then(|n| n.strip_suffix(".seg")?.parse().ok());
            let Some(seq) = seq else { continue };
            if let Ok(Some(segment)) = Segment::open(&dir, seq, Mode::Read, SegmentHold::Loose) {
                segment.frames(|header| {
                    used.producers = used.producers.max(header.producer.saturating_add(1));
                    used.incarnation = used.incarnation.max(header.incarnation);
                });
            }
        }
    }
    Ok(used)
}

/// Gives a new file its name, unless another process was first.
pub(crate) fn link(temporary: &PathBuf, path: &Path) -> Result<(), JournalError> {
    let linked = fs::hard_link(temporary, path);
    // A left-over would only take space.
    let _ = fs::remove_file(temporary);
    match linked {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.at("name", path),
    }
}
