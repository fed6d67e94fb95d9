//! The demo's display: the event log, and the table of `helio component watch`.

use std::time::{Duration, Instant};

use helio_bus::Bus;

use crate::component::observe::{Observer, shown};
use crate::component::watch::{DISCOVERY_INTERVAL, WATCHED_TOPICS, table};
use crate::error::CliResult;
use crate::out::{Out, is_screen};
use crate::screen::Screen;

/// How often the players are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// How often the table is redrawn.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

/// Lines of the story below the table; both fit a small terminal.
const STORY_LINES: usize = 12;

/// The operators' view, and the story.
pub(crate) struct Display {
    observer: Observer,
    show: Show,
    begun: Instant,
    looked_up: Instant,
    drawn: Option<Instant>,
    story: Vec<String>,
    doing: String,
}

enum Show {
    /// A live table on a terminal, with the story below.
    Table(Screen),
    /// The story, line by line.
    Lines,
    /// Nothing until the end.
    Nothing,
}

impl Display {
    /// Shows nothing if `json` is printed at the end.
    pub(crate) fn open(bus: &Bus, json: bool) -> CliResult<Self> {
        let show = match (json, is_screen()) {
            (true, _) => Show::Nothing,
            (false, true) => Show::Table(Screen::begin()?),
            (false, false) => Show::Lines,
        };
        let observer = Observer::new(bus, &[], &WATCHED_TOPICS)?;
        let (begun, drawn) = (Instant::now(), None);
        let (story, doing) = (Vec::new(), String::new());
        Ok(Self { observer, show, begun, looked_up: begun, drawn, story, doing })
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&mut self, text: &str) -> CliResult {
        let line = format!("{:5.1} s  {text}", self.begun.elapsed().as_secs_f64());
        let shown = match self.show {
            Show::Lines => print(std::slice::from_ref(&line)),
            Show::Table(_) | Show::Nothing => Ok(()),
        };
        self.story.push(line);
        self.drawn = None;
        shown
    }

    /// Sets the line about the current activity.
    pub(crate) fn doing(&mut self, text: String) {
        self.doing = text;
    }

    /// Waits a little and updates the display.
    pub(crate) fn step(&mut self) -> CliResult {
        let Show::Table(screen) = &mut self.show else {
            std::thread::sleep(POLL_INTERVAL);
            return Ok(());
        };
        self.observer.next(POLL_INTERVAL)?;
        while self.observer.next(Duration::ZERO)?.is_some() {}
        if self.looked_up.elapsed() >= DISCOVERY_INTERVAL {
            self.observer.look_up()?;
            self.looked_up = Instant::now();
        }
        if self.drawn.is_none_or(|at| at.elapsed() >= REDRAW_INTERVAL) {
            let table = table(&self.observer);
            let mut lines = table.rows;
            lines.push(String::new());
            lines.extend(
                self.story.iter().skip(self.story.len().saturating_sub(STORY_LINES)).cloned(),
            );
            lines.push(self.doing.clone());
            screen.show(&table.head, &lines)?;
            self.drawn = Some(Instant::now());
        }
        Ok(())
    }

    /// Prints the table once, if it is not shown continuously.
    pub(crate) fn show_operators(&mut self) -> CliResult {
        if !matches!(self.show, Show::Lines) {
            return Ok(());
        }
        self.look()?;
        self.tell("helio component watch shows operators:")?;
        let table = table(&self.observer);
        let lines = table.head.iter().skip(1).chain(&table.rows);
        print(&lines.map(|line| format!("         {line}")).collect::<Vec<_>>())
    }

    fn look(&mut self) -> CliResult {
        self.observer.look_up()?;
        self.observer.catch_up()
    }

    /// The states of the components, as in the table.
    pub(crate) fn states(&mut self) -> CliResult<Vec<(String, String)>> {
        self.look()?;
        let states = self.observer.known.iter();
        Ok(states.map(|(n, seen)| (shown(n), seen.state_name().unwrap_or_default())).collect())
    }

    /// Restores the screen and prints the story.
    pub(crate) fn close(self) -> CliResult<Vec<String>> {
        if let Show::Table(screen) = self.show {
            drop(screen);
            print(&self.story)?;
        }
        Ok(self.story)
    }
}

fn print(lines: &[String]) -> CliResult {
    let mut out = Out::new();
    lines.iter().try_for_each(|line| out.line(line))?;
    out.flush()
}
