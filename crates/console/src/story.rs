//! The lines of a demo: printed as they happen, and kept for its report.

use crate::args::Output;
use crate::error::CliResult;
use crate::out::{Out, Progress};

/// Lines for people.
pub struct Story {
    out: Out,
    progress: Progress,
    is_printed: bool,
    lines: Vec<String>,
}

impl Story {
    /// Begins one, whose lines are printed as they happen unless the output is JSON.
    pub fn of(output: &Output) -> Self {
        Self { is_printed: !output.json, ..Self::silent() }
    }

    /// Begins one whose lines are not printed.
    pub fn silent() -> Self {
        Self { out: Out::new(), progress: Progress::new(), is_printed: false, lines: Vec::new() }
    }

    /// Adds a line.
    pub fn print(&mut self, line: String) -> CliResult {
        if self.is_printed {
            self.progress.clear();
            self.out.line(&line)?;
            self.out.flush()?;
        }
        self.lines.push(line);
        Ok(())
    }

    /// Shows what is being done, until the next line.
    pub fn doing(&mut self, text: impl FnOnce() -> String) {
        self.progress.show(text);
    }

    /// Ends it: where the report is written, and the lines.
    pub fn close(self) -> (Out, Vec<String>) {
        (self.out, self.lines)
    }
}
