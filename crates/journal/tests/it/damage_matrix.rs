//! A selection of the corruption matrix, which the soak runs whole: one damage at a time, and
//! read + reported = acknowledged.

use std::fs;
use std::path::Path;

use crate::support::damage::{in_memory, name};
use crate::support::matrix::*;
use helio_core::ProducerName;
use helio_journal::{
    Access, DamagedFiles, From, Item, Journal, JournalOptions, Ownership, Record, WriterOptions,
};

fn all() -> Outcome {
    Outcome { read: (0..SAMPLES).collect(), ..Outcome::default() }
}

/// One bit in each word of each segment's header: it is rebuilt, and nothing is lost.
#[test]
fn a_wrong_bit_in_a_header_costs_nothing_once_it_is_rebuilt() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved = save(&dir);
    for seq in 1..=SEGMENTS {
        for (byte, bit) in [(1, 3), (8, 2), (19, 7), (33, 4), (60, 0), (80, 1), (97, 5), (171, 2)] {
            damage(&segment(&dir, seq), |bytes| bytes[byte] ^= 1 << bit);
            let what = format!("segment {seq}, byte {byte}, bit {bit}");
            let [looked, same, next] = check(&dir, &saved, &what);
            assert_eq!(looked.refused, None, "{what}");
            assert_eq!(next, all(), "{what}");
            // In the same boot all but the last one's are reported, and rebuilt after the next.
            assert!(same == all() || seq < SEGMENTS, "{what}: {same:?}");
        }
    }
}

#[test]
fn a_header_of_zeros_is_rebuilt_from_its_neighbours() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved = save(&dir);
    for seq in 1..=SEGMENTS {
        damage(&segment(&dir, seq), |bytes| bytes[..4096].fill(0));
        let [_, _, next] = check(&dir, &saved, &format!("segment {seq}"));
        assert_eq!(next, all(), "segment {seq}");
    }
}

#[test]
fn a_wrong_bit_in_a_frame_costs_that_record_only() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved = save(&dir);
    // Every field of a frame's header, key, payload: in the second frame of the third segment, in
    // the first one, and in the last one of the log.
    let last = saved[&segment(&dir, SEGMENTS)].clone();
    let stride = 1072;
    let count = last[4096..].chunks(stride).take_while(|frame| frame[0] != 0).count();
    let places = [(3, 4096 + stride), (3, 4096), (SEGMENTS, 4096 + (count - 1) * stride)];
    for (seq, frame) in places {
        for byte in [0, 4, 8, 16, 24, 32, 40, 48, 56, 60, 62, 63, 64, 500] {
            damage(&segment(&dir, seq), |bytes| bytes[frame + byte] ^= 2);
            let what = format!("segment {seq}, frame at {frame}, byte {byte}");
            for outcome in check(&dir, &saved, &what) {
                assert_eq!(outcome.reported.len(), 1, "{what}: {outcome:?}");
            }
        }
    }
}

#[test]
fn missing_short_and_swapped_segments_are_reported() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved = save(&dir);
    for seq in 1..=SEGMENTS {
        let path = segment(&dir, seq);
        fs::remove_file(&path).unwrap();
        let lost = check(&dir, &saved, &format!("segment {seq} is missing"));
        assert!(lost.iter().all(|o| (1..20).contains(&o.reported.len())), "{seq}: {lost:?}");
        for len in [0, 100, 4096, 9000] {
            damage(&path, |bytes| bytes.truncate(len));
            let lost = check(&dir, &saved, &format!("segment {seq} has {len} bytes"));
            assert!(lost.iter().all(|o| (1..20).contains(&o.reported.len())), "{seq}: {lost:?}");
        }
        damage(&path, |bytes| bytes.resize(40_000, 0));
        let outcomes = check(&dir, &saved, &format!("segment {seq} is too long"));
        assert!(outcomes.iter().all(|outcome| *outcome == all()), "{seq}: {outcomes:?}");
        let other = segment(&dir, seq % SEGMENTS + 1);
        let (one, two) = (saved[&path].clone(), saved[&other].clone());
        fs::write(&path, two).unwrap();
        fs::write(&other, one).unwrap();
        check(&dir, &saved, &format!("segment {seq} is another one"));
    }
}

/// The words of the control page: all records stay, whatever is damaged, or the topic is refused.
#[test]
fn damaged_small_files_lose_no_record() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let saved = save(&dir);
    let control = dir.join("topics/t/0/control");
    let words = [3, 9, 17, 61, 65, 81, 257, 265, 274, 280, 290, 300, 313, 316, 897, 905, 913, 921];
    let more = [1089, 1097, 1105, 1217, 1225, 1233, 1345, 1409, 1441, 1449, 1505, 1530];
    for byte in words.into_iter().chain(more) {
        damage(&control, |bytes| bytes[byte] ^= 0x10);
        let what = format!("control, byte {byte}");
        let [looked, same, next] = check(&dir, &saved, &what);
        assert!(looked == all() || byte < 64, "{what}: {looked:?}");
        assert_eq!((&same, &next), (&all(), &all()), "{what}");
    }
    for seq_known in [true, false] {
        match seq_known {
            true => damage(&control, |bytes| bytes.truncate(100)),
            false => fs::remove_file(&control).unwrap(),
        }
        let [_, _, next] = check(&dir, &saved, "no control");
        assert_eq!(next, all());
    }
    let producers = dir.join("topics/t/producers");
    for byte in [2, 9, 17, 256, 259, 264, 280, 284, 290, 512, 517, 540, 545, 1000] {
        damage(&producers, |bytes| bytes[byte] ^= 0x40);
        for outcome in check(&dir, &saved, &format!("producers, byte {byte}")) {
            assert_eq!(outcome, all(), "producers, byte {byte}");
        }
    }
    // The first name's incarnation 1 becomes 0: `check` fails where 1 is assigned again.
    damage(&producers, |bytes| bytes[256] ^= 1);
    check(&dir, &saved, "producers, incarnation 0");
    for len in [None, Some(0), Some(300)] {
        match len {
            Some(len) => damage(&producers, |bytes| bytes.truncate(len)),
            None => fs::remove_file(&producers).unwrap(),
        }
        for outcome in check(&dir, &saved, &format!("producers of {len:?} bytes")) {
            assert_eq!(outcome, all(), "producers of {len:?} bytes");
        }
    }
}

/// A header that is damaged while a writer and a reader have its segment mapped.
#[test]
fn live_writers_and_readers_go_on_beside_a_recovery() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let journal = Journal::open(&dir, boot(1)).unwrap();
    let topic = journal.topic(&name()).unwrap().unwrap();
    let producer = ProducerName::new("live").unwrap();
    let options = WriterOptions { producer, ownership: Ownership::Shared };
    let mut writer = topic.writer(0, &options).unwrap();
    let mut reader = topic.reader(0, From::Latest).unwrap();
    let record = Record { payload: b"new", ..Record::default() };
    for round in 0..20 {
        assert_eq!(writer.append(&record).unwrap(), SAMPLES + round * 2);
        let newest = (1..).take_while(|seq| segment(&dir, *seq).exists()).last().unwrap();
        damage(&segment(&dir, newest), |bytes| bytes[33] ^= 1 << (round % 8));
        // A second process finds the damage, and rebuilds the header.
        let other = Journal::open(&dir, boot(1)).unwrap();
        let there = other.topic(&name()).unwrap().unwrap();
        assert_eq!(there.info(0).unwrap().end_offset, SAMPLES + round * 2 + 1);
        assert_eq!(writer.append(&record).unwrap(), SAMPLES + round * 2 + 1);
        for offset in [0, 1] {
            let item = reader.next().unwrap();
            let at = SAMPLES + round * 2 + offset;
            assert!(matches!(item, Some(Item::Sample(s)) if s.offset == at), "{item:?}");
        }
        assert_eq!(read(&there), all(), "round {round}");
    }
}

#[test]
fn a_copy_is_another_log_and_shares_the_beginning() {
    let dir = in_memory();
    let (dir, copied) = (dir.path().join("j"), dir.path().join("copy"));
    make(&dir);
    let id = |dir: &Path, n: u8| {
        let journal = Journal::open(dir, boot(n)).unwrap();
        let topic = journal.topic(&name()).unwrap().unwrap();
        (topic.info(0).unwrap().log_id, topic)
    };
    let (original, topic) = id(&dir, 1);
    assert_eq!(topic.fits_up_to(0, original).unwrap(), u64::MAX);
    assert_eq!(id(&dir, 2).0, original, "everything was durable");
    std::process::Command::new("cp").arg("-a").args([&dir, &copied]).status().unwrap();
    let (copy, topic) = id(&copied, 2);
    assert_ne!(copy, original);
    assert_eq!(topic.fits_up_to(0, original).unwrap(), SAMPLES);
    assert_eq!(topic.fits_up_to(0, copy).unwrap(), u64::MAX);
    assert_eq!(topic.fits_up_to(0, 77).unwrap(), 0);
}

/// The check of three words of a control page.
fn check_word([a, b, c]: [u64; 3]) -> u64 {
    let sum = a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (sum ^ c.wrapping_mul(0x1656_67b1_9e37_79f9)) | 1
}

/// Programs that cannot tell the birth of a file, and older ones, share a log with those that can.
#[test]
fn an_unknown_birth_of_the_control_page_is_no_other_birth() {
    const LOG_ID: usize = 1408;
    const BORN: usize = 1608;
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let control = dir.join("topics/t/0/control");
    let log = || {
        let options = JournalOptions { seed: None, ..boot(1) };
        let journal = Journal::open(&dir, options).unwrap();
        journal.topic(&name()).unwrap().unwrap().info(0).unwrap().log_id
    };
    let word = |at: usize| {
        let page = fs::read(&control).unwrap();
        u64::from_ne_bytes(page[at..at + 8].try_into().unwrap())
    };
    let store = |at: usize, words: [u64; 3]| {
        let words = [words[0], words[1], words[2], check_word(words)];
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        damage(&control, |page| page[at..at + 32].copy_from_slice(&bytes));
    };
    let id = log();
    let file = fs::File::open(&control).unwrap();
    let file_system = rustix::fs::fstatvfs(&file).unwrap().f_fsid;
    let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    // The words of a program that knows no birth.
    store(LOG_ID, [id, file_system, inode]);
    damage(&control, |page| page[BORN..BORN + 32].fill(0));
    assert_eq!(log(), id);
    let born = word(BORN);
    if file.metadata().unwrap().created().is_err() {
        assert_eq!(born, 0, "this file system records none");
        return;
    }
    assert_ne!(born, 0, "it is known from now on");
    assert_eq!(log(), id);
    // A copy that has got the inode of the removed original.
    store(BORN, [born ^ 2, file_system, inode]);
    let copy = log();
    assert_ne!(copy, id);
    assert_eq!((log(), word(BORN)), (copy, born));
}

/// Another program cuts a file short while a reader has it mapped.
#[test]
fn a_reader_survives_files_that_are_cut_short_under_it() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    let options = JournalOptions { access: Access::ReadOnly, ..boot(1) };
    let journal = Journal::open(&dir, options).unwrap();
    let topic = journal.topic(&name()).unwrap().unwrap();
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    assert!(matches!(reader.next().unwrap(), Some(Item::Sample(s)) if s.offset == 0));
    fs::OpenOptions::new().write(true).open(segment(&dir, 1)).unwrap().set_len(8192).unwrap();
    let (mut read, mut lost) = (1, 0);
    while let Some(item) = reader.next().unwrap() {
        match item {
            Item::Sample(_) => read += 1,
            Item::Gap(gap) => lost += gap.to - gap.from,
        }
    }
    assert_eq!(read + lost, SAMPLES);
    assert!((1..15).contains(&lost), "{lost}");
}

#[test]
fn what_cannot_be_read_stays_until_it_is_discarded() {
    let dir = in_memory();
    let dir = dir.path().join("j");
    make(&dir);
    // Neither header nor first frame: nothing confirms a rebuilt header.
    damage(&segment(&dir, 2), |bytes| bytes[..6000].fill(0));
    damage(&segment(&dir, 3), |bytes| bytes[33] ^= 16);
    let journal = Journal::open(&dir, boot(1)).unwrap();
    let found = journal.repair(DamagedFiles::Keep).unwrap();
    let [damage] = &found[..] else { panic!("{found:?}") };
    assert_eq!((damage.missing, damage.missing_from), (15, 15), "{damage:?}");
    let files = [segment(&dir, 2), segment(&dir, 3).with_extension("hdr")];
    assert_eq!(damage.files, files);
    let topic = journal.topic(&name()).unwrap().unwrap();
    let outcome = read(&topic);
    assert_eq!(outcome.reported, (15..30).collect());
    drop((topic, journal));
    for n in 2..4 {
        let journal = Journal::open(&dir, boot(n)).unwrap();
        let topic = journal.topic(&name()).unwrap().unwrap();
        assert_eq!(topic.info(0).unwrap().recovery.missing, 15);
        assert_eq!(read(&topic), outcome);
        assert!(files.iter().all(|file| file.exists()));
    }
    let journal = Journal::open(&dir, boot(3)).unwrap();
    assert_eq!(journal.repair(DamagedFiles::Discard).unwrap().len(), 1);
    assert!(files.iter().all(|file| !file.exists()));
    assert_eq!(read(&journal.topic(&name()).unwrap().unwrap()), outcome, "still a gap");
}

/// Recovery without room on the disk refuses the topic or reports what it cannot rebuild, and a
/// later one with room loses nothing.
#[test]
fn a_disk_that_is_full_during_recovery_costs_nothing_later() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("full disk: skipped, it needs root");
        return;
    }
    let disk = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(disk.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("full disk: skipped, no file system can be mounted here");
        return;
    }
    let outcome = std::panic::catch_unwind(|| recover_without_room(disk.path()));
    std::process::Command::new("umount").arg("-l").arg(disk.path()).status().unwrap();
    outcome.unwrap();
}

fn recover_without_room(disk: &Path) {
    let dir = disk.join("j");
    make(&dir);
    damage(&segment(&dir, 2), |bytes| bytes[33] ^= 16);
    damage(&segment(&dir, SEGMENTS), |bytes| bytes[33] ^= 16);
    let damaged = save(&dir);
    let filler = disk.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[1; 4096]).is_ok() {}
    for n in 2..5 {
        let outcome = survey(&dir, boot(n));
        let seen = outcome.read.union(&outcome.reported).count() as u64;
        assert!(outcome.refused.is_some() || seen == SAMPLES, "{outcome:?}");
        every_byte_is_there(&damaged, &dir);
    }
    drop(file);
    fs::remove_file(filler).unwrap();
    assert_eq!(survey(&dir, boot(5)), all());
    every_byte_is_there(&damaged, &dir);
}
