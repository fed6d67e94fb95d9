//! A sample that a reader took. Its bytes stay in Cyclone's memory.
#![allow(unsafe_code)]

use std::ptr::null_mut;

use cyclors::{dds_sample_info_t, ddsi_serdata, ddsrt_iovec_t};

/// A sample, held until it is dropped. Its bytes are CDR in this machine's byte order, checked
/// against the topic's type.
#[derive(Debug)]
pub struct Sample {
    serdata: *mut ddsi_serdata,
    bytes: ddsrt_iovec_t,
    /// Whether it has a value. Otherwise it has only a key: the instance was disposed of, or has no
    /// writer any more.
    pub valid: bool,
    /// Its source timestamp, in nanoseconds since 1970.
    pub source_time: i64,
    /// The key's handle in this process.
    pub instance: u64,
    /// The writer's handle in this process; see [`super::Reader::publication`].
    pub writer: u64,
}

// SAFETY: Cyclone counts references to a sample with atomics, and its bytes are not written.
unsafe impl Send for Sample {}
// SAFETY: as above.
unsafe impl Sync for Sample {}

impl Sample {
    /// Takes a reference to a sample of a reader.
    ///
    /// # Safety
    /// The pointer is a live sample's.
    pub(super) unsafe fn of(serdata: *mut ddsi_serdata, info: &dds_sample_info_t) -> Self {
        let mut bytes = ddsrt_iovec_t { iov_base: null_mut(), iov_len: 0 };
        // SAFETY: the caller's sample; the new reference keeps the bytes in place.
        let serdata = unsafe {
            let size = cyclors::ddsi_serdata_size(serdata) as usize;
            cyclors::ddsi_serdata_to_ser_ref(serdata, 0, size, &raw mut bytes)
        };
        Self {
            serdata,
            bytes,
            valid: info.valid_data,
            source_time: info.source_timestamp,
            instance: info.instance_handle,
            writer: info.publication_handle,
        }
    }

    /// The bytes, the CDR header of four first.
    #[must_use]
    pub fn cdr(&self) -> &[u8] {
        if self.bytes.iov_base.is_null() {
            return &[];
        }
        // SAFETY: the bytes are valid as long as the reference is held.
        unsafe { std::slice::from_raw_parts(self.bytes.iov_base.cast::<u8>(), self.bytes.iov_len) }
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        // SAFETY: releases the reference that `of` took.
        unsafe { cyclors::ddsi_serdata_to_ser_unref(self.serdata, &raw const self.bytes) };
    }
}
