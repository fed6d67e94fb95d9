//! A process of the service: a worker and a publisher, each in a thread, opened again after
//! failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use helio_bus::{Bus, notify};

use crate::counters::Counters;
use crate::error::ServiceError;
use crate::options::Options;
use crate::publisher::ResultPublisher;
use crate::worker::{FilterWorker, Progress};

/// How long a step waits, and so how long an end takes.
const STEP_TIMEOUT: Duration = Duration::from_millis(200);
/// The time between a failure and the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A running process of the service. It ends when it is dropped.
pub struct Service {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    threads: Vec<JoinHandle<()>>,
}

impl Service {
    /// Starts both threads. A thread that fails reports it to the operator (`helio_bus::notify`),
    /// and is opened again from what the topics have.
    ///
    /// # Errors
    /// [`ServiceError`] if the topics cannot be opened at first.
    pub fn start(bus: &Bus, options: &Options) -> Result<Self, ServiceError> {
        let (stop, counters) = (Arc::<AtomicBool>::default(), Arc::<Counters>::default());
        let worker = FilterWorker::open(bus, options, &counters)?;
        let publisher = ResultPublisher::open(bus, options, &counters)?;
        let mut service = Self { stop, counters, threads: Vec::new() };
        let (bus_of, options_of, counters) = (bus.clone(), options.clone(), service.counters());
        let open = move || FilterWorker::open(&bus_of, &options_of, &counters);
        service.spawn("alert-filters", worker, open, FilterWorker::step);
        let (bus_of, options_of, counters) = (bus.clone(), options.clone(), service.counters());
        let open = move || ResultPublisher::open(&bus_of, &options_of, &counters);
        service.spawn("alert-results", publisher, open, ResultPublisher::step);
        Ok(service)
    }

    fn spawn<P: Send + 'static>(
        &mut self,
        name: &'static str,
        first: P,
        open: impl Fn() -> Result<P, ServiceError> + Send + 'static,
        step: impl Fn(&mut P, Duration) -> Result<Progress, ServiceError> + Send + 'static,
    ) {
        let stop = Arc::clone(&self.stop);
        let run = move || {
            let mut part = Some(first);
            while !stop.load(Ordering::Acquire) {
                let done = match &mut part {
                    Some(part) => step(part, STEP_TIMEOUT).map(drop),
                    None => open().map(|opened| part = Some(opened)),
                };
                if let Err(error) = done {
                    notify(&format!("{name}: {error}; it starts again"));
                    part = None;
                    std::thread::sleep(RETRY_INTERVAL);
                }
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
        self.threads.push(thread.expect("the system starts a thread"));
    }

    /// The counters of both.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}
