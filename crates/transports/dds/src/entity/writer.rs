//! Writers: samples in, as CDR.
#![allow(unsafe_code)]

use std::io::IoSlice;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use cyclors::{DDS_RETCODE_TIMEOUT, ddsi_sertype, ddsrt_iovec_t};

use super::builtin::{Endpoint, guid_of, matched, subscription};
use super::error::checked;
use super::listener::{Kind, NativeListener};
use super::{DdsError, Entity, Guid, Listener, Qos, Topic};

/// The status of a sample that disposes of its instance (DDSI-RTPS 2.5, 9.6.4.9).
const DISPOSED: u32 = 1;

/// Functions of Cyclone that its headers for applications lack: those wait for all readers at once.
mod internal {
    use std::ffi::c_void;

    use cyclors::{dds_entity_t, dds_return_t};

    /// Cyclone's `ddsrt_mtime_t`: nanoseconds.
    #[repr(C)]
    pub(super) struct Monotonic(pub(super) i64);

    unsafe extern "C" {
        pub(super) fn ddsrt_time_monotonic() -> Monotonic;
        pub(super) fn dds_entity_pin(
            handle: dds_entity_t,
            entity: *mut *mut c_void,
        ) -> dds_return_t;
        pub(super) fn dds_entity_unpin(entity: *mut c_void);
        /// The reader's identity is four words in this machine's byte order.
        pub(super) fn dds__ddsi_writer_wait_for_acks(
            writer: *mut c_void,
            reader: *const u32,
            until: Monotonic,
        ) -> dds_return_t;
    }
}

/// A sample was not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// Readers have not acknowledged as many bytes as the limit allows: try again later.
    Full,
    /// Cyclone returned an error.
    Failed(DdsError),
}

/// A writer of a topic.
#[derive(Debug)]
pub struct Writer {
    // Dropped before the listener: deleting the entity waits for a running listener call.
    entity: Entity,
    _listener: Option<NativeListener>,
    sertype: *const ddsi_sertype,
    guid: Guid,
    topic: Arc<Topic>,
}

// SAFETY: Cyclone's calls on a writer may come from any thread, and it locks the writer itself.
unsafe impl Send for Writer {}
// SAFETY: as above.
unsafe impl Sync for Writer {}

impl Writer {
    /// Opens a writer.
    ///
    /// # Errors
    /// Errors of Cyclone.
    pub fn open(
        topic: &Arc<Topic>,
        qos: &Qos,
        listener: Option<Listener>,
    ) -> Result<Self, DdsError> {
        let listener = listener.map(|told| NativeListener::new(Kind::Writer, told));
        let listening = NativeListener::pointer(listener.as_ref());
        let mut sertype = std::ptr::null();
        let participant = topic.participant().handle();
        // SAFETY: the arguments outlive the call; the listener is dropped after the writer.
        let made = unsafe {
            cyclors::dds_create_writer(participant, topic.handle(), qos.native(), listening)
        };
        let entity = Entity::made("open the writer", made)?;
        // SAFETY: the call writes the pointer; the type lives as long as the writer.
        let found = unsafe { cyclors::dds_get_entity_sertype(entity.handle(), &raw mut sertype) };
        checked("read the writer's type", found)?;
        let guid = guid_of(&entity)?;
        Ok(Self { entity, _listener: listener, sertype, guid, topic: Arc::clone(topic) })
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

    /// Writes one sample: the pieces of its CDR in order, the first with the header of four bytes.
    /// `time` is its source timestamp, in nanoseconds since 1970. Blocks at most as long as
    /// [`Qos::reliable`] allows.
    ///
    /// # Errors
    /// [`Refused::Full`]; [`Refused::Failed`], with [`DdsError::NoValue`] if the bytes are not a
    /// value of the type.
    pub fn write(&self, cdr: &[IoSlice<'_>], time: i64) -> Result<(), Refused> {
        self.put(cyclors::ddsi_serdata_kind_SDK_DATA, cdr, (0, time))
    }

    /// Disposes of an instance: readers are notified that it has no value any more. The CDR is its
    /// key's, with the header of four bytes; `time` and the limits are those of a sample.
    ///
    /// # Errors
    /// As [`write`](Self::write); [`DdsError::NoValue`] if the bytes are not a key of the type.
    pub fn dispose(&self, key: &[u8], time: i64) -> Result<(), Refused> {
        let key = [IoSlice::new(key)];
        self.put(cyclors::ddsi_serdata_kind_SDK_KEY, &key, (DISPOSED, time))
    }

    fn put(
        &self,
        kind: cyclors::ddsi_serdata_kind,
        cdr: &[IoSlice<'_>],
        (status, time): (u32, i64),
    ) -> Result<(), Refused> {
        let size = cdr.iter().map(|piece| piece.len()).sum();
        let pieces = cdr.as_ptr().cast::<ddsrt_iovec_t>();
        // SAFETY: an `IoSlice` is an iovec; the bytes are copied before the call returns.
        let serdata = unsafe {
            cyclors::ddsi_serdata_from_ser_iov(self.sertype, kind, cdr.len(), pieces, size)
        };
        if serdata.is_null() {
            return Err(Refused::Failed(DdsError::NoValue));
        }
        // SAFETY: nothing else refers to the sample yet. The call takes our reference, unless the
        // writer does not exist; ours lives as long as `self`.
        let code = unsafe {
            (*serdata).statusinfo = status;
            (*serdata).timestamp.v = time;
            cyclors::dds_forwardcdr(self.entity.handle(), serdata)
        };
        match code {
            DDS_RETCODE_TIMEOUT => Err(Refused::Full),
            _ => checked("write the sample", code).map(drop).map_err(Refused::Failed),
        }
    }

    /// Waits until every currently matched reader has acknowledged all samples; `false` after
    /// `limit`.
    ///
    /// # Errors
    /// Errors of Cyclone.
    pub fn wait_for_acknowledgements(&self, limit: Duration) -> Result<bool, DdsError> {
        let nanos = i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX);
        // SAFETY: plain values.
        match unsafe { cyclors::dds_wait_for_acks(self.entity.handle(), nanos) } {
            DDS_RETCODE_TIMEOUT => Ok(false),
            code => checked("wait for acknowledgements", code).map(|_| true),
        }
    }

    /// Waits until one reader has acknowledged all samples, or is not matched any more; `false`
    /// after `limit`. Readers of this process acknowledge at once.
    ///
    /// # Errors
    /// Errors of Cyclone.
    pub fn is_acknowledged_by(&self, reader: Guid, limit: Duration) -> Result<bool, DdsError> {
        let word = |n: usize| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|byte| reader.0[4 * n + byte]);
            u32::from_be_bytes([a, b, c, d])
        };
        let (reader, mut writer) = ([0, 1, 2, 3].map(word), null_mut());
        let limit = i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX);
        // SAFETY: the entity is pinned, so that the writer lives; the identity outlives the call.
        let code = unsafe {
            let pinned = internal::dds_entity_pin(self.entity.handle(), &raw mut writer);
            checked("find the writer", pinned)?;
            let now = internal::ddsrt_time_monotonic().0;
            let until = internal::Monotonic(now.saturating_add(limit));
            let code = internal::dds__ddsi_writer_wait_for_acks(writer, reader.as_ptr(), until);
            internal::dds_entity_unpin(writer);
            code
        };
        match code {
            DDS_RETCODE_TIMEOUT => Ok(false),
            code => checked("wait for a reader's acknowledgement", code).map(|_| true),
        }
    }

    /// Asserts its liveliness, if that is manual.
    ///
    /// # Errors
    /// Errors of Cyclone.
    pub fn assert_alive(&self) -> Result<(), DdsError> {
        // SAFETY: plain values.
        let code = unsafe { cyclors::dds_assert_liveliness(self.entity.handle()) };
        checked("assert liveliness", code).map(drop)
    }

    /// Changes the strength of its ownership: see [`Qos::exclusive`].
    ///
    /// # Errors
    /// Errors of Cyclone.
    pub fn strengthen(&self, strength: i32) -> Result<(), DdsError> {
        let qos = Qos::new().strength(strength);
        // SAFETY: the policies outlive the call, which changes those that are set.
        let code = unsafe { cyclors::dds_set_qos(self.entity.handle(), qos.native()) };
        checked("change the ownership's strength", code).map(drop)
    }

    /// The readers that it is matched with.
    ///
    /// # Errors
    /// Errors of Cyclone.
    pub fn readers(&self) -> Result<Vec<u64>, DdsError> {
        matched("list matched readers", |list, length| {
            // SAFETY: the list has that length.
            unsafe { cyclors::dds_get_matched_subscriptions(self.entity.handle(), list, length) }
        })
    }

    /// A matched reader; `None` if it is not matched any more.
    #[must_use]
    pub fn subscription(&self, reader: u64) -> Option<Endpoint> {
        subscription(&self.entity, reader)
    }
}
