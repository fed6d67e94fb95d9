//! A process of the filter service.

use std::collections::BTreeMap;

use helio_alert_filters::{Options, PythonOptions, Service};
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::worker::{hear, say};
use helio_sandbox::Launch;

use super::messages::{End, FilterTask, ServiceReply};

/// Runs the process.
pub(super) fn run(task: &FilterTask) -> CliResult {
    let bus = open::connect(Some(&task.survey.url), Some(&task.name))?;
    let python = PythonOptions { launch: Launch::python(&task.python), ..PythonOptions::default() };
    let options = Options { python, ..Options::of(&task.survey.topic) };
    let service = Service::start(&bus, &options).map_err(|e| CliError::Failure(e.to_string()))?;
    say(&ServiceReply::Ready)?;
    if hear::<End>()?.is_none() {
        return Ok(());
    }
    let counters = service.counters();
    // Its interpreters end first, so that their processor time is known.
    drop(service);
    let counters = counters.values().into_iter();
    let counters: BTreeMap<_, _> = counters.map(|(name, _, n)| (name.to_owned(), n)).collect();
    say(&ServiceReply::End(counters))?;
    hear::<End>().map(drop)
}
