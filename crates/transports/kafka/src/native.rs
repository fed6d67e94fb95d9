//! What librdkafka's Rust crate does not offer, or only by a panic.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};

use rdkafka::bindings;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::BorrowedMessage;

use crate::context::Consumer;

/// The end of a partition's log as the newest fetch has told it, without asking a broker; none
/// before the first.
pub(crate) fn fetched_end(consumer: &Consumer, topic: &str, partition: u32) -> Option<u64> {
    let topic = CString::new(topic).ok()?;
    let (mut first, mut end) = (-1_i64, -1_i64);
    // SAFETY: the client lives as long as the reference to its consumer, the name ends with a zero,
    // and both places are written before the call returns.
    let code = unsafe {
        bindings::rd_kafka_get_watermark_offsets(
            consumer.client().native_ptr(),
            topic.as_ptr(),
            i32::try_from(partition).ok()?,
            &raw mut first,
            &raw mut end,
        )
    };
    (RDKafkaErrorCode::from(code) == RDKafkaErrorCode::NoError).then(|| u64::try_from(end).ok())?
}

/// A record's headers, as they lie in it.
pub(crate) struct RawHeaders<'a> {
    all: *const bindings::rd_kafka_headers_t,
    message: std::marker::PhantomData<&'a BorrowedMessage<'a>>,
    next: usize,
}

impl<'a> RawHeaders<'a> {
    /// The headers of a record. Their names are bytes: others than us may have written them, and
    /// the crate's own iterator panics where they are no UTF-8.
    pub(crate) fn of(message: &'a BorrowedMessage<'_>) -> Self {
        let mut all = std::ptr::null_mut();
        // SAFETY: the message is alive, and what comes back is owned by it; the place is written or
        // left null.
        let code = unsafe { bindings::rd_kafka_message_headers(message.ptr(), &raw mut all) };
        if RDKafkaErrorCode::from(code) != RDKafkaErrorCode::NoError {
            all = std::ptr::null_mut();
        }
        Self { all, message: std::marker::PhantomData, next: 0 }
    }
}

impl<'a> Iterator for RawHeaders<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.all.is_null() {
            return None;
        }
        let (mut name, mut value, mut size) = (std::ptr::null(), std::ptr::null(), 0_usize);
        // SAFETY: the headers live as long as their message, which this borrows.
        let code = unsafe {
            bindings::rd_kafka_header_get_all(
                self.all,
                self.next,
                &raw mut name,
                &raw mut value,
                &raw mut size,
            )
        };
        if RDKafkaErrorCode::from(code) != RDKafkaErrorCode::NoError || name.is_null() {
            return None;
        }
        self.next += 1;
        // SAFETY: librdkafka ends names with a zero, and they live as long as the message.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        if value.is_null() {
            return Some((name, &[]));
        }
        // SAFETY: so many bytes lie there, for as long as the message.
        let value = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) };
        Some((name, value))
    }
}
