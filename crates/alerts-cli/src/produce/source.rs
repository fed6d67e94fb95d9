//! The source of packets: a generator, or files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use helio_alerts::framing::{PacketError, Schemas};
use helio_alerts::generator::{AlertNumber, Generator, GeneratorOptions, WithStamps};
use helio_alerts::layout::Ccd;
use helio_console::error::{CliError, CliResult};
use helio_core::Schema;

use crate::args::ProduceArgs;

/// A visit to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedVisit {
    /// Its number in the source.
    pub(super) index: u32,
    /// Its identifier.
    pub(super) id: i64,
    /// Its detectors.
    pub(super) detectors: Vec<i32>,
}

/// The packets of a detector and visit.
#[derive(Debug, Default)]
pub(super) struct CcdPackets {
    /// Their schema's number in the source.
    pub(super) schema: usize,
    /// Datums without frames.
    pub(super) datums: Vec<Vec<u8>>,
}

/// A source of packets.
pub(super) enum Source {
    Generated(Box<Generated>),
    Files(Files),
}

/// Visits of a generator.
pub(super) struct Generated {
    generator: Generator,
    visits: u32,
    schemas: Vec<Schema>,
}

/// Packets of files, in memory.
#[derive(Default)]
pub(super) struct Files {
    schemas: Vec<Schema>,
    visits: BTreeMap<i64, BTreeMap<i32, CcdPackets>>,
}

impl Source {
    /// The source that the arguments name.
    pub(super) fn new(args: &ProduceArgs) -> CliResult<Self> {
        if !args.from.is_empty() {
            return Ok(Self::Files(Files::read(&args.from)?));
        }
        let generator = Generator::new(GeneratorOptions {
            version: args.schema,
            seed: args.seed,
            first_visit: args.first_visit,
            alerts_per_visit: args.alerts,
            detectors: args.detectors,
            history: args.history,
            stamps: if args.no_stamps { WithStamps::None } else { WithStamps::Fits },
        });
        let schemas = vec![args.schema.schema().clone()];
        Ok(Self::Generated(Box::new(Generated { generator, visits: args.visits, schemas })))
    }

    /// The schemas of the packets.
    pub(super) fn schemas(&self) -> &[Schema] {
        match self {
            Self::Generated(source) => &source.schemas,
            Self::Files(source) => &source.schemas,
        }
    }

    /// The visits, in order.
    pub(super) fn visits(&self) -> Vec<PlannedVisit> {
        match self {
            Self::Generated(source) => {
                let detectors: Vec<i32> =
                    (0..source.generator.options().detectors).map(i32::from).collect();
                let visit = |index| PlannedVisit {
                    index,
                    id: source.generator.visit_id(index),
                    detectors: detectors.clone(),
                };
                (0..source.visits).map(visit).collect()
            }
            Self::Files(source) => {
                let visits = (0..).zip(&source.visits);
                let visit = |(index, (id, ccds)): (u32, (&i64, &BTreeMap<i32, CcdPackets>))| {
                    PlannedVisit { index, id: *id, detectors: ccds.keys().copied().collect() }
                };
                visits.map(visit).collect()
            }
        }
    }

    /// The packets of a detector.
    pub(super) fn packets(&mut self, visit: &PlannedVisit, detector: i32) -> CcdPackets {
        match self {
            Self::Generated(source) => source.packets(visit.index, detector),
            Self::Files(source) => {
                let ccds = source.visits.get_mut(&visit.id);
                ccds.and_then(|ccds| ccds.remove(&detector)).unwrap_or_default()
            }
        }
    }
}

impl Generated {
    fn packets(&mut self, visit: u32, detector: i32) -> CcdPackets {
        let Ok(detector) = u16::try_from(detector) else { return CcdPackets::default() };
        let alerts = self.generator.alerts(detector);
        let datum = |number| {
            let mut datum = Vec::new();
            self.generator.write(AlertNumber { visit, detector, number }, &mut datum);
            datum
        };
        let datums = (0..alerts).map(datum).collect();
        CcdPackets { schema: 0, datums }
    }
}

impl Files {
    fn read(paths: &[PathBuf]) -> CliResult<Self> {
        let (mut files, mut schemas) = (Self::default(), Schemas::rubin());
        for path in paths {
            let bytes = std::fs::read(path).map_err(|error| CliError::file(path, &error))?;
            files.add(path, &bytes, &mut schemas)?;
        }
        Ok(files)
    }

    fn add(&mut self, path: &Path, bytes: &[u8], schemas: &mut Schemas) -> CliResult {
        let refused =
            |why: &dyn std::fmt::Display| CliError::Refused(format!("{}: {why}", path.display()));
        let opened = schemas.open(bytes).map_err(|error: PacketError| refused(&error))?;
        let schema = self.schema(opened.layout.schema());
        for (index, datum) in opened.datums.iter().enumerate() {
            let ccd = opened.layout.ccd(datum).map_err(|e| refused(&format!("{index}: {e}")))?;
            let Ccd { visit, detector } = ccd.ok_or_else(|| {
                refused(&"its schema names no visit and detector (diaSource.visit and .detector)")
            })?;
            let ccds = self.visits.entry(visit).or_default();
            let packets = ccds.entry(detector).or_insert(CcdPackets { schema, datums: Vec::new() });
            if packets.schema != schema {
                return Err(refused(&format!(
                    "visit {visit} has packets of detector {detector} in two versions of the \
                     schema; publish them by two commands"
                )));
            }
            packets.datums.push(datum.to_vec());
        }
        Ok(())
    }

    fn schema(&mut self, schema: &Schema) -> usize {
        let known = self.schemas.iter().position(|one| one.fingerprint() == schema.fingerprint());
        known.unwrap_or_else(|| {
            self.schemas.push(schema.clone());
            self.schemas.len() - 1
        })
    }
}
