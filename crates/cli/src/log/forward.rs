//! `helio log forward`: sends log records to a receiver of OpenTelemetry's protocol.

use helio_bus::Bus;
use helio_log_otlp::{
    CursorFile, Exporter, ExporterOptions, ForwardError, ForwardEvent, ForwardOptions, Forwarder,
    Protocol, Step, TargetError,
};
use helio_logging::{Cursor, Follow, Reader, ReaderOptions, Start};
use serde_json::json;

use crate::args::log::{ForwardArgs, From as Begin, Header};
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::Out;
use crate::outage::wait_out;
use crate::service_error::{ServiceError, ServiceResult};
use crate::stop::{STOP_POLL_INTERVAL, Stop, Until};

/// Runs `helio log forward`.
pub(crate) fn run(args: &ForwardArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let exporter = exporter(args).or_cli()?;
    let (file, cursor) = CursorFile::open(&args.cursor).or_cli()?;
    let open = || {
        let bus = if args.no_follow { open::look(url)? } else { open::connect(url, None)? };
        let options = options(args, &bus, cursor.clone())?;
        let reader = Reader::open(&bus, &args.lanes.lanes(), options).or_cli()?;
        Ok((bus, reader))
    };
    let opened =
        if args.no_follow { Some(open()?) } else { wait_out(&Until::new(None, stop), open)? };
    let Some((_bus, reader)) = opened else { return Ok(()) };
    let records = reader.records();
    let mut forwarder =
        Forwarder::new(records, exporter, file, ForwardOptions::default()).or_cli()?;
    let ended = pump(&mut forwarder, stop);
    let figures = forwarder.figures();
    if args.output.json {
        let mut out = Out::new();
        out.json(&json!({
            "taken": figures.taken,
            "refused": figures.refused,
            "again": figures.again,
        }))?;
        out.flush()?;
    }
    ended?;
    if args.no_follow {
        stop.check()?;
    }
    match figures.refused {
        0 => Ok(()),
        refused => Err(CliError::Lost(format!(
            "the receiver refused {refused} records (see above); they are not sent again"
        ))),
    }
}

fn exporter(args: &ForwardArgs) -> Result<Exporter, TargetError> {
    let headers = args.header.iter().map(|Header(name, value)| (name.clone(), value.clone()));
    let options = ExporterOptions { headers: headers.collect(), ..ExporterOptions::default() };
    match (&args.target.otlp_grpc, &args.target.otlp_http) {
        (Some(url), _) => Exporter::new(Protocol::Grpc, url, &options),
        (None, url) => Exporter::new(Protocol::Http, url.as_deref().unwrap_or_default(), &options),
    }
}

fn options(args: &ForwardArgs, bus: &Bus, cursor: Option<Cursor>) -> CliResult<ReaderOptions> {
    let now = bus.clock().now();
    let start = cursor
        .map_or_else(|| Begin::start(args.from.as_ref(), !args.no_follow, now), Start::Cursor);
    let follow = if args.no_follow { Follow::No } else { Follow::Yes };
    let wanted = super::selector(&args.predicate, &[], now)?;
    Ok(ReaderOptions::from(start).follow(follow).select(wanted))
}

fn pump(forwarder: &mut Forwarder, stop: &Stop) -> CliResult {
    while !stop.asked() {
        match forwarder.step(STOP_POLL_INTERVAL).or_cli()? {
            Step::Waited | Step::Sent(_) => {}
            Step::End => break,
            Step::Event(ForwardEvent::News(news)) => eprintln!("helio: {news}"),
            Step::Event(ForwardEvent::Refused(refused)) if refused.records == 0 => {
                eprintln!("helio: the receiver reports: {}", refused.reason);
            }
            Step::Event(ForwardEvent::Refused(refused)) => {
                eprintln!("helio: {} records refused: {}", refused.records, refused.reason);
            }
            Step::Event(ForwardEvent::Later { after, cause }) => {
                eprintln!("helio: {cause}; retrying in {:.1} s", after.as_secs_f64());
            }
        }
    }
    Ok(())
}

impl ServiceError for TargetError {
    fn into_cli(self) -> CliError {
        match self {
            TargetError::Start(_) => CliError::Failure(self.to_string()),
            TargetError::Url { .. } | TargetError::Header(_) => CliError::Usage(self.to_string()),
        }
    }
}

impl ServiceError for ForwardError {
    fn into_cli(self) -> CliError {
        match self {
            ForwardError::Reader(error) => error.into_cli(),
            ForwardError::File { .. } => CliError::Failure(self.to_string()),
            ForwardError::InUse(_) | ForwardError::NoCursor { .. } | ForwardError::Never(_) => {
                CliError::Refused(self.to_string())
            }
        }
    }
}
