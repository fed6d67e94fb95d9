//! Publishes Python's log records on the bus.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use helio_bus::{Bus, Tai};
use helio_logging::{
    Audiences, Body, Lanes, Level, LogError, LogOptions, Logger, Logging, Packet, Site, SiteNumber,
    Spill, Stack, Style, TextField, Value, formats,
};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::errors;
use crate::fork::{Generation, Owned};
use crate::receipt::seconds;

const OBJECT: &str = "log handler";
/// The most cached loggers and call sites; others are looked up each time.
const CACHE_MAX: usize = 65_536;

/// The lowest level of Python for each of ACS's, the highest first.
const LEVELS: [(i64, Level); 10] = [
    (70, Level::EMERGENCY),
    (60, Level::ALERT),
    (50, Level::CRITICAL),
    (40, Level::ERROR),
    (30, Level::WARNING),
    (25, Level::NOTICE),
    (20, Level::INFO),
    (10, Level::DEBUG),
    (7, Level::DELOUSE),
    (i64::MIN, Level::TRACE),
];

fn level(number: i64) -> Level {
    let found = LEVELS.iter().find(|(from, _)| number >= *from);
    found.map_or(Level::TRACE, |(_, level)| *level)
}

/// The lowest of Python's levels that maps to a level or a higher one.
fn python_level(level: Level) -> i64 {
    let from = LEVELS.iter().rev().find(|(_, of_acs)| *of_acs >= level);
    from.map_or(LEVELS[0].0, |(from, _)| (*from).max(1))
}

/// The attributes of Python's records; all others come from `extra`.
const STANDARD_ATTRIBUTES: [&str; 24] = [
    "name",
    "msg",
    "args",
    "levelname",
    "levelno",
    "pathname",
    "filename",
    "module",
    "exc_info",
    "exc_text",
    "stack_info",
    "lineno",
    "funcName",
    "created",
    "msecs",
    "relativeCreated",
    "thread",
    "threadName",
    "processName",
    "process",
    "taskName",
    "message",
    "asctime",
    "audience",
];

/// The publisher of a process's log records, driven by `heliograph.logging.Handler`.
#[pyclass(frozen, module = "heliograph._heliograph", name = "RawLogging")]
pub(crate) struct RawLogging {
    logging: Mutex<Owned<OpenLogging>>,
    generation: Generation,
}

struct OpenLogging {
    logging: Arc<Logging>,
    loggers: HashMap<String, Logger>,
    sites: HashMap<(String, i64), (String, SiteNumber)>,
}

fn refused(error: &LogError) -> PyErr {
    match error {
        LogError::Connect(error) => errors::connect(error),
        LogError::Topic(error) => errors::topic(error, "PublishError"),
        LogError::Settings(_) => PyValueError::new_err(error.to_string()),
        LogError::Spill { .. } | LogError::Thread(_) => {
            errors::raise("StorageError", &error.to_string())
        }
    }
}

#[pymethods]
impl RawLogging {
    #[new]
    fn new(
        py: Python<'_>,
        url: &str,
        whose: (Option<String>, String),
        prefix: &str,
        batch_age: f64,
        spill: Option<(PathBuf, u64)>,
        settings: Option<PathBuf>,
    ) -> PyResult<Self> {
        let (producer, process) = whose;
        let age = Duration::try_from_secs_f64(batch_age);
        let age = age.map_err(|_| PyValueError::new_err(format!("batch_age={batch_age}")))?;
        let options = LogOptions {
            lanes: Lanes::default().prefix(prefix),
            process,
            batch_age: age,
            // Python's loggers and the handler decide which levels are enabled.
            level: Level::TRACE,
            spill: spill.map(|(file, bytes)| Spill { file, bytes }),
            settings,
            ..LogOptions::default()
        };
        let mut builder = Bus::builder();
        if let Some(producer) = producer {
            builder = builder.producer(&producer);
        }
        let started = py.detach(|| Logging::start(builder.connect(url)?, options));
        let logging = started.map_err(|error| refused(&error))?;
        let logging = Arc::new(logging);
        let open = OpenLogging { logging, loggers: HashMap::new(), sites: HashMap::new() };
        Ok(Self { logging: Mutex::new(Owned::new(open)), generation: Generation::current() })
    }

    /// Publishes a record of Python; its message is formatted already if it has arguments.
    fn emit(&self, py: Python<'_>, record: &Bound<'_, PyAny>, trace: Option<&str>) -> PyResult<()> {
        self.generation.check(OBJECT)?;
        let fields = record.getattr(intern!(py, "__dict__"))?.cast_into::<PyDict>()?;
        let name = fields.get_item(intern!(py, "name"))?;
        let name = name.as_ref().map_or(Ok("root"), |name| name.extract())?;
        let number =
            fields.get_item(intern!(py, "levelno"))?.map_or(Ok(20), |number| number.extract())?;
        let created =
            fields.get_item(intern!(py, "created"))?.map_or(Ok(0.0), |at| at.extract::<f64>())?;
        let template = fields.get_item(intern!(py, "msg"))?.map(|msg| msg.str()).transpose()?;
        let template = template.as_ref().map_or(Ok(""), |msg| msg.to_str())?;
        let args = fields.get_item(intern!(py, "args"))?;
        let args = args.filter(|args| args.is_truthy().unwrap_or(false));
        let audience = fields.get_item(intern!(py, "audience"))?;
        let audience = audience.map(|audience| audiences(&audience)).transpose()?;
        let mut body = Body::new();
        match &args {
            None => _ = body.text(template),
            Some(args) => {
                let text = record.call_method0(intern!(py, "getMessage"))?;
                body.text(text.cast::<PyString>()?.to_str()?);
                arguments(args, &mut body)?;
            }
        }
        if let Some(thread) =
            fields.get_item(intern!(py, "threadName"))?.filter(|thread| !thread.is_none())
        {
            body.member(TextField::Thread, thread.str()?.to_str()?);
        }
        extras(&fields, &mut body)?;
        if let Some(trace) = trace {
            exception(&fields, trace, &mut body)?;
        }
        // No Python code runs from here on, as it could log.
        let mut guard = self.lock(py);
        let open = guard.get_mut(OBJECT)?;
        let site = open.site(py, &fields, if args.is_some() { template } else { "" })?;
        let logger = open.logger(name);
        drop(guard);
        let logger = audience.map_or_else(|| logger.clone(), |audience| logger.to(&audience));
        // Python's clock is a floating-point number of seconds, exact to microseconds.
        let unix = (created * 1e6).round() as i64;
        let time = Tai::from_unix_nanos(unix.saturating_mul(1_000));
        logger.record_at(time, level(number), site, |record| record.clone_from(&body));
        Ok(())
    }

    /// The number of level changes from outside.
    fn level_changes(&self, py: Python<'_>) -> PyResult<u64> {
        self.generation.check(OBJECT)?;
        Ok(self.lock(py).get(OBJECT)?.logging.wait_levels(0, Duration::ZERO))
    }

    /// The lowest of Python's levels that a pattern publishes of a logger; none without a pattern.
    fn ruled_level(&self, py: Python<'_>, name: &str) -> PyResult<Option<i64>> {
        self.generation.check(OBJECT)?;
        let logging = Arc::clone(&self.lock(py).get(OBJECT)?.logging);
        Ok(logging.ruled_level_of(&name.replace('.', "/")).map(python_level))
    }

    /// Waits until all records are published or shed; returns false after the timeout.
    fn flush(&self, py: Python<'_>, timeout: f64) -> PyResult<bool> {
        self.generation.check(OBJECT)?;
        let timeout = seconds(Some(timeout))?.unwrap_or_default();
        let logging = Arc::clone(&self.lock(py).get(OBJECT)?.logging);
        Ok(py.detach(|| logging.flush(timeout)))
    }

    /// Records offered, published, shed and waiting; and the bus's error, if any.
    fn figures(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, Option<String>)> {
        self.generation.check(OBJECT)?;
        let logging = Arc::clone(&self.lock(py).get(OBJECT)?.logging);
        let figures = logging.figures();
        let helio_logging::LogFigures { offered, published, shed, waiting, .. } = figures;
        Ok((offered, published, shed, waiting, logging.trouble()))
    }

    /// Publishes pending records, and closes.
    fn close(&self, py: Python<'_>) {
        if !self.generation.is_current() {
            return;
        }
        let open = self.lock(py).take();
        py.detach(|| drop(open));
    }
}

impl RawLogging {
    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, Owned<OpenLogging>> {
        self.logging.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenLogging {
    /// The logger of a name with dots, as in Python, or slashes.
    fn logger(&mut self, name: &str) -> Logger {
        if let Some(logger) = self.loggers.get(name) {
            return logger.clone();
        }
        let logger = self.logging.logger(&name.replace('.', "/"));
        if self.loggers.len() < CACHE_MAX {
            self.loggers.insert(name.to_owned(), logger.clone());
        }
        logger
    }

    fn site(
        &mut self,
        py: Python<'_>,
        fields: &Bound<'_, PyDict>,
        template: &str,
    ) -> PyResult<SiteNumber> {
        let file = fields.get_item(intern!(py, "pathname"))?;
        let file: &str = file.as_ref().map_or(Ok(""), |file| file.extract())?;
        let line = fields.get_item(intern!(py, "lineno"))?;
        let line: i64 = line.map_or(Ok(0), |line| line.extract())?;
        let key = (file.to_owned(), line);
        if let Some((known, number)) = self.sites.get(&key)
            && known == template
        {
            return Ok(*number);
        }
        let routine = fields.get_item(intern!(py, "funcName"))?;
        let routine = routine.filter(|routine| !routine.is_none());
        let routine: &str = routine.as_ref().map_or(Ok(""), |routine| routine.extract())?;
        let number = self.logging.site(Site {
            template: template.to_owned(),
            style: Style::Percent,
            names: Vec::new(),
            file: file.to_owned(),
            line: u32::try_from(line).unwrap_or(0),
            routine: routine.to_owned(),
        });
        if self.sites.len() < CACHE_MAX || self.sites.contains_key(&key) {
            self.sites.insert(key, (template.to_owned(), number));
        }
        Ok(number)
    }
}

/// A name, `*` for everyone, or several names.
fn audiences(given: &Bound<'_, PyAny>) -> PyResult<Audiences> {
    if let Ok(name) = given.extract::<&str>() {
        return Ok(if name == "*" { Audiences::everyone() } else { Audiences::of([name]) });
    }
    Ok(Audiences::of(given.extract::<Vec<String>>()?))
}

fn arguments(args: &Bound<'_, PyAny>, body: &mut Body) -> PyResult<()> {
    match args.cast::<PyTuple>() {
        Ok(args) => args.iter().try_for_each(|argument| {
            body.argument(&value(&argument)?);
            Ok(())
        }),
        // A mapping, whose values the message names.
        Err(_) => {
            body.argument(&value(args)?);
            Ok(())
        }
    }
}

/// Attributes from `extra`: fields of a record by name, others as data.
fn extras(fields: &Bound<'_, PyDict>, body: &mut Body) -> PyResult<()> {
    // Most records have none: Python's own attributes are 21 or, with task names, 22.
    if fields.len() <= 22 {
        return Ok(());
    }
    for (name, given) in fields.iter() {
        let name: &str = name.extract()?;
        if STANDARD_ATTRIBUTES.contains(&name) {
            continue;
        }
        if name == "stack" {
            let (id, level) = given.extract()?;
            body.stack(&Stack { id, level });
        } else if let Some(field) = TextField::of_name(name).filter(|field| field.is_in_body()) {
            body.member(field, given.str()?.to_str()?);
        } else {
            body.data(name, &value(&given)?);
        }
    }
    Ok(())
}

/// An exception, with OpenTelemetry's names of its attributes.
fn exception(fields: &Bound<'_, PyDict>, trace: &str, body: &mut Body) -> PyResult<()> {
    let py = fields.py();
    if let Some(info) = fields.get_item(intern!(py, "exc_info"))?
        && let Ok((class, error)) =
            info.get_item(0).and_then(|class| Ok((class, info.get_item(1)?)))
        && !class.is_none()
    {
        let name = class.getattr(intern!(py, "__name__"))?;
        body.data("exception.type", &Value::from(name.str()?.to_str()?));
        body.data("exception.message", &Value::from(error.str()?.to_str()?));
    }
    body.data("exception.stacktrace", &Value::from(trace));
    Ok(())
}

/// A value with its type; other objects as their text.
fn value(given: &Bound<'_, PyAny>) -> PyResult<Value> {
    value_at(given, 1)
}

fn value_at(given: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let deeper = depth < helio_logging::MAX_DEPTH;
    if given.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(given) = given.cast::<PyString>() {
        return Ok(Value::from(given.to_string_lossy().into_owned()));
    }
    if let Ok(given) = given.cast::<PyBool>() {
        return Ok(Value::Bool(given.is_true()));
    }
    if let Ok(number) = given.cast::<PyInt>() {
        return Ok(number.extract::<i64>().map_or_else(
            |_| Value::from(number.str().map_or_else(|_| String::new(), |text| text.to_string())),
            Value::Int,
        ));
    }
    if let Ok(given) = given.cast::<PyFloat>() {
        return Ok(Value::Double(given.value()));
    }
    if let Ok(given) = given.cast::<PyBytes>() {
        return Ok(Value::Bytes(given.as_bytes().to_vec()));
    }
    if let Some(items) = given.cast::<PyList>().ok().map(|list| list.iter()).filter(|_| deeper) {
        let items = items.map(|item| value_at(&item, depth + 1));
        return Ok(Value::Array(items.collect::<PyResult<_>>()?));
    }
    if let Some(items) = given.cast::<PyDict>().ok().filter(|_| deeper) {
        let pairs = items
            .iter()
            .map(|(name, item)| Ok((name.str()?.to_string(), value_at(&item, depth + 1)?)));
        return Ok(Value::Map(pairs.collect::<PyResult<_>>()?));
    }
    Ok(Value::from(given.str()?.to_string_lossy().into_owned()))
}

/// The records of a packet, each as a line of JSON.
#[pyfunction]
pub(crate) fn log_records(payload: &[u8]) -> PyResult<Vec<String>> {
    let wrong = |error: &dyn std::fmt::Display| errors::raise("DecodeError", &error.to_string());
    let packet = Packet::parse(payload).map_err(|error| wrong(&error))?;
    let line = |record: helio_logging::RecordRef<'_>| {
        let record = record.to_record().map_err(|error| wrong(&error))?;
        let mut line = Vec::new();
        formats::json::write(&record, &mut line);
        String::from_utf8(line).map_err(|error| wrong(&error))
    };
    packet.records().map(line).collect()
}
