//! Watch lists and regions, which filters name.
//!
//! Constraints. A list of 100,000 positions is larger than a record may be on Kafka, so it lies in
//! parts. A killed upload leaves the list as it was: a revision's parts do not replace those of the
//! revision before, and the head that names the revision comes last.
//!
//! Format. Key `head/NAME`: JSON, [`Head`]. Key `part/NAME/PARITY/NUMBER`: JSON, [`Part`], where
//! PARITY is the revision modulo 2. A null of the head removes the list.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use helio_filter::{Catalog, LiveWatchList, Region, WatchList};
use serde::{Deserialize, Serialize};

use crate::error::ChangeError;

/// Entries of a part: half a megabyte in base64.
pub(crate) const PART_ENTRIES: usize = 24_000;
/// Watch lists and regions of a service: with 100,000 positions each they have 3 GB as records, and
/// 160 MB in memory.
pub const MAX_LISTS: usize = 100;
/// Positions of all watch lists, and ranges of all regions: 16 bytes each in a process's memory.
pub(crate) const MAX_ENTRIES: usize = 10_000_000;

/// The kind of a list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ListKind {
    /// Positions with a radius around each.
    WatchList {
        /// The radius in arcseconds.
        radius_arcsec: f64,
    },
    /// Ranges of HEALPix cells.
    Region,
}

/// A list, without its entries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// The kind.
    pub kind: ListKind,
    /// The revision, from 1.
    pub revision: u64,
    /// Positions or ranges.
    pub entries: usize,
    /// The number of parts.
    pub parts: u32,
}

/// A part of a list's entries: pairs of f64 or of u64, little-endian, in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    revision: u64,
    entries: String,
}

/// The entries of a list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Entries {
    Positions(Vec<[f64; 2]>),
    Ranges(Vec<Range<u64>>),
}

impl Entries {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Positions(positions) => positions.len(),
            Self::Ranges(ranges) => ranges.len(),
        }
    }

    fn pairs(&self) -> Vec<[[u8; 8]; 2]> {
        match self {
            Self::Positions(positions) => {
                positions.iter().map(|p| [p[0].to_le_bytes(), p[1].to_le_bytes()]).collect()
            }
            Self::Ranges(ranges) => {
                ranges.iter().map(|r| [r.start.to_le_bytes(), r.end.to_le_bytes()]).collect()
            }
        }
    }

    /// The records of a revision, keys and values: parts first.
    pub(crate) fn records(
        &self,
        name: &str,
        kind: ListKind,
        revision: u64,
    ) -> Vec<(String, Vec<u8>)> {
        let pairs = self.pairs();
        let mut records = Vec::new();
        for (number, chunk) in pairs.chunks(PART_ENTRIES).enumerate() {
            let entries = STANDARD.encode(chunk.as_flattened().as_flattened());
            records
                .push((part_key(name, revision, number as u32), json(&Part { revision, entries })));
        }
        let parts = records.len() as u32;
        let head = Head { kind, revision, entries: pairs.len(), parts };
        records.push((format!("head/{name}"), json(&head)));
        records
    }
}

fn part_key(name: &str, revision: u64, number: u32) -> String {
    format!("part/{name}/{}/{number}", revision % 2)
}

pub(crate) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("the service's records have a JSON form")
}

/// A list as filters see it.
#[derive(Debug, Clone)]
enum Loaded {
    WatchList(Arc<LiveWatchList>),
    Region(Region),
}

/// The contents of lists, by name.
#[derive(Debug, Default)]
pub struct Contents {
    /// The watch lists, which change with the store's.
    pub watch_lists: BTreeMap<String, Arc<LiveWatchList>>,
    /// The regions.
    pub regions: BTreeMap<String, Region>,
}

/// The lists of a service.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    heads: BTreeMap<String, Head>,
    parts: HashMap<String, Part>,
    loaded: BTreeMap<String, Loaded>,
    /// Grows whenever filters have to be planned again: names, and regions.
    generation: u64,
}

impl Lists {
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn heads(&self) -> &BTreeMap<String, Head> {
        &self.heads
    }

    /// Takes a record of the topic; what it completes is loaded.
    pub(crate) fn take(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        let key = std::str::from_utf8(key).map_err(|error| error.to_string())?;
        let wrong = |error: serde_json::Error| error.to_string();
        if let Some(name) = key.strip_prefix("head/") {
            match value {
                Some(value) => {
                    self.heads
                        .insert(name.to_owned(), serde_json::from_slice(value).map_err(wrong)?);
                    self.load(name)?;
                }
                None => {
                    self.heads.remove(name);
                    self.generation += u64::from(self.loaded.remove(name).is_some());
                }
            }
            return Ok(());
        }
        let Some(rest) = key.strip_prefix("part/") else {
            return Err(format!("the key {key}"));
        };
        match value {
            Some(value) => {
                let part = serde_json::from_slice(value).map_err(wrong)?;
                self.parts.insert(key.to_owned(), part);
                // After compaction a head may lie before its parts.
                let name = rest.split('/').next().unwrap_or_default().to_owned();
                self.load(&name)
            }
            None => {
                self.parts.remove(key);
                Ok(())
            }
        }
    }

    /// Loads a list whose parts are all there, and drops their texts.
    fn load(&mut self, name: &str) -> Result<(), String> {
        let Some(head) = self.heads.get(name).copied() else { return Ok(()) };
        let keys: Vec<_> = (0..head.parts).map(|n| part_key(name, head.revision, n)).collect();
        let is_there =
            |key: &String| self.parts.get(key).is_some_and(|part| part.revision == head.revision);
        if !keys.iter().all(is_there) {
            return Ok(());
        }
        let mut pairs = Vec::with_capacity(head.entries.min(MAX_ENTRIES));
        for key in &keys {
            let part = self.parts.remove(key);
            let entries = part.map(|part| part.entries).unwrap_or_default();
            let bytes = STANDARD.decode(entries).map_err(|error| error.to_string())?;
            let (numbers, rest) = bytes.as_chunks::<8>();
            let (both, odd) = numbers.as_chunks::<2>();
            if !rest.is_empty() || !odd.is_empty() {
                return Err(format!("{key} is cut short"));
            }
            pairs.extend_from_slice(both);
        }
        let loaded = loaded(head.kind, &pairs).map_err(|error| error.to_string())?;
        self.adopt(name, loaded);
        Ok(())
    }

    fn adopt(&mut self, name: &str, loaded: Loaded) {
        match (self.loaded.get(name), &loaded) {
            // Filters hold it: it changes while they run.
            (Some(Loaded::WatchList(live)), Loaded::WatchList(new)) => {
                live.replace(WatchList::clone(&new.current()));
            }
            _ => {
                self.loaded.insert(name.to_owned(), loaded);
                self.generation += 1;
            }
        }
    }

    pub(crate) fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        for (name, loaded) in &self.loaded {
            match loaded {
                Loaded::WatchList(list) => {
                    contents.watch_lists.insert(name.clone(), Arc::clone(list));
                }
                Loaded::Region(region) => {
                    contents.regions.insert(name.clone(), region.clone());
                }
            }
        }
        contents
    }

    /// Adds the lists to what filters may name.
    pub(crate) fn with(&self, catalog: Catalog) -> Catalog {
        self.loaded.iter().fold(catalog, |catalog, (name, loaded)| match loaded {
            Loaded::WatchList(list) => catalog.with_watch_list(name, Arc::clone(list)),
            Loaded::Region(region) => catalog.with_region(name, region.clone()),
        })
    }
}

fn loaded(kind: ListKind, pairs: &[[[u8; 8]; 2]]) -> Result<Loaded, ChangeError> {
    Ok(match kind {
        ListKind::WatchList { radius_arcsec } => {
            let positions = pairs.iter().map(|pair| pair.map(f64::from_le_bytes)).collect();
            let list = WatchList::new(positions, radius_arcsec)?;
            Loaded::WatchList(Arc::new(LiveWatchList::new(list)))
        }
        ListKind::Region => {
            let ranges = pairs.iter().map(|pair| pair.map(u64::from_le_bytes));
            Loaded::Region(Region::new(ranges.map(|[start, end]| start..end).collect())?)
        }
    })
}

/// Checks entries as loading would.
pub(crate) fn check(kind: ListKind, entries: &Entries) -> Result<(), ChangeError> {
    loaded(kind, &entries.pairs()).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(lists: &mut Lists, records: &[(String, Vec<u8>)]) {
        for (key, value) in records {
            lists.take(key.as_bytes(), Some(value)).unwrap();
        }
    }

    fn positions(number: usize, dec: f64) -> Entries {
        Entries::Positions((0..number).map(|n| [n as f64 * 0.001, dec]).collect())
    }

    const KIND: ListKind = ListKind::WatchList { radius_arcsec: 2.0 };

    fn live(lists: &Lists) -> Arc<WatchList> {
        let Some(Loaded::WatchList(live)) = lists.loaded.get("w") else { panic!("no list") };
        live.current()
    }

    #[test]
    fn a_large_list_lies_in_parts_and_changes_at_its_head() {
        let mut lists = Lists::default();
        take(&mut lists, &positions(PART_ENTRIES * 2 + 1, 5.0).records("w", KIND, 1));
        assert_eq!((live(&lists).len(), lists.generation()), (PART_ENTRIES * 2 + 1, 1));
        // An upload that is killed before its head changes nothing.
        let mut second = positions(PART_ENTRIES + 1, 6.0).records("w", KIND, 2);
        let head = second.pop().unwrap();
        take(&mut lists, &second);
        assert!(live(&lists).is_near(0.0, 5.0, 2.0));
        take(&mut lists, &[head]);
        assert!(live(&lists).is_near(0.0, 6.0, 2.0) && live(&lists).len() == PART_ENTRIES + 1);
        assert_eq!(lists.generation(), 1, "the list is replaced under its filters");
    }

    #[test]
    fn the_order_of_compacted_records_does_not_matter() {
        let mut records = Entries::Ranges(vec![0..5, 9..12]).records("m", ListKind::Region, 4);
        records.reverse();
        let mut lists = Lists::default();
        take(&mut lists, &records);
        assert!(matches!(lists.loaded.get("m"), Some(Loaded::Region(_))));
        lists.take(b"head/m", None).unwrap();
        assert!(lists.loaded.is_empty() && lists.heads().is_empty());
        assert!(lists.take(b"other", Some(b"1")).is_err());
    }
}
