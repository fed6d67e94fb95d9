//! Logging from a process: from its threads to the bus.
//!
//! Constraints. A thread that logs never waits: it writes into its own ring. Records that do not
//! fit are dropped by level, TRACE first and ERROR last; each drop is counted and reported with the
//! next packet of its level. Every queue has a limit. While the bus is unavailable, packets are
//! stored in memory, and then in a file, if one is configured.
//!
//! Operation. One thread (`sender`) takes records out of the rings and puts them into packets, one
//! lane each. It publishes a packet when it is full or old. Urgent records have a queue beside the
//! rings, and are published at once.

mod connect;
mod interning;
mod levels;
mod macros;
mod relay;
mod ring;
mod sender;
mod settings;
mod spill;
mod stderr;
mod suppress;

use std::cell::Cell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Builder, Bus, Clock, ConnectError, SystemClock, Tai, TopicError};
use thiserror::Error;

use crate::body::{Body, Fields};
use crate::lanes::Lanes;
use crate::level::{Level, Threshold};
use crate::levels::Rules;
use crate::packet::Origin;
use crate::record::{Audiences, Record, Site};
use connect::Connector;
use interning::Interner;
use levels::{Levels, Ruling};
pub use macros::{Argument, Shown};
pub use relay::{EncodedRecord, Relay, Shed};
use ring::{Destinations, FIXED, Head, Reading, RecordCounters};
use sender::BusLink;
pub use settings::SettingsError;
use settings::{Settings, WatchedFile};
pub use suppress::Suppress;

/// The most loggers of a process; records of others have `OTHERS` as their logger.
pub const MAX_LOGGERS: usize = 65_536;
/// The logger of records that come from more loggers than a process may have.
const OTHERS: &str = "too many loggers";
/// The most call sites of a process that are named by a number; records of others have their
/// message as text, and their file and line as data.
pub const MAX_SITES: usize = 65_536;
/// The most sets of audiences of a process; records of others are for nobody in particular.
const MAX_AUDIENCE_SETS: usize = 4_096;
/// The most bytes of urgent records that wait to be taken, and of each thread's errors for which
/// its ring has no room: far more than can come before the sender wakes.
const MAX_URGENT: usize = 8 << 20;
/// The most bytes of records below the published levels that a thread keeps for an error to come.
const MAX_KEPT: usize = 64 << 10;
/// The number of no call site.
const NO_SITE: u32 = u32::MAX;
/// No level: nothing is above it.
const OFF: u8 = u8::MAX;

/// How a process logs.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The topics.
    pub lanes: Lanes,
    /// The process in each record: its name, and its number behind a colon.
    pub process: String,
    /// The machine in each record.
    pub host: String,
    /// How long a record waits for others of its level at most, if it is not urgent.
    pub batch_age: Duration,
    /// How many records a packet has at most.
    pub batch_records: usize,
    /// Bytes of each thread's ring.
    pub ring_bytes: usize,
    /// Bytes of packets that are kept in memory while the bus takes none.
    pub queue_bytes: usize,
    /// Where packets are kept when that is full.
    pub spill: Option<Spill>,
    /// The lowest level that is published, where no logger has one of its own.
    pub level: Level,
    /// The lowest level that is printed to standard error, where nothing else is said of a logger.
    pub local: Threshold,
    /// The lowest level of which a thread keeps its newest records, to publish them when an error
    /// comes; none keeps nothing.
    pub keep: Option<Level>,
    /// How many records of one call site are published, below ERROR; none is all.
    pub suppress: Option<Suppress>,
    /// A settings file, which goes over all this, and is watched while the process logs.
    pub settings: Option<PathBuf>,
    /// How often the settings file is checked for changes.
    pub settings_poll_interval: Duration,
    /// How long a [`Logging`] that is dropped waits for the receipts of what was logged before.
    pub close_timeout: Duration,
}

/// A file for packets that the bus does not take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spill {
    /// Where it is. One process at a time has it.
    pub file: PathBuf,
    /// How long it may become, in bytes.
    pub bytes: u64,
}

impl Default for LogOptions {
    /// Batches of 20 ms; DELOUSE and above are published, as ACS does (its minLogLevel of 2).
    fn default() -> Self {
        Self {
            lanes: Lanes::default(),
            process: process(),
            host: host(),
            batch_age: Duration::from_millis(20),
            batch_records: 1_000,
            ring_bytes: 1 << 20,
            queue_bytes: 16 << 20,
            spill: None,
            level: Level::DELOUSE,
            local: Threshold::Off,
            keep: None,
            suppress: None,
            settings: None,
            settings_poll_interval: Duration::from_secs(1),
            close_timeout: Duration::from_secs(5),
        }
    }
}

/// The environment's name of the settings file.
const SETTINGS: &str = "HELIO_LOG_SETTINGS";

impl LogOptions {
    /// The usual ones, with a settings file over them. It is read when the process begins to log.
    #[must_use]
    pub fn from_file(file: impl Into<PathBuf>) -> Self {
        Self { settings: Some(file.into()), ..Self::default() }
    }

    /// The usual ones, with the settings file over them that the environment's
    /// `HELIO_LOG_SETTINGS` names, if it does.
    #[must_use]
    pub fn from_environment() -> Self {
        let file = std::env::var_os(SETTINGS).filter(|file| !file.is_empty());
        Self { settings: file.map(PathBuf::from), ..Self::default() }
    }
}

/// The program's name and the process's number: `mountContainer:4711`.
fn process() -> String {
    let program = std::env::args_os().next().map(PathBuf::from);
    let name = program.as_deref().and_then(std::path::Path::file_stem);
    let name = name.map_or_else(|| "program".into(), |name| name.to_string_lossy());
    format!("{name}:{}", std::process::id())
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned())
}

/// Why a process cannot log.
#[derive(Debug, Error)]
pub enum LogError {
    /// The bus cannot be connected.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A lane cannot be opened.
    #[error(transparent)]
    Topic(#[from] TopicError),
    /// The file for what the bus does not take cannot be had.
    #[error("the spill file {file:?}: {reason}")]
    Spill {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The settings file is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The thread cannot be started.
    #[error("the thread that publishes log records cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// What became of the records of a process. All that were offered are published, shed or waiting:
/// `offered = published + shed + waiting`, once nothing is being logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogFigures {
    /// Records that were to be published.
    pub offered: u64,
    /// Of these, records that another process had left in the spill file.
    pub inherited: u64,
    /// Records that the bus has acknowledged.
    pub published: u64,
    /// Records that were dropped because a queue was full, because the bus refused them, or
    /// because there were too many of their call site.
    pub shed: u64,
    /// Those of them of which there were too many of their call site.
    pub suppressed: u64,
    /// Records on their way.
    pub waiting: u64,
    /// Packets that the bus has acknowledged.
    pub packets: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Bytes that lie in the spill file.
    pub spilled_bytes: u64,
    /// Records that were to be printed, and were not, because there was no room.
    pub unprinted: u64,
    /// Samples of the topic of levels that were passed over, because they say nothing of levels.
    pub levels_passed_over: u64,
}

/// What the threads that log share with the one that publishes.
struct Inner {
    options: LogOptions,
    lanes: Lanes,
    loggers: Interner<String>,
    sites: Interner<Site>,
    audiences: Interner<SetOfAudiences>,
    /// Rings of threads that have begun to log since the sender looked.
    new_rings: Mutex<Vec<Reading>>,
    /// Counted by threads that have no ring.
    others: RecordCounters,
    urgent: Mutex<Vec<u8>>,
    /// Records of others.
    handed: Mutex<relay::Queue>,
    is_urgent: AtomicBool,
    floor: AtomicU8,
    sleeping: AtomicBool,
    sender: OnceLock<std::thread::Thread>,
    asked: Mutex<Requests>,
    figures: Mutex<LogFigures>,
    /// Why the bus takes nothing at the moment.
    trouble: Mutex<Option<String>>,
    clock: SystemClock,
    logger_states: Mutex<HashMap<String, Arc<LoggerState>>>,
    /// Who is told that levels have changed.
    on_levels: Mutex<Vec<Notify>>,
    ruling: Ruling,
    /// What no other of this process has.
    id: u64,
    /// The process that has the thread that publishes.
    pid: u32,
    /// Nobody takes records any more: threads that begin to log get no ring.
    ended: AtomicBool,
}

type Notify = Arc<dyn Fn() + Send + Sync>;

thread_local! {
    /// Whether this is a thread that publishes: what it logs comes from publishing, and each record
    /// of it would be another one to be published.
    static IS_SENDER: Cell<bool> = const { Cell::new(false) };
}

/// What the sender is asked to do.
#[derive(Default)]
struct Requests {
    flushes: Vec<Flush>,
    ends: bool,
}

/// Somebody who waits until what was logged before has arrived.
struct Flush {
    done: std::sync::mpsc::SyncSender<()>,
    /// Nobody waits any more then.
    until: Option<Instant>,
}

/// Audiences in the order of their names, so that the same ones are equal.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SetOfAudiences(bool, Vec<String>);

impl SetOfAudiences {
    fn of(audiences: &Audiences) -> Self {
        let mut names = audiences.names.clone();
        names.sort();
        names.dedup();
        Self(audiences.everyone, names)
    }

    fn audiences(&self) -> Audiences {
        Audiences { everyone: self.0, names: self.1.clone() }
    }
}

impl Inner {
    /// Tells that levels have changed; whoever changes them does so, behind it and with nothing
    /// locked, since who is told may ask for loggers.
    fn say_levels(&self) {
        let all = locked(&self.on_levels).clone();
        all.iter().for_each(|notify| notify());
    }

    /// The lowest level that is taken while the bus takes less than is logged.
    fn floor(&self) -> Level {
        Level::new(self.floor.load(Ordering::Relaxed)).unwrap_or(Level::TRACE)
    }

    fn set_floor(&self, level: Level) {
        self.floor.store(level.number(), Ordering::Relaxed);
    }

    /// Wakes the sender, if it sleeps.
    fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.sender.get()
        {
            thread.unpark();
        }
    }

    /// Sleeps until there is something urgent, a ring is half full, or the time is over.
    fn sleep(&self, time: Duration) {
        self.sleeping.store(true, Ordering::SeqCst);
        if !self.is_urgent() {
            std::thread::park_timeout(time);
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Queues a record that must not wait behind others; false where there is no room.
    fn urgent(&self, fixed: &[u8; FIXED], body: &[u8]) -> bool {
        let mut urgent = locked(&self.urgent);
        if urgent.len() + FIXED + body.len() > MAX_URGENT {
            return false;
        }
        urgent.extend_from_slice(fixed);
        urgent.extend_from_slice(body);
        drop(urgent);
        self.is_urgent.store(true, Ordering::SeqCst);
        self.wake();
        true
    }

    fn is_urgent(&self) -> bool {
        self.is_urgent.load(Ordering::SeqCst)
    }

    /// Takes what is urgent in exchange for empty memory.
    fn take_urgent(&self, empty: &mut Vec<u8>) {
        self.is_urgent.store(false, Ordering::SeqCst);
        std::mem::swap(empty, &mut *locked(&self.urgent));
    }
}

/// Logs to a bus: the loggers of a process, and the thread that publishes. When it is dropped, what
/// was logged before is published, or waits in the spill file.
///
/// ```
/// use std::time::Duration;
/// use helio_bus::Bus;
/// use helio_logging::{Level, LogOptions, Logging, log};
///
/// let bus = Bus::connect("memory:")?;
/// let logging = Logging::start(bus, LogOptions::default())?;
/// let mount = logging.logger("CONTROL/DV11/Mount");
/// let (axis, off) = ("azimuth", 0.25);
/// log!(mount, Level::WARNING, "axis {} is {:.1} degrees off", axis, off);
/// assert!(logging.flush(Duration::from_secs(10)));
/// assert_eq!(logging.figures().published, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Logging {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Logging {
    /// Starts to log to a bus that is connected, under its producer's name. A bus has one at a time
    /// for the same lanes, as their records are numbered.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn start(bus: Bus, options: LogOptions) -> Result<Self, LogError> {
        let (options, watched) = WatchedFile::begin(options)?;
        let ways = connect::open(&bus, &options.lanes)?;
        Self::over(BusLink::There(ways, bus), options, watched)
    }

    /// Starts to log to a bus that may be away: it is tried until it is there, and what is logged
    /// meanwhile waits, as it does whenever the bus takes nothing. For that the first attempt is
    /// waited for two seconds at the most; [`trouble`](Self::trouble) tells why the bus is not
    /// there.
    ///
    /// ```
    /// use helio_bus::Bus;
    /// use helio_logging::{LogOptions, Logging};
    ///
    /// let named = Bus::builder().producer("CONTROL/DV11");
    /// let logging = Logging::connect(named, "memory:", LogOptions::default())?;
    /// assert_eq!(logging.trouble(), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LogError`] where waiting mends nothing: the URL or the producer's name is none, the spill
    /// file cannot be had.
    pub fn connect(builder: Builder, url: &str, options: LogOptions) -> Result<Self, LogError> {
        let (options, watched) = WatchedFile::begin(options)?;
        let (connector, coming) = Connector::of(builder, url, &options.lanes)?;
        let logging = Self::over(BusLink::PendingConnection(coming), options, watched)?;
        connector.start(&logging.inner)?;
        Ok(logging)
    }

    fn over(
        ways: BusLink,
        options: LogOptions,
        watched: Option<(WatchedFile, Settings)>,
    ) -> Result<Self, LogError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let rules = watched.as_ref().map_or(&[][..], |(_, settings)| &settings.rules[..]);
        let inner = Arc::new(Inner {
            lanes: options.lanes.clone(),
            loggers: Interner::new(MAX_LOGGERS),
            sites: Interner::new(MAX_SITES),
            audiences: Interner::new(MAX_AUDIENCE_SETS),
            new_rings: Mutex::default(),
            others: RecordCounters::default(),
            urgent: Mutex::default(),
            handed: Mutex::default(),
            is_urgent: AtomicBool::new(false),
            floor: AtomicU8::new(Level::TRACE.number()),
            sleeping: AtomicBool::new(false),
            sender: OnceLock::new(),
            asked: Mutex::default(),
            figures: Mutex::default(),
            trouble: Mutex::default(),
            clock: SystemClock::new(),
            logger_states: Mutex::default(),
            on_levels: Mutex::default(),
            ruling: Ruling::new(Rules::new([], rules, options.level, options.local)),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            pid: std::process::id(),
            ended: AtomicBool::new(false),
            options,
        });
        // Audiences have the number 0 where a record is for nobody in particular.
        inner.audiences.number(SetOfAudiences::of(&Audiences::default()));
        // Loggers have the number 0 where there are too many.
        inner.loggers.number(OTHERS.to_owned());
        let origin = Origin {
            host: inner.options.host.clone(),
            process: inner.options.process.clone(),
            producer: String::new(),
        };
        let sender = sender::Sender::new(Arc::clone(&inner), origin, ways, watched)?;
        let thread = std::thread::Builder::new().name("helio-log".to_owned());
        let thread = thread.spawn(move || {
            IS_SENDER.set(true);
            sender.run();
        })?;
        inner.sender.get_or_init(|| thread.thread().clone());
        Ok(Self { inner, thread: Some(thread) })
    }

    /// The logger of a name, with slashes between its parts.
    #[must_use]
    pub fn logger(&self, name: &str) -> Logger {
        let mut all = locked(&self.inner.logger_states);
        if let Some(state) = all.get(name) {
            return Logger {
                state: Arc::clone(state),
                inner: Arc::clone(&self.inner),
                audiences: 0,
            };
        }
        let number = self.inner.loggers.number(name.to_owned());
        let state = Arc::new(LoggerState {
            name: name.to_owned(),
            number: number.unwrap_or(0),
            levels: Levels::of(&self.inner, name),
        });
        if number.is_some() {
            all.insert(name.to_owned(), Arc::clone(&state));
        }
        Logger { state, inner: Arc::clone(&self.inner), audiences: 0 }
    }

    /// Registers a call site that is no constant of this program, as those of other languages and
    /// other loggers are; its number is for loggers of this `Logging`. Above [`MAX_SITES`] it is
    /// that of records that come from [none](SiteNumber::is_none): they need their message as text.
    #[must_use]
    pub fn site(&self, site: Site) -> SiteNumber {
        SiteNumber(self.inner.sites.number(site).unwrap_or(NO_SITE))
    }

    /// Has this called behind each change of loggers' levels, in the thread that changes them: for
    /// who remembers what is enabled.
    pub fn on_levels(&self, notify: impl Fn() + Send + Sync + 'static) {
        locked(&self.inner.on_levels).push(Arc::new(notify));
    }

    /// What publishes records of others, which this process hands on.
    #[must_use]
    pub fn relay(&self) -> Relay {
        Relay(Arc::clone(&self.inner))
    }

    /// The lowest level that a logger publishes, by all that is said of it now: for front ends
    /// that decide for themselves.
    #[must_use]
    pub fn level_of(&self, name: &str) -> Level {
        let state = locked(&self.inner.logger_states).get(name).map(Arc::clone);
        let level = state.and_then(|s| Level::new(s.levels.published.load(Ordering::Relaxed)));
        level.unwrap_or_else(|| self.inner.ruling.rules().of(name, None).0)
    }

    /// The lowest level that a logger publishes by a pattern, of run time or of the settings file;
    /// none where no pattern says it: for front ends whose loggers have levels of their own.
    #[must_use]
    pub fn ruled_level_of(&self, name: &str) -> Option<Level> {
        self.inner.ruling.rules().remote(name)
    }

    /// The lowest level of a logger that goes anywhere: is published, printed, or kept for when an
    /// error comes.
    #[must_use]
    pub fn lowest_of(&self, name: &str) -> Level {
        let lowest = |levels: &Levels| Level::new(levels.lowest.load(Ordering::Relaxed));
        let state = locked(&self.inner.logger_states).get(name).map(Arc::clone);
        let level = match state {
            Some(state) => lowest(&state.levels),
            None => lowest(&Levels::of(&self.inner, name)),
        };
        level.unwrap_or(Level::EMERGENCY)
    }

    /// Waits until levels have changed since one has `seen` that number of changes, at most for
    /// this time; how often they have. It begins with 0.
    #[must_use]
    pub fn wait_levels(&self, seen: u64, timeout: Duration) -> u64 {
        self.inner.ruling.wait(seen, timeout)
    }

    /// Waits until all that was logged before is acknowledged or shed, at most for this time;
    /// whether it was.
    #[must_use]
    pub fn flush(&self, timeout: Duration) -> bool {
        let (done, wait) = std::sync::mpsc::sync_channel(1);
        if self.is_elsewhere() {
            return false;
        }
        let until = Instant::now().checked_add(timeout);
        locked(&self.inner.asked).flushes.push(Flush { done, until });
        self.inner.wake();
        wait.recv_timeout(timeout).is_ok()
    }

    /// Whether this is a copy in a process that was forked: the thread that publishes is in the
    /// other one, and to wait for it is to wait for ever.
    fn is_elsewhere(&self) -> bool {
        std::process::id() != self.inner.pid
    }

    /// Why the bus takes nothing at the moment, in its words; none where it does.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        locked(&self.inner.trouble).clone()
    }

    /// What became of the records, as of the sender's last turn.
    #[must_use]
    pub fn figures(&self) -> LogFigures {
        *locked(&self.inner.figures)
    }

    /// Ends it as dropping does; what became of all records. What waits then lies in the spill
    /// file.
    #[must_use]
    pub fn end(mut self) -> LogFigures {
        self.join();
        self.figures()
    }

    fn join(&mut self) {
        self.inner.ended.store(true, Ordering::Relaxed);
        if self.is_elsewhere() {
            return;
        }
        locked(&self.inner.asked).ends = true;
        self.inner.wake();
        if let Some(thread) = self.thread.take() {
            // It ends in any case; a panic of it was told where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        self.join();
    }
}

struct LoggerState {
    name: String,
    number: u32,
    levels: Levels,
}

/// Logs under a name. Cloning shares it.
#[derive(Clone)]
pub struct Logger {
    state: Arc<LoggerState>,
    inner: Arc<Inner>,
    /// The number of a set of audiences.
    audiences: u32,
}

impl Logger {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Whether a record of this level goes anywhere.
    #[inline]
    #[must_use]
    pub fn is_enabled(&self, level: Level) -> bool {
        level.number() >= self.state.levels.lowest.load(Ordering::Relaxed)
    }

    /// The number of the lowest level that goes anywhere, as it is at any time: for callers that
    /// are no Rust, and look at it in place. It lies there as long as a logger of this name.
    #[must_use]
    pub fn threshold(&self) -> &AtomicU8 {
        &self.state.levels.lowest
    }

    /// Sets the lowest level that is published, where neither the settings file nor what is set at
    /// run time ([`LevelTable`](crate::LevelTable)) has a pattern of the logger.
    pub fn set_level(&self, level: Level) {
        self.state.levels.say(&self.inner, &self.state.name, level);
        self.inner.say_levels();
    }

    /// The same logger, whose records are for these audiences.
    #[must_use]
    pub fn to(&self, audiences: &Audiences) -> Self {
        let number = self.inner.audiences.number(SetOfAudiences::of(audiences));
        Self { audiences: number.unwrap_or(0), ..self.clone() }
    }

    /// Logs a record, if its level is enabled, with the fields that are filled in; the macro
    /// [`log!`](crate::log!) writes the call. What the thread that publishes
    /// logs itself is passed over: it would never end.
    #[inline]
    pub fn record(&self, level: Level, site: &CallSite, fill: impl FnOnce(&mut Body)) {
        if self.is_enabled(level) {
            match site.number(&self.inner) {
                NO_SITE => self.write_whole(level, site, fill),
                number => self.write(self.inner.clock.now(), level, number, fill),
            }
        }
    }

    /// Logs a record of a call site that has no number: it has all in itself.
    #[cold]
    fn write_whole(&self, level: Level, site: &CallSite, fill: impl FnOnce(&mut Body)) {
        let mut body = Body::new();
        fill(&mut body);
        let mut record = Record { site: site.site(), ..Record::default() };
        Fields::of(body.as_bytes()).flatten().for_each(|field| record.take(field));
        record.text = Some(record.message());
        record.arguments.clear();
        let Site { file, line, .. } = &record.site;
        let fill = |body: &mut Body| _ = body.record(&record).site(file, *line);
        self.write(self.inner.clock.now(), level, NO_SITE, fill);
    }

    /// The same, of a record that was made at a time, by a call site that was registered before
    /// ([`Logging::site`]).
    pub fn record_at(
        &self,
        time: Tai,
        level: Level,
        site: SiteNumber,
        fill: impl FnOnce(&mut Body),
    ) {
        if self.is_enabled(level) {
            self.write(time, level, site.0, fill);
        }
    }

    fn write(&self, time: Tai, level: Level, site: u32, fill: impl FnOnce(&mut Body)) {
        if IS_SENDER.get() {
            return;
        }
        let levels = &self.state.levels;
        let goes = Destinations {
            published: level.number() >= levels.published.load(Ordering::Relaxed),
            printed: level.number() >= levels.printed.load(Ordering::Relaxed),
        };
        let (logger, audiences) = (self.state.number, self.audiences);
        ring::write(&self.inner, Head { time, logger, site, audiences, level, goes }, fill);
    }
}

impl std::fmt::Debug for Logger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Logger").field(&self.state.name).finish()
    }
}

/// A call site that is registered; [`SiteNumber::default`] is of records that come from none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteNumber(u32);

impl SiteNumber {
    /// Whether it is that of records that come from no call site.
    #[must_use]
    pub fn is_none(self) -> bool {
        self.0 == NO_SITE
    }
}

impl Default for SiteNumber {
    fn default() -> Self {
        Self(NO_SITE)
    }
}

impl SiteNumber {
    /// It as a number, to be kept where there is no Rust.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The same back. A record of a number that was never given comes from no call site.
impl From<u32> for SiteNumber {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

/// A place in a program that logs: a constant of it, registered with the first record.
#[derive(Debug)]
pub struct CallSite {
    template: &'static str,
    names: &'static [&'static str],
    file: &'static str,
    line: u32,
    routine: &'static str,
    /// The number, and whose it is: the [`Logging`] that it was first used with.
    number: OnceLock<(u64, u32)>,
}

impl CallSite {
    /// A place with a message in braces, and the names of its arguments, as [`Site`] has them.
    #[must_use]
    pub const fn new(
        template: &'static str,
        names: &'static [&'static str],
        file: &'static str,
        line: u32,
        routine: &'static str,
    ) -> Self {
        Self { template, names, file, line, routine, number: OnceLock::new() }
    }

    fn number(&self, inner: &Inner) -> u32 {
        let (whose, number) = *self.number.get_or_init(|| (inner.id, self.register(inner)));
        // A second one of a process, as tests have, looks it up each time.
        if whose == inner.id { number } else { self.register(inner) }
    }

    fn site(&self) -> Site {
        Site {
            template: self.template.to_owned(),
            names: self.names.iter().map(|name| (*name).to_owned()).collect(),
            file: self.file.to_owned(),
            line: self.line,
            routine: self.routine.to_owned(),
            ..Site::default()
        }
    }

    fn register(&self, inner: &Inner) -> u32 {
        inner.sites.number(self.site()).unwrap_or(NO_SITE)
    }
}
