//! `helio log search`: prints the records of an archive.

use helio_log_archive::SearchItem;
use helio_logging::formats::{acs_xml, json};
use serde_json::json;

use crate::args::archive::SearchArgs;
use crate::error::{CliError, CliResult};
use crate::log::line::{colours, line};
use crate::out::Out;
use crate::stop::Stop;

/// Runs `helio log search`.
pub(crate) fn run(args: &SearchArgs, stop: &Stop) -> CliResult {
    let search = super::open(&args.wanted)?;
    let mut out = Out::new();
    if args.count {
        let counts = search.count();
        if args.output.json {
            let (gaps, damaged) = (counts.gaps, counts.damaged);
            out.json(&json!({"records": counts.records, "gaps": gaps, "damaged_blocks": damaged}))?;
        } else {
            out.line(&counts.records.to_string())?;
        }
        out.flush()?;
        let lost = format!("{} blocks of the archive cannot be read", counts.damaged);
        return if counts.damaged == 0 { Ok(()) } else { Err(CliError::Lost(lost)) };
    }
    let (colours, mut bytes) = (colours(), Vec::new());
    let (mut printed, mut unread) = (0, 0);
    if args.xml {
        out.raw(acs_xml::DOCUMENT_START.as_bytes())?;
    }
    for found in search {
        if stop.asked() {
            break;
        }
        let SearchItem::Record(record) = &found else {
            // Keep the order if both go to one terminal.
            out.flush()?;
            super::tell(&found, &mut unread);
            continue;
        };
        bytes.clear();
        match (args.xml, args.output.json) {
            (true, _) => acs_xml::write(record, &mut bytes),
            (_, true) => json::write(record, &mut bytes),
            _ => {
                bytes.extend_from_slice(line(record, colours).as_bytes());
                bytes.push(b'\n');
            }
        }
        out.raw(&bytes)?;
        printed += 1;
        if args.limit.is_some_and(|limit| printed >= limit) {
            break;
        }
    }
    if args.xml {
        out.raw(acs_xml::DOCUMENT_END.as_bytes())?;
    }
    out.flush()?;
    stop.check()?;
    super::whole(unread)
}
