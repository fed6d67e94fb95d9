//! librdkafka's producer, and the thread that serves its callbacks.
//!
//! Constraints. `ThreadedProducer` of rdkafka 0.39 rounds its waits down to whole milliseconds and
//! tries without a pause for the rest: up to a millisecond of each 100, also where nothing is sent.
//! Two hundred idle producers used two processors. (`Deadline::remaining_millis_i32` in its
//! `util.rs`, called by `BaseProducer::poll`.)
//!
//! Operation. The queue of reports writes a byte to a socket when it is no longer empty; the thread
//! reads the socket, then serves the queue until it is empty.

use std::io::{Read as _, Write as _};
use std::ops::Deref;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, ProducerContext};

use crate::client::ffi::ReportQueue;

/// How long the thread waits for a byte before it looks anyway.
const POLL_TIMEOUT: Duration = Duration::from_secs(1);

/// A producer with a thread of its own.
pub(crate) struct PolledProducer<C: ProducerContext + 'static> {
    producer: Arc<BaseProducer<C>>,
    wake: UnixStream,
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl<C: ProducerContext + 'static> PolledProducer<C> {
    pub(crate) fn start(producer: BaseProducer<C>) -> KafkaResult<Self> {
        let (wake, woken) = pair().map_err(|error| no_thread(&error))?;
        let (producer, is_stopped) = (Arc::new(producer), Arc::new(AtomicBool::new(false)));
        let queue = ReportQueue::of(&producer, wake.try_clone().map_err(|e| no_thread(&e))?);
        let (served, stopped) = (Arc::clone(&producer), Arc::clone(&is_stopped));
        let thread = std::thread::Builder::new().name("kafka-reports".to_owned());
        let thread = thread.spawn(move || serve(&served, &queue, woken, &stopped));
        let thread = Some(thread.map_err(|error| no_thread(&error))?);
        Ok(Self { producer, wake, is_stopped, thread })
    }
}

fn no_thread(_: &std::io::Error) -> KafkaError {
    // What librdkafka says where it cannot start one of its own.
    KafkaError::ClientCreation(RDKafkaErrorCode::CriticalSystemResource.to_string())
}

/// The end that is written to never blocks; a byte that is there is enough.
fn pair() -> std::io::Result<(UnixStream, UnixStream)> {
    let (wake, woken) = UnixStream::pair()?;
    wake.set_nonblocking(true)?;
    woken.set_read_timeout(Some(POLL_TIMEOUT))?;
    Ok((wake, woken))
}

fn serve<C: ProducerContext>(
    producer: &BaseProducer<C>,
    queue: &ReportQueue,
    mut woken: UnixStream,
    is_stopped: &AtomicBool,
) {
    while !is_stopped.load(Ordering::Acquire) {
        // A timeout is no failure, and no other error has a remedy: the queue is looked at.
        _ = woken.read(&mut [0; 64]);
        while !queue.is_empty() {
            producer.poll(Duration::ZERO);
        }
    }
}

impl<C: ProducerContext + 'static> Deref for PolledProducer<C> {
    type Target = BaseProducer<C>;

    fn deref(&self) -> &BaseProducer<C> {
        &self.producer
    }
}

impl<C: ProducerContext + 'static> Drop for PolledProducer<C> {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Release);
        // A full socket has a byte to read already.
        _ = (&self.wake).write(&[0]);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};

    use rdkafka::ClientConfig;
    use rdkafka::client::ClientContext;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseRecord, DeliveryResult};

    use super::*;

    const HANG_TIMEOUT: Duration = Duration::from_secs(60);
    const RECORDS: usize = 100;

    struct Reports(SyncSender<usize>);

    impl ClientContext for Reports {}

    impl ProducerContext for Reports {
        type DeliveryOpaque = usize;

        fn delivery(&self, result: &DeliveryResult<'_>, opaque: usize) {
            assert!(result.is_ok());
            self.0.send(opaque).unwrap();
        }
    }

    #[test]
    fn reports_come_in_order_and_the_thread_ends() {
        let broker = MockCluster::new(1).unwrap();
        broker.create_topic("t", 1, 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", broker.bootstrap_servers());
        let (sender, reports) = sync_channel(RECORDS);
        let base: BaseProducer<Reports> = config.create_with_context(Reports(sender)).unwrap();
        let producer = PolledProducer::start(base).unwrap();
        for number in 0..RECORDS {
            let record = BaseRecord::<[u8], [u8], _>::with_opaque_to("t", number).payload(b"x");
            producer.send(record).map_err(|(error, _)| error).unwrap();
        }
        for number in 0..RECORDS {
            assert_eq!(reports.recv_timeout(HANG_TIMEOUT), Ok(number));
        }
        // The context, and with it the sender, ends with the last reference to the producer.
        drop(producer);
        assert_eq!(reports.recv_timeout(HANG_TIMEOUT), Err(RecvTimeoutError::Disconnected));
    }
}
