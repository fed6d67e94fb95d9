//! Readers: samples out, as CDR.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use cyclors::{dds_return_t, dds_sample_info_t, ddsi_serdata, ddsi_sertype};

use super::builtin::{Endpoint, guid_of, matched, publication};
use super::error::checked;
use super::listener::{Kind, NativeListener};
use super::{DdsError, Entity, Guid, Listener, Qos, Sample, Topic};

/// A reader of a topic.
#[derive(Debug)]
pub struct Reader {
    // Dropped before the listener: deleting the entity waits for a running listener call.
    entity: Entity,
    _listener: Option<NativeListener>,
    guid: Guid,
    topic: Arc<Topic>,
}

impl Reader {
    /// Opens a reader.
    ///
    /// # Errors
    /// Errors of Cyclone.
    pub fn open(
        topic: &Arc<Topic>,
        qos: &Qos,
        listener: Option<Listener>,
    ) -> Result<Self, DdsError> {
        let listener = listener.map(|told| NativeListener::new(Kind::Reader, told));
        let listening = NativeListener::pointer(listener.as_ref());
        let participant = topic.participant().handle();
        // SAFETY: the arguments outlive the call; the listener is dropped after the reader.
        let made = unsafe {
            cyclors::dds_create_reader(participant, topic.handle(), qos.native(), listening)
        };
        let entity = Entity::made("open the reader", made)?;
        let guid = guid_of(&entity)?;
        Ok(Self { entity, _listener: listener, guid, topic: Arc::clone(topic) })
    }

    /// Its identity in the domain.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Its topic.
    #[must_use]
    pub fn topic(&self) -> &Arc<Topic> {
        &self.topic
    }

    /// Takes all samples and appends them: by key, within a key in the order of each writer.
    /// (All at once, so that a writer's samples of several keys have no holes.) Returns how many.
    ///
    /// # Errors
    /// Errors of Cyclone.
    pub fn take(&self, into: &mut Vec<Sample>) -> Result<usize, DdsError> {
        let arg = std::ptr::from_mut(into).cast::<c_void>();
        let most = i32::MAX.unsigned_abs();
        // SAFETY: `collect` gets the vector that outlives the call, on this thread.
        let taken = unsafe {
            let any = cyclors::DDS_ANY_STATE;
            let reader = self.entity.handle();
            cyclors::dds_take_with_collector(reader, most, 0, any, Some(collect), arg)
        };
        checked("take samples", taken).map(|taken| taken.unsigned_abs() as usize)
    }

    /// The writers that it is matched with.
    ///
    /// # Errors
    /// Errors of Cyclone.
    pub fn writers(&self) -> Result<Vec<u64>, DdsError> {
        matched("list matched writers", |list, length| {
            // SAFETY: the list has that length.
            unsafe { cyclors::dds_get_matched_publications(self.entity.handle(), list, length) }
        })
    }

    /// A matched writer; `None` if it is not matched any more.
    #[must_use]
    pub fn publication(&self, writer: u64) -> Option<Endpoint> {
        publication(&self.entity, writer)
    }
}

/// Called by Cyclone for each sample, with the vector to append to.
unsafe extern "C" fn collect(
    into: *mut c_void,
    info: *const dds_sample_info_t,
    _type: *const ddsi_sertype,
    serdata: *mut ddsi_serdata,
) -> dds_return_t {
    // SAFETY: `take` hands over its vector, Cyclone a live sample and its description.
    unsafe {
        let sample = Sample::of(serdata, &*info);
        (*into.cast::<Vec<Sample>>()).push(sample);
    }
    0
}
