//! `helio registry`: serves a schema registry that is stored in a topic of the bus.

use helio_registry::{OpenError, Registry, serve};

use crate::args::RegistryArgs;
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::Out;
use crate::outage::wait_out;
use crate::stop::{STOP_POLL_INTERVAL, Stop, Until};

/// Serves until a signal ends it.
pub(crate) fn run(args: &RegistryArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let url = open::url(args.bus.as_deref().or(url))?;
    let opened = wait_out(&Until::new(None, stop), || {
        let bus = open::connect(Some(&url), None)?;
        let registry = Registry::open(&bus).map_err(refused)?;
        Ok((bus, registry))
    })?;
    let Some((_bus, registry)) = opened else { return Ok(()) };
    let serving = serve(registry, &args.listen)
        .map_err(|error| CliError::Failure(format!("cannot listen at {}: {error}", args.listen)))?;
    let at = format!("http://{}", serving.address());
    let mut out = Out::new();
    if args.output.json {
        out.json(&serde_json::json!({ "url": at, "bus": url }))?;
    } else {
        out.line(&format!("the schemas of {url} are served at {at}"))?;
    }
    out.flush()?;
    while !stop.asked() {
        std::thread::sleep(STOP_POLL_INTERVAL);
    }
    Ok(())
}

fn refused(error: OpenError) -> CliError {
    match error {
        OpenError::Topic(error) => error.into(),
        OpenError::Read(error) => error.into(),
        error @ (OpenError::Foreign { .. } | OpenError::Incomplete { .. }) => {
            CliError::Refused(error.to_string())
        }
    }
}
