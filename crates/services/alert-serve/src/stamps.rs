//! Stamps by the identifiers of their alerts.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use helio_alerts::reader::{FetchError, ReaderError, StampFetcher};
use helio_bus::{Bus, TopicError};

use crate::observer::Observer;

/// How names of stamps' files may end.
const FILE_SUFFIX: &str = ".fits";

/// Reads stamps from the log. One is read at a time.
pub struct StampStore {
    bus: Bus,
    stream: String,
    observer: Option<Arc<Observer>>,
    /// Opened with the first request, and again after a failure.
    fetcher: Mutex<Option<StampFetcher>>,
}

/// Why a stamp is not returned.
#[derive(Debug)]
pub enum StampError {
    /// There is no such alert or stamp.
    Unknown(String),
    /// It is not stored any more.
    Removed(String),
    /// It is damaged.
    Damaged(String),
    /// The bus is away.
    Unavailable(String),
}

impl StampStore {
    /// A store for a stream, which need not exist yet. An observer knows the newest alerts before
    /// their manifests do.
    #[must_use]
    pub fn new(bus: &Bus, stream: &str, observer: Option<Arc<Observer>>) -> Self {
        let (bus, stream) = (bus.clone(), stream.to_owned());
        Self { bus, stream, observer, fetcher: Mutex::default() }
    }

    /// Reads the stamp in a field of an alert; the name may have the ending `.fits`. It waits for
    /// the bus.
    ///
    /// # Errors
    /// [`StampError`].
    pub fn stamp(&self, alert: i64, name: &str) -> Result<Bytes, StampError> {
        let name = name.strip_suffix(FILE_SUFFIX).unwrap_or(name);
        let place = self.observer.as_ref().and_then(|observer| observer.place(alert));
        let mut fetcher = self.fetcher.lock().unwrap_or_else(PoisonError::into_inner);
        let open = match fetcher.as_mut() {
            Some(open) => open,
            None => fetcher.insert(StampFetcher::open(&self.bus, &self.stream)?),
        };
        let found = open.stamps(alert, place);
        if matches!(&found, Err(FetchError::Reader(_))) {
            *fetcher = None;
        }
        let found = found.map_err(|error| {
            let text = error.to_string();
            match error {
                FetchError::NoSuchAlert(_) => StampError::Unknown(text),
                FetchError::Removed(_) => StampError::Removed(text),
                FetchError::Damaged { .. } => StampError::Damaged(text),
                FetchError::Reader(error) => error.into(),
            }
        })?;
        let mut files = found.layout.stamps().zip(found.files);
        let file = files.find(|(field, _)| *field == name).and_then(|(_, file)| file);
        file.ok_or_else(|| {
            let names: Vec<_> = found.layout.stamps().collect();
            let names = names.join(", ");
            StampError::Unknown(format!("the alert {alert} has no stamp {name}, of: {names}"))
        })
    }
}

impl From<ReaderError> for StampError {
    fn from(error: ReaderError) -> Self {
        let text = error.to_string();
        match error {
            ReaderError::Topic(TopicError::NoSuchTopic(_)) => Self::Unknown(text),
            _ => Self::Unavailable(text),
        }
    }
}
