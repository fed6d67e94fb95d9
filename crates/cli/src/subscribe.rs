//! `helio sub`: prints samples.

use std::time::{Duration, Instant};

use helio_bus::{
    Bus, Event, Lagging, Member, ReadError, Subscribe, Topic, TopicName, TransportError, WaitSet,
};

use crate::args::{LaggingArg, SubArgs};
use crate::error::{CliError, CliResult};
use crate::key::key_of;
use crate::open::{self, existing, name};
use crate::out::Out;
use crate::outage::wait_out;
use crate::show::{event_json, sample_json, sample_line};
use crate::stop::{STOP_POLL_INTERVAL, Stop, Until};
use crate::value::{Values, parse};

/// How often `--wait` looks for a missing topic or journal.
const LOOKUP_INTERVAL: Duration = Duration::from_millis(100);

/// Runs `helio sub`.
pub(crate) fn run(args: &SubArgs, url: Option<&str>, stop: &Stop) -> CliResult {
    let bus = bus(args, url, stop)?;
    let mut set = bus.wait_set()?;
    let mut members = Vec::with_capacity(args.topics.len());
    for text in &args.topics {
        let topic = find(&bus, &name(text)?, args, stop)?;
        members.push(set.add(topic.subscribe(options(args, &topic)?)?));
    }
    let mut printer = Printer { args, out: Out::new(), values: Values::new(&bus), printed: 0 };
    let ended = printer.pump(&mut set, &members, stop);
    printer.out.flush()?;
    match ended? {
        End::Asked if args.end.is_given() => return Err(CliError::Interrupted),
        End::Asked | End::Done => {}
    }
    lost(&mut set, &members)
}

/// The bus; with --wait, once it exists.
fn bus(args: &SubArgs, given: Option<&str>, stop: &Stop) -> CliResult<Bus> {
    let url = open::url(given)?;
    while args.wait && open::empty_folder(&url)?.is_some() {
        stop.check()?;
        std::thread::sleep(LOOKUP_INTERVAL);
    }
    let look = || match args.group {
        Some(_) => open::look(Some(&url)),
        None => open::look_only(Some(&url)),
    };
    if !args.wait {
        return look();
    }
    // Its engine may be away, or the journal half created.
    wait_out(&Until::new(None, stop), look)?.ok_or(CliError::Interrupted)
}

fn find(bus: &Bus, name: &TopicName, args: &SubArgs, stop: &Stop) -> CliResult<Topic> {
    loop {
        if let Some(topic) = existing(bus, name)? {
            return Ok(topic);
        }
        if !args.wait {
            let url = bus.url();
            return Err(CliError::NotFound(format!(
                "there is no topic {name} on {url}; start its publisher, or wait for it with --wait"
            )));
        }
        stop.check()?;
        std::thread::sleep(LOOKUP_INTERVAL);
    }
}

fn options(args: &SubArgs, topic: &Topic) -> CliResult<Subscribe> {
    let mut options = Subscribe::from(args.from).as_written();
    if !args.key.is_empty() {
        options = options.keys(&args.key);
    }
    if !args.key_field.is_empty() {
        let schema = topic.schema().map(|schema| parse(&schema.text)).transpose()?;
        options = options.keys([key_of(schema.as_ref(), &args.key_field)?]);
    }
    if let Some(prefix) = &args.key_prefix {
        options = options.key_prefix(prefix.as_bytes());
    }
    if let Some(group) = &args.group {
        options = options.group(group);
    }
    if let Some(lagging) = args.lagging {
        options = options.lagging(match lagging {
            LaggingArg::Lossless => Lagging::Lossless,
            LaggingArg::Drop => Lagging::DropOldest { depth: Lagging::DEFAULT_DEPTH },
            LaggingArg::Conflate => Lagging::Conflate,
        });
    }
    Ok(if args.writers { options.watch_writers() } else { options })
}

enum End {
    Done,
    Asked,
}

struct Printer<'a> {
    args: &'a SubArgs,
    out: Out,
    values: Values,
    printed: u64,
}

impl Printer<'_> {
    fn pump(&mut self, set: &mut WaitSet, members: &[Member], stop: &Stop) -> CliResult<End> {
        let until = self.args.end.until();
        while self.args.end.wants_more(self.printed) {
            if stop.asked() {
                self.out.flush()?;
                self.commit(set, members)?;
                return Ok(End::Asked);
            }
            if let Some((_, event)) = set.try_next()? {
                self.event(event)?;
                continue;
            }
            // Nothing more for now: flush the output before committing positions.
            self.out.flush()?;
            self.out.check()?;
            match self.commit(set, members) {
                // It is reported as an event. The next commit includes these positions.
                Err(ReadError::Transport(TransportError::Outage { .. })) => {}
                committed => committed?,
            }
            let left = until.map_or(STOP_POLL_INTERVAL, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Ok(End::Done);
            }
            if let Some((_, event)) = set.next_timeout(left.min(STOP_POLL_INTERVAL))? {
                self.event(event)?;
            }
        }
        self.out.flush()?;
        self.commit(set, members)?;
        Ok(End::Done)
    }

    /// Commits what is printed, in a group.
    fn commit(&self, set: &mut WaitSet, members: &[Member]) -> Result<(), ReadError> {
        if self.args.group.is_none() {
            return Ok(());
        }
        for member in members {
            if let Some(subscription) = set.get_mut(*member) {
                subscription.commit()?;
            }
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> CliResult {
        let Event::Sample(sample) = event else { return self.other(&event) };
        self.printed += 1;
        if self.args.raw {
            self.out.raw(&sample.payload)
        } else if self.args.output.json {
            let value = sample_json(&sample, &mut self.values)?;
            self.out.json(&value)
        } else {
            let line = sample_line(&sample, &mut self.values)?;
            self.out.line(&line)
        }
    }

    fn other(&mut self, event: &Event) -> CliResult {
        let Some(value) = event_json(event) else { return Ok(()) };
        if self.args.output.json {
            return self.out.json(&value);
        }
        // Assignments are printed as JSON only; troubles also for people.
        if !matches!(event, Event::Assigned(_)) {
            eprintln!("helio: {value}");
        }
        Ok(())
    }
}

fn lost(set: &mut WaitSet, members: &[Member]) -> CliResult {
    let lost = |member: &Member| set.get_mut(*member).map_or(0, |s| s.stats().lost);
    match members.iter().map(lost).sum::<u64>() {
        0 => Ok(()),
        lost => Err(CliError::Lost(format!(
            "{lost} samples are lost (told as gaps above); read faster, keep more, or \
             --lagging conflate"
        ))),
    }
}
