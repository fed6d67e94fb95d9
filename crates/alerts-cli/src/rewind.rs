//! `helio-alerts rewind`: moves a group.

use helio_alerts::reader::Stream;
use helio_console::error::{CliError, CliResult};
use helio_console::open;

use crate::args::RewindArgs;
use crate::error;

/// Commits the given start as the group's position.
pub(crate) fn run(args: &RewindArgs, url: Option<&str>) -> CliResult {
    let start = args.start.from.clone().ok_or_else(|| {
        CliError::Usage("give the new start, such as --from visit:1000000".to_owned())
    })?;
    let bus = open::look(url)?;
    let stream = Stream { bus: &bus, name: &args.stream.topic };
    stream.rewind_group(&args.group, &start).map_err(error::reader)
}
