//! A command's output: whole lines of data on stdout, and progress on stderr if it is a terminal.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use crate::error::{CliError, CliResult};

/// Large enough to fill a pipe in large writes.
const BUFFER_BYTES: usize = 64 * 1024;

/// Buffered standard output. A closed pipe ends the command without a message.
pub struct Out(BufWriter<StdoutLock<'static>>);

impl Default for Out {
    fn default() -> Self {
        Self::new()
    }
}

impl Out {
    /// Takes standard output.
    pub fn new() -> Self {
        Self(BufWriter::with_capacity(BUFFER_BYTES, io::stdout().lock()))
    }

    /// Prints one line.
    pub fn line(&mut self, text: &str) -> CliResult {
        let written = self.0.write_all(text.as_bytes()).and_then(|()| self.0.write_all(b"\n"));
        written.map_err(|e| CliError::output(&e))
    }

    /// Prints bytes unchanged.
    pub fn raw(&mut self, bytes: &[u8]) -> CliResult {
        self.0.write_all(bytes).map_err(|e| CliError::output(&e))
    }

    /// Prints one JSON value on a line of its own.
    pub fn json(&mut self, value: &impl Serialize) -> CliResult {
        let text = serde_json::to_string(value)
            .map_err(|e| CliError::Failure(format!("the output is no JSON: {e}")))?;
        self.line(&text)
    }

    /// Flushes the buffer.
    pub fn flush(&mut self) -> CliResult {
        self.0.flush().map_err(|e| CliError::output(&e))
    }

    /// An error if the pipe is closed, for commands that wait long between writes.
    pub fn check(&self) -> CliResult {
        let mut out = [PollFd::new(self.0.get_ref(), PollFlags::empty())];
        match poll(&mut out, Some(&Timespec::default())) {
            Ok(1..) if out[0].revents().contains(PollFlags::ERR) => Err(CliError::Pipe),
            _ => Ok(()),
        }
    }
}

/// Whether standard output is a terminal with cursor movement.
pub fn is_screen() -> bool {
    let plain = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stdout().is_terminal() && !plain
}

/// A line of progress on stderr, on a terminal only, redrawn at most five times a second.
pub struct Progress {
    shown: bool,
    drawn: Option<Instant>,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Progress {
    const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

    /// Progress if stderr is a terminal, else silence.
    pub fn new() -> Self {
        Self { shown: io::stderr().is_terminal(), drawn: None }
    }

    /// Shows the text of `text`.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        let due = self.drawn.is_none_or(|at| at.elapsed() >= Self::REDRAW_INTERVAL);
        if self.shown && due {
            eprint!("\r\x1b[K{}", text());
            self.drawn = Some(Instant::now());
        }
    }

    /// Removes the text, before a line of data.
    pub fn clear(&mut self) {
        if self.drawn.take().is_some() {
            eprint!("\r\x1b[K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A table of figures: the first column is text, the others are right-aligned.
pub fn table(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    aligned(head, rows, |column| if column == 0 { Side::Left } else { Side::Right })
}

/// A table of left-aligned text.
pub fn text_table(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    aligned(head, rows, |_| Side::Left)
}

enum Side {
    Left,
    Right,
}

fn aligned(head: &[&str], rows: &[Vec<String>], side: fn(usize) -> Side) -> Vec<String> {
    let head: Vec<String> = head.iter().map(|h| (*h).to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let width =
        |i: usize| all().filter_map(|r| r.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(i, (cell, width))| match side(i) {
            Side::Left => format!("{cell:<width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let rows = vec![vec!["a/b".into(), "1".into()], vec!["c".into(), "1,000".into()]];
        assert_eq!(table(&["topic", "n"], &rows), ["topic      n", "a/b        1", "c      1,000"]);
        let rows = vec![vec!["a".into(), "long text".into(), "x".into()]];
        assert_eq!(text_table(&["k", "v", ""], &rows), ["k  v", "a  long text  x"]);
    }
}
