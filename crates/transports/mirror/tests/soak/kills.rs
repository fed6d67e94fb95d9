//! kill -9 of each end in turn: what was acknowledged is in the copy, and both logs are equal.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use helio_bus::exclusive::{LogDurability, Watermark};
use helio_bus::mirror::{CopyMarks, Mirror as _, MirrorUser, SessionName};
use helio_mirror::{Dialer, Listener, LogSink, LogSource, MirrorFiles, Options};

use crate::support::{Authority, Place, begin, open, reach, records};

/// Kills of each end; `HELIO_MIRROR_KILLS` sets another number.
const KILLS: usize = 200;
/// Lines of acknowledgements before a kill.
const LINES: usize = 3;
const FOLDER: &str = "HELIO_MIRROR_STORM_FOLDER";
const ADDRESS: &str = "HELIO_MIRROR_STORM_ADDRESS";

struct Print;

impl MirrorUser for Print {
    fn acknowledged(&self, _: SessionName, marks: CopyMarks) {
        let _ = writeln!(std::io::stdout(), "\nack {}", marks.durable);
    }
}

fn files(folder: &Path, name: &str, peer: &str) -> MirrorFiles {
    Authority::existing(&folder.join("certificates")).files(name, peer)
}

/// The process with the log: appends for ever, prints what the copy acknowledged.
#[test]
fn source() {
    let (Ok(folder), Ok(address)) = (std::env::var(FOLDER), std::env::var(ADDRESS)) else { return };
    let folder = PathBuf::from(folder);
    let log = open(&folder.join("a"), LogDurability::Interval);
    begin(log.as_ref());
    let options = Options {
        source: Some(Box::new(LogSource::new(Arc::clone(&log)))),
        user: Arc::new(Print),
        ..Options::new("mirrored/log", files(&folder, "a", "b"))
    };
    let dialer = Dialer::start(&address, options).unwrap();
    for n in log.watermarks().stored.. {
        // At most 1,000 records ahead of the copy: the test compares all of them after each kill.
        while n > dialer.figures().acknowledged.stored + 1000 {
            std::thread::yield_now();
        }
        let long = vec![n as u8; (n % 3000) as usize];
        log.append(&[&n.to_le_bytes(), &long]).unwrap();
    }
}

/// The process with the copy.
#[test]
fn copy() {
    let (Ok(folder), Ok(address)) = (std::env::var(FOLDER), std::env::var(ADDRESS)) else { return };
    let folder = PathBuf::from(folder);
    let log = open(&folder.join("b"), LogDurability::Disk);
    let sink = Box::new(LogSink::new(log, LogDurability::Disk).unwrap());
    let options = Options::new("mirrored/log", files(&folder, "b", "a"));
    let options = Options { sink: Some(sink), ..options };
    let _listener = Listener::start(&address, options).unwrap();
    writeln!(std::io::stdout(), "\nlistening").unwrap();
    // Until it is killed, or its parent is gone.
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn start(folder: &Path, address: &str, part: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("kills::{part}"), "--exact", "--nocapture"])
        .env(FOLDER, folder)
        .env(ADDRESS, address)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_repeated() {
    if std::env::var_os(FOLDER).is_some() {
        return;
    }
    let kills = std::env::var("HELIO_MIRROR_KILLS").ok().and_then(|n| n.parse().ok());
    let kills = 2 * kills.unwrap_or(KILLS);
    let place = Place::new();
    let folder = place.folder.path();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("localhost:{port}");
    let mut listening = start(folder, &address, "copy");
    let mut dialing = start(folder, &address, "source");
    let mut lines = BufReader::new(dialing.stdout.take().unwrap()).lines();
    let mut acknowledged = 0;
    for kill in 0..kills {
        let mut seen = 0;
        while seen < LINES {
            let line = lines.next().expect("the source ended by itself").unwrap();
            let Some(ack) = line.strip_prefix("ack ").and_then(|n| n.parse::<u64>().ok()) else {
                continue;
            };
            seen += usize::from(ack > acknowledged);
            acknowledged = acknowledged.max(ack);
        }
        if kill % 2 == 0 {
            listening.kill().unwrap();
            listening.wait().unwrap();
            listening = start(folder, &address, "copy");
        } else {
            dialing.kill().unwrap();
            dialing.wait().unwrap();
            dialing = start(folder, &address, "source");
            lines = BufReader::new(dialing.stdout.take().unwrap()).lines();
        }
    }
    for child in [&mut dialing, &mut listening] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let (log, copy) = (place.log("a"), place.log("b"));
    let (ours, theirs) = (records(log.as_ref()), records(copy.as_ref()));
    let lost = acknowledged.saturating_sub(theirs.len() as u64);
    assert!(theirs.len() <= ours.len() && ours[..theirs.len()] == theirs, "the copy differs");
    let offsets = theirs.iter().map(|(offset, _)| *offset);
    assert!(offsets.eq(0..theirs.len() as u64), "offsets are missing or repeated");
    // The rest comes when both are back.
    begin(log.as_ref());
    log.append(&[b"last"]).unwrap();
    let listener = place.listen(&copy);
    let dialer = place.dial(&log, &listener);
    let end = log.watermarks().stored;
    reach(copy.as_ref(), Watermark::Durable, end);
    assert_eq!(records(copy.as_ref()).len() as u64, end);
    assert!(records(copy.as_ref()) == records(log.as_ref()), "the copy differs");
    drop(dialer);
    println!("storm: mirror: tried {kills}, survived {kills}, lost {lost}, unreported 0");
    assert_eq!(lost, 0);
}
