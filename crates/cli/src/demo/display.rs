//! What people see of the demo while it runs: its story, and what `helio component watch` shows.

use std::time::{Duration, Instant};

use helio_bus::Bus;

use crate::component::observe::{Observer, shown};
use crate::component::watch::{DISCOVERY_INTERVAL, WATCHED_TOPICS, table};
use crate::error::CliResult;
use crate::out::{Out, is_screen};
use crate::screen::Screen;

/// The longest time from one look at the players to the next.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// From one drawing of the table to the next.
const REDRAW_INTERVAL: Duration = Duration::from_millis(500);

/// The newest lines of the story that are shown below the table: both fit a small terminal.
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
    /// Nothing before the end.
    Nothing,
}

impl Display {
    /// Nothing is shown where `json` comes at the end.
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

    /// Tells a line of the story.
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

    /// What goes on just now.
    pub(crate) fn doing(&mut self, text: String) {
        self.doing = text;
    }

    /// Waits a little and shows what is new.
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

    /// Shows what operators see at this moment, where they do not see it all the time.
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

    /// The states that components are in, as operators see them.
    pub(crate) fn states(&mut self) -> CliResult<Vec<(String, String)>> {
        self.look()?;
        let states = self.observer.known.iter();
        Ok(states.map(|(n, seen)| (shown(n), seen.state_name().unwrap_or_default())).collect())
    }

    /// Gives the screen back, with the story where it was.
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
