//! Events as programs write them, and the records that come of them.

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use helio_bus::{Bus, TraceId};
use helio_logging::{Audiences, Level, LogOptions, Logging, Record, Value};
use tracing::{debug, error, info, info_span, trace, warn};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use crate::support::{HANG_TIMEOUT, records};

/// Subscribers of other threads take part in what `tracing` remembers of call sites.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What comes of what is logged here.
fn logged(options: LogOptions, log: impl FnOnce(&Arc<Logging>)) -> Vec<Record> {
    let _alone = alone();
    let bus = Bus::connect("memory:").unwrap();
    let logging = Arc::new(Logging::start(bus.clone(), options).unwrap());
    let subscriber = tracing_subscriber::registry().with(helio_log_tracing::layer(&logging));
    tracing::subscriber::with_default(subscriber, || log(&logging));
    assert!(logging.flush(HANG_TIMEOUT));
    records(&bus)
}

fn from(level: Level) -> LogOptions {
    LogOptions { level, ..LogOptions::default() }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn pair(name: &str, value: Value) -> (String, Value) {
    (name.to_owned(), value)
}

#[test]
fn events_are_records_with_their_call_sites_and_typed_data() {
    let line = line!() + 2;
    let seen = logged(LogOptions::default(), |_| {
        warn!(encoder = 8_388_607, off = 0.25, axis = "az", moving = true, "{} off", 1);
        info!(target: "mount::axis", large = u64::MAX, very = 1_u128, what = ?Some(2), shown = %3);
        debug!(r#type = "x", bytes = &b"\x00\x01"[..]);
    });
    assert_eq!(seen.len(), 3);
    let first = &seen[0];
    assert_eq!((first.message().as_str(), first.level), ("1 off", Level::WARNING));
    assert_eq!((first.logger.as_str(), first.site.line), ("it/layer", line));
    assert!(first.site.file.ends_with("layer.rs"));
    assert_eq!(first.site.routine, module_path!());
    let data = [
        pair("encoder", Value::Int(8_388_607)),
        pair("off", Value::Double(0.25)),
        pair("axis", text("az")),
        pair("moving", Value::Bool(true)),
    ];
    assert_eq!(first.data, data);
    assert_eq!(seen[1].logger, "mount/axis");
    let data = [
        pair("large", text("18446744073709551615")),
        pair("very", Value::Int(1)),
        pair("what", text("Some(2)")),
        pair("shown", text("3")),
    ];
    assert_eq!(seen[1].data, data);
    assert_eq!((seen[2].text.as_deref(), seen[2].level), (None, Level::DEBUG));
    assert_eq!(seen[2].data, [pair("type", text("x")), pair("bytes", Value::Bytes(vec![0, 1]))]);
}

#[test]
fn fields_choose_level_logger_and_audience() {
    let seen = logged(from(Level::NOTICE), |logging| {
        info!(level = "notice", "one");
        error!(level = "ALERT", audience = "Operator, SciLog", logger = "CONTROL/DV11", "two");
        info!(level = 11, audience = "*", "three");
        warn!(level = "loud", "four");
        info!(level = "INFO", "below");
        error!(level = "DEBUG", "below, too");
        info!("below as well");
        logging.logger("fine").set_level(Level::TRACE);
        trace!(logger = "fine", "five");
    });
    let loggers: Vec<_> = seen.iter().map(|record| record.logger.as_str()).collect();
    assert_eq!(loggers, ["it/layer", "CONTROL/DV11", "it/layer", "it/layer", "fine"]);
    let seen: Vec<_> = seen.iter().map(|r| (r.message(), r.level, &r.audiences, &r.data)).collect();
    let named = Audiences::of(["Operator", "SciLog"]);
    let (nobody, everyone) = (Audiences::default(), Audiences::everyone());
    let (none, loud) = (vec![], vec![pair("level", text("loud"))]);
    let expected = [
        ("one".to_owned(), Level::NOTICE, &nobody, &none),
        ("two".to_owned(), Level::ALERT, &named, &none),
        ("three".to_owned(), Level::EMERGENCY, &everyone, &none),
        ("four".to_owned(), Level::WARNING, &nobody, &loud),
        ("five".to_owned(), Level::TRACE, &nobody, &none),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn spans_give_data_context_and_ids() {
    let seen = logged(LogOptions::default(), |_| {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let outer = info_span!("visit", id = 7, trace_id = trace, span_id = "b7ad6b7169203331");
        let _outer = outer.entered();
        let inner = info_span!("slew", axis = "az", reached = tracing::field::Empty, span_id = "x");
        let inner = inner.entered();
        info!("one");
        inner.record("reached", 1.5);
        inner.record("axis", "el");
        info!(span_id = "00f067aa0ba902b7", trace_id = "zz", "two");
        drop(inner);
        info!("three");
    });
    assert_eq!(seen.len(), 3);
    let trace: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
    assert!(seen.iter().all(|record| record.trace == Some(TraceId(trace.to_be_bytes()))));
    let spans: Vec<_> = seen.iter().map(|r| r.span.map(u64::from_be_bytes)).collect();
    let outer = Some(0xb7ad_6b71_6920_3331);
    assert_eq!(spans, [outer, Some(0x00f0_67aa_0ba9_02b7), outer]);
    let contexts: Vec<_> = seen.iter().map(|record| record.context.as_str()).collect();
    assert_eq!(contexts, ["slew", "slew", "visit"]);
    let id = pair("visit.id", Value::Int(7));
    let wrong = pair("slew.span_id", text("x"));
    assert_eq!(seen[0].data, [pair("slew.axis", text("az")), wrong.clone(), id.clone()]);
    let reached = pair("slew.reached", Value::Double(1.5));
    let own = pair("trace_id", text("zz"));
    assert_eq!(seen[1].data, [own, pair("slew.axis", text("el")), wrong, reached, id.clone()]);
    assert_eq!(seen[2].data, [id]);
}

#[test]
fn errors_are_told_with_their_causes() {
    #[derive(Debug)]
    struct Outer(fmt::Error);
    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot be shown")
        }
    }
    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }
    let seen = logged(LogOptions::default(), |_| {
        error!(error = &Outer(fmt::Error) as &(dyn std::error::Error + 'static), "failed");
    });
    let told = format!("cannot be shown: {}", fmt::Error);
    assert_eq!(seen[0].data, [pair("error", text(&told))]);
}

/// How often a value was shown.
static SHOWN: AtomicUsize = AtomicUsize::new(0);

struct Counts;

impl Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SHOWN.fetch_add(1, Ordering::Relaxed);
        f.write_str("value")
    }
}

#[test]
fn what_is_not_enabled_is_not_evaluated_and_levels_may_change() {
    let seen = logged(from(Level::INFO), |logging| {
        let mut evaluated = 0;
        let mut all = || {
            for _ in 0..2 {
                debug!(value = ?Counts, evaluated = { evaluated += 1; evaluated }, "debug");
                trace!(target: "other", evaluated = { evaluated += 1; evaluated }, "trace");
            }
        };
        all();
        logging.logger("it/layer").set_level(Level::DEBUG);
        all();
        logging.logger("it/layer").set_level(Level::WARNING);
        all();
        assert_eq!((SHOWN.load(Ordering::Relaxed), evaluated), (2, 2));
    });
    let messages: Vec<_> = seen.iter().map(Record::message).collect();
    assert_eq!(messages, ["debug", "debug"]);
}

struct Talks;

impl Debug for Talks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        log_inside();
        f.write_str("outside")
    }
}

fn log_inside() {
    // Of the logger itself, since `tracing` passes over events in events.
    INSIDE.with_borrow(|logger| {
        helio_logging::log!(logger.as_ref().unwrap(), Level::INFO, "inside");
    });
}

thread_local! {
    static INSIDE: std::cell::RefCell<Option<helio_logging::Logger>> = const {
        std::cell::RefCell::new(None)
    };
}

#[test]
fn what_is_shown_may_log() {
    let seen = logged(LogOptions::default(), |logging| {
        INSIDE.set(Some(logging.logger("inside")));
        info!("{:?}", Talks);
    });
    let mut messages: Vec<_> = seen.iter().map(Record::message).collect();
    messages.sort();
    assert_eq!(messages, ["inside", "outside"]);
}

/// Counts the events that come to it.
#[derive(Clone, Default)]
struct Other(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Other {
    fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn other_layers_see_what_this_one_does_not_take() {
    let _alone = alone();
    let bus = Bus::connect("memory:").unwrap();
    let logging = Arc::new(Logging::start(bus.clone(), from(Level::WARNING)).unwrap());
    let other = Other::default();
    let subscriber = tracing_subscriber::registry();
    let subscriber = subscriber.with(helio_log_tracing::layer(&logging)).with(other.clone());
    tracing::subscriber::with_default(subscriber, || {
        let _span = info_span!("not taken", field = 1).entered();
        info!("for the other one");
        warn!("for both");
    });
    assert!(logging.flush(HANG_TIMEOUT));
    assert_eq!(other.0.load(Ordering::Relaxed), 2);
    let seen = records(&bus);
    assert_eq!((seen.len(), seen[0].message().as_str()), (1, "for both"));
    assert_eq!((seen[0].context.as_str(), seen[0].data.len()), ("", 0));
}

#[test]
fn where_logging_has_ended_nothing_is_logged_and_nothing_fails() {
    let _alone = alone();
    let bus = Bus::connect("memory:").unwrap();
    let logging = Arc::new(Logging::start(bus.clone(), LogOptions::default()).unwrap());
    let subscriber = tracing_subscriber::registry().with(helio_log_tracing::layer(&logging));
    tracing::subscriber::with_default(subscriber, || {
        info!("the last");
        drop(logging);
        info!("too late");
        error!(level = "ALERT", "too late");
    });
    let messages: Vec<_> = records(&bus).iter().map(Record::message).collect();
    assert_eq!(messages, ["the last"]);
}
