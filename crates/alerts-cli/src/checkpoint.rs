//! `helio-alerts checkpoint`: names a position.

use helio_alerts::reader::{AlertReader, ReaderOptions};
use helio_console::error::CliResult;
use helio_console::open;

use crate::args::CheckpointArgs;
use crate::error;

/// Names the given start, or the end of what is stored.
pub(crate) fn run(args: &CheckpointArgs, url: Option<&str>) -> CliResult {
    let bus = open::look(url)?;
    let options = ReaderOptions {
        start: args.start.from.clone().unwrap_or_default(),
        verify: false,
        ..ReaderOptions::default()
    };
    let reader = AlertReader::open(&bus, &args.stream.topic, options);
    let mut reader = reader.map_err(error::reader)?;
    reader.checkpoint(&args.name).map_err(error::reader)
}
