//! A terminal for tests: the program runs in it as it does for a person, and what a person would
//! see can be waited for.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU16;
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use pty_process::Size;
use pty_process::blocking::{Pty, open};
use rustix::termios::{Termios, tcgetattr};
use vt100::{Parser, Screen};

use super::HANG_TIMEOUT;

/// What the program wrote so far, as it is seen.
struct Seen {
    parser: Parser,
    /// Whether the program has closed the terminal.
    closed: bool,
}

/// A program in a terminal. Dropped, it is killed.
pub(crate) struct Terminal {
    pty: Arc<Pty>,
    child: Child,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    before: Termios,
}

fn size(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("a terminal has lines and columns")
}

impl Terminal {
    /// Starts a program in a terminal of so many lines and columns.
    pub(crate) fn start(mut command: Command, lines: u16, columns: u16) -> Self {
        let (pty, pts) = open().expect("a terminal");
        pty.resize(Size::new(lines, columns)).expect("it has a size");
        let before = tcgetattr(&pty).expect("its settings");
        for (name, value) in [("TERM", "xterm-256color"), ("NO_COLOR", "")] {
            if command.get_envs().all(|(given, _)| given != name) {
                command.env(name, value);
            }
        }
        let child = pty_process::blocking::Command::from(command).spawn(pts);
        let child = child.expect("the program starts");
        let parser = Parser::new(size(lines), size(columns), 1_000);
        let seen = Arc::new((Mutex::new(Seen { parser, closed: false }), Condvar::new()));
        let terminal = Self { pty: Arc::new(pty), child, seen, before };
        let (pty, seen) = (Arc::clone(&terminal.pty), Arc::clone(&terminal.seen));
        std::thread::spawn(move || watch(&pty, &seen));
        terminal
    }

    /// Types what a person types.
    pub(crate) fn type_in(&self, text: &str) {
        (&*self.pty).write_all(text.as_bytes()).expect("the terminal takes keys");
    }

    /// Makes it larger or smaller.
    pub(crate) fn resize(&self, lines: u16, columns: u16) {
        self.seen.0.lock().unwrap().parser.set_size(size(lines), size(columns));
        self.pty.resize(Size::new(lines, columns)).expect("it has a size");
    }

    /// Waits until what is seen is as it is to be, and gives what was found there.
    pub(crate) fn wait_for<T>(&self, what: &str, mut look: impl FnMut(&Screen) -> Option<T>) -> T {
        let until = Instant::now() + HANG_TIMEOUT;
        let mut seen = self.seen.0.lock().unwrap();
        loop {
            if let Some(found) = look(seen.parser.screen()) {
                return found;
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(
                !left.is_zero() && !seen.closed,
                "{what}:\n{}",
                seen.parser.screen().contents()
            );
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
    }

    /// Waits until a text is seen anywhere.
    pub(crate) fn wait_text(&self, text: &str) {
        self.wait_for(text, |screen| screen.contents().contains(text).then_some(()));
    }

    /// Waits until the program has ended, and gives its exit code and what is seen then.
    pub(crate) fn end(mut self) -> (Option<i32>, Screen) {
        let until = Instant::now() + HANG_TIMEOUT;
        let mut seen = self.seen.0.lock().unwrap();
        while !seen.closed {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "it does not end:\n{}", seen.parser.screen().contents());
            seen = self.seen.1.wait_timeout(seen, left).unwrap().0;
        }
        let screen = seen.parser.screen().clone();
        drop(seen);
        let code = self.child.wait().expect("it ends").code();
        let after = tcgetattr(&*self.pty).expect("its settings");
        assert_eq!(settings(&after), settings(&self.before), "the terminal is given back");
        assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
        (code, screen)
    }

    /// The settings that the program has made.
    pub(crate) fn settings(&self) -> Termios {
        tcgetattr(&*self.pty).expect("its settings")
    }

    /// The program's process.
    pub(crate) fn process(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }
}

/// All of a terminal's settings, as text: they have no equality of their own.
fn settings(termios: &Termios) -> String {
    format!("{termios:?}")
}

/// The first line of the screen that begins with a word: where it is, and what it says.
pub(crate) fn row(screen: &Screen, word: &str) -> Option<(u16, String)> {
    let columns = screen.size().1.get();
    let rows = screen.rows(0, columns).enumerate();
    let begins = |line: &str| line.split_whitespace().next() == Some(word);
    rows.map(|(at, line)| (at as u16, line)).find(|(_, line)| begins(line))
}

fn watch(mut pty: &Pty, seen: &(Mutex<Seen>, Condvar)) {
    let mut bytes = [0; 4096];
    loop {
        // Where nobody has the terminal any more that is an error.
        let count = pty.read(&mut bytes).unwrap_or(0);
        let mut now = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
        now.closed = count == 0;
        now.parser.process(&bytes[..count]);
        seen.1.notify_all();
        if count == 0 {
            return;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
