//! The demos' own durability service, for DDS domains that have none.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use helio_dds::durability::{Durability, DurabilityError, is_there};

use crate::error::CliResult;
use crate::run_bus::RunBus;
use crate::service_error::ServiceResult;
use crate::stop::STOP_POLL_INTERVAL;

/// A service in a thread of this process. Dropping it removes its folder.
pub(crate) struct Service {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), DurabilityError>>>,
    _folder: RunBus,
}

/// Starts a service if the URL names a DDS domain without one.
pub(crate) fn where_wanted(url: &str, parent: Option<&Path>) -> CliResult<Option<Service>> {
    if !url.starts_with("dds:") || is_there(url).or_cli()? {
        return Ok(None);
    }
    let folder = RunBus::fresh("helio-demo-durability", parent, None)?;
    let scratch = folder.scratch().unwrap_or(Path::new("."));
    let mut service = Durability::open(url, scratch).or_cli()?;
    let stop = Arc::<AtomicBool>::default();
    let stopped = Arc::clone(&stop);
    let run = move || {
        while !stopped.load(Ordering::Acquire) {
            // Samples that it cannot store are missing at the end and counted there.
            service.turn(STOP_POLL_INTERVAL, &mut drop)?;
        }
        Ok(())
    };
    Ok(Some(Service { stop, thread: Some(std::thread::spawn(run)), _folder: folder }))
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            eprintln!("helio: the demo's durability service failed: {error}");
        }
    }
}
