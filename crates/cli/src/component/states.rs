//! `helio component states`: the state of each component, one per line.

use serde_json::json;

use super::list::{age, presence_word};
use super::observe::{Observer, TopicRole, shown};
use crate::args::component::StatesArgs;
use crate::error::{CliError, CliResult};
use crate::open::look;
use crate::out::{Out, text_table};

/// Runs `helio component states`.
pub(crate) fn run(args: &StatesArgs, url: Option<&str>) -> CliResult {
    let bus = look(url)?;
    let wanted = [TopicRole::Lease, TopicRole::State, TopicRole::Heartbeat];
    let mut observer = Observer::new(&bus, &args.components, &wanted)?;
    observer.catch_up()?;
    if observer.known.is_empty() && !args.components.is_empty() {
        let wanted = args.components.join(" or ");
        let text = format!(
            "no component that fits {wanted} was ever on {}; `helio component list` shows who was",
            bus.url()
        );
        return Err(CliError::NotFound(text));
    }
    let (mut out, now, mut rows) = (Out::new(), observer.now(), Vec::new());
    for (name, seen) in &observer.known {
        let presence = seen.presence();
        if args.output.json {
            let since = seen.state.map(|(_, since)| since.to_utc_string());
            out.json(&json!({
                "component": name.0, "index": name.1, "state": seen.present_state(),
                "last_state": seen.state_name(), "since": since, "presence": presence,
            }))?;
            continue;
        }
        let since = seen.state.map(|(_, since)| now.nanos().saturating_sub(since.nanos()) as f64);
        rows.push(vec![
            shown(name),
            seen.state_text(),
            since.map_or_else(|| "-".to_owned(), |nanos| age(nanos * 1e-9)),
            presence_word(presence).to_owned(),
        ]);
    }
    if !rows.is_empty() {
        let head = ["component", "state", "for", "presence"];
        text_table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
    }
    out.flush()
}
