//! `helio log watch`: raises alarms when declared sequences of records appear or do not complete.
//!
//! Records come from many lanes and clocks; they are held for a time and ordered by theirs. The
//! state file has the held records, the state machines, the reader's cursor and the unpublished
//! alarms. A killed process loses nothing; its last alarms may be published twice.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use helio_bus::{Bus, Message, Publisher, Tai};
use helio_logging::formats::json;
use helio_logging::{
    Cursor, Follow, Lanes, Level, Next, Numbers, PacketWriter, Reader, ReaderOptions, Record,
    Records, Start, Views, Watch,
};
use serde_json::{Value as Json, json};

use super::emit::open;
use super::line::{colours, line};
use crate::args::log::{From, WatchArgs, before};
use crate::error::{CliError, CliResult};
use crate::open::{connect, look};
use crate::out::Out;
use crate::service_error::ServiceResult;
use crate::stop::{STOP_POLL_INTERVAL, Stop};

/// The most records that are held; in a flood the oldest are released early.
const MAX_HELD: usize = 100_000;
/// How often the state is saved.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// The retry interval of an alarm that the bus did not accept.
const PUBLISH_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The largest state file.
const MAX_STATE_BYTES: u64 = 1 << 30;

/// Runs `helio log watch`.
pub(crate) fn run(args: &WatchArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let path = &args.machines;
    let refused = |cause: String| CliError::Refused(format!("{}: {cause}", path.display()));
    let text = fs::read_to_string(path).map_err(|e| refused(e.to_string()))?;
    let bus = match args.check {
        true => Bus::connect("memory:").map_err(CliError::from)?,
        false if args.no_follow && args.dry_run => look(url)?,
        false => connect(url, None)?,
    };
    let now = bus.clock().now();
    let mut watch =
        Watch::read(&text, now, &Views::default()).map_err(|e| refused(e.to_string()))?;
    if args.check {
        let mut out = Out::new();
        watch.names().try_for_each(|name| out.line(name))?;
        return out.flush();
    }
    let kept = args.keep.as_deref().map(SavedState::read).transpose()?.flatten();
    let start = match &kept {
        Some(kept) => Start::Cursor(kept.cursor.clone()),
        None => From::start(args.from.as_ref(), !args.no_follow, now),
    };
    let (held, waiting) = match kept {
        None => (Vec::new(), Vec::new()),
        Some(kept) => {
            let left = watch.restore(&kept.watch).map_err(|e| CliError::Refused(e.to_string()))?;
            if left > 0 {
                eprintln!("helio: {left} running machines are no longer declared");
            }
            (kept.held, kept.waiting)
        }
    };
    let follow = if args.no_follow { Follow::No } else { Follow::Yes };
    let options = ReaderOptions::from(start).follow(follow).levels(watch.levels());
    let lanes = args.lanes.lanes();
    let records = Reader::open(&bus, &lanes, options).or_cli()?.records();
    let mut service = Service {
        args,
        bus,
        lanes,
        records,
        watch,
        held: BTreeMap::new(),
        came: 0,
        waiting: waiting.into(),
        again: None,
        publishers: BTreeMap::new(),
        next: BTreeMap::new(),
        unkept: false,
        raised: 0,
        out: Out::new(),
    };
    held.into_iter().for_each(|record| service.hold(record));
    service.run(stop)
}

struct Service<'a> {
    args: &'a WatchArgs,
    bus: Bus,
    lanes: Lanes,
    records: Records,
    watch: Watch,
    /// By effective time, then by arrival.
    held: BTreeMap<(Tai, u64), Record>,
    came: u64,
    /// Unpublished alarms.
    waiting: VecDeque<Record>,
    /// The time of the next retry.
    again: Option<Instant>,
    publishers: BTreeMap<Level, Publisher>,
    /// The number of each lane's next alarm.
    next: BTreeMap<Level, u64>,
    /// The last attempt to save the state failed.
    unkept: bool,
    raised: u64,
    out: Out,
}

impl Service<'_> {
    fn run(&mut self, stop: &Stop) -> CliResult {
        let until = self.args.end.until();
        // A process that is killed in its first second resumes here, too.
        self.keep()?;
        let mut kept = Instant::now();
        let mut ended = false;
        while !ended && self.args.end.wants_more(self.raised) && !stop.asked() {
            if until.is_some_and(|until| until <= Instant::now()) {
                break;
            }
            ended = self.read()?;
            self.release()?;
            self.publish();
            if kept.elapsed() >= SAVE_INTERVAL {
                self.keep_on();
                kept = Instant::now();
            }
        }
        if ended {
            // No further records can come.
            self.release_until(Tai::from_nanos(i64::MAX))?;
        }
        self.again = None;
        self.publish();
        self.keep()?;
        self.out.flush()?;
        match self.waiting.len() {
            0 => Ok(()),
            n if self.args.keep.is_some() => {
                Err(CliError::Left(format!("{n} alarms are not published; they are saved")))
            }
            n => Err(CliError::Lost(format!("{n} alarms were not published: the bus refused all"))),
        }
    }

    /// Reads the records that have come; true at the end.
    fn read(&mut self) -> CliResult<bool> {
        let mut next = self.records.next(STOP_POLL_INTERVAL).or_cli()?;
        for _ in 0..MAX_HELD {
            match next {
                Next::Record(record, _) => self.hold(*record),
                Next::News(news) => eprintln!("helio: {news}"),
                Next::TimeOver => return Ok(false),
                Next::End => return Ok(true),
            }
            if self.held.len() >= MAX_HELD {
                return Ok(false);
            }
            next = self.records.next(Duration::ZERO).or_cli()?;
        }
        Ok(false)
    }

    /// Holds a record at its time, or at the present time if its clock is ahead.
    fn hold(&mut self, record: Record) {
        let time = match self.args.no_follow {
            true => record.time,
            false => record.time.min(self.bus.clock().now()),
        };
        self.came += 1;
        self.held.insert((time, self.came), record);
    }

    fn release(&mut self) -> CliResult {
        if self.args.no_follow {
            // Stored records are ordered by time already.
            while self.held.len() > MAX_HELD / 2 {
                self.release_first()?;
            }
            return Ok(());
        }
        while self.held.len() >= MAX_HELD {
            self.release_first()?;
        }
        self.release_until(before(self.bus.clock().now(), self.args.hold))
    }

    fn release_until(&mut self, time: Tai) -> CliResult {
        while self.held.first_key_value().is_some_and(|((first, _), _)| *first <= time) {
            self.release_first()?;
        }
        if self.args.no_follow {
            return Ok(());
        }
        let raised = self.watch.at(time);
        raised.into_iter().try_for_each(|alarm| self.raise(alarm))
    }

    fn release_first(&mut self) -> CliResult {
        let Some(((time, _), record)) = self.held.pop_first() else { return Ok(()) };
        let raised = self.watch.record(&record, time);
        raised.into_iter().try_for_each(|alarm| self.raise(alarm))
    }

    fn raise(&mut self, mut alarm: Record) -> CliResult {
        self.raised += 1;
        alarm.observed = Some(self.bus.clock().now());
        alarm.process = format!("helio:{}", std::process::id());
        if self.args.output.json {
            let mut bytes = Vec::new();
            json::write(&alarm, &mut bytes);
            self.out.raw(&bytes)?;
        } else {
            self.out.line(&line(&alarm, colours()))?;
        }
        self.out.flush()?;
        if !self.args.dry_run {
            self.waiting.push_back(alarm);
        }
        Ok(())
    }

    /// Publishes the pending alarms, and retries later those that the bus does not accept.
    fn publish(&mut self) {
        if self.again.is_some_and(|again| Instant::now() < again) {
            return;
        }
        while let Some(alarm) = self.waiting.front() {
            let (level, alarm) = (alarm.level, alarm.clone());
            if let Err(error) = self.publish_one(level, &alarm) {
                if self.again.is_none() {
                    eprintln!("helio: an alarm is not published yet: {error}");
                }
                self.again = Some(Instant::now() + PUBLISH_RETRY_INTERVAL);
                return;
            }
            self.waiting.pop_front();
        }
        self.again = None;
    }

    fn publish_one(&mut self, level: Level, alarm: &Record) -> CliResult {
        let lane = Lanes::lane(level);
        let publisher = match self.publishers.remove(&lane) {
            Some(publisher) => publisher,
            None => open(&self.bus, &self.lanes, lane)?.publisher()?,
        };
        let mut writer = PacketWriter::default();
        let refused = |error: &dyn std::fmt::Display| CliError::Refused(error.to_string());
        writer.push(alarm).map_err(|error| refused(&error))?;
        let next = self.next.entry(lane).or_insert(1);
        let packet = writer.finish(Numbers { lane: Some(lane), first: *next, shed: 0 });
        publisher.publish(Message::new(packet).level(level.number())).wait()?;
        *next += 1;
        // A publisher that failed is opened again.
        self.publishers.insert(lane, publisher);
        Ok(())
    }

    /// Saves the state. A failure is reported once and retried: a full disk must not stop alarms.
    fn keep_on(&mut self) {
        let failed = self.keep().err();
        match &failed {
            Some(error) if !self.unkept => {
                eprintln!("helio: {error}; it is tried again, a kill meanwhile repeats records");
            }
            None if self.unkept => eprintln!("helio: the state is saved again"),
            _ => {}
        }
        self.unkept = failed.is_some();
    }

    /// Saves the state atomically.
    fn keep(&self) -> CliResult {
        let Some(path) = self.args.keep.as_deref() else { return Ok(()) };
        let kept = json!({
            "version": 1,
            "cursor": self.records.cursor().to_string(),
            "watch": self.watch.keep(),
            "held": lines(self.held.values()),
            "alarms": lines(self.waiting.iter()),
        });
        let draft = path.with_extension("new");
        let written = fs::File::create(&draft).and_then(|mut file| {
            file.write_all(kept.to_string().as_bytes())?;
            file.sync_data()?;
            fs::rename(&draft, path)
        });
        written.map_err(|e| CliError::Failure(format!("{}: {e}", path.display())))
    }
}

fn lines<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<String> {
    let line = |record| {
        let mut bytes = Vec::new();
        json::write(record, &mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    };
    records.map(line).collect()
}

/// The state of an earlier run.
struct SavedState {
    cursor: Cursor,
    watch: Json,
    held: Vec<Record>,
    waiting: Vec<Record>,
}

impl SavedState {
    /// `None` if the file is missing.
    fn read(path: &Path) -> CliResult<Option<Self>> {
        let refused = |cause: &str| {
            let place = path.display();
            CliError::Refused(format!("{place}: {cause}; remove it, or name another file"))
        };
        let length = match fs::metadata(path) {
            Ok(found) => found.len(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refused(&error.to_string())),
        };
        if length > MAX_STATE_BYTES {
            return Err(refused("it is too long"));
        }
        let bytes = fs::read(path).map_err(|error| refused(&error.to_string()))?;
        let kept: Json = serde_json::from_slice(&bytes).map_err(|e| refused(&e.to_string()))?;
        if kept["version"] != 1 {
            return Err(refused("it is not what helio log watch keeps, or of another version"));
        }
        let cursor = kept["cursor"].as_str().and_then(|cursor| cursor.parse().ok());
        let records = |name: &str| {
            let lines = kept[name].as_array()?.iter();
            let read = lines.map(|line| json::read(line.as_str()?.as_bytes()).ok());
            read.collect::<Option<Vec<_>>>()
        };
        let (Some(cursor), Some(held), Some(waiting)) =
            (cursor, records("held"), records("alarms"))
        else {
            return Err(refused("it is damaged"));
        };
        Ok(Some(Self { cursor, watch: kept["watch"].clone(), held, waiting }))
    }
}
