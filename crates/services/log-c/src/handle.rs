//! C's handles: a [`Handle`] for each start, and a [`CLogger`] for each of its loggers.
//!
//! Neither is ever freed: C may use it after the end, and finds it closed. All handles stay
//! reachable, so that leak checkers do not report them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use helio_bus::{Bus, Clock as _, SystemClock};
use helio_logging::{
    Audiences, Body, Level, LogFigures, LogOptions, Logger, Logging, MAX_LOGGERS, Site, SiteNumber,
};

use crate::printf_precision;

/// The most starts of a process, as each leaves its loggers behind.
const MAX_STARTS: usize = 1_024;
/// The time that a process's end waits for unpublished records.
const EXIT_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// The threshold of a closed logger, above any level.
static CLOSED: AtomicU8 = AtomicU8::new(u8::MAX);

/// All handles.
static STARTED: Mutex<Vec<&'static Handle>> = Mutex::new(Vec::new());
/// The number of forks since the first process. Handles of another process have no thread here, and
/// their locks may be held forever.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// To be called in the child after a fork.
pub(crate) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// To be called at a process's end: waits briefly for unpublished records.
pub(crate) fn ending() {
    let started = Instant::now();
    // The lock's holder may wait for this thread, so this does not wait for it.
    let Ok(all) = STARTED.try_lock() else { return };
    for handle in all.iter() {
        let left = EXIT_FLUSH_TIMEOUT.saturating_sub(started.elapsed());
        // Records not published by now are lost; no one is left to report it to.
        _ = handle.with(|logging| logging.flush(left));
    }
}

/// A level of C; none if the number is invalid.
pub(crate) fn level(number: c_int) -> Option<Level> {
    u8::try_from(number).ok().and_then(Level::new)
}

/// `helio_log`: a process's logging.
pub struct Handle {
    /// From 1.
    number: u32,
    forks: u32,
    logging: RwLock<Option<Logging>>,
    clock: SystemClock,
    loggers: Mutex<Loggers>,
    rejected: AtomicU64,
}

/// Loggers by name and audiences, and the first of them.
#[derive(Default)]
struct Loggers {
    all: HashMap<(String, Vec<String>), &'static CLogger>,
    first: Option<&'static CLogger>,
}

impl Handle {
    /// Starts to log to the bus of a URL; fails with a message.
    pub(crate) fn start(
        url: &str,
        producer: Option<&str>,
        options: LogOptions,
    ) -> Result<&'static Self, String> {
        #[cfg(feature = "transports")]
        helio_transports::register_all();
        let builder = Bus::builder();
        let builder = match producer {
            Some(name) => builder.producer(name),
            None => builder,
        };
        let logging = Logging::connect(builder, url, options);
        let logging = logging.map_err(|error| error.to_string())?;
        let mut started = locked(&STARTED);
        if started.len() == MAX_STARTS {
            return Err(format!("logging was started {MAX_STARTS} times: start it once a process"));
        }
        let handle = Box::leak(Box::new(Self {
            number: started.len() as u32 + 1,
            forks: FORKS.load(Ordering::Relaxed),
            logging: RwLock::new(Some(logging)),
            clock: SystemClock::new(),
            loggers: Mutex::default(),
            rejected: AtomicU64::new(0),
        }));
        started.push(handle);
        Ok(handle)
    }

    fn is_of_another_process(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// Calls a function with the `Logging`; none if it is closed, or of another process.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Logging) -> T) -> Option<T> {
        if self.is_of_another_process() {
            return None;
        }
        self.logging.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(act)
    }

    /// The counts of records, and of calls that made none.
    pub(crate) fn figures(&self) -> Option<(LogFigures, u64)> {
        self.with(|logging| (logging.figures(), self.rejected.load(Ordering::Relaxed)))
    }

    /// Publishes all records and closes; none if closed already.
    pub(crate) fn close(&self) -> Option<()> {
        if self.is_of_another_process() {
            return None;
        }
        let mut logging = self.logging.write().unwrap_or_else(PoisonError::into_inner);
        let logging = logging.take()?;
        for logger in locked(&self.loggers).all.values() {
            logger.lowest.store((&raw const CLOSED).cast_mut(), Ordering::Relaxed);
        }
        drop(logging);
        Some(())
    }

    /// The logger of a name, for these audiences.
    pub(crate) fn logger(
        &'static self,
        name: &str,
        audiences: &Audiences,
    ) -> Option<&'static CLogger> {
        let mut names = audiences.names.clone();
        if audiences.everyone {
            names = vec!["*".to_owned()];
        }
        names.sort();
        names.dedup();
        self.with(|logging| {
            let mut loggers = locked(&self.loggers);
            let key = (name.to_owned(), names);
            if let Some(logger) = loggers.all.get(&key) {
                return *logger;
            }
            if let Some(first) = loggers.first.filter(|_| loggers.all.len() == MAX_LOGGERS) {
                return first;
            }
            let mut logger = logging.logger(name);
            if !audiences.is_empty() {
                logger = logger.to(audiences);
            }
            let lowest = AtomicPtr::new((&raw const *logger.threshold()).cast_mut());
            let logger = &*Box::leak(Box::new(CLogger { lowest, logger, handle: self }));
            loggers.first.get_or_insert(logger);
            loggers.all.insert(key, logger);
            logger
        })
    }

    /// The number of a call site, cached in `known` with its handle and whether its message has
    /// precisions.
    fn site(&self, known: &AtomicU64, site: impl FnOnce() -> Site) -> Option<PackedSite> {
        if let Some(known) = PackedSite::unpacked(known.load(Ordering::Relaxed), self.number) {
            return Some(known);
        }
        let site = site();
        let precise = printf_precision::has_precision(site.template.as_bytes());
        let site = PackedSite { precise, number: self.with(|logging| logging.site(site))? };
        // A second handle of the process looks it up each time.
        let packed = site.packed(self.number);
        _ = known.compare_exchange(0, packed, Ordering::Relaxed, Ordering::Relaxed);
        Some(site)
    }
}

/// A cached call site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PackedSite {
    number: SiteNumber,
    /// The message has a text with a precision.
    precise: bool,
}

impl PackedSite {
    fn packed(self, whose: u32) -> u64 {
        u64::from(whose) << 33 | u64::from(self.precise) << 32 | u64::from(self.number.get())
    }

    fn unpacked(packed: u64, whose: u32) -> Option<Self> {
        let number = SiteNumber::from(packed as u32);
        (packed >> 33 == u64::from(whose))
            .then_some(Self { number, precise: packed >> 32 & 1 == 1 })
    }
}

/// `helio_logger`: logs under a name.
#[repr(C)]
pub struct CLogger {
    /// Read by C: a pointer to the number of the lowest enabled level.
    lowest: AtomicPtr<AtomicU8>,
    logger: Logger,
    handle: &'static Handle,
}

impl CLogger {
    /// The same logger for these audiences.
    pub(crate) fn to(&self, audiences: &Audiences) -> Option<&'static Self> {
        self.handle.logger(self.logger.name(), audiences)
    }

    /// Sets the lowest published level.
    pub(crate) fn set_level(&self, level: Level) -> Option<()> {
        self.handle.with(|_| self.logger.set_level(level))
    }

    fn is_closed(&self) -> bool {
        let closed: *const AtomicU8 = &raw const CLOSED;
        std::ptr::eq(self.lowest.load(Ordering::Relaxed), closed)
            || self.handle.is_of_another_process()
    }

    /// Counts a call that makes no record.
    pub(crate) fn reject(&self) {
        self.handle.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Logs a record of a call site. `fill` receives whether the message has precisions. None after
    /// the end.
    pub(crate) fn record(
        &self,
        level: Level,
        known: &AtomicU64,
        site: impl Fn() -> Site,
        fill: impl FnOnce(&mut Body, bool),
    ) -> Option<()> {
        if self.is_closed() {
            return None;
        }
        let PackedSite { number, precise } = self.handle.site(known, &site)?;
        self.logger.record_at(self.handle.clock.now(), level, number, |body| {
            if number.is_none() {
                nameless(&site(), body);
            }
            fill(body, precise);
        });
        Some(())
    }

    /// Logs a record of an uncached call site.
    pub(crate) fn emit(
        &self,
        level: Level,
        site: &Site,
        fill: impl FnOnce(&mut Body),
    ) -> Option<()> {
        if self.is_closed() {
            return None;
        }
        if !self.logger.is_enabled(level) {
            return Some(());
        }
        let number = self.handle.with(|logging| logging.site(site.clone()))?;
        self.logger.record_at(self.handle.clock.now(), level, number, |body| {
            if number.is_none() {
                nameless(site, body);
            }
            fill(body);
        });
        Some(())
    }
}

/// Adds an unregistered call site as text and data.
fn nameless(site: &Site, body: &mut Body) {
    if !site.template.is_empty() {
        body.text(&site.template);
    }
    body.site(&site.file, site.line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_of_a_site_is_of_one_start() {
        for (number, precise) in [(0, false), (65_535, true), (u32::MAX, false)] {
            let known = PackedSite { number: SiteNumber::from(number), precise };
            for whose in [1, MAX_STARTS as u32] {
                let packed = known.packed(whose);
                assert_eq!(PackedSite::unpacked(packed, whose), Some(known));
                assert_eq!(PackedSite::unpacked(packed, whose + 1), None);
            }
        }
        assert_eq!(PackedSite::unpacked(0, 1), None);
    }

    #[test]
    fn levels_are_those_of_the_header() {
        assert_eq!((level(1), level(11)), (Some(Level::TRACE), Some(Level::EMERGENCY)));
        assert_eq!([0, 12, -1, 256 + 4, i32::MIN].map(level), [None; 5]);
    }
}
