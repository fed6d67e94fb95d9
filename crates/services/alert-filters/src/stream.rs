//! The topic of alerts: its schemas, and its packets without frames.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::{DataType, SchemaRef};
use helio_alerts::framing::Schemas;
use helio_alerts::layout::{Ccd, Layout as PacketLayout};
use helio_alerts::producer::VISIT_HEADER;
use helio_alerts::rubin::Version;
use helio_bus::{Bus, HeadersRef, SchemaId, TopicName, TransportError};
use helio_columns::Layout as Columns;
use helio_core::Schema;
use helio_core::projection::ShapeError;
use helio_filter::Layout as SkyLayout;

use crate::error::ServiceError;

/// The limit of schemas of one stream; a survey has a few. As many unusable ones are remembered.
const MAX_SCHEMAS: usize = 256;
/// The time between two look-ups of an unusable schema: it may be stored later.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(60);

/// A packet without frame.
#[derive(Debug, Clone)]
pub(crate) struct Packet<'a> {
    pub(crate) layout: Arc<PacketLayout>,
    pub(crate) datum: Cow<'a, [u8]>,
}

/// An alert's identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) visit: i64,
    pub(crate) alert: i64,
}

/// The schemas of a topic of alerts. They grow while it is read.
pub(crate) struct Stream {
    bus: Bus,
    by_id: HashMap<SchemaId, Arc<PacketLayout>>,
    /// Schemas that are not stored, or not of alerts, and when they were looked up.
    unusable: HashMap<SchemaId, Duration>,
    framed: Schemas,
    schemas: Vec<Schema>,
    columns: Columns,
    /// Grows with each schema.
    generation: u64,
}

impl Stream {
    /// The stream of a topic with its declared schemas; those of Rubin if there are none yet.
    pub(crate) fn open(bus: &Bus, alerts: &TopicName) -> Result<Self, ServiceError> {
        let ids = bus.schemas_of(alerts)?.unwrap_or_default();
        let mut schemas = Vec::new();
        for id in ids.into_iter().filter(|id| *id != SchemaId::BYTES) {
            let text = bus.schema_text(id)?;
            schemas.extend(Schema::parse(&text.text).ok());
        }
        if schemas.is_empty() {
            schemas.push(Version::LATEST.schema().clone());
        }
        let columns = Columns::new(&schemas, &["*"])?;
        let (by_id, unusable, framed) = (HashMap::new(), HashMap::new(), Schemas::rubin());
        Ok(Self { bus: bus.clone(), by_id, unusable, framed, schemas, columns, generation: 0 })
    }

    /// The number of changes of the schemas so far.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// All columns.
    pub(crate) fn arrow(&self) -> &SchemaRef {
        self.columns.schema()
    }

    /// Some columns, by the names of [`Self::arrow`] and of lists' members.
    pub(crate) fn columns(&self, names: &[String]) -> Result<Columns, ShapeError> {
        let members = self.members();
        let path = |name: &String| members.get(name).cloned().unwrap_or_else(|| name.clone());
        Columns::new(&self.schemas, &names.iter().map(path).collect::<Vec<_>>())
    }

    /// The columns that hold position and time.
    pub(crate) fn sky(&self) -> SkyLayout {
        let is_ztf = self.schemas.iter().any(|schema| schema.field("candidate").is_some());
        if is_ztf { SkyLayout::ztf() } else { SkyLayout::rubin() }
    }

    /// The paths of lists' members: `prvDiaSources.snr` is read as `prvDiaSources[].snr`.
    fn members(&self) -> HashMap<String, String> {
        let mut members = HashMap::new();
        for field in self.arrow().fields() {
            let DataType::List(item) = field.data_type() else { continue };
            let DataType::Struct(fields) = item.data_type() else { continue };
            for member in fields {
                let (list, member) = (field.name(), member.name());
                members.insert(format!("{list}.{member}"), format!("{list}[].{member}"));
            }
        }
        members
    }

    /// Takes a payload out of its frame, or says why it is no packet. A new schema of the topic
    /// adds its columns.
    ///
    /// # Errors
    /// A schema cannot be looked up at present: the packet must be read again.
    pub(crate) fn packet<'a>(
        &mut self,
        schema: SchemaId,
        payload: &'a [u8],
    ) -> Result<Result<Packet<'a>, String>, TransportError> {
        if schema == SchemaId::BYTES {
            return Ok(self.framed_packet(payload));
        }
        let layout = self.layout(schema)?;
        Ok(layout.map(|layout| Packet { layout, datum: Cow::Borrowed(payload) }))
    }

    fn framed_packet<'a>(&mut self, payload: &'a [u8]) -> Result<Packet<'a>, String> {
        let opened = self.framed.open(payload).map_err(|error| error.to_string())?;
        let mut datums = opened.datums.into_iter();
        let (Some(datum), None) = (datums.next(), datums.next()) else {
            return Err("a container of several alerts".to_owned());
        };
        let layout = opened.layout;
        self.know(layout.schema())?;
        Ok(Packet { layout, datum })
    }

    fn layout(
        &mut self,
        id: SchemaId,
    ) -> Result<Result<Arc<PacketLayout>, String>, TransportError> {
        if let Some(known) = self.by_id.get(&id) {
            return Ok(Ok(Arc::clone(known)));
        }
        let unusable = || format!("the schema {id} is unknown, or not of alerts");
        let now = self.bus.clock().monotonic();
        if self.unusable.get(&id).is_some_and(|at| now < *at + LOOKUP_INTERVAL) {
            return Ok(Err(unusable()));
        }
        let text = self.bus.schema(id)?;
        let layout = text.ok_or_else(unusable).and_then(|text| self.parse(&text));
        match &layout {
            Ok(layout) => _ = self.by_id.insert(id, Arc::clone(layout)),
            Err(_) => {
                if self.unusable.len() == MAX_SCHEMAS {
                    self.unusable.clear();
                }
                self.unusable.insert(id, now);
            }
        }
        Ok(layout)
    }

    fn parse(&mut self, text: &str) -> Result<Arc<PacketLayout>, String> {
        let schema = Schema::parse(text).map_err(|error| error.to_string())?;
        self.know(&schema)?;
        Ok(Arc::new(PacketLayout::new(&schema)))
    }

    fn know(&mut self, schema: &Schema) -> Result<(), String> {
        if self.schemas.iter().any(|known| known.id() == schema.id()) {
            return Ok(());
        }
        if self.schemas.len() == MAX_SCHEMAS {
            return Err(format!("more than {MAX_SCHEMAS} schemas"));
        }
        self.columns = self.columns.with(schema).map_err(|error| error.to_string())?;
        self.schemas.push(schema.clone());
        self.generation += 1;
        Ok(())
    }
}

impl Packet<'_> {
    /// The bytes without the stamps: those of columns.
    pub(crate) fn metadata_bytes(&self) -> usize {
        // Stamps of a real packet have 138 kB; what is below is no stamps.
        let has_stamps = self.layout.stamps().len() > 0;
        if !has_stamps {
            return self.datum.len();
        }
        let mut metadata = Vec::new();
        match self.layout.split(&self.datum, &mut metadata) {
            Ok(_) => metadata.len(),
            Err(_) => self.datum.len(),
        }
    }

    /// The schema of the datum.
    pub(crate) fn schema(&self) -> &Schema {
        self.layout.schema()
    }

    /// The visit and identifier, of the headers or the datum.
    pub(crate) fn identity(&self, headers: HeadersRef<'_>) -> Result<Identity, String> {
        let alert = self.layout.alert_id(&self.datum).map_err(|error| error.to_string())?;
        let alert = alert.ok_or("its schema has no identifier of the alert")?;
        if let Some(visit) = number(headers, VISIT_HEADER) {
            return Ok(Identity { visit, alert });
        }
        let ccd = self.layout.ccd(&self.datum).map_err(|error| error.to_string())?;
        let Ccd { visit, .. } = ccd.ok_or("it names no visit")?;
        Ok(Identity { visit, alert })
    }
}

/// The number in a header.
pub(crate) fn number(headers: HeadersRef<'_>, name: &str) -> Option<i64> {
    std::str::from_utf8(headers.get(name)?).ok()?.parse().ok()
}
