//! Call sites of `tracing`. Each thread caches them, so that logging threads share nothing.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use helio_logging::{Level, Logger, Logging, Site, SiteNumber};
use tracing_core::callsite::Identifier;
use tracing_core::{Field, Metadata};

use crate::visitor::Overrides;

/// The target that `tracing-log` gives to all records of `log`, and the name of its field.
const LOG_TARGET: &str = "log.target";

/// The role of a field of a call site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Message,
    Level,
    Logger,
    Audience,
    Trace,
    Span,
    LogTarget,
    LogModule,
    LogFile,
    LogLine,
    Data,
}

impl Role {
    fn of(field: &Field, is_log: bool) -> Self {
        match field.name() {
            "message" => Self::Message,
            "level" => Self::Level,
            "logger" => Self::Logger,
            "audience" => Self::Audience,
            "trace_id" => Self::Trace,
            "span_id" => Self::Span,
            LOG_TARGET if is_log => Self::LogTarget,
            "log.module_path" if is_log => Self::LogModule,
            "log.file" if is_log => Self::LogFile,
            "log.line" if is_log => Self::LogLine,
            _ => Self::Data,
        }
    }

    /// Whether a field overrides a property of the call site.
    fn chooses(self) -> bool {
        !matches!(self, Self::Message | Self::Trace | Self::Span | Self::Data)
    }
}

/// The logger, level and site of a record.
#[derive(Debug)]
pub(crate) struct Heading {
    pub(crate) logger: Logger,
    pub(crate) level: Level,
    pub(crate) site: SiteNumber,
    /// The value of the field `level` is not a level, and becomes data.
    pub(crate) is_level_data: bool,
}

/// A cached call site.
#[derive(Debug)]
pub(crate) struct CallsiteInfo {
    pub(crate) heading: Heading,
    /// The roles, by the index of a field.
    pub(crate) roles: Vec<Role>,
}

impl CallsiteInfo {
    /// Whether events may override the logger, level, audience or site.
    pub(crate) fn chooses(&self) -> bool {
        self.roles.iter().any(|role| role.chooses())
    }

    /// Whether some of its events may be enabled.
    pub(crate) fn takes(&self) -> bool {
        let says = |role: &Role| matches!(role, Role::Level | Role::Logger | Role::LogTarget);
        self.heading.logger.is_enabled(self.heading.level) || self.roles.iter().any(says)
    }
}

/// The call sites of a layer. Their number is bounded by the program's logging statements.
#[derive(Debug)]
pub(crate) struct Callsites {
    logging: Weak<Logging>,
    /// An identifier that is unique in the process.
    id: u64,
}

thread_local! {
    static CALLSITE_CACHE: RefCell<CallsiteCache> = RefCell::default();
}

/// With the level: the call sites of `log`'s levels (tracing-log's statics) have no size, and may
/// share an address.
type CallsiteCache = HashMap<
    (u64, Identifier, tracing_core::Level),
    Rc<CallsiteInfo>,
    BuildHasherDefault<AddressHasher>,
>;

impl Callsites {
    pub(crate) fn new(logging: &Arc<Logging>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { logging: Arc::downgrade(logging), id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// Looks up a call site; none if logging has ended.
    pub(crate) fn of(&self, metadata: &Metadata<'_>) -> Option<Rc<CallsiteInfo>> {
        let key = (self.id, metadata.callsite(), *metadata.level());
        let known = CALLSITE_CACHE.try_with(|known| known.borrow().get(&key).map(Rc::clone));
        if let Ok(Some(place)) = known {
            return Some(place);
        }
        let place = Rc::new(self.describe(metadata)?);
        // A thread that is ending has no cache.
        let _ = CALLSITE_CACHE.try_with(|known| known.borrow_mut().insert(key, Rc::clone(&place)));
        Some(place)
    }

    fn describe(&self, metadata: &Metadata<'_>) -> Option<CallsiteInfo> {
        let logging = self.logging.upgrade()?;
        let logger = logging.logger(&logger_of(metadata.target()));
        let (level, is_log) = (level_of(*metadata.level()), is_log(metadata));
        let mut site = SiteNumber::default();
        // Spans have no records.
        let mut roles = Vec::new();
        if metadata.is_event() {
            roles.extend(metadata.fields().iter().map(|field| Role::of(&field, is_log)));
            site = logging.site(Site {
                file: metadata.file().unwrap_or_default().to_owned(),
                line: metadata.line().unwrap_or_default(),
                routine: metadata.module_path().unwrap_or_default().to_owned(),
                ..Site::default()
            });
        }
        Some(CallsiteInfo { heading: Heading { logger, level, site, is_level_data: true }, roles })
    }

    /// Applies an event's overrides; none if the result is not enabled.
    pub(crate) fn heading(&self, place: &CallsiteInfo, choice: Overrides) -> Option<Heading> {
        let Heading { logger, level, site, .. } = &place.heading;
        let level = choice.level.unwrap_or(*level);
        let logging = self.logging.upgrade()?;
        let name = choice.logger.or_else(|| choice.target.as_deref().map(logger_of));
        let logger = name.map_or_else(|| logger.clone(), |name| logging.logger(&name));
        if !logger.is_enabled(level) {
            return None;
        }
        let logger = match &choice.audiences {
            Some(audiences) => logger.to(audiences),
            None => logger,
        };
        let is_log = choice.target.is_some();
        let site = if is_log { logging.site(choice.site) } else { *site };
        Some(Heading { logger, level, site, is_level_data: choice.level.is_none() })
    }

    /// Whether some events of a call site may be enabled.
    pub(crate) fn takes(&self, metadata: &Metadata<'_>) -> bool {
        if !is_log(metadata) {
            return self.of(metadata).is_some_and(|place| place.takes());
        }
        // All records of `log` of a level share a call site, but not the target.
        let logging = self.logging.upgrade();
        logging.is_some_and(|logging| {
            let logger = logging.logger(&logger_of(metadata.target()));
            logger.is_enabled(level_of(*metadata.level()))
        })
    }
}

fn is_log(metadata: &Metadata<'_>) -> bool {
    metadata.fields().field(LOG_TARGET).is_some()
}

/// The logger of a target.
fn logger_of(target: &str) -> String {
    target.replace("::", "/")
}

fn level_of(level: tracing_core::Level) -> Level {
    match level {
        tracing_core::Level::TRACE => Level::TRACE,
        tracing_core::Level::DEBUG => Level::DEBUG,
        tracing_core::Level::INFO => Level::INFO,
        tracing_core::Level::WARN => Level::WARNING,
        tracing_core::Level::ERROR => Level::ERROR,
    }
}

/// A hasher for addresses of this program, by Fibonacci hashing (Knuth, The Art of Computer
/// Programming 3, 6.4). Addresses are not chosen by an attacker.
#[derive(Debug, Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(29) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
