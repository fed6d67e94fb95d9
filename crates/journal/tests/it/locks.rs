//! Locks between processes: those who may only read hold nobody up, a stopped process is named, and
//! processes that would not see each other are refused.
#![allow(unsafe_code, reason = "forks and traces processes of its own")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::damage::in_memory;
use crate::support::matrix::damage;
use crate::support::users::{NOBODY, become_user, is_root, open_folder};
use crate::support::{HANG_TIMEOUT, child_test};
use helio_core::{ProducerName, TopicName};
use helio_journal::{
    Access, From, Item, Journal, JournalError, JournalOptions, Maintenance, Ownership,
    PidNamespaces, Record, Topic, TopicConfig, Writer, WriterOptions,
};
use rustix::fs::{FlockOperation, flock};

fn options() -> JournalOptions {
    JournalOptions { maintenance: Maintenance::Manual, ..JournalOptions::default() }
}

fn impatient() -> JournalOptions {
    JournalOptions { lock_timeout: Duration::from_millis(5), ..options() }
}

fn name(text: &str) -> TopicName {
    TopicName::new(text).unwrap()
}

fn claim(producer: &str, ownership: Ownership) -> WriterOptions {
    WriterOptions { producer: ProducerName::new(producer).unwrap(), ownership }
}

fn writer(topic: &Topic, ownership: Ownership) -> Result<Writer, JournalError> {
    topic.writer(0, &claim("me", ownership))
}

fn append(writer: &mut Writer) -> u64 {
    writer.append(&Record { payload: &[7; 900], ..Record::default() }).unwrap()
}

fn samples(topic: &Topic) -> u64 {
    let mut reader = topic.reader(0, From::Earliest).unwrap();
    let mut count = 0;
    while let Some(Item::Sample(_)) = reader.next().unwrap() {
        count += 1;
    }
    count
}

/// The file of locks, if there is exactly one.
fn locks_file(dir: &Path) -> PathBuf {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("locks.");
    let found: Vec<_> = entries.filter(is_one).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// All files and folders of a journal.
fn everything(dir: &Path) -> Vec<PathBuf> {
    let mut found = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(everything(&entry.path())),
            // Opening a pipe waits for its writer.
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// Creates topics and groups, publishes, recovers, and applies retention.
fn do_everything(dir: &Path, round: &str) {
    for boot in [1, 2] {
        let options = JournalOptions { boot_id: Some([boot; 16]), ..options() };
        let journal = Journal::open(dir, options).unwrap();
        let config = TopicConfig {
            segment_bytes: 16 << 10,
            retention_bytes: Some(32 << 10),
            ..TopicConfig::default()
        };
        journal.create_topic(&name(round), &config).unwrap();
        let topic = journal.create_topic(&name("old"), &config).unwrap();
        let mut writer = writer(&topic, Ownership::Shared).unwrap();
        let first = topic.info(0).unwrap().first_offset;
        for _ in 0..100 {
            append(&mut writer);
        }
        let group = topic.group(&ProducerName::new("g").unwrap()).unwrap();
        let member = group.join(&ProducerName::new("m").unwrap()).unwrap();
        assert_eq!(member.assigned().unwrap(), [0]);
        member.commit(0, 1).unwrap();
        journal.maintain();
        assert!(topic.info(0).unwrap().first_offset > first, "retention is blocked");
        assert!(journal.remove_topic(&name(round)).unwrap());
    }
}

#[test]
fn whoever_may_only_read_the_folder_stops_nobody() {
    if !is_root("a second user") {
        return;
    }
    let dir = open_folder();
    let dir = dir.path().join("j");
    do_everything(&dir, "first");
    let (locked, is_locked) = mpsc::channel();
    let (over, is_over) = mpsc::channel::<()>();
    let paths = everything(&dir);
    let reader = std::thread::spawn(move || {
        become_user(NOBODY);
        let open = |path: &PathBuf| File::open(path).ok().map(|file| (path.clone(), file));
        let files: Vec<_> = paths.iter().filter_map(open).collect();
        for (path, file) in &files {
            let shared = flock(file, FlockOperation::NonBlockingLockShared);
            assert!(shared.is_ok(), "{}", path.display());
            flock(file, FlockOperation::NonBlockingLockExclusive).unwrap();
        }
        locked.send(files.iter().map(|(path, _)| path.clone()).collect::<BTreeSet<_>>()).unwrap();
        // Until the end of the test, also if it fails.
        let _ = is_over.recv();
    });
    let held = is_locked.recv_timeout(HANG_TIMEOUT).unwrap();
    let topic = dir.join("topics/old");
    for path in ["", "producers", "groups/g", "0", "0/control"] {
        assert!(held.contains(&topic.join(path)), "{path} is not locked");
    }
    assert!(held.contains(&dir.join("topics")) && held.contains(&dir.join("journal.hj")));
    assert!(!held.contains(&locks_file(&dir)), "the file of locks admits readers");
    let (done, is_done) = mpsc::channel();
    let worker = std::thread::spawn(move || {
        do_everything(&dir, "second");
        done.send(()).unwrap();
    });
    is_done.recv_timeout(HANG_TIMEOUT).expect("writers wait for a reader");
    worker.join().unwrap();
    drop(over);
    reader.join().unwrap();
}

/// Forks this process. The child runs `work` under `ptrace` and ends. Returns the child once it is
/// stopped before its first step; `None` if tracing is not permitted here.
fn traced(work: impl FnOnce()) -> Option<i32> {
    const NOT_PERMITTED: i32 = 77;
    // SAFETY: the child has one thread, prints nothing, and ends without running destructors of
    // the parent's objects.
    let child = unsafe { libc::fork() };
    if child != 0 {
        return wait_for(child).is_none_or(|code| code != NOT_PERMITTED).then_some(child);
    }
    // SAFETY: plain calls.
    unsafe {
        if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
            libc::_exit(NOT_PERMITTED);
        }
        libc::raise(libc::SIGSTOP);
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    // SAFETY: ends the child.
    unsafe { libc::_exit(i32::from(outcome.is_err())) }
}

/// Waits until a child stops or ends; returns its exit code if it has ended.
fn wait_for(child: i32) -> Option<i32> {
    let mut status = 0;
    // SAFETY: a child of this thread.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    if libc::WIFSTOPPED(status) {
        return None;
    }
    Some(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { -libc::WTERMSIG(status) })
}

/// Lets a traced child run to its next system call, and stops it there.
fn step(child: i32) -> Option<i32> {
    for _entry_and_exit in 0..2 {
        // SAFETY: a stopped child that this thread traces.
        assert_eq!(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, child, 0, 0) }, 0);
        let ended = wait_for(child);
        if ended.is_some() {
            return ended;
        }
    }
    None
}

fn kill(child: i32) {
    // SAFETY: a child of this thread.
    unsafe { libc::kill(child, libc::SIGKILL) };
    while wait_for(child).is_none() {}
}

/// A result that is right, or names the stopped process.
fn outcome<T>(result: Result<T, JournalError>, child: i32, what: &str) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(JournalError::Stuck { holder, process, waited, .. }) => {
            assert_eq!(holder, child as u32, "{what}");
            assert!(process.ends_with(", stopped"), "{what}: {process}");
            assert!(waited >= impatient().lock_timeout, "{what}");
            None
        }
        Err(e) => panic!("{what}: {e}"),
    }
}

/// In a process of its own: a fork would keep the journals of other tests open.
#[test]
fn a_creator_that_is_stopped_at_any_step_is_named_and_blocks_no_longer_than_it_lives() {
    run_child("stopped creators", in_memory().path());
}

/// Runs a task of `child` that asserts by itself.
fn run_child(task: &str, dir: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &child_test(module_path!()), "--nocapture"]);
    command.env("HELIO_LOCKS_TASK", task).env("HELIO_LOCKS_DIR", dir);
    assert!(command.status().unwrap().success());
}

fn stop_creators(dir: &Path) {
    let (mut steps, mut blocked) = (0, 0);
    loop {
        let dir = dir.join(steps.to_string());
        let (inner, topic) = (dir.clone(), name("stopped"));
        let child = traced(move || {
            let journal = Journal::open(&inner, options()).unwrap();
            let topic = journal.create_topic(&topic, &TopicConfig::default()).unwrap();
            append(&mut writer(&topic, Ownership::Shared).unwrap());
            journal.remove_topic(&name("stopped")).unwrap();
        });
        let Some(child) = child else {
            eprintln!("a stopped creator: skipped, processes cannot be traced here");
            return;
        };
        if let Some(code) = (0..steps).find_map(|_| step(child)) {
            assert_eq!(code, 0, "the child failed");
            break;
        }
        let what = format!("step {steps}");
        let journal = Journal::open(&dir, impatient()).unwrap_or_else(|e| panic!("{what}: {e}"));
        let other = journal.create_topic(&name("other"), &TopicConfig::default());
        blocked += u32::from(other.is_err());
        if let Some(other) = outcome(other, child, &what) {
            assert_eq!(append(&mut writer(&other, Ownership::Exclusive).unwrap()), 0, "{what}");
        }
        if let Ok(Some(same)) = journal.topic(&name("stopped"))
            && let Some(Some(mut writer)) = outcome(
                match writer(&same, Ownership::Shared) {
                    Err(JournalError::TopicGone { .. }) => Ok(None),
                    other => other.map(Some),
                },
                child,
                &what,
            )
        {
            // It may be stopped while it holds the partition's lock.
            let appended = writer.append(&Record::default());
            assert!(appended.is_ok() || matches!(step_error(appended.as_ref()), Some(true)));
        }
        kill(child);
        let patient =
            Journal::open(&dir, JournalOptions { lock_timeout: HANG_TIMEOUT, ..options() });
        let patient = patient.unwrap();
        for topic in ["stopped", "after"] {
            let topic = patient.create_topic(&name(topic), &TopicConfig::default()).unwrap();
            append(&mut writer(&topic, Ownership::Exclusive).unwrap());
        }
        steps += 1;
    }
    eprintln!("{steps} steps, {blocked} of them hold the lock of creations");
    assert!(steps > 50 && blocked > 5, "{steps} {blocked}");
}

/// Whether an append failed in a way that a stopped or deleting process explains.
fn step_error(result: Result<&u64, &helio_journal::AppendError>) -> Option<bool> {
    use helio_journal::AppendError::Journal;
    result
        .err()
        .map(|e| matches!(e, Journal(JournalError::Stuck { .. } | JournalError::TopicGone { .. })))
}

#[test]
fn the_file_of_locks_admits_those_who_may_write() {
    for (writers, mode) in [(0o644, 0o600), (0o664, 0o660), (0o600, 0o600)] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("j");
        drop(Journal::open(&dir, options()).unwrap());
        fs::remove_file(locks_file(&dir)).unwrap();
        let own = dir.join("journal.hj");
        fs::set_permissions(&own, fs::Permissions::from_mode(writers)).unwrap();
        let journal = Journal::open(&dir, options()).unwrap();
        journal.create_topic(&name("t"), &TopicConfig::default()).unwrap();
        assert_eq!(fs::metadata(locks_file(&dir)).unwrap().mode() & 0o777, mode);
    }
}

#[test]
fn root_leaves_the_file_of_locks_to_the_journal_s_owner() {
    if !is_root("another owner") {
        return;
    }
    let dir = open_folder();
    let dir = dir.path().join("j");
    drop(Journal::open(&dir, options()).unwrap());
    fs::remove_file(locks_file(&dir)).unwrap();
    for path in everything(&dir) {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let journal = Journal::open(&dir, options()).unwrap();
    std::thread::spawn(move || {
        become_user(NOBODY);
        let own = Journal::open(&dir, options()).unwrap();
        own.create_topic(&name("t"), &TopicConfig::default()).unwrap();
    })
    .join()
    .unwrap();
    assert_eq!(journal.topics().unwrap().len(), 1);
}

#[test]
fn a_file_of_locks_that_was_removed_damaged_or_copied_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let [dir, copy] = ["j", "copy"].map(|place| dir.path().join(place));
    let open = |dir: &Path| Journal::open(dir, options()).unwrap();
    let journal = open(&dir);
    let create = |journal: &Journal, topic: &str| {
        journal.create_topic(&name(topic), &TopicConfig::default()).unwrap();
    };
    create(&journal, "first");
    // Removed in use: whoever has the journal open follows.
    fs::remove_file(locks_file(&dir)).unwrap();
    let other = open(&dir);
    let file = fs::metadata(locks_file(&dir)).unwrap().ino();
    create(&journal, "second");
    create(&other, "third");
    assert_eq!(fs::metadata(locks_file(&dir)).unwrap().ino(), file);
    // A copy of a journal in use has a file of its own.
    assert!(Command::new("cp").arg("-a").args([&dir, &copy]).status().unwrap().success());
    let copied = open(&copy);
    create(&copied, "fourth");
    assert_ne!(locks_file(&copy).file_name(), locks_file(&dir).file_name());
    // Of another boot.
    drop((journal, other));
    let before = locks_file(&dir);
    let next = JournalOptions { boot_id: Some([9; 16]), ..options() };
    drop(Journal::open(&dir, next.clone()).unwrap());
    assert_ne!(locks_file(&dir), before);
    // Damaged: nobody uses it.
    for (at, byte) in [(0, b'x'), (20, 1), (40, 1), (56, 1)] {
        let path = locks_file(&dir);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= byte;
        fs::write(&path, &bytes[..if at == 56 { 1000 } else { bytes.len() }]).unwrap();
        create(&Journal::open(&dir, next.clone()).unwrap(), "fifth");
    }
    // Damaged in use: refused rather than replaced.
    let journal = Journal::open(&dir, next.clone()).unwrap();
    let path = locks_file(&dir);
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"x", 40).unwrap();
    let refused = Journal::open(&dir, next).unwrap_err();
    assert!(matches!(&refused, JournalError::Damaged { path: at, .. } if *at == path), "{refused}");
    create(&journal, "sixth");
}

/// A copy that was made of a journal in use, as a backup is, has locks that are held for ever. Put
/// back in the same boot, its files may have the inodes of the removed ones, but not their birth.
#[test]
fn a_copy_in_the_place_of_the_original_has_no_holders_of_locks() {
    const HELD: [u8; 8] = [1, 0, 0, 0, 1, 0, 0, 0];
    /// The hash of the birth, behind a file's boot id and inode.
    const BIRTH_HASH: usize = 28;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("j");
    let journal = Journal::open(&dir, options()).unwrap();
    if fs::metadata(dir.join("journal.hj")).unwrap().created().is_err() {
        eprintln!("SKIPPED: this file system records no birth");
        return;
    }
    let topic = journal.create_topic(&name("t"), &TopicConfig::default()).unwrap();
    append(&mut writer(&topic, Ownership::Shared).unwrap());
    topic.wait_durable(0, 0, None).unwrap();
    let workers = ProducerName::new("workers").unwrap();
    drop(topic.group(&workers).unwrap());
    drop((topic, journal));
    // With the appended record's lock and the sync's, the claims' and the members'.
    for (file, locks, mark) in [
        ("0/control", &[128, 960][..], 64),
        ("producers", &[64], 136),
        ("groups/workers", &[64], 136),
    ] {
        damage(&dir.join("topics/t").join(file), |bytes| {
            locks.iter().for_each(|at| bytes[*at..at + HELD.len()].copy_from_slice(&HELD));
            bytes[mark + BIRTH_HASH] ^= 2;
        });
    }
    let journal = Journal::open(&dir, impatient()).unwrap();
    let topic = journal.topic(&name("t")).unwrap().unwrap();
    assert_eq!(append(&mut writer(&topic, Ownership::Shared).unwrap()), 1);
    topic.wait_durable(0, 1, Some(HANG_TIMEOUT)).unwrap();
    topic.group(&workers).unwrap().join(&workers).unwrap();
    assert_eq!(samples(&topic), 2);
}

#[test]
fn a_reader_never_opens_the_file_of_locks() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("j");
    let journal = Journal::open(&dir, options()).unwrap();
    let topic = journal.create_topic(&name("t"), &TopicConfig::default()).unwrap();
    append(&mut writer(&topic, Ownership::Shared).unwrap());
    fs::remove_file(locks_file(&dir)).unwrap();
    let reading = JournalOptions { access: Access::ReadOnly, ..options() };
    let reading = Journal::open(&dir, reading).unwrap();
    assert_eq!(samples(&reading.topic(&name("t")).unwrap().unwrap()), 1);
    assert!(matches!(reading.remove_topic(&name("t")), Err(JournalError::ReadOnly)));
    let left = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().starts_with("locks")));
}

#[test]
fn links_inside_a_journal_are_not_followed() {
    for link in ["topics", "schemas", "topics/a+t", "topics/a+t/0", "topics/a+t/groups"] {
        for access in [Access::ReadWrite, Access::ReadOnly] {
            let dir = tempfile::tempdir().unwrap();
            let [dir, elsewhere] = ["j", "elsewhere"].map(|place| dir.path().join(place));
            let journal = Journal::open(&dir, options()).unwrap();
            let topic = journal.create_topic(&name("a/t"), &TopicConfig::default()).unwrap();
            append(&mut writer(&topic, Ownership::Shared).unwrap());
            topic.group(&ProducerName::new("g").unwrap()).unwrap();
            drop((topic, journal));
            fs::rename(dir.join(link), &elsewhere).unwrap();
            symlink(&elsewhere, dir.join(link)).unwrap();
            let all = || {
                let journal = Journal::open(&dir, JournalOptions { access, ..options() })?;
                let topic = journal.topic(&name("a/t"))?.ok_or(JournalError::ReadOnly)?;
                topic.info(0)?;
                topic.group(&ProducerName::new("g").unwrap()).map(drop)
            };
            let refused = all().unwrap_err();
            let at = dir.canonicalize().unwrap().join(link);
            assert!(
                matches!(&refused, JournalError::SymbolicLink { path } if *path == at),
                "{link} {access:?}: {refused}"
            );
        }
    }
    // The journal itself may lie behind a link.
    let dir = tempfile::tempdir().unwrap();
    let [real, link] = ["real", "link"].map(|place| dir.path().join(place));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let journal = Journal::open(&link, options()).unwrap();
    journal.create_topic(&name("t"), &TopicConfig::default()).unwrap();
}

#[test]
fn a_stranger_s_folder_that_everybody_may_write_to_is_refused() {
    if !is_root("a stranger's folder") {
        return;
    }
    // Owner, group, permissions of the folder, and whether nobody may use it.
    let cases = [
        (1000, 1000, 0o777, false),
        (1000, NOBODY, 0o777, true),
        (1000, NOBODY, 0o770, true),
        (NOBODY, 1000, 0o777, true),
        (0, 0, 0o777, true),
    ];
    for (owner, group, mode, admitted) in cases {
        let dir = open_folder();
        let dir = dir.path().join("j");
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::chown(&dir, Some(owner), Some(group)).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        let opened = std::thread::spawn(move || {
            become_user(NOBODY);
            Journal::open(&dir, options()).map(drop)
        });
        match opened.join().unwrap() {
            Ok(()) => assert!(admitted, "{owner} {group} {mode:o}"),
            Err(JournalError::OtherOwner { owner: found, .. }) => {
                assert!(!admitted && found == owner, "{owner} {group} {mode:o}");
            }
            Err(e) => panic!("{owner} {group} {mode:o}: {e}"),
        }
    }
}

/// Child: one of these tasks, in a PID namespace of its own. Prints the outcome.
#[test]
fn child() {
    let (Ok(task), Ok(dir)) = (std::env::var("HELIO_LOCKS_TASK"), std::env::var("HELIO_LOCKS_DIR"))
    else {
        return;
    };
    let pid_namespaces =
        if task.ends_with("any") { PidNamespaces::Any } else { PidNamespaces::One };
    match task.as_str() {
        "one writer, any" => return one_exclusive_writer(Path::new(&dir)),
        "stopped creators" => return stop_creators(Path::new(&dir)),
        _ => {}
    }
    let access = if task.starts_with("read") { Access::ReadOnly } else { Access::ReadWrite };
    let run = || {
        let options = JournalOptions { access, pid_namespaces, ..options() };
        let journal = Journal::open(Path::new(&dir), options)?;
        let topic = journal.create_topic(&name("t"), &TopicConfig::default())?;
        match access {
            Access::ReadOnly => Ok(samples(&topic)),
            Access::ReadWrite => writer(&topic, Ownership::Exclusive).map(|mut w| append(&mut w)),
        }
    };
    match run() {
        Ok(number) => println!("\n= done {number}"),
        Err(e) => println!("\n= {e}"),
    }
}

/// Runs a task in a PID namespace of its own; `None` if there can be none here. Without `proc` it
/// sees the `/proc` of this one.
fn elsewhere(task: &str, dir: &Path, proc: bool) -> Option<String> {
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork"]).args(proc.then_some("--mount-proc"));
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &child_test(module_path!()), "--nocapture", "--test-threads=1"]);
    command.env("HELIO_LOCKS_TASK", task).env("HELIO_LOCKS_DIR", dir).stderr(Stdio::inherit());
    let Output { stdout, .. } = command.output().ok()?;
    let text = String::from_utf8_lossy(&stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("= ").map(str::to_owned))
}

#[test]
fn processes_of_another_pid_namespace_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("j");
    let Some(outcome) = elsewhere("write", &dir, true) else {
        eprintln!("PID namespaces: skipped, none can be created here");
        return;
    };
    assert_eq!(outcome, "done 0", "the first one creates the journal");
    // Its namespace has ended.
    let journal = Journal::open(&dir, options()).unwrap();
    let topic = journal.topic(&name("t")).unwrap().unwrap();
    let mut here = writer(&topic, Ownership::Exclusive).unwrap();
    assert_eq!(append(&mut here), 1);
    let own = fs::read_link("/proc/self/ns/pid").unwrap();
    for task in ["write", "write any"] {
        let outcome = elsewhere(task, &dir, true).unwrap();
        let named = format!("in use by processes of another PID namespace ({}", own.display());
        assert!(outcome.contains(&named), "{task}: {outcome}");
        assert!(outcome.contains("?pid_namespaces=any"), "{outcome}");
    }
    assert_eq!(elsewhere("read", &dir, true).unwrap(), "done 2");
    let outcome = elsewhere("write", &dir, false).unwrap();
    assert!(outcome.starts_with("/proc shows another PID namespace"), "{outcome}");
    assert_eq!(append(&mut here), 2, "nothing came in between");
    drop((here, topic, journal));
    assert_eq!(elsewhere("write", &dir, true).unwrap(), "done 3");
}

/// In a process of its own: for all journals of a process there is one way to wait for locks.
#[test]
fn a_journal_for_all_pid_namespaces_has_one_exclusive_writer() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("j");
    // As what follows: in a `chroot` there are PID namespaces, and none with a `/proc` of its own.
    if elsewhere("write any", &dir, true).is_none() {
        eprintln!("PID namespaces: skipped, none can be created here");
        return;
    }
    run_child("one writer, any", &dir);
}

fn one_exclusive_writer(dir: &Path) {
    let any = JournalOptions { pid_namespaces: PidNamespaces::Any, ..options() };
    let journal = Journal::open(dir, any.clone()).unwrap();
    let topic = journal.topic(&name("t")).unwrap().unwrap();
    let mut here = writer(&topic, Ownership::Exclusive).unwrap();
    assert_eq!(append(&mut here), 1);
    for (task, proc) in [("write any", false), ("write any", true)] {
        let outcome = elsewhere(task, dir, proc).unwrap();
        assert!(outcome.contains("has the live producer \"me\""), "{outcome}");
    }
    let outcome = elsewhere("write", dir, true).unwrap();
    assert!(outcome.contains("in use by processes of another PID namespace (any;"), "{outcome}");
    assert_eq!(append(&mut here), 2, "nothing came in between");
    // Another one of this process is another writer, too.
    let second = Journal::open(dir, any).unwrap();
    let there = second.topic(&name("t")).unwrap().unwrap();
    let claimed = writer(&there, Ownership::Exclusive).unwrap_err();
    assert!(matches!(claimed, JournalError::Claimed { .. }), "{claimed}");
    drop(here);
    assert_eq!(elsewhere("write any", dir, true).unwrap(), "done 3");
    assert_eq!(append(&mut writer(&there, Ownership::Exclusive).unwrap()), 4);
}
