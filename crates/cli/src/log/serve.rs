//! `helio log serve`: receives log records at sockets and publishes them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use helio_log_otlp::Serving;
use helio_log_serve::{
    Dropped, Endpoint, Format, Limits, Listening, Options, Rate, ServeError, Server, Statistics,
    Via,
};
use helio_logging::{LogError, LogOptions, Spill};
use serde_json::{Value, json};

use super::otlp;
use crate::args::Output;
use crate::args::log::{InputFormat, ServeArgs};
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::Out;
use crate::service_error::{ServiceError, ServiceResult};
use crate::stop::{STOP_POLL_INTERVAL, Stop};
use crate::units;

/// How often drops are reported.
const DROP_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// The most senders that the final report names; `--json` has all.
const MAX_NAMED_SENDERS: usize = 20;

/// Serves until a signal, or until the end of standard input if there are no sockets.
pub(crate) fn run(args: &ServeArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let endpoints = endpoints(args);
    if endpoints.is_empty() && args.otlp_grpc.is_none() && args.otlp_http.is_none() {
        let text = "nothing to take records from; give --syslog-udp, --syslog-tcp, --syslog-unix, \
                    --json-tcp, --acs-tcp, --otlp-grpc, --otlp-http or --input";
        return Err(CliError::Usage(text.to_owned()));
    }
    let url = open::url(url)?;
    let builder = open::builder(args.producer.as_deref());
    let listens = args.otlp_grpc.is_some() || args.otlp_http.is_some();
    let mut server = if listens || endpoints.iter().any(|endpoint| endpoint.via != Via::Input) {
        Server::connect(builder, &url, options(args)).or_cli()?
    } else {
        // A service without sockets ends with its input and does not wait for a bus.
        Server::start(builder.connect(&url)?, options(args)).or_cli()?
    };
    let open = |endpoint| server.listen(endpoint);
    let listening = endpoints.iter().map(open).collect::<Result<Vec<_>, _>>().or_cli()?;
    let otlp =
        server.ingest().map(|intake| otlp::listen(args, intake)).transpose().or_cli()?.flatten();
    let mut out = Out::new();
    begin(&mut out, &listening, otlp.as_ref(), &url, args.output)?;
    let mut said = DropReporter { at: Instant::now(), account: server.statistics(), trouble: None };
    while !stop.asked() && (otlp.is_some() || !server.is_over()) {
        std::thread::sleep(STOP_POLL_INTERVAL);
        said.say(&server);
    }
    // Requests in flight end before the server that they publish to.
    drop(otlp);
    let account = server.end();
    if args.output.json {
        out.json(&json!({ "account": account_json(&account) }))?;
    } else {
        out.raw(account_text(&account).as_bytes())?;
    }
    out.flush()
}

fn endpoints(args: &ServeArgs) -> Vec<Endpoint> {
    let mut all = Vec::new();
    all.extend(each(Format::Syslog, Via::Udp, &args.syslog_udp));
    all.extend(each(Format::Syslog, Via::Tcp, &args.syslog_tcp));
    all.extend(each(Format::Json, Via::Tcp, &args.json_tcp));
    all.extend(each(Format::Acs, Via::Tcp, &args.acs_tcp));
    all.extend(each(Format::Syslog, Via::UnixDatagram, &args.syslog_unix));
    all.extend(each(Format::Syslog, Via::Unix, &args.syslog_unix_stream));
    all.extend(each(Format::Json, Via::Unix, &args.json_unix));
    all.extend(args.input.map(|format| {
        let format = match format {
            InputFormat::Syslog => Format::Syslog,
            InputFormat::Acs => Format::Acs,
            InputFormat::Json => Format::Json,
        };
        Endpoint { format, via: Via::Input }
    }));
    all
}

fn each<T: Clone>(
    format: Format,
    via: fn(T) -> Via,
    places: &[T],
) -> impl Iterator<Item = Endpoint> {
    places.iter().cloned().map(move |place| Endpoint { format, via: via(place) })
}

fn options(args: &ServeArgs) -> Options {
    let burst = args.burst.map_or(2.0 * args.rate, f64::from).max(1.0);
    let bytes = args.spill_bytes as u64;
    let spill = args.spill.clone().map(|file| Spill { file, bytes });
    Options {
        limits: Limits {
            rate: Rate { per_s: args.rate, burst },
            record_bytes: args.max_record,
            connections: args.connections,
            connections_per_sender: args.connections_per_sender,
            idle: args.idle,
            unfinished: args.unfinished,
            hold: args.hold,
            ..Limits::default()
        },
        log: LogOptions { lanes: args.lanes.lanes(), spill, ..LogOptions::default() },
        syslog_offset_s: args.syslog_offset.0,
    }
}

/// Prints the formats and addresses.
fn begin(
    out: &mut Out,
    listening: &[Listening],
    otlp: Option<&Serving>,
    url: &str,
    output: Output,
) -> CliResult {
    let otlp = otlp.into_iter().flat_map(otlp::listening);
    if output.json {
        let one = |Endpoint { format, via }: &Listening| {
            let (format, address) = (format.to_string(), via.address());
            json!({ "format": format, "via": via.kind(), "address": address })
        };
        let other = |(via, address): (&str, SocketAddr)| {
            let address = address.to_string();
            json!({ "format": "otlp", "via": via, "address": address })
        };
        let all: Vec<_> = listening.iter().map(one).chain(otlp.map(other)).collect();
        out.json(&json!({ "listening": all, "bus": url }))?;
    } else {
        for Endpoint { format, via } in listening {
            out.line(&format!("receives {format} at {via}"))?;
        }
        for (via, address) in otlp {
            out.line(&format!("receives otlp at {via}:{address}"))?;
        }
        out.line(&format!("publishes on {url}"))?;
    }
    out.flush()
}

/// Reports drops and the state of the bus.
struct DropReporter {
    at: Instant,
    account: Statistics,
    trouble: Option<String>,
}

impl DropReporter {
    /// Reports to standard error the drops since the last report, and when the bus stops or resumes
    /// accepting records.
    fn say(&mut self, server: &Server) {
        if self.at.elapsed() < DROP_REPORT_INTERVAL {
            return;
        }
        self.at = Instant::now();
        let (account, trouble) = (server.statistics(), server.trouble());
        let new = dropped_since(&account.dropped, &self.account.dropped);
        if new.total() > 0 {
            let received = account.received.saturating_sub(self.account.received);
            let (words, s) = (dropped_text(&new), DROP_REPORT_INTERVAL.as_secs());
            eprintln!("helio: of {} records in {s} s {words}", units::human_count(received));
        }
        match (&self.trouble, &trouble) {
            (None, Some(trouble)) => eprintln!("helio: the bus accepts no records: {trouble}"),
            (Some(_), None) => eprintln!("helio: the bus accepts records again"),
            _ => {}
        }
        (self.account, self.trouble) = (account, trouble);
    }
}

fn dropped_since(now: &Dropped, before: &Dropped) -> Dropped {
    Dropped {
        malformed: now.malformed.saturating_sub(before.malformed),
        too_large: now.too_large.saturating_sub(before.too_large),
        rate: now.rate.saturating_sub(before.rate),
        shed: now.shed.saturating_sub(before.shed),
    }
}

/// `12 dropped: 10 malformed, 2 rate`.
fn dropped_text(dropped: &Dropped) -> String {
    let causes = dropped.causes().filter(|(_, count)| *count > 0);
    let causes: Vec<_> =
        causes.map(|(cause, count)| format!("{} {cause}", units::human_count(count))).collect();
    let total = units::human_count(dropped.total());
    if causes.is_empty() {
        "0 dropped".to_owned()
    } else {
        format!("{total} dropped: {}", causes.join(", "))
    }
}

fn account_text(account: &Statistics) -> String {
    let count = units::human_count;
    let Statistics { received, own, inherited, published, waiting, .. } = *account;
    let mut text = format!("received {}", count(received));
    if inherited > 0 {
        _ = write!(text, ", found {} in the spill file", count(inherited));
    }
    if own > 0 {
        _ = write!(text, ", told {}", count(own));
    }
    _ = write!(text, ": published {}, ", count(published));
    if waiting > 0 {
        _ = write!(text, "kept {} in the spill file, ", count(waiting));
    }
    _ = writeln!(text, "{}", dropped_text(&account.dropped));
    let others = [
        (account.kernel_dropped, "datagrams were dropped by the kernel before they were read"),
        (account.refused, "connections were refused: too many"),
        (account.timed_out, "connections were closed: too slow"),
    ];
    for (number, what) in others.into_iter().filter(|(number, _)| *number > 0) {
        _ = writeln!(text, "{} {what}", count(number));
    }
    let mut wrong: Vec<_> = account.senders.iter().filter(|one| one.dropped.total() > 0).collect();
    wrong.sort_by_key(|sender| std::cmp::Reverse(sender.dropped.total()));
    for sender in wrong.iter().take(MAX_NAMED_SENDERS) {
        let name = sender.peer.map_or_else(|| "others".to_owned(), |peer| peer.to_string());
        let (received, dropped) = (count(sender.received), dropped_text(&sender.dropped));
        _ = writeln!(text, "  {name}: received {received}, {dropped}");
    }
    if wrong.len() > MAX_NAMED_SENDERS {
        _ = writeln!(text, "  and {} other senders", wrong.len() - MAX_NAMED_SENDERS);
    }
    text
}

fn account_json(account: &Statistics) -> Value {
    let dropped = |dropped: &Dropped| -> Value {
        dropped.causes().map(|(cause, count)| (cause.name().to_owned(), json!(count))).collect()
    };
    let senders = account.senders.iter().map(|sender| {
        json!({
            "sender": sender.peer.map(|peer| peer.to_string()),
            "received": sender.received,
            "dropped": dropped(&sender.dropped),
            "refused": sender.refused,
            "timed_out": sender.timed_out,
        })
    });
    json!({
        "received": account.received,
        "own": account.own,
        "inherited": account.inherited,
        "published": account.published,
        "waiting": account.waiting,
        "dropped": dropped(&account.dropped),
        "refused": account.refused,
        "timed_out": account.timed_out,
        "kernel_dropped": account.kernel_dropped,
        "senders": senders.collect::<Vec<_>>(),
    })
}

impl ServiceError for ServeError {
    fn into_cli(self) -> CliError {
        match self {
            ServeError::Log(LogError::Connect(error)) => error.into(),
            ServeError::Log(LogError::Topic(error)) => error.into(),
            error => CliError::Failure(error.to_string()),
        }
    }
}
