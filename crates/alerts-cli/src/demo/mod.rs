//! `helio-alerts demo`: nights of a survey telescope in separate processes, with a proof that
//! nothing is lost.
//!
//! Producers, one a CCD, publish visits; members of groups and a witness read and verify every
//! payload; the filter service runs the users' filters; users receive their alerts. Producers and a
//! member are killed (SIGKILL) and started again, another member is stalled (SIGSTOP), and the
//! witness goes back to the second visit. Each step waits for an event and never for time alone, so
//! that a slow machine only takes longer.

mod args;
mod cast;
mod filter_process;
pub(crate) mod matrix;
mod member;
mod messages;
mod night;
mod producer;
mod report;
mod site;
mod stamps;
mod texts;
mod usage;
mod users;

use std::time::{Duration, Instant, SystemTime};

use helio_alert_filters::{Content, Delivery, FilterStore, Force};
use helio_alerts::reader::Stream;
use helio_bus::Bus;
use helio_console::clock::load;
use helio_console::error::{CliError, CliResult};

use helio_console::stop::Stop;
use helio_console::story::Story;
use helio_console::worker::die_with_starter;
use helio_sandbox::{Filter, Launch, Limits};
use serde::de::DeserializeOwned;

use self::args::Sizes;
pub(crate) use self::args::{DemoArgs, WorkerArgs};
use self::cast::{Cast, Numbers, group};
use self::messages::{Stamped, Survey};
use self::night::{Night, Plan};
use self::report::{AuditLine, Outcome, Report};
use self::site::{Place, Site};
use self::texts::{Kind, Text};
use crate::error;

/// How long a producer tries: a slow machine is no failure.
const RETRY_FOR: Duration = Duration::from_secs(120);
/// After this time an incomplete visit is closed; it is never reached if nothing is lost.
const WINDOW: Duration = Duration::from_secs(900);

/// Runs a worker's task in this process.
pub(crate) fn worker(args: &WorkerArgs) -> CliResult {
    die_with_starter()?;
    match args.kind.as_str() {
        "demo-producer" => producer::run(&task(args)?),
        "demo-member" => member::run(&task(args)?),
        "demo-witness" => member::witness(&task(args)?),
        "demo-filters" => filter_process::run(&task(args)?),
        "demo-stamps" => stamps::run(&task(args)?),
        "demo-users" => users::run(&task(args)?),
        kind => Err(CliError::Usage(format!("unknown kind of worker {kind:?}"))),
    }
}

fn task<T: DeserializeOwned>(args: &WorkerArgs) -> CliResult<T> {
    serde_json::from_str(&args.task)
        .map_err(|e| CliError::Usage(format!("invalid task of a worker: {e}")))
}

/// Runs `helio-alerts demo`.
pub(crate) fn run(args: &DemoArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let (begun, before) = (Instant::now(), load());
    let sizes = Sizes::of(args)?;
    let seed = args.seed.unwrap_or_else(clock_seed);
    let site = Site::open(Place::of(args, url), &sizes)?;
    let survey = Survey {
        url: site.url().to_owned(),
        topic: args.topic.clone(),
        seed,
        alerts: sizes.alerts,
        detectors: sizes.producers,
        partitions: args.partitions,
        stamped: Stamped::Inline,
    };
    let bus = site.bus();
    let producer = producer::open_producer(bus, &survey)?;
    let mut story = Story::of(&args.output);
    story.print(site.sentence(seed))?;
    let texts = texts::texts(sizes.users);
    let python = probe(args);
    if let Err(reason) = &python {
        story.print(format!("filters in Python do not run: {reason}"))?;
    }
    activate(bus, &survey, &sizes, &texts, &mut story, stop)?;
    let program = args.python.to_string_lossy();
    let cast = Cast::start(&survey, numbers(args, &sizes, &texts, &program), stop)?;
    story.print(format!("{} processes are ready", cast.len()))?;
    let mut night = Night {
        args,
        sizes,
        plan: Plan::draw(&sizes, seed),
        bus,
        survey: &survey,
        producer: &producer,
        cast,
        stop,
        story,
        visits: Vec::new(),
        beside_stall: None,
    };
    night.play()?;
    let Night { cast, mut story, visits, beside_stall, .. } = night;
    let (notes, meter) = cast.end()?;
    story.doing(|| "audits".to_owned());
    let audits = report::visits(&sizes).map(|visit| audit(bus, &survey, &sizes, visit));
    let audits = audits.collect::<CliResult<Vec<_>>>()?;
    let (mut out, story) = story.close();
    let outcome = Outcome {
        sizes,
        url: site.url(),
        visits,
        notes,
        used: meter.used(),
        texts: &texts,
        python,
        audits,
        beside_stall,
        story,
        load: [before, load()],
        seconds: begun.elapsed().as_secs_f64(),
    };
    let report = Report::of(outcome);
    if args.output.json {
        out.json(&report)?;
    } else {
        report.lines().iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()?;
    report.verdict()
}

fn clock_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs()
}

fn numbers<'a>(args: &DemoArgs, sizes: &Sizes, texts: &[Text], python: &'a str) -> Numbers<'a> {
    Numbers {
        groups: sizes.groups,
        members: sizes.members,
        filter_processes: args.filter_processes,
        python,
        users: texts.iter().map(|text| text.user.clone()).collect(),
    }
}

/// Whether a filter in Python starts, with both of its guards.
fn probe(args: &DemoArgs) -> Result<(), String> {
    let text = "import numpy\n\ndef select(batch):\n    return batch['diaSource.snr'] > 0\n";
    let started = Filter::start(Launch::python(&args.python), text, Limits::default());
    started.map(drop).map_err(|error| error.to_string())
}

/// Stores the lists, and adds and activates each user's filter. No dry run is possible before the
/// first night.
fn activate(
    bus: &Bus,
    survey: &Survey,
    sizes: &Sizes,
    texts: &[Text],
    story: &mut Story,
    stop: &Stop,
) -> CliResult {
    let failed = |error: &dyn std::fmt::Display| CliError::Failure(format!("filters: {error}"));
    let mut store = FilterStore::open(bus, &survey.topic).map_err(|e| failed(&e))?;
    let number = |kind| (0..).zip(texts.iter().filter(move |one| one.kind == kind));
    for (number, _) in number(Kind::WatchList) {
        let positions = texts::list_positions(survey, sizes.visits, number)?;
        let name = texts::watch_list(number);
        let put = store.put_watch_list(&name, positions, texts::RADIUS_ARCSEC);
        put.map_err(|e| failed(&e))?;
    }
    for (number, _) in number(Kind::Region) {
        let cells = texts::region_cells(survey, sizes.visits, number)?;
        store.put_region(&texts::region(number), cells).map_err(|e| failed(&e))?;
    }
    let delivery = Delivery { content: Content::WithStamps, ..Delivery::default() };
    for (number, text) in (1..).zip(texts) {
        stop.check()?;
        let name = "filter";
        let added = store.add(&text.user, name, text.language(), &text.text);
        let id = added.map_err(|e| failed(&e))?.id();
        store.activate(&id, Force::Yes).map_err(|e| failed(&e))?;
        store.set_delivery(&text.user, delivery).map_err(|e| failed(&e))?;
        story.doing(|| format!("{number} of {} filters are active", texts.len()));
    }
    story.print(format!("{} users have active filters", texts.len()))
}

fn audit(bus: &Bus, survey: &Survey, sizes: &Sizes, visit: i64) -> CliResult<AuditLine> {
    let stream = Stream { bus, name: &survey.topic };
    let stored = stream.audit(visit).map_err(error::reader)?;
    let mut groups_equal = 0;
    for number in 0..sizes.groups {
        let audit = stream.audit_group(&group(number), visit).map_err(error::reader)?;
        groups_equal += u16::from(audit.is_equal());
    }
    Ok(AuditLine {
        visit,
        stored_equal: stored.is_equal() && stored.decided.is_some(),
        alerts: stored.found.count(),
        digest: stored.found.to_string(),
        groups_equal,
    })
}
