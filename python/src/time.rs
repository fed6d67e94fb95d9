//! `heliograph.Time`: an instant of TAI.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{SystemTime, UNIX_EPOCH};

use helio_core::Tai;
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDateTime, PyFloat};

/// An instant of International Atomic Time (TAI), in nanoseconds.
///
/// TAI has no leap seconds, so differences are true durations; ``utc`` and ``isoformat`` convert by
/// the published leap seconds. Construct one with ``Time(tai_ns)``, ``Time.now()``,
/// ``Time.from_utc(datetime)`` or ``Time.parse(text)``.
#[pyclass(frozen, module = "heliograph", name = "Time")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Time(Tai);

const NANOS_PER_MICRO: i64 = 1000;

impl Time {
    pub(crate) const fn from_nanos(nanos: i64) -> Self {
        Self(Tai::from_nanos(nanos))
    }

    pub(crate) const fn nanos(self) -> i64 {
        self.0.nanos()
    }
}

impl Time {
    fn later(self, seconds: f64) -> PyResult<Self> {
        let nanos = (seconds * 1e9).round();
        let wrong = || PyOverflowError::new_err(format!("{seconds} s from {}", self.0));
        // A power of two, so that the comparison is exact.
        let limit = 2_f64.powi(63);
        if !(-limit..limit).contains(&nanos) {
            return Err(wrong());
        }
        self.0.nanos().checked_add(nanos as i64).map(Self::from_nanos).ok_or_else(wrong)
    }
}

impl From<Tai> for Time {
    fn from(tai: Tai) -> Self {
        Self(tai)
    }
}

fn now() -> PyResult<Tai> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.ok().and_then(|since| i64::try_from(since.as_nanos()).ok());
    let wrong = || PyOverflowError::new_err("the system clock is before 1970 or after 2262");
    Ok(Tai::from_unix_nanos(nanos.ok_or_else(wrong)?))
}

#[pymethods]
impl Time {
    #[new]
    #[pyo3(signature = (tai_ns))]
    const fn new(tai_ns: i64) -> Self {
        Self::from_nanos(tai_ns)
    }

    /// The time now, by the system's clock.
    #[staticmethod]
    #[pyo3(name = "now")]
    fn py_now() -> PyResult<Self> {
        now().map(Self)
    }

    /// Read ISO 8601, in UTC with a ``Z`` or with another scale named: ``… TAI``.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        text.parse().map(Self).map_err(|error| PyValueError::new_err(format!("{error}")))
    }

    /// Convert an aware ``datetime``.
    #[staticmethod]
    fn from_utc(datetime: &Bound<'_, PyDateTime>) -> PyResult<Self> {
        let py = datetime.py();
        if datetime.getattr("tzinfo")?.is_none() {
            return Err(PyValueError::new_err("a datetime without a time zone; add datetime.UTC"));
        }
        let converters = py.import("heliograph._logical")?.getattr("converters")?;
        let none: Option<i64> = None;
        let pair = converters.call1(("timestamp-micros", "long", none, none, none))?;
        let micros: i64 = pair.get_item(1)?.call1((datetime,))?.extract()?;
        let nanos = micros.checked_mul(NANOS_PER_MICRO);
        let nanos = nanos.ok_or_else(|| PyOverflowError::new_err("times end in 2262"))?;
        Ok(Self(Tai::from_unix_nanos(nanos)))
    }

    /// Nanoseconds since 1970-01-01T00:00:00 TAI.
    #[getter]
    const fn tai_ns(&self) -> i64 {
        self.0.nanos()
    }

    /// POSIX time in nanoseconds: UTC with its leap seconds folded away, as ``time.time_ns()``.
    #[getter]
    fn unix_ns(&self) -> i64 {
        self.0.unix_nanos()
    }

    /// Seconds since 1970-01-01T00:00:00 TAI, as SAL's ``private_sndStamp`` has them.
    #[getter]
    fn tai_seconds(&self) -> f64 {
        self.0.seconds()
    }

    /// An aware ``datetime`` in UTC, cut to microseconds.
    #[getter]
    fn utc<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let converters = py.import("heliograph._logical")?.getattr("converters")?;
        let none: Option<i64> = None;
        let pair = converters.call1(("timestamp-micros", "long", none, none, none))?;
        pair.get_item(0)?.call1((self.0.unix_nanos().div_euclid(NANOS_PER_MICRO),))
    }

    /// ISO 8601 in UTC with nine decimals and a ``Z``.
    pub(crate) fn isoformat(&self) -> String {
        self.0.to_utc_string()
    }

    fn __str__(&self) -> String {
        self.isoformat()
    }

    fn __repr__(&self) -> String {
        format!("Time({})", self.0.nanos())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, op: CompareOp) -> PyResult<Py<PyAny>> {
        let py = other.py();
        let Ok(other) = other.cast::<Self>() else { return Ok(py.NotImplemented()) };
        let same = op.matches(self.0.cmp(&other.get().0));
        Ok(pyo3::types::PyBool::new(py, same).to_owned().into_any().unbind())
    }

    /// The seconds from another time to this one; or the time that many seconds before.
    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = other.py();
        if let Ok(other) = other.cast::<Self>() {
            let nanos = i128::from(self.0.nanos()) - i128::from(other.get().0.nanos());
            return Ok(PyFloat::new(py, nanos as f64 * 1e-9).into_any().unbind());
        }
        match other.extract::<f64>() {
            Ok(seconds) => Ok(Bound::new(py, self.later(-seconds)?)?.into_any().unbind()),
            Err(_) => Ok(py.NotImplemented()),
        }
    }

    /// The time that many seconds later.
    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
        let py = other.py();
        match other.extract::<f64>() {
            Ok(seconds) => Ok(Bound::new(py, self.later(seconds)?)?.into_any().unbind()),
            Err(_) => Ok(py.NotImplemented()),
        }
    }

    fn __reduce__(slf: &Bound<'_, Self>) -> (Py<PyAny>, (i64,)) {
        (slf.get_type().into_any().unbind(), (slf.get().0.nanos(),))
    }
}
