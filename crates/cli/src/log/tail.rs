//! `helio log tail`: prints log records, stored and new ones.

use std::time::{Duration, Instant};

use helio_bus::Bus;
use helio_logging::formats::{acs_xml, json};
use helio_logging::{Follow, Next, Reader, ReaderOptions, Records};

use super::line::{Colours, colours, line};
use crate::args::log::{From, TailArgs};
use crate::error::{CliError, CliResult};
use crate::open;
use crate::out::Out;
use crate::service_error::ServiceResult;
use crate::stop::{STOP_POLL_INTERVAL, Stop};

/// Runs `helio log tail`.
pub(crate) fn run(args: &TailArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let reader = reader(args, url)?;
    let format = match (args.xml, args.output.json) {
        (true, _) => Format::Xml,
        (_, true) => Format::Json,
        _ => Format::Lines(colours()),
    };
    let records = reader.records();
    let mut tail = Tail { args, out: Out::new(), format, records, printed: 0, bytes: Vec::new() };
    let ended = tail.all(stop);
    if args.show_cursor && ended.is_ok() {
        eprintln!("-- cursor: {}", tail.records.cursor());
    }
    match ended? {
        End::Asked if args.end.is_given() || args.no_follow => return Err(CliError::Interrupted),
        End::Asked | End::Done => {}
    }
    tail.missing()
}

/// Opens the lanes. A journal is opened for reading if they all exist. Otherwise, with --follow,
/// they are created, because producers may start later.
fn reader(args: &TailArgs, url: Option<&str>) -> CliResult<Reader> {
    let url = open::url(url)?;
    let open = |bus: Bus| Reader::open(&bus, &args.lanes.lanes(), options(args, &bus)?).or_cli();
    let looked = open::look_only(Some(&url)).and_then(open);
    if looked.is_ok() || args.no_follow || !url.starts_with("journal:") {
        return looked;
    }
    open::connect(Some(&url), None).and_then(open)
}

fn options(args: &TailArgs, bus: &Bus) -> CliResult<ReaderOptions> {
    let now = bus.clock().now();
    let start = From::start(args.from.as_ref(), !args.no_follow, now);
    let follow = if args.no_follow { Follow::No } else { Follow::Yes };
    let level = format!("level >= {}", args.level.number());
    let wanted = super::selector(&args.predicate, &[level], now)?;
    let options = ReaderOptions::from(start).follow(follow).levels(wanted.levels());
    Ok(options.filter(wanted))
}

enum End {
    Done,
    Asked,
}

enum Format {
    Lines(Colours),
    Json,
    Xml,
}

struct Tail<'a> {
    args: &'a TailArgs,
    out: Out,
    format: Format,
    records: Records,
    printed: u64,
    bytes: Vec<u8>,
}

impl Tail<'_> {
    fn all(&mut self, stop: &Stop) -> CliResult<End> {
        let whole = matches!(self.format, Format::Xml);
        if whole {
            self.out.raw(acs_xml::DOCUMENT_START.as_bytes())?;
        }
        let ended = self.pump(stop)?;
        if whole {
            self.out.raw(acs_xml::DOCUMENT_END.as_bytes())?;
        }
        self.out.flush()?;
        Ok(ended)
    }

    fn pump(&mut self, stop: &Stop) -> CliResult<End> {
        let until = self.args.end.until();
        while self.args.end.wants_more(self.printed) {
            if stop.asked() {
                return Ok(End::Asked);
            }
            let mut next = self.records.next(Duration::ZERO).or_cli()?;
            if matches!(next, Next::TimeOver) {
                // Nothing more for now: flush the output.
                self.out.flush()?;
                self.out.check()?;
                let now = Instant::now();
                let left =
                    until.map_or(STOP_POLL_INTERVAL, |until| until.saturating_duration_since(now));
                if left.is_zero() {
                    break;
                }
                next = self.records.next(left.min(STOP_POLL_INTERVAL)).or_cli()?;
            }
            match next {
                Next::Record(record, _) => self.record(&record)?,
                Next::News(news) => {
                    // Keep the order if both go to one terminal.
                    self.out.flush()?;
                    eprintln!("helio: {news}");
                }
                Next::TimeOver => {}
                Next::End => break,
            }
        }
        Ok(End::Done)
    }

    fn record(&mut self, record: &helio_logging::Record) -> CliResult {
        self.printed += 1;
        self.bytes.clear();
        match self.format {
            Format::Lines(colours) => return self.out.line(&line(record, colours)),
            Format::Json => json::write(record, &mut self.bytes),
            Format::Xml => acs_xml::write(record, &mut self.bytes),
        }
        self.out.raw(&self.bytes)
    }

    fn missing(&mut self) -> CliResult {
        let account = self.records.account();
        let (total, packets) = (account.total(), account.packets.iter().map(|lane| lane.lost));
        let bad = total.malformed + total.damaged;
        match (total.lost, packets.sum::<u64>(), bad) {
            (0, 0, 0) => Ok(()),
            (lost, packets, bad) => Err(CliError::Lost(format!(
                "{lost} records and {packets} packets are lost, {bad} could not be read (see \
                 above); read faster, or extend the retention"
            ))),
        }
    }
}
