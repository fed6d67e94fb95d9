//! Calls of librdkafka that its Rust crate does not offer, or only with a panic.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use helio_bus::transport::locked;
use rdkafka::ClientConfig;
use rdkafka::bindings;
use rdkafka::client::{Client, ClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::BorrowedMessage;
use rdkafka::producer::{BaseProducer, Producer as _, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// The first offset of a partition's log and its end, from the newest fetch, without a request;
/// `None` before the first fetch.
pub(crate) fn fetched_ends(
    consumer: &BaseConsumer<impl ConsumerContext>,
    topic: &str,
    partition: u32,
) -> Option<(u64, u64)> {
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
    if RDKafkaErrorCode::from(code) != RDKafkaErrorCode::NoError {
        return None;
    }
    Some((u64::try_from(first).ok()?, u64::try_from(end).ok()?))
}

/// The position behind everything that a consumer has taken from a partition's queue, including
/// transaction markers, which are not delivered. `None` if it has taken nothing since the
/// assignment or the last seek.
pub(crate) fn position(
    consumer: &BaseConsumer<impl ConsumerContext>,
    topic: &str,
    partition: u32,
) -> Option<u64> {
    let mut list = TopicPartitionList::with_capacity(1);
    list.add_partition(topic, i32::try_from(partition).ok()?);
    // SAFETY: the client lives as long as the reference to its consumer, and the list as long as
    // the call, which writes the offsets into it.
    let code = unsafe { bindings::rd_kafka_position(consumer.client().native_ptr(), list.ptr()) };
    refusal(code).ok()?;
    let Offset::Offset(offset) = list.elements().first()?.offset() else { return None };
    u64::try_from(offset).ok()
}

/// Commits offsets for a consumer's group; `None` if no broker answers in time. librdkafka's
/// synchronous commit has no timeout
/// ([#3937](https://github.com/confluentinc/librdkafka/pull/3937)), and the crate's asynchronous
/// one does not report the result. Reproduced by
/// `a_group_commits_goes_and_comes_while_a_broker_is_frozen` in `tests/soak/outage.rs`.
pub(crate) fn commit(
    consumer: &BaseConsumer<impl ConsumerContext>,
    list: &TopicPartitionList,
    patience: Duration,
) -> Option<Result<(), KafkaError>> {
    let millis = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    let client = consumer.client().native_ptr();
    // SAFETY: the client lives as long as the reference to its consumer, and the list as long as
    // the call, which copies it. The event is this function's own, and its list the event's. Queue
    // and event are destroyed once; a later answer finds the queue closed.
    unsafe {
        let queue = bindings::rd_kafka_queue_new(client);
        let null = std::ptr::null_mut();
        let sent = bindings::rd_kafka_commit_queue(client, list.ptr(), queue, None, null);
        if let Err(refused) = refusal(sent) {
            bindings::rd_kafka_queue_destroy(queue);
            return Some(Err(refused));
        }
        let event = bindings::rd_kafka_queue_poll(queue, millis);
        let outcome = (!event.is_null()).then(|| {
            let told = bindings::rd_kafka_event_topic_partition_list(event).as_ref();
            let refused = told.filter(|told| told.cnt > 0).map(|told| (*told.elems).err);
            refusal(bindings::rd_kafka_event_error(event))
                .and_then(|()| refused.map_or(Ok(()), refusal))
        });
        if !event.is_null() {
            bindings::rd_kafka_event_destroy(event);
        }
        bindings::rd_kafka_queue_destroy(queue);
        outcome
    }
}

/// The queue of a producer's reports, which writes a byte to a socket when it is no longer empty.
pub(crate) struct ReportQueue {
    queue: *mut bindings::rd_kafka_queue_t,
    /// Open until the queue writes no more.
    _wake: UnixStream,
}

// SAFETY: librdkafka's queues are locked by itself, and this one is not changed after its start.
unsafe impl Send for ReportQueue {}

impl ReportQueue {
    /// The end of the socket must not block.
    pub(crate) fn of<C: ProducerContext>(producer: &BaseProducer<C>, wake: UnixStream) -> Self {
        let byte = [0_u8];
        // SAFETY: the client lives as long as the reference to its producer; the queue is counted
        // by librdkafka, and its reference is this value's. The byte is copied.
        let queue = unsafe {
            let queue = bindings::rd_kafka_queue_get_main(producer.client().native_ptr());
            let payload = byte.as_ptr().cast();
            bindings::rd_kafka_queue_io_event_enable(queue, wake.as_raw_fd(), payload, 1);
            queue
        };
        Self { queue, _wake: wake }
    }

    pub(crate) fn is_empty(&self) -> bool {
        // SAFETY: the queue is there until this value is dropped.
        unsafe { bindings::rd_kafka_queue_length(self.queue) == 0 }
    }
}

impl Drop for ReportQueue {
    fn drop(&mut self) {
        // SAFETY: the queue is there until its reference is given back, once. Behind the first call
        // the socket is written to no more.
        unsafe {
            bindings::rd_kafka_queue_io_event_enable(self.queue, -1, std::ptr::null(), 0);
            bindings::rd_kafka_queue_destroy(self.queue);
        }
    }
}

/// The brokers that a client knows from metadata, by number.
pub(crate) fn brokers<C: ClientContext>(client: &Client<C>) -> Vec<i32> {
    let native = client.native_ptr();
    let mut count = 0;
    // SAFETY: the client lives as long as the reference to it. The list has `count` numbers, or is
    // null, and is freed once by librdkafka's own function.
    unsafe {
        let ids = bindings::rd_kafka_brokers_learned_ids(native, &raw mut count);
        let known = match ids.is_null() {
            true => Vec::new(),
            false => std::slice::from_raw_parts(ids, count).to_vec(),
        };
        bindings::rd_kafka_mem_free(native, ids.cast());
        known
    }
}

/// Whether any of these brokers answers in time. Each is queried itself, and a rejection is an
/// answer: a request for metadata goes to the most recently used broker only, which may be the one
/// that is frozen.
pub(crate) fn any_answers<C: ClientContext>(
    client: &Client<C>,
    brokers: &[i32],
    patience: Duration,
) -> bool {
    let native = client.native_ptr();
    let millis = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
    let until = Instant::now() + patience;
    let mut reason = [0; 512];
    // SAFETY: the client lives as long as the reference to it. Options, names and resources live as
    // long as the calls that copy them. Each event is this function's own. Each object is destroyed
    // once; later answers find the queue closed.
    unsafe {
        let what = bindings::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS;
        let options = bindings::rd_kafka_AdminOptions_new(native, what);
        bindings::rd_kafka_AdminOptions_set_request_timeout(
            options,
            millis(patience),
            reason.as_mut_ptr(),
            reason.len(),
        );
        let queue = bindings::rd_kafka_queue_new(native);
        for broker in brokers.iter().filter_map(|id| CString::new(id.to_string()).ok()) {
            let kind = bindings::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_BROKER;
            let mut resource = bindings::rd_kafka_ConfigResource_new(kind, broker.as_ptr());
            bindings::rd_kafka_DescribeConfigs(native, &raw mut resource, 1, options, queue);
            bindings::rd_kafka_ConfigResource_destroy(resource);
        }
        bindings::rd_kafka_AdminOptions_destroy(options);
        let answered = (0..brokers.len()).any(|_| {
            let left = until.saturating_duration_since(Instant::now());
            let event = bindings::rd_kafka_queue_poll(queue, millis(left));
            // librdkafka's own errors are negative; the brokers' are not.
            let code = match event.is_null() {
                true => bindings::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__TIMED_OUT,
                false => bindings::rd_kafka_event_error(event),
            };
            if !event.is_null() {
                bindings::rd_kafka_event_destroy(event);
            }
            code as i32 >= 0
        });
        bindings::rd_kafka_queue_destroy(queue);
        answered
    }
}

/// Adds bootstrap brokers, separated by commas, to a client; see `rebootstrap`.
pub(crate) fn add_brokers<C: ClientContext>(client: &Client<C>, brokers: &CStr) {
    // SAFETY: the client lives as long as the reference to it, the list ends with a zero, and the
    // call copies it.
    unsafe { bindings::rd_kafka_brokers_add(client.native_ptr(), brokers.as_ptr()) };
}

/// The metadata committed with the position of each partition of a list.
pub(crate) fn notes(list: &TopicPartitionList) -> Vec<&[u8]> {
    // SAFETY: the list is alive and has `cnt` elements, each of which owns its metadata.
    unsafe {
        let list = &*list.ptr();
        let count = usize::try_from(list.cnt).unwrap_or(0);
        let each = (0..count).map(|place| &*list.elems.add(place));
        let notes = each.map(|element| {
            if element.metadata.is_null() {
                return &[][..];
            }
            std::slice::from_raw_parts(element.metadata.cast::<u8>(), element.metadata_size)
        });
        notes.collect()
    }
}

fn refusal(code: bindings::rd_kafka_resp_err_t) -> Result<(), KafkaError> {
    match RDKafkaErrorCode::from(code) {
        RDKafkaErrorCode::NoError => Ok(()),
        code => Err(KafkaError::ConsumerCommit(code)),
    }
}

/// A topic's identifier: unique, also among topics of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TopicId(pub(crate) i64, pub(crate) i64);

impl std::fmt::Display for TopicId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.0, self.1)
    }
}

/// A topic, as brokers describe it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TopicMetadata {
    pub(crate) id: TopicId,
    pub(crate) partitions: u32,
}

/// The brokers' descriptions of topics, by name; missing topics are left out. `None` if no broker
/// answers in time.
pub(crate) fn describe(
    consumer: &BaseConsumer<impl ConsumerContext>,
    names: impl Iterator<Item = String>,
    patience: Duration,
) -> Option<HashMap<String, TopicMetadata>> {
    let names: Vec<_> = names.filter_map(|name| CString::new(name).ok()).collect();
    let mut places: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let what = bindings::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    let answer = request(consumer.client(), what, patience, |client, options, queue| {
        // SAFETY: all are alive. Names and collection live as long as the calls that copy them; the
        // collection is destroyed once.
        unsafe {
            let topics = bindings::rd_kafka_TopicCollection_of_topic_names(
                places.as_mut_ptr(),
                places.len(),
            );
            bindings::rd_kafka_DescribeTopics(client, topics, options, queue);
            bindings::rd_kafka_TopicCollection_destroy(topics);
        }
    });
    // SAFETY: the event is alive, or null.
    unsafe { described(answer.event()) }
}

/// The answer to an administrator's request, with what it contains.
pub(crate) struct Answer {
    event: *mut bindings::rd_kafka_event_t,
    queue: *mut bindings::rd_kafka_queue_t,
}

impl Answer {
    /// The event, which lives as long as this; null if no broker answered in time.
    pub(crate) fn event(&self) -> *mut bindings::rd_kafka_event_t {
        self.event
    }

    /// The error of the whole request; `None` if no broker answered in time.
    pub(crate) fn error(&self) -> Option<RDKafkaErrorCode> {
        // SAFETY: the event is alive.
        (!self.event.is_null())
            .then(|| RDKafkaErrorCode::from(unsafe { bindings::rd_kafka_event_error(self.event) }))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: both are this object's own and destroyed once; a later answer finds the queue
        // closed.
        unsafe {
            if !self.event.is_null() {
                bindings::rd_kafka_event_destroy(self.event);
            }
            bindings::rd_kafka_queue_destroy(self.queue);
        }
    }
}

/// Sends one of an administrator's requests with its options, and waits for the answer.
pub(crate) fn request<C: ClientContext>(
    client: &Client<C>,
    what: bindings::rd_kafka_admin_op_t,
    patience: Duration,
    send: impl FnOnce(
        *mut bindings::rd_kafka_t,
        *const bindings::rd_kafka_AdminOptions_t,
        *mut bindings::rd_kafka_queue_t,
    ),
) -> Answer {
    let native = client.native_ptr();
    let millis = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    let mut reason = [0; 512];
    // SAFETY: the client lives as long as the reference to it, and the options until they were
    // sent. Event and queue become the answer's.
    unsafe {
        let options = bindings::rd_kafka_AdminOptions_new(native, what);
        bindings::rd_kafka_AdminOptions_set_request_timeout(
            options,
            millis,
            reason.as_mut_ptr(),
            reason.len(),
        );
        let queue = bindings::rd_kafka_queue_new(native);
        send(native, options, queue);
        bindings::rd_kafka_AdminOptions_destroy(options);
        Answer { event: bindings::rd_kafka_queue_poll(queue, millis), queue }
    }
}

/// The topics that an event describes; `None` for another event or an error.
///
/// # Safety
/// The event is alive, or null.
unsafe fn described(
    event: *mut bindings::rd_kafka_event_t,
) -> Option<HashMap<String, TopicMetadata>> {
    // SAFETY: the event is alive, or null, which these functions treat as another kind of event.
    // The returned array lives as long as the event and has `count` topics.
    let topics = unsafe {
        let result = bindings::rd_kafka_event_DescribeTopics_result(event);
        if result.is_null() || refusal(bindings::rd_kafka_event_error(event)).is_err() {
            return None;
        }
        let mut count = 0;
        let topics = bindings::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        if count == 0 { &[][..] } else { std::slice::from_raw_parts(topics, count) }
    };
    let each = topics.iter().filter_map(|topic| {
        // SAFETY: the topic lives as long as its event, and its name ends with a zero.
        unsafe {
            let error = bindings::rd_kafka_TopicDescription_error(*topic);
            refusal(bindings::rd_kafka_error_code(error)).ok()?;
            let name = CStr::from_ptr(bindings::rd_kafka_TopicDescription_name(*topic));
            let id = bindings::rd_kafka_TopicDescription_topic_id(*topic);
            let mut count = 0;
            bindings::rd_kafka_TopicDescription_partitions(*topic, &raw mut count);
            let id = TopicId(
                bindings::rd_kafka_Uuid_most_significant_bits(id),
                bindings::rd_kafka_Uuid_least_significant_bits(id),
            );
            let partitions = u32::try_from(count).unwrap_or(0);
            Some((name.to_str().ok()?.to_owned(), TopicMetadata { id, partitions }))
        }
    });
    Some(each.collect())
}

/// A record's headers, borrowed from it.
pub(crate) struct RawHeaders<'a> {
    all: *const bindings::rd_kafka_headers_t,
    message: std::marker::PhantomData<&'a BorrowedMessage<'a>>,
    next: usize,
}

impl<'a> RawHeaders<'a> {
    /// The headers of a record. Their names are bytes: other programs may have written them, and
    /// the crate's own iterator panics if they are not UTF-8 (rdkafka 0.39, `BorrowedHeaders`).
    pub(crate) fn of(message: &'a BorrowedMessage<'_>) -> Self {
        let mut all = std::ptr::null_mut();
        // SAFETY: the message is alive and owns the returned headers; the pointer is written or
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

/// How long the connection attempt for a certificate's error may take.
const CERTIFICATE_PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects once more to find the error of a broker's certificate: librdkafka itself reports only
/// that the certificate could not be verified (`tests/soak/security.rs`). Returns OpenSSL's error
/// number, `None` if there is none.
pub(crate) fn verification(config: &ClientConfig) -> Option<i32> {
    let found: Mutex<Option<i32>> = Mutex::default();
    let native = config.create_native_config().ok()?;
    let mut reason = [0; 512];
    // SAFETY: the configuration is the new client's own from `rd_kafka_new` on, or is dropped where
    // there is none. `found` outlives the client, which is destroyed, with all threads that could
    // call back, before this returns. The topic list is destroyed by its own function, once.
    unsafe {
        let opaque = (&raw const found).cast_mut().cast();
        bindings::rd_kafka_conf_set_opaque(native.ptr(), opaque);
        bindings::rd_kafka_conf_set_log_cb(native.ptr(), None);
        bindings::rd_kafka_conf_set_ssl_cert_verify_cb(native.ptr(), Some(verify));
        let client = bindings::rd_kafka_new(
            bindings::rd_kafka_type_t::RD_KAFKA_PRODUCER,
            native.ptr(),
            reason.as_mut_ptr(),
            reason.len(),
        );
        if client.is_null() {
            return None;
        }
        std::mem::forget(native);
        let until = Instant::now() + CERTIFICATE_PROBE_TIMEOUT;
        while locked(&found).is_none() && Instant::now() < until {
            let mut metadata = std::ptr::null();
            let code = bindings::rd_kafka_metadata(
                client,
                0,
                std::ptr::null_mut(),
                &raw mut metadata,
                200,
            );
            if RDKafkaErrorCode::from(code) == RDKafkaErrorCode::NoError {
                bindings::rd_kafka_metadata_destroy(metadata);
                break;
            }
        }
        bindings::rd_kafka_destroy(client);
    }
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Stores a certificate's error, and changes nothing.
unsafe extern "C" fn verify(
    _: *mut bindings::rd_kafka_t,
    _: *const c_char,
    _: i32,
    code: *mut c_int,
    _: c_int,
    _: *const c_char,
    _: usize,
    reason: *mut c_char,
    size: usize,
    opaque: *mut c_void,
) -> c_int {
    // SAFETY: librdkafka gives places that are alive for the call; `opaque` is the mutex of
    // `verification`, which waits for this thread's end.
    let (code, found) = unsafe { (*code, &*opaque.cast::<Mutex<Option<i32>>>()) };
    if code == 0 {
        return 1;
    }
    locked(found).get_or_insert(code);
    if size > 0 {
        // SAFETY: so many bytes may be written there.
        unsafe { reason.write(0) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_s_id_is_written_as_in_the_format() {
        assert_eq!(TopicId(0x1f, -1).to_string(), "000000000000001fffffffffffffffff");
    }
}
