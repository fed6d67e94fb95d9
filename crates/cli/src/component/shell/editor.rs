//! The line editor, and output above its line.

use std::io::{Lines as IoLines, StdinLock, Write};

use helio_core::sal::Component;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, ExternalPrinter, Helper};

use super::complete::complete;
use crate::error::{CliError, CliResult};

/// The source of lines.
pub(super) enum Lines {
    /// A terminal.
    Editor(Box<Editor<Completion, MemHistory>>, String),
    /// A pipe or file.
    Pipe(IoLines<StdinLock<'static>>),
}

impl Lines {
    /// An editor with completion for a component, and the printer above its line.
    pub(super) fn editor(component: &Component, prompt: &str) -> CliResult<(Self, Above)> {
        let config = Config::builder().auto_add_history(true);
        let config = config.completion_type(CompletionType::List).build();
        let mut editor = Editor::with_history(config, MemHistory::new()).map_err(failed)?;
        editor.set_helper(Some(Completion(component.clone())));
        let above = Above(Box::new(editor.create_external_printer().map_err(failed)?));
        Ok((Self::Editor(Box::new(editor), format!("{prompt}> ")), above))
    }

    /// The next line; `None` at the end of the input.
    pub(super) fn next(&mut self) -> CliResult<Option<String>> {
        match self {
            Self::Pipe(lines) => {
                let line = lines.next().transpose();
                line.map_err(|e| CliError::Failure(format!("standard input: {e}")))
            }
            Self::Editor(editor, prompt) => match editor.readline(prompt.as_str()) {
                Ok(line) => Ok(Some(line)),
                // Ctrl-C discards the line, as in shells; Ctrl-D is the end.
                Err(ReadlineError::Interrupted) => Ok(Some(String::new())),
                Err(ReadlineError::Eof) => Ok(None),
                Err(error) => Err(failed(error)),
            },
        }
    }
}

fn failed(error: ReadlineError) -> CliError {
    CliError::Failure(format!("the terminal: {error}"))
}

/// Completes lines by a component's interface.
pub(super) struct Completion(Component);

impl Completer for Completion {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        place: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let (begin, mut found) = complete(&self.0, line.get(..place).unwrap_or(line));
        if let [one] = &mut found[..]
            && !one.ends_with('=')
        {
            // The word is complete: the next one can begin.
            one.push(' ');
        }
        Ok((begin, found))
    }
}

impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}
impl Helper for Completion {}

/// Prints a line.
pub(super) fn print(line: &str) -> CliResult {
    let mut out = std::io::stdout().lock();
    let printed = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    printed.map_err(|e| CliError::output(&e))
}

/// Prints whole lines above the one that is being edited.
///
/// It may block until the editor accepts a line, which it does only during editing. A caller must
/// not hold a lock that running a command needs. It ends with the editor.
pub(super) struct Above(Box<dyn ExternalPrinter + Send>);

impl Above {
    /// Prints a line.
    pub(super) fn print(&mut self, line: &str) -> CliResult {
        match self.0.print(format!("{line}\n")) {
            Err(ReadlineError::Io(error)) => Err(CliError::output(&error)),
            Err(error) => Err(failed(error)),
            Ok(()) => Ok(()),
        }
    }
}
