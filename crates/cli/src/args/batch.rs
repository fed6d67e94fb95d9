//! `--batch`: the size and age of packets of log records.

use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units;

/// The limits of a producer's packets; the library's defaults where none is given.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Batch {
    /// The largest number of records in a packet.
    pub(crate) records: Option<usize>,
    /// The longest wait of a record for others.
    pub(crate) age: Option<Duration>,
}

impl std::fmt::Display for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let age = self.age.map(|age| format!("{}ms", age.as_secs_f64() * 1e3));
        let records = self.records.map(|records| records.to_string());
        let parts: Vec<_> = records.into_iter().chain(age).collect();
        f.write_str(if parts.is_empty() { "default" } else { "" })?;
        f.write_str(&parts.join(","))
    }
}

impl FromStr for Batch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut batch = Self::default();
        for part in text.split(',') {
            match part.parse() {
                Ok(records @ 1..=65_535) => batch.records = Some(records),
                Ok(_) => return Err("1 to 65535 records are possible".to_owned()),
                Err(_) if part.chars().any(char::is_alphabetic) => {
                    batch.age = Some(units::duration(part)?);
                }
                Err(_) => {
                    let how = "write records, a time, or both, like 1000, 20ms or 1,1ms";
                    return Err(format!("invalid batch {text:?}; {how}"));
                }
            }
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_parsed() {
        let batch =
            |records, ms: Option<u64>| Ok(Batch { records, age: ms.map(Duration::from_millis) });
        assert_eq!("1000".parse(), batch(Some(1_000), None));
        assert_eq!("20ms".parse(), batch(None, Some(20)));
        assert_eq!("1,1ms".parse(), batch(Some(1), Some(1)));
        assert_eq!(Batch::default().to_string(), "default");
        assert_eq!("1,1ms".parse::<Batch>().unwrap().to_string(), "1,1ms");
        for wrong in ["", "0", "65536", "soon", "1,", "-1ms"] {
            assert!(wrong.parse::<Batch>().is_err(), "{wrong:?}");
        }
    }
}
