//! `helio-alerts serve`: metrics and stamps over HTTP.

use std::sync::Arc;

use helio_alert_serve::{Counter, Observer, Service, StampStore, router};
use helio_alerts::services::{STAMPS_SERVICE, ServicesError, StampUrls, announce};
use helio_bus::Bus;
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::Out;
use helio_console::outage::wait_out;
use helio_console::stop::{STOP_POLL_INTERVAL, Stop, Until};
use helio_http::{Limits, Refusals};
use serde::Serialize;

use crate::args::ServeArgs;
use crate::filter;

/// The addresses, as JSON.
#[derive(Debug, Serialize)]
struct Serving<'a> {
    metrics: String,
    stamps: &'a str,
    bus: &'a str,
    stream: &'a str,
}

/// Serves until a signal.
pub(crate) fn run(args: &ServeArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let url = open::url(url)?;
    let stream = &args.stream.topic[..];
    let failed = |error: std::io::Error| {
        CliError::Failure(format!("cannot listen at {}: {error}", args.listen))
    };
    let listening = helio_http::listen(&args.listen, "alerts-http", Limits::default());
    let listening = listening.map_err(failed)?;
    let address = format!("http://{}", listening.address());
    let urls = StampUrls::below(args.public_url.as_deref().unwrap_or(&address));
    let opened = wait_out(&Until::new(None, stop), || {
        let bus = open::connect(Some(&url), None)?;
        announce_stamps(&bus, stream, &urls)?;
        Ok(bus)
    })?;
    let Some(bus) = opened else { return Ok(()) };
    let observer = Observer::start(&bus, stream)
        .map_err(|error| CliError::Failure(format!("cannot start threads: {error}")))?;
    let observer = Arc::new(observer);
    let stamps = StampStore::new(&bus, stream, Some(Arc::clone(&observer)));
    let limits = listening.refusals();
    let service = Service::new(observer, stamps)
        .with(filter::source(&bus, stream))
        .with(Box::new(move || refusals(&limits)));
    let server = listening.serve(router(Arc::new(service)));
    let mut out = Out::new();
    let serving = Serving {
        metrics: format!("{address}/metrics"),
        stamps: urls.template(),
        bus: &url,
        stream,
    };
    if args.output.json {
        out.json(&serving)?;
    } else {
        out.line(&format!("metrics of {stream} on {url}: {}", serving.metrics))?;
        out.line(&format!("stamps: {}", serving.stamps))?;
    }
    out.flush()?;
    while !stop.asked() {
        std::thread::sleep(STOP_POLL_INTERVAL);
    }
    drop(server);
    Ok(())
}

/// What the limits of the HTTP server refused, as metrics.
pub(crate) fn refusals(limits: &Refusals) -> Vec<Counter> {
    let counter = |cause: &str, value: u64| Counter {
        name: "helio_alerts_http_refused_total".to_owned(),
        help: "Connections and requests that were refused: too many, or too late.".to_owned(),
        labels: vec![("cause", cause.to_owned())],
        value: value as f64,
    };
    vec![counter("limit", limits.refused()), counter("late", limits.timed_out())]
}

/// Announces where stamps are, unless that is announced already.
pub(crate) fn announce_stamps(bus: &Bus, stream: &str, urls: &StampUrls) -> CliResult {
    let known = StampUrls::of_stream(bus, stream).map_err(failure)?;
    if known.as_ref() == Some(urls) {
        return Ok(());
    }
    announce(bus, stream, STAMPS_SERVICE, urls.template()).map_err(failure)
}

fn failure(error: ServicesError) -> CliError {
    match error {
        ServicesError::Topic(error) => error.into(),
        ServicesError::Read(error) => error.into(),
        ServicesError::NotAccepted(error) => error.into(),
        error @ ServicesError::Encode(_) => CliError::Failure(error.to_string()),
    }
}
