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
mod receipt;
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
pub use receipt::{BatchReceipt, RecordReceipt};
pub use relay::{EncodedRecord, Relay, Shed};
use ring::{Destinations, FIXED, Head, Reading, RecordCounters};
use sender::BusLink;
pub use settings::SettingsError;
use settings::{Settings, WatchedFile};
pub use suppress::Suppress;

/// The most loggers of a process; records of further ones have the logger
/// `too many loggers`.
pub const MAX_LOGGERS: usize = 65_536;
/// The logger of records from loggers above the limit.
const OTHERS: &str = "too many loggers";
/// The most registered call sites of a process. Records of further ones have their message as text,
/// and their file and line as data.
pub const MAX_SITES: usize = 65_536;
/// The most sets of audiences of a process; records with further ones have no audience.
const MAX_AUDIENCE_SETS: usize = 4_096;
/// The most bytes of queued urgent records, and of each thread's errors that do not fit into its
/// ring: far more than can arrive before the sender wakes.
const MAX_URGENT: usize = 8 << 20;
/// The most bytes of records below the published levels that a thread keeps until an error.
const MAX_KEPT: usize = 64 << 10;
/// The number for records without a call site.
const NO_SITE: u32 = u32::MAX;
/// Above any level.
const OFF: u8 = u8::MAX;

/// How a process logs.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// The topics.
    pub lanes: Lanes,
    /// The process in each record: its name, a colon, and its number.
    pub process: String,
    /// The machine in each record.
    pub host: String,
    /// The longest time that a record waits for others of its level, if it is not urgent.
    pub batch_age: Duration,
    /// The most records of a packet.
    pub batch_records: usize,
    /// Bytes of each thread's ring.
    pub ring_bytes: usize,
    /// The most bytes of packets in memory while the bus does not accept them.
    pub queue_bytes: usize,
    /// The file for packets beyond that.
    pub spill: Option<Spill>,
    /// The default of the lowest published level.
    pub level: Level,
    /// The default of the lowest level that is printed to standard error.
    pub local: Threshold,
    /// The lowest level whose newest records each thread keeps, to publish them upon an error; none
    /// keeps nothing.
    pub keep: Option<Level>,
    /// The limit on the records of one call site, below ERROR; none is no limit.
    pub suppress: Option<Suppress>,
    /// A settings file, which overrides these options and is watched while the process logs.
    pub settings: Option<PathBuf>,
    /// The interval at which the settings file is checked for changes.
    pub settings_poll_interval: Duration,
    /// The time that a dropped [`Logging`] waits for pending receipts.
    pub close_timeout: Duration,
}

/// A file for packets that the bus does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spill {
    /// The path. One process at a time owns the file.
    pub file: PathBuf,
    /// The largest size, in bytes.
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

/// The environment variable with the settings file.
const SETTINGS: &str = "HELIO_LOG_SETTINGS";

impl LogOptions {
    /// The defaults with a settings file, which is read when the process begins to log.
    #[must_use]
    pub fn from_file(file: impl Into<PathBuf>) -> Self {
        Self { settings: Some(file.into()), ..Self::default() }
    }

    /// The defaults, with the settings file in the environment variable `HELIO_LOG_SETTINGS`, if it
    /// is set.
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
    /// The spill file cannot be opened.
    #[error("the spill file {file:?}: {reason}")]
    Spill {
        /// The file.
        file: PathBuf,
        /// The error.
        reason: String,
    },
    /// The settings file is wrong.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// The thread cannot be started.
    #[error("the thread that publishes log records cannot be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// Counts of a process's records by outcome. While nothing is being logged, `offered = published +
/// shed + waiting`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogFigures {
    /// Records at published levels.
    pub offered: u64,
    /// Of these, records from the spill file of an earlier process.
    pub inherited: u64,
    /// Records that the bus has acknowledged.
    pub published: u64,
    /// Records that were dropped because a queue was full, because the bus refused them, or because
    /// their call site exceeded its limit.
    pub shed: u64,
    /// Of these, records above their call site's limit.
    pub suppressed: u64,
    /// Records queued or in flight.
    pub waiting: u64,
    /// Packets that the bus has acknowledged.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Bytes in the spill file.
    pub spilled_bytes: u64,
    /// Records that were not printed because the queue for standard error was full.
    pub unprinted: u64,
    /// Samples of the topic of levels that were skipped, because they are not entries.
    pub levels_passed_over: u64,
}

/// The state shared by the logging threads and the publishing thread.
struct Inner {
    options: LogOptions,
    lanes: Lanes,
    loggers: Interner<String>,
    sites: Interner<Site>,
    audiences: Interner<SetOfAudiences>,
    /// Rings of threads that have begun to log since the sender's last turn.
    new_rings: Mutex<Vec<Reading>>,
    /// Counts of threads without a ring.
    others: RecordCounters,
    urgent: Mutex<Vec<u8>>,
    /// Forwarded records.
    handed: Mutex<relay::Queue>,
    is_urgent: AtomicBool,
    floor: AtomicU8,
    sleeping: AtomicBool,
    sender: OnceLock<std::thread::Thread>,
    asked: Mutex<Requests>,
    figures: Mutex<LogFigures>,
    /// Why the bus does not accept records at present.
    trouble: Mutex<Option<String>>,
    clock: SystemClock,
    logger_states: Mutex<HashMap<String, Arc<LoggerState>>>,
    /// The callbacks upon a change of levels.
    on_levels: Mutex<Vec<Notify>>,
    ruling: Ruling,
    /// An identifier that is unique in the process.
    id: u64,
    /// The process of the publishing thread.
    pid: u32,
    /// The sender has ended: threads that begin to log get no ring.
    ended: AtomicBool,
}

type Notify = Arc<dyn Fn() + Send + Sync>;

thread_local! {
    /// Whether this is a publishing thread. Its own records are ignored, since publishing each
    /// would log another.
    static IS_SENDER: Cell<bool> = const { Cell::new(false) };
}

/// Requests to the sender.
#[derive(Default)]
struct Requests {
    flushes: Vec<Flush>,
    ends: bool,
}

/// A call that waits for all earlier records.
struct Flush {
    done: std::sync::mpsc::SyncSender<()>,
    /// The time at which the call gives up.
    until: Option<Instant>,
}

/// Audiences sorted by name, so that equal sets compare equal.
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
    /// Notifies of changed levels. It is called after the change and without locks, since callbacks
    /// may create loggers.
    fn say_levels(&self) {
        let all = locked(&self.on_levels).clone();
        all.iter().for_each(|notify| notify());
    }

    /// The lowest level that is accepted while the bus is slower than the loggers.
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

    /// Sleeps until an urgent record is queued, a ring is half full, or the time has passed.
    fn sleep(&self, time: Duration) {
        self.sleeping.store(true, Ordering::SeqCst);
        if !self.is_urgent() {
            std::thread::park_timeout(time);
        }
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Queues an urgent record; false if there is no room.
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

    /// Takes the urgent records in exchange for an empty buffer.
    fn take_urgent(&self, empty: &mut Vec<u8>) {
        self.is_urgent.store(false, Ordering::SeqCst);
        std::mem::swap(empty, &mut *locked(&self.urgent));
    }
}

/// Logs to a bus: the loggers of a process, and the publishing thread. Dropping it publishes all
/// earlier records, or stores them in the spill file.
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
    /// Starts to log to a connected bus, under its producer's name. A bus has one `Logging` at a
    /// time for the same lanes, as it numbers their records.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn start(bus: Bus, options: LogOptions) -> Result<Self, LogError> {
        let (options, watched) = WatchedFile::begin(options)?;
        let ways = connect::open(&bus, &options.lanes)?;
        Self::over(BusLink::There(ways, bus), options, watched)
    }

    /// Starts to log to a bus that may be unavailable. It retries until the bus is connected; until
    /// then records are queued, as in any outage. It waits at most two seconds for the first
    /// attempt. [`trouble`](Self::trouble) returns why the bus is unavailable.
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
    /// [`LogError`] for permanent errors: an invalid URL or producer name, or a spill file that
    /// cannot be opened.
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
        // The number 0 means no audience.
        inner.audiences.number(SetOfAudiences::of(&Audiences::default()));
        // The number 0 is the logger for those above the limit.
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

    /// Registers a call site that is not a constant of this program, as for other languages and
    /// logging libraries. Its number is valid for loggers of this `Logging`. Above [`MAX_SITES`]
    /// the number [is none](SiteNumber::is_none): such records need their message as text.
    #[must_use]
    pub fn site(&self, site: Site) -> SiteNumber {
        SiteNumber(self.inner.sites.number(site).unwrap_or(NO_SITE))
    }

    /// Registers a callback for changes of loggers' levels. It runs in the changing thread, after
    /// the change. It is for callers that cache what is enabled.
    pub fn on_levels(&self, notify: impl Fn() + Send + Sync + 'static) {
        locked(&self.inner.on_levels).push(Arc::new(notify));
    }

    /// Returns a handle that publishes records forwarded by this process.
    #[must_use]
    pub fn relay(&self) -> Relay {
        Relay(Arc::clone(&self.inner))
    }

    /// The lowest level that a logger publishes at present, for front ends that decide for
    /// themselves.
    #[must_use]
    pub fn level_of(&self, name: &str) -> Level {
        let state = locked(&self.inner.logger_states).get(name).map(Arc::clone);
        let level = state.and_then(|s| Level::new(s.levels.published.load(Ordering::Relaxed)));
        level.unwrap_or_else(|| self.inner.ruling.rules().of(name, None).0)
    }

    /// The lowest level that a logger publishes according to a pattern, set at run time or in the
    /// settings file; none if no pattern matches. It is for front ends whose loggers have levels of
    /// their own.
    #[must_use]
    pub fn ruled_level_of(&self, name: &str) -> Option<Level> {
        self.inner.ruling.rules().remote(name)
    }

    /// The lowest enabled level of a logger: published, printed, or kept until an error.
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

    /// Waits until levels have changed more often than `seen`, at most for this time. Returns the
    /// number of changes so far, which begins at 0.
    #[must_use]
    pub fn wait_levels(&self, seen: u64, timeout: Duration) -> u64 {
        self.inner.ruling.wait(seen, timeout)
    }

    /// Waits until all earlier records are acknowledged or shed, at most for this time. Returns
    /// whether they are.
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

    /// Whether this is a copy in a forked process. The publishing thread is in the other process;
    /// waiting for it would never end.
    fn is_elsewhere(&self) -> bool {
        std::process::id() != self.inner.pid
    }

    /// The bus's reason for not accepting records at present; none if it accepts them.
    #[must_use]
    pub fn trouble(&self) -> Option<String> {
        locked(&self.inner.trouble).clone()
    }

    /// The counts of records, as of the sender's last turn.
    #[must_use]
    pub fn figures(&self) -> LogFigures {
        *locked(&self.inner.figures)
    }

    /// Ends as dropping does, and returns the final counts. Waiting records are in the spill file.
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
            // The thread ends in any case; a panic was reported where it happened.
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
    /// The number of the set of audiences.
    audiences: u32,
}

impl Logger {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Whether this level is enabled.
    #[inline]
    #[must_use]
    pub fn is_enabled(&self, level: Level) -> bool {
        level.number() >= self.state.levels.lowest.load(Ordering::Relaxed)
    }

    /// The number of the lowest enabled level, updated in place, for callers outside of Rust. It is
    /// valid as long as a logger of this name exists.
    #[must_use]
    pub fn threshold(&self) -> &AtomicU8 {
        &self.state.levels.lowest
    }

    /// Sets the lowest published level. Patterns of the settings file and of run time
    /// ([`LevelTable`](crate::LevelTable)) override it.
    pub fn set_level(&self, level: Level) {
        self.state.levels.say(&self.inner, &self.state.name, level);
        self.inner.say_levels();
    }

    /// Returns this logger with these audiences for its records.
    #[must_use]
    pub fn to(&self, audiences: &Audiences) -> Self {
        let number = self.inner.audiences.number(SetOfAudiences::of(audiences));
        Self { audiences: number.unwrap_or(0), ..self.clone() }
    }

    /// Logs a record, if its level is enabled, with the fields that `fill` adds. The macro
    /// [`log!`](crate::log!) writes the call. Records of the publishing thread itself are ignored.
    #[inline]
    pub fn record(&self, level: Level, site: &CallSite, fill: impl FnOnce(&mut Body)) {
        if self.is_enabled(level) {
            match site.number(&self.inner) {
                NO_SITE => self.write_whole(level, site, fill),
                number => self.write(self.inner.clock.now(), level, number, fill),
            }
        }
    }

    /// Logs a record of an unregistered call site, which is self-contained.
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

    /// Logs a record with a given time and a registered call site ([`Logging::site`]).
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

/// The number of a registered call site; [`SiteNumber::default`] is for records without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteNumber(u32);

impl SiteNumber {
    /// Whether this is the number for records without a call site.
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
    /// The number, for storage outside of Rust.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Restores the number. An unknown number means no call site.
impl From<u32> for SiteNumber {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

/// A call site: a constant of the program, registered with its first record.
#[derive(Debug)]
pub struct CallSite {
    template: &'static str,
    names: &'static [&'static str],
    file: &'static str,
    line: u32,
    routine: &'static str,
    /// The number, and the identifier of the [`Logging`] that it was first used with.
    number: OnceLock<(u64, u32)>,
}

impl CallSite {
    /// A call site with a template in braces and the names of its arguments, as in [`Site`].
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
        // A second `Logging` of the process looks it up each time.
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
