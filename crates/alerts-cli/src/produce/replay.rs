//! Spilled packets, published again.

use std::path::{Path, PathBuf};

use helio_alerts::producer::CcdProducer;
use helio_bus::Bus;
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::Out;
use helio_console::stop::Stop;
use helio_console::units::human_count;
use helio_core::container::Container;
use serde::Serialize;

use crate::args::ProduceArgs;
use crate::error;

/// A file that was published again.
#[derive(Debug, Serialize)]
struct ReplayLine<'a> {
    file: &'a Path,
    visit: i64,
    detector: i32,
    alerts: u64,
    /// Alerts that the bus did not accept; the file stays then.
    failed: Vec<i64>,
    announced: bool,
    cause: Option<String>,
}

/// Publishes the files of the arguments.
pub(super) fn run(args: &ProduceArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = open::connect(url, super::producer_name(args).as_deref())?;
    let (mut out, mut left) = (Out::new(), Vec::new());
    for file in &args.from {
        stop.check()?;
        if !replay(args, &bus, file, &mut out)? {
            left.push(file.clone());
        }
    }
    if left.is_empty() { Ok(()) } else { Err(CliError::Lost(lost(&left))) }
}

fn lost(left: &[PathBuf]) -> String {
    let names: Vec<_> = left.iter().map(|file| file.display().to_string()).collect();
    format!("not accepted, and still there: {}; run the command again", names.join(", "))
}

/// Publishes a file; false if it stays.
fn replay(args: &ProduceArgs, bus: &Bus, file: &Path, out: &mut Out) -> CliResult<bool> {
    let bytes = std::fs::read(file).map_err(|error| CliError::file(file, &error))?;
    let container = Container::open(&bytes)
        .map_err(|error| CliError::Refused(format!("{}: {error}", file.display())))?;
    let (stream, options) = (&args.stream.topic, super::options(args));
    let producer = CcdProducer::open(bus, stream, container.schema(), options);
    let outcome = producer.and_then(|producer| producer.replay(file)).map_err(error::producer)?;
    let is_published = outcome.is_published();
    let line = ReplayLine {
        file,
        visit: outcome.manifest.visit,
        detector: outcome.manifest.detector,
        alerts: outcome.manifest.alerts.count(),
        failed: outcome.failed,
        announced: outcome.is_announced,
        cause: outcome.cause,
    };
    if args.output.json {
        out.json(&line)?;
    } else {
        let (alerts, cause) = (human_count(line.alerts), line.cause.as_deref().unwrap_or_default());
        let end = if is_published { "published".to_owned() } else { format!("stays: {cause}") };
        let ReplayLine { visit, detector, .. } = line;
        let file = file.display();
        out.line(&format!("{file}: {alerts} alerts of visit {visit}, detector {detector}, {end}"))?;
    }
    out.flush()?;
    Ok(is_published)
}
