//! Manual pages and completions, generated from the command line's table.

use std::path::Path;

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::error::{CliError, CliResult};
use crate::out::Out;

/// Runs `helio man`.
pub(crate) fn man(args: &ManArgs) -> CliResult {
    match &args.dir {
        Some(dir) => pages(dir),
        None => {
            let mut page = Vec::new();
            let made = clap_mangen::Man::new(Cli::command()).render(&mut page);
            made.map_err(|e| CliError::output(&e))?;
            print(&page)
        }
    }
}

fn pages(dir: &Path) -> CliResult {
    let made =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    made.map_err(|e| CliError::file(dir, &e))
}

/// Runs `helio completions`.
pub(crate) fn completions(args: &CompletionsArgs) -> CliResult {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "helio", &mut text);
    print(&text)
}

fn print(text: &[u8]) -> CliResult {
    let mut out = Out::new();
    out.raw(text)?;
    out.flush()
}
