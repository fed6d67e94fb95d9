//! Members of a group share partitions, and take over from those that leave.

use std::fs;
use std::path::Path;

use helio_core::{ProducerName, TopicName};
use helio_journal::{
    Group, GroupPosition, Journal, JournalError, JournalOptions, Maintenance, Member, Ownership,
    Record, SyncPolicy, Topic, TopicConfig, Writer, WriterOptions,
};

fn name(text: &str) -> ProducerName {
    ProducerName::new(text).unwrap()
}

fn group(dir: &std::path::Path, partitions: u32) -> Group {
    let journal = Journal::open(dir, JournalOptions::default()).unwrap();
    let config = TopicConfig { partitions, ..TopicConfig::default() };
    let topic = journal.create_topic(&TopicName::new("t").unwrap(), &config).unwrap();
    topic.group(&name("workers")).unwrap()
}

#[test]
fn partitions_are_shared_and_change_hands() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (group(dir.path(), 5), group(dir.path(), 5));
    let a = one.join(&name("a")).unwrap();
    assert_eq!(a.assigned().unwrap(), [0, 1, 2, 3, 4]);
    let generation = one.generation();
    let b = two.join(&name("b")).unwrap();
    assert!(one.generation() > generation);
    assert_eq!(b.assigned().unwrap(), [0; 0], "the former owner has not let go yet");
    assert_eq!(a.assigned().unwrap(), [0, 2, 4]);
    assert_eq!(b.assigned().unwrap(), [1, 3]);
    let names: Vec<_> = one.members().into_iter().map(|m| (m.name, m.partitions)).collect();
    assert_eq!(names, [("a".to_owned(), vec![0, 2, 4]), ("b".to_owned(), vec![1, 3])]);
    drop(a);
    assert_eq!(b.assigned().unwrap(), [0, 1, 2, 3, 4]);
}

#[test]
fn positions_are_committed_by_the_owner_only() {
    let dir = tempfile::tempdir().unwrap();
    let group = group(dir.path(), 2);
    let (a, b) = (group.join(&name("a")).unwrap(), group.join(&name("b")).unwrap());
    assert_eq!((a.assigned().unwrap(), b.assigned().unwrap()), (vec![0], vec![1]));
    assert_eq!(group.committed(0).unwrap(), None);
    for offset in [7, 9, 3] {
        a.commit(0, offset).unwrap();
        assert_eq!(group.committed(0).unwrap(), Some(offset));
    }
    let refused = b.commit(0, 5).unwrap_err();
    assert!(matches!(refused, JournalError::NotAssigned { partition: 0, .. }), "{refused}");
    let missing = a.commit(2, 5).unwrap_err();
    assert!(
        matches!(&missing, JournalError::NoPartition { topic, .. } if topic == "t"),
        "{missing}"
    );
    a.sync().unwrap();
    drop(a);
    assert_eq!(b.assigned().unwrap(), [0, 1]);
    assert_eq!(group.committed(0).unwrap(), Some(3));
}

/// A journal in a folder, with one topic and one group, under a boot.
struct Site {
    topic: Topic,
    group: Group,
    member: Member,
    writer: Writer,
}

impl Site {
    fn open(dir: &Path, boot: u8) -> Self {
        let options = JournalOptions {
            boot_id: Some([boot; 16]),
            maintenance: Maintenance::Manual,
            ..JournalOptions::default()
        };
        let journal = Journal::open(dir, options).unwrap();
        let config = TopicConfig { sync: SyncPolicy::OnRequest, ..TopicConfig::default() };
        let topic = journal.create_topic(&TopicName::new("t").unwrap(), &config).unwrap();
        let options = WriterOptions { producer: name("w"), ownership: Ownership::Shared };
        let writer = topic.writer(0, &options).unwrap();
        let group = topic.group(&name("workers")).unwrap();
        let member = group.join(&name("a")).unwrap();
        assert_eq!(member.assigned().unwrap(), [0]);
        Self { topic, group, member, writer }
    }

    fn append(&mut self, records: usize) -> u64 {
        (0..records).for_each(|_| _ = self.writer.append(&Record::default()).unwrap());
        self.topic.info(0).unwrap().end_offset
    }

    fn position(&self) -> (u64, u64) {
        let GroupPosition { committed, resume } = self.group.position(0).unwrap().unwrap();
        assert_eq!(self.group.committed(0).unwrap(), Some(resume));
        (committed, resume)
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn positions_in_a_log_that_was_restored_from_a_copy_resume_where_the_copy_ends() {
    let (dir, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (partition, backup) = (dir.path().join("topics/t/0"), aside.path().join("0"));
    let mut site = Site::open(dir.path(), 1);
    assert_eq!(site.append(4), 4);
    copy(&partition, &backup);
    assert_eq!(site.append(2), 6);
    site.member.commit(0, 6).unwrap();
    assert_eq!(site.position(), (6, 6));
    drop(site);
    fs::remove_dir_all(&partition).unwrap();
    copy(&backup, &partition);
    let mut site = Site::open(dir.path(), 1);
    assert_eq!(site.append(5), 9, "the group's position lies inside of the log again");
    assert_eq!(site.position(), (6, 4));
    // It is so until a member has read on.
    drop(site);
    let site = Site::open(dir.path(), 1);
    assert_eq!(site.position(), (6, 4));
    site.member.commit(0, 5).unwrap();
    assert_eq!(site.position(), (5, 5));
}

#[test]
fn positions_that_fit_stay_over_any_number_of_copies_and_boots() {
    let (dir, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (partition, backup) = (dir.path().join("topics/t/0"), aside.path().join("0"));
    let mut site = Site::open(dir.path(), 1);
    site.append(4);
    site.member.commit(0, 3).unwrap();
    let mut logs = vec![site.topic.info(0).unwrap().log_id];
    drop(site);
    for boot in 2..5 {
        fs::remove_dir_all(&backup).ok();
        copy(&partition, &backup);
        fs::remove_dir_all(&partition).unwrap();
        copy(&backup, &partition);
        let mut site = Site::open(dir.path(), boot);
        assert_eq!(site.position(), (3, 3));
        let info = site.topic.info(0).unwrap();
        assert!(!logs.contains(&info.log_id), "it is another log");
        assert_eq!(info.former_log, Some((*logs.last().unwrap(), info.end_offset)));
        logs.push(info.log_id);
        site.append(1);
    }
}

/// Its words prove nothing then, and nothing can have been appended before it was rebuilt.
#[test]
fn positions_that_fit_stay_where_the_control_page_is_lost() {
    for position in [3, 4] {
        let dir = tempfile::tempdir().unwrap();
        let mut site = Site::open(dir.path(), 1);
        site.append(4);
        site.member.commit(0, position).unwrap();
        drop(site);
        fs::remove_file(dir.path().join("topics/t/0/control")).unwrap();
        let mut site = Site::open(dir.path(), 1);
        assert_eq!(site.append(1), 5);
        assert_eq!(site.position(), (position, position));
    }
}

/// The power fails, and neither the newest records nor the words that prove them have reached the
/// disk, but a group's position has.
#[test]
fn a_position_above_a_cut_resumes_at_the_cut() {
    let (dir, aside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (partition, disk) = (dir.path().join("topics/t/0"), aside.path().join("0"));
    let mut site = Site::open(dir.path(), 1);
    site.append(4);
    copy(&partition, &disk);
    site.append(2);
    site.member.commit(0, 6).unwrap();
    drop(site);
    for entry in fs::read_dir(&disk).unwrap() {
        let path = entry.unwrap().path();
        // Into the same files: this is no copy.
        fs::write(partition.join(path.file_name().unwrap()), fs::read(&path).unwrap()).unwrap();
    }
    let mut site = Site::open(dir.path(), 2);
    assert_eq!(site.append(5), 9);
    assert_eq!(site.position(), (6, 4));
}

/// Programs before this rule stored no identity with a position.
#[test]
fn positions_of_older_programs_count_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let mut site = Site::open(dir.path(), 1);
    site.append(4);
    site.member.commit(0, 3).unwrap();
    drop(site);
    let file = dir.path().join("topics/t/groups/workers");
    let mut bytes = fs::read(&file).unwrap();
    let log = bytes.len() - 8;
    bytes[log..].fill(0);
    fs::write(&file, bytes).unwrap();
    assert_eq!(Site::open(dir.path(), 1).position(), (3, 3));
    let site = Site::open(dir.path(), 2);
    assert_eq!(site.position(), (3, 3));
    assert_ne!(fs::read(&file).unwrap()[log..], [0; 8], "a recovery gives them the log's");
}

/// Neither the former identity nor any record is left: the position is one of another log.
#[test]
fn a_position_in_a_log_that_lost_everything_is_not_moved_silently() {
    let dir = tempfile::tempdir().unwrap();
    let mut site = Site::open(dir.path(), 1);
    site.append(4);
    site.member.commit(0, 3).unwrap();
    drop(site);
    let partition = dir.path().join("topics/t/0");
    // A page of zeros behind its head, and no segment.
    let control = fs::read(partition.join("control")).unwrap();
    let page: Vec<u8> = control.iter().enumerate().map(|(n, b)| b * u8::from(n < 64)).collect();
    fs::remove_file(partition.join("0000000000000001.seg")).unwrap();
    fs::write(partition.join("control"), page).unwrap();
    for boot in [1, 2] {
        let site = Site::open(dir.path(), boot);
        assert_eq!(site.topic.info(0).unwrap().end_offset, 0);
        assert_eq!(site.position(), (3, 0), "boot {boot}");
    }
}

/// Its records are gone in the same boot, and so are all proofs of them.
#[test]
fn a_position_above_the_end_of_a_damaged_log_is_one_of_the_former_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut site = Site::open(dir.path(), 1);
    site.append(6);
    site.member.commit(0, 6).unwrap();
    let log = site.topic.info(0).unwrap().log_id;
    drop(site);
    let partition = dir.path().join("topics/t/0");
    let segment = partition.join("0000000000000001.seg");
    let mut bytes = fs::read(&segment).unwrap();
    let stride = bytes[4096..].windows(4).skip(8).position(|word| word == &bytes[4096..4100]);
    let fourth = 4096 + 4 * (stride.unwrap() + 8);
    bytes[fourth..].fill(0);
    fs::write(&segment, bytes).unwrap();
    // The words of the durable, the committed and the least end.
    let mut page = fs::read(partition.join("control")).unwrap();
    for words in [256..312, 896..928, 1216..1312, 1504..1528] {
        page[words].fill(0);
    }
    fs::write(partition.join("control"), page).unwrap();
    let mut site = Site::open(dir.path(), 1);
    let info = site.topic.info(0).unwrap();
    assert_eq!((info.end_offset, info.former_log), (4, Some((log, 4))));
    assert_eq!(site.position(), (6, 4));
    assert_eq!(site.append(4), 8);
    assert_eq!(site.position(), (6, 4));
}
