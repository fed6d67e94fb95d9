//! `helio-alerts audit`: proves count and hash of a visit.

use std::collections::BTreeMap;

use helio_alerts::reader::Stream;
use helio_alerts::visit::{Audit, DetectorAudit, Digest, Finding};
use helio_bus::Bus;
use helio_console::error::{CliError, CliResult};
use helio_console::open;
use helio_console::out::{Out, table};
use helio_console::units::human_count;
use serde::Serialize;

use crate::args::AuditArgs;
use crate::error;

#[derive(Debug, Serialize)]
struct Report<'a> {
    visit: i64,
    group: Option<&'a str>,
    copy: Option<&'a str>,
    equal: bool,
    /// Count and hash of what was found.
    found: Digest,
    /// Those of the closing record.
    decided: Option<Digest>,
    /// Detectors that are not equal to their manifests.
    differing: Vec<Differing>,
    detectors: usize,
    /// Of a group: partitions that no member has read to the visit's end.
    missing_partitions: Vec<u32>,
    /// Of a group: the member that has read each partition.
    members: BTreeMap<u32, String>,
}

#[derive(Debug, Serialize)]
struct Differing {
    detector: i32,
    finding: &'static str,
    announced: Option<Digest>,
    found: Digest,
}

/// Runs `helio-alerts audit`.
pub(crate) fn run(args: &AuditArgs, url: Option<&str>) -> CliResult {
    // A group's digests and the control topic are opened as writers open them.
    let bus = open::look(url)?;
    let report = report(args, &bus)?;
    let mut out = Out::new();
    if args.output.json {
        out.json(&report)?
    } else {
        report.print(&mut out)?
    }
    out.flush()?;
    if report.equal {
        return Ok(());
    }
    let (differing, missing) = (report.differing.len(), report.missing_partitions.len());
    Err(CliError::Lost(format!(
        "visit {} differs: {differing} detectors, {missing} partitions not read to the end; see \
         above",
        args.visit
    )))
}

fn report<'a>(args: &'a AuditArgs, bus: &Bus) -> CliResult<Report<'a>> {
    let (name, visit) = (&args.stream.topic[..], args.visit);
    let stream = Stream { bus, name };
    if let Some(group) = &args.group {
        let found = stream.audit_group(group, visit).map_err(error::reader)?;
        let equal = found.is_equal();
        let report = Report::new(args, &found.audit, equal);
        return Ok(Report { missing_partitions: found.missing, members: found.members, ..report });
    }
    let audit = match &args.copy {
        Some(copy) => {
            let copy = open::look_only(Some(copy))?;
            stream.audit_copy(Stream { bus: &copy, name }, visit)
        }
        None => stream.audit(visit),
    };
    let audit = audit.map_err(error::reader)?;
    Ok(Report::new(args, &audit, audit.is_equal()))
}

impl<'a> Report<'a> {
    fn new(args: &'a AuditArgs, audit: &Audit, equal: bool) -> Self {
        let differing = audit.detectors.iter().filter(|one| one.finding != Finding::Equal);
        Self {
            visit: args.visit,
            group: args.group.as_deref(),
            copy: args.copy.as_deref(),
            equal,
            found: audit.found,
            decided: audit.decided,
            differing: differing.map(Differing::new).collect(),
            detectors: audit.detectors.len(),
            missing_partitions: Vec::new(),
            members: BTreeMap::new(),
        }
    }

    fn print(&self, out: &mut Out) -> CliResult {
        let of = match (self.group, self.copy) {
            (Some(group), _) => format!("as read by the group {group}"),
            (None, Some(copy)) => format!("in the copy {copy}"),
            (None, None) => "as stored".to_owned(),
        };
        let count = human_count(self.found.count());
        let end = if self.equal { "equal to the manifests" } else { "DIFFERENT" };
        let detectors = self.detectors;
        let visit = self.visit;
        out.line(&format!("visit {visit} {of}: {count} alerts of {detectors} detectors, {end}"))?;
        out.line(&format!("  found    {}", self.found))?;
        if let Some(decided) = self.decided {
            out.line(&format!("  decided  {decided}"))?;
        }
        if !self.differing.is_empty() {
            let rows: Vec<_> = self.differing.iter().map(Differing::row).collect();
            let head = ["detector", "finding", "announced", "found"];
            table(&head, &rows).iter().try_for_each(|line| out.line(line))?;
        }
        if !self.missing_partitions.is_empty() {
            let partitions = &self.missing_partitions;
            out.line(&format!("not read to the visit's end: the partitions {partitions:?}"))?;
            out.line("(members that do not verify, `consume --verify`, have read nothing here)")?;
        }
        Ok(())
    }
}

impl Differing {
    fn new(of: &DetectorAudit) -> Self {
        let finding = match of.finding {
            Finding::Equal => "equal",
            Finding::NoManifest => "no_manifest",
            Finding::Short => "short",
            Finding::Excess => "excess",
            Finding::Differs => "differs",
        };
        Self { detector: of.detector, finding, announced: of.announced, found: of.found }
    }

    fn row(&self) -> Vec<String> {
        let announced = self.announced.map_or_else(|| "-".to_owned(), |digest| digest.to_string());
        vec![self.detector.to_string(), self.finding.into(), announced, self.found.to_string()]
    }
}
