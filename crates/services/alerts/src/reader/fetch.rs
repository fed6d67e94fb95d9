//! Single alerts with their stamps, by identifier.
//!
//! Constraints. A request costs no more than the packets of one CCD, whatever it asks for: an
//! identifier of which no manifest knows is not searched in all that is stored.
//!
//! Operation. A manifest has the partition, the offsets and the range of identifiers of its
//! detector's alerts. The keys of these samples are read once, and remembered for some CCDs.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use helio_bus::{Bus, Event, Lagging, Sample, Start, Subscribe, Subscription, Topic, TopicSpec};
use helio_core::codec::Codec;
use thiserror::Error;

use crate::layout::Layout;
use crate::stamps::Link;
use crate::topics::{LINK_HEADER, Part, control_topic, schema_of};
use crate::visit::{Control, Extent, Ledger, Position};

use super::audit::for_stored;
use super::error::{LinkedError, ReaderError};
use super::linked::LinkedStamps;
use super::packets::{DEFAULT_PINNED_BYTES, Packets};
use super::start::{Stream, extents};

/// The CCDs of which places of alerts are remembered: those of ten visits.
const MAX_CCDS: usize = 2_000;

/// Why an alert cannot be fetched.
#[derive(Debug, Error)]
pub enum FetchError {
    /// No manifest has the identifier, or no packet.
    #[error("no packet of a known visit has the identifier {0}")]
    NoSuchAlert(i64),
    /// Retention has removed the packet, or its stamps.
    #[error("retention has removed the alert {0}, or its stamps")]
    Removed(i64),
    /// The packet or its stamps are damaged.
    #[error("the alert {id} cannot be read: {reason}")]
    Damaged {
        /// The alert.
        id: i64,
        /// Why.
        reason: String,
    },
    /// The stream cannot be read.
    #[error(transparent)]
    Reader(#[from] ReaderError),
}

/// An alert's stamps.
#[derive(Debug, Clone)]
pub struct FetchedStamps {
    /// The schema of the packet, which names the stamps.
    pub layout: Arc<Layout>,
    /// The files, in the order of [`Layout::stamps`].
    pub files: Vec<Option<Bytes>>,
}

/// Fetches stamps of single alerts.
pub struct StampFetcher {
    topic: Topic,
    control: Subscription,
    codec: Codec,
    ledger: Ledger,
    packets: Packets,
    /// The topic of stamps, and the partition that is read.
    stamps: Option<(Topic, LinkedStamps, Option<u32>)>,
    ccds: Ccds,
}

/// Partition, first offset and end: a repeated publish has another end.
type ExtentKey = (i32, i64, i64);

/// The places of the alerts of some CCDs.
#[derive(Default)]
struct Ccds {
    offsets: HashMap<ExtentKey, HashMap<i64, u64>>,
    order: VecDeque<ExtentKey>,
}

impl Ccds {
    fn put(&mut self, key: ExtentKey, offsets: HashMap<i64, u64>) {
        self.offsets.insert(key, offsets);
        self.order.push_back(key);
        if self.order.len() > MAX_CCDS
            && let Some(oldest) = self.order.pop_front()
        {
            self.offsets.remove(&oldest);
        }
    }
}

impl StampFetcher {
    /// Opens a stream, which must exist.
    ///
    /// # Errors
    /// [`ReaderError`].
    pub fn open(bus: &Bus, stream: &str) -> Result<Self, ReaderError> {
        let topic = bus.topic(TopicSpec::of(Part::Alerts.name(stream)?))?;
        let stamps = super::stamps_topic(Stream { bus, name: stream })?;
        let stamps = stamps.map(|topic| {
            let linked = LinkedStamps::new(topic.clone(), DEFAULT_PINNED_BYTES);
            (topic, linked, None)
        });
        let options = Subscribe::from(Start::Earliest).lagging(Lagging::Lossless);
        let mut control = control_topic(bus, stream)?.subscribe(options)?;
        let mut fetcher = {
            control.set_fence()?;
            let codec = Codec::new(&schema_of::<Control>());
            let (ledger, packets) = (Ledger::default(), Packets::new(bus));
            Self { topic, control, codec, ledger, packets, stamps, ccds: Ccds::default() }
        };
        while let Some(event) = fetcher.control.next_stored(super::start::STORED_TIMEOUT)? {
            fetcher.control_event(event);
        }
        Ok(fetcher)
    }

    fn control_event(&mut self, event: Event) {
        // Another program's record has no effect.
        if let Event::Sample(sample) = event
            && let Ok(record) = self.codec.deserialize::<Control>(&sample.payload)
        {
            self.ledger.take(record);
        }
    }

    /// Fetches the stamps of an alert. `place` is where it was read, if that is known: its
    /// manifest may not be there yet.
    ///
    /// # Errors
    /// [`FetchError`].
    pub fn stamps(
        &mut self,
        id: i64,
        place: Option<Position>,
    ) -> Result<FetchedStamps, FetchError> {
        while let Some(event) = self.control.try_next().map_err(ReaderError::from)? {
            self.control_event(event);
        }
        if let Some(at) = place {
            return self.read(id, at);
        }
        let candidates: Vec<_> = extents(&self.ledger, id).map(|(_, extent)| extent).collect();
        for extent in &candidates {
            if let Some(offset) = self.offset(extent, id)? {
                return self.read(id, Position { partition: extent.partition as u32, offset });
            }
        }
        for extent in &candidates {
            // Of a CCD that is removed in part, what is not found is gone.
            if is_removed(&self.topic, extent.partition as u32, extent.first as u64)? {
                return Err(FetchError::Removed(id));
            }
        }
        Err(FetchError::NoSuchAlert(id))
    }

    /// The offset of an alert among those of a CCD.
    fn offset(&mut self, extent: &Extent, id: i64) -> Result<Option<u64>, ReaderError> {
        let key = (extent.partition, extent.first, extent.end);
        if let Some(offsets) = self.ccds.offsets.get(&key) {
            return Ok(offsets.get(&id).copied());
        }
        let (partition, end) = (extent.partition as u32, extent.end as u64);
        let from = Start::Offset { partition, offset: extent.first as u64 };
        let mut offsets = HashMap::new();
        let packets = &mut self.packets;
        for_stored(&self.topic, Subscribe::from(from).partitions([partition]), |sample| {
            if sample.offset < end {
                let ids = ids(&sample, packets)?;
                ids.into_iter().for_each(|id| _ = offsets.insert(id, sample.offset));
            }
            let has_more = sample.offset + 1 < end;
            Ok(if has_more { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        let found = offsets.get(&id).copied();
        self.ccds.put(key, offsets);
        Ok(found)
    }

    fn read(&mut self, id: i64, at: Position) -> Result<FetchedStamps, FetchError> {
        let damaged = |reason: String| FetchError::Damaged { id, reason };
        let Some(sample) = sample_at(&self.topic, at)? else {
            return Err(match is_removed(&self.topic, at.partition, at.offset)? {
                true => FetchError::Removed(id),
                false => FetchError::NoSuchAlert(id),
            });
        };
        let mut opened = self.packets.open(&sample).map_err(ReaderError::from)?;
        if opened.len() == 1
            && let Some(Err(bad)) = opened.pop_if(|packet| packet.is_err())
        {
            return Err(damaged(bad.reason));
        }
        let packet = opened.into_iter().flatten().find(|packet| packet.id == id);
        let packet = packet.ok_or(FetchError::NoSuchAlert(id))?;
        let layout = packet.layout;
        let files = match sample.headers.as_ref().get(LINK_HEADER) {
            Some(link) => self.linked(id, at.partition, link)?,
            None => {
                let mut metadata = Vec::new();
                let stamps = layout.split(&packet.datum, &mut metadata);
                let stamps = stamps.map_err(|error| damaged(error.to_string()))?;
                stamps.into_iter().map(|stamp| stamp.map(|s| packet.datum.slice_ref(s))).collect()
            }
        };
        Ok(FetchedStamps { layout, files })
    }

    fn linked(
        &mut self,
        id: i64,
        partition: u32,
        link: &[u8],
    ) -> Result<Vec<Option<Bytes>>, FetchError> {
        let damaged = |reason: &str| FetchError::Damaged { id, reason: reason.to_owned() };
        let link =
            Link::parse(link).ok_or_else(|| damaged("the place of its stamps is unknown"))?;
        let none = || damaged("the stream has no topic of stamps");
        let (topic, linked, own) = self.stamps.as_mut().ok_or_else(none)?;
        if *own != Some(partition) {
            linked.assign(&[partition]).map_err(ReaderError::from)?;
            *own = Some(partition);
        }
        match linked.files(partition, &link, id) {
            Ok(files) => Ok(files),
            Err(LinkedError::Unavailable(error)) => Err(error.into()),
            Err(LinkedError::Missing(reason)) => {
                let offsets = link.parts.iter().chain([&link.stamps]);
                let oldest = offsets.min().copied().unwrap_or_default();
                Err(match is_removed(topic, partition, oldest)? {
                    true => FetchError::Removed(id),
                    false => damaged(&reason),
                })
            }
        }
    }
}

/// The identifiers in a sample: its key, or those of its packets.
fn ids(sample: &Sample, packets: &mut Packets) -> Result<Vec<i64>, ReaderError> {
    let key = std::str::from_utf8(&sample.key).ok().and_then(|key| key.parse().ok());
    if let Some(id) = key {
        return Ok(vec![id]);
    }
    Ok(packets.open(sample)?.into_iter().flatten().map(|packet| packet.id).collect())
}

/// The sample at a place; `None` if there is none.
fn sample_at(topic: &Topic, at: Position) -> Result<Option<Sample>, ReaderError> {
    let Position { partition, offset } = at;
    let options = Subscribe::from(Start::Offset { partition, offset }).partitions([partition]);
    let mut found = None;
    for_stored(topic, options.pinned(DEFAULT_PINNED_BYTES), |sample| {
        found = Some(sample);
        Ok(ControlFlow::Break(()))
    })?;
    Ok(found.filter(|sample| sample.offset == offset))
}

/// Whether retention has removed what was at an offset.
fn is_removed(topic: &Topic, partition: u32, offset: u64) -> Result<bool, ReaderError> {
    let partitions = topic.partitions()?;
    let info = partitions.iter().find(|info| info.partition == partition);
    Ok(info.is_some_and(|info| offset < info.first))
}
