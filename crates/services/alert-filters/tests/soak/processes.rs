//! One, two and four processes on a journal, killed at random moments.

use std::time::Duration;

use crate::support::kills::{self, Site};

/// A process of the service, started by the tests below.
#[test]
fn child() {
    kills::child();
}

fn on_a_journal(test: impl FnOnce(&Site<'_>)) {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("journal:{}", folder.path().display());
    test(&Site { url: &url, child: "processes::child", life: Duration::from_millis(1_600) });
}

#[test]
fn one_process_killed_twenty_times() {
    on_a_journal(|site| kills::killed(site, 1));
}

#[test]
fn two_processes_killed_twenty_times() {
    on_a_journal(|site| kills::killed(site, 2));
}

#[test]
fn four_processes_killed_twenty_times() {
    on_a_journal(|site| kills::killed(site, 4));
}

#[test]
fn statistics_are_those_of_one_process() {
    on_a_journal(kills::statistics);
}
