//! `--instances`: the simulated instances of components.

use std::str::FromStr;

/// The most instances of one component; each has its own topics, files and lease.
const INSTANCES_MAX: u32 = 1_000;

/// A rule for the instances of components.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Instances {
    /// All that the interface names.
    Named,
    /// The first of these.
    One,
    /// This many of each component that matches the pattern, named ones first.
    Of(String, u32),
}

impl FromStr for Instances {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.split_once('=')) {
            ("named", _) => Ok(Self::Named),
            ("one", _) => Ok(Self::One),
            (_, Some((pattern, number))) if !pattern.is_empty() => match number.parse() {
                Ok(number @ 0..=INSTANCES_MAX) => Ok(Self::Of(pattern.to_owned(), number)),
                _ => Err(format!("invalid number {number:?}; write 0 to {INSTANCES_MAX}")),
            },
            _ => Err("write named, one, or COMPONENT=N such as ESS=4".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_parsed() {
        assert_eq!("named".parse(), Ok(Instances::Named));
        assert_eq!("one".parse(), Ok(Instances::One));
        assert_eq!("ESS=4".parse(), Ok(Instances::Of("ESS".to_owned(), 4)));
        for bad in ["", "ESS", "ESS=", "=4", "ESS=-1", "ESS=1001", "ESS=x", "all"] {
            assert!(bad.parse::<Instances>().is_err(), "{bad:?}");
        }
    }
}
