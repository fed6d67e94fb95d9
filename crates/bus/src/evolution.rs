//! Evolution policies: which schema changes a handle accepts.

use std::fmt;
use std::str::FromStr;

use helio_core::evolution::{Difference, Level, compare};
use helio_core::{Resolution, Schema};
use thiserror::Error;

/// The required compatibility of a handle's schema with those of its topic.
///
/// The policies are those of Confluent's registry for all versions (`…_TRANSITIVE`), with the
/// differences that [`helio_core::evolution`] and `helio schema diff` report. They are stricter
/// than resolution, in which an old reader sees 0 for a removed field. A publisher's schema is
/// compared with all declared ones, a subscription's with the newest. An incompatible one is
/// refused with [`TopicError::Incompatible`](crate::TopicError::Incompatible), which names topic
/// and field. A subscription whose schema is one of the topic's is admitted, whatever was declared
/// later: its schema may be written again.
///
/// Without a policy, schemas must be *resolvable*. Existing readers must be able to read a
/// publisher's samples (forward). On a topic with a history, readers of the publisher's schema must
/// also be able to read the stored samples (full). A subscription must be able to read the newest
/// schema.
///
/// Publishers may have other policies and may start later, so a subscription also applies its
/// policy to the schema of each sample. Schemas declared before its own must be readable by a new
/// reader ([`Evolution::Backward`], [`Evolution::Full`]), those declared after it by an old one
/// ([`Evolution::Forward`], [`Evolution::Full`]). If the subscription's schema is not declared, the
/// order is unknown and one of the two suffices. Samples that violate the policy or cannot be
/// resolved are reported as [`Event::Undecodable`](crate::Event::Undecodable).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Evolution {
    /// No requirement; samples that cannot be resolved are reported.
    None,
    /// New readers can read old data.
    Backward,
    /// Old readers can read new data.
    Forward,
    /// Both.
    Full,
}

/// What a handle requires of other schemas beyond resolution.
#[derive(Debug, Clone, Default)]
pub(crate) struct SchemaRules {
    pub evolution: Option<Evolution>,
    /// The fields that a writer's schema must have.
    pub required: Vec<String>,
}

/// An invalid name of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid evolution policy {0:?}; use none, backward, forward or full")]
pub struct EvolutionError(String);

impl Evolution {
    /// All policies.
    pub const ALL: [Self; 4] = [Self::None, Self::Backward, Self::Forward, Self::Full];

    /// The name that [`FromStr`] parses: `none`, `backward`, `forward` or `full`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Backward => "backward",
            Self::Forward => "forward",
            Self::Full => "full",
        }
    }

    /// Whether a difference of that level is allowed.
    #[must_use]
    pub fn allows(self, level: Level) -> bool {
        match self {
            Self::None => true,
            Self::Backward => level.is_backward(),
            Self::Forward => level.is_forward(),
            Self::Full => level == Level::Full,
        }
    }

    /// Compares a new schema with an old one; the reason of a refusal names the fields.
    fn check(self, old: &Schema, new: &Schema) -> Result<(), String> {
        self.check_level(old, new, |level| self.allows(level))
    }

    /// Compares two schemas; each difference must be of an allowed level.
    fn check_level(
        self,
        old: &Schema,
        new: &Schema,
        allows: impl Fn(Level) -> bool,
    ) -> Result<(), String> {
        let report = compare(old, new);
        if allows(report.level) {
            return Ok(());
        }
        let wrong: Vec<&Difference> =
            report.differences.iter().filter(|d| !allows(d.level)).collect();
        let mut reason = format!("the policy is {self}, and it differs in");
        for (n, difference) in wrong.iter().take(MAX_LISTED_DIFFERENCES).enumerate() {
            reason.push_str(if n == 0 { " " } else { ", " });
            reason.push_str(&difference.to_string());
        }
        if wrong.len() > MAX_LISTED_DIFFERENCES {
            reason.push_str(&format!(" and {} more", wrong.len() - MAX_LISTED_DIFFERENCES));
        }
        Err(reason)
    }
}

/// The most differences that a refusal lists, so that it fits on a line.
const MAX_LISTED_DIFFERENCES: usize = 3;

impl fmt::Display for Evolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Evolution {
    type Err = EvolutionError;

    fn from_str(text: &str) -> Result<Self, EvolutionError> {
        let found = Self::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| EvolutionError(text.chars().take(40).collect()))
    }
}

/// Whether a topic stores samples for late joiners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoredHistory {
    No,
    Yes,
}

/// Compares a publisher's schema with one of the topic's; the error is the reason.
pub(crate) fn may_write(
    policy: Option<Evolution>,
    history: StoredHistory,
    old: &Schema,
    new: &Schema,
) -> Result<(), String> {
    if let Some(policy) = policy {
        return policy.check(old, new);
    }
    let (old_id, forward) = (old.id(), Resolution::new(new, old));
    forward
        .map_err(|error| format!("readers of the schema {old_id} could not read it: {error}"))?;
    if history == StoredHistory::Yes {
        let backward = Resolution::new(old, new);
        backward.map_err(|error| {
            format!("its readers could not read what the schema {old_id} wrote: {error}")
        })?;
    }
    Ok(())
}

/// Compares a subscription's undeclared schema with the topic's newest; the error is the reason.
pub(crate) fn may_read(
    policy: Option<Evolution>,
    newest: &Schema,
    reader: &Schema,
) -> Result<(), String> {
    match policy {
        Some(policy) => policy.check(newest, reader),
        None => Resolution::new(newest, reader).map(drop).map_err(|error| {
            format!("it cannot read what the topic's {} wrote: {error}", newest.id())
        }),
    }
}

/// When a sample's schema was declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaOrder {
    /// Before the subscription's own.
    Before,
    /// After the subscription's own.
    After,
    /// After the start of a subscription whose own schema is not declared: the order is unknown.
    Meanwhile,
}

/// Applies a subscription's policy to a sample's schema; the error is the reason. Resolution is
/// checked separately.
pub(crate) fn may_meet(
    policy: Option<Evolution>,
    came: SchemaOrder,
    written: &Schema,
    reader: &Schema,
) -> Result<(), String> {
    let Some(policy) = policy else { return Ok(()) };
    let as_new = || policy.check_level(written, reader, Level::is_backward);
    let as_old = || policy.check_level(reader, written, Level::is_forward);
    match (policy, came) {
        (Evolution::Backward | Evolution::Full, SchemaOrder::Before) => as_new(),
        (Evolution::Forward | Evolution::Full, SchemaOrder::After) => as_old(),
        (Evolution::Full, SchemaOrder::Meanwhile) => as_new().or_else(|_| as_old()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use helio_core::schema::build::{RecordSpec, TypeSpec, double, int, record};

    use super::*;

    #[test]
    fn words_are_read_and_others_are_told_which_there_are() {
        for policy in Evolution::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let told = "both".parse::<Evolution>().unwrap_err().to_string();
        assert_eq!(told, "invalid evolution policy \"both\"; use none, backward, forward or full");
    }

    #[test]
    fn a_refusal_names_a_few_fields() {
        let of = |names: &[&str], kind: fn() -> TypeSpec| {
            let add = |record: RecordSpec, name: &&str| record.field(name, kind()).default(0);
            names.iter().fold(record("W"), add).schema().unwrap()
        };
        let names = ["a", "b", "c", "d", "e"];
        let (old, new) = (of(&names, int), of(&names, double));
        assert_eq!(may_write(Some(Evolution::Backward), StoredHistory::Yes, &old, &new), Ok(()));
        let told = may_write(Some(Evolution::Full), StoredHistory::No, &old, &new).unwrap_err();
        assert!(told.contains("a: type int -> double (backward), b: "), "{told}");
        assert!(told.ends_with("and 2 more"), "{told}");
        assert!(may_write(None, StoredHistory::No, &old, &new).unwrap_err().contains("a: "));
        assert!(may_read(Some(Evolution::Backward), &new, &old).is_err());
        assert_eq!(may_read(Some(Evolution::None), &new, &old), Ok(()));
    }

    #[test]
    fn a_policy_promises_old_readers_one_thing_and_new_ones_another() {
        let of = |kind: TypeSpec| record("W").field("a", kind).default(0).schema().unwrap();
        // Doubles read integers; integers do not read doubles.
        let (narrow, wide) = (of(int()), of(double()));
        for policy in Evolution::ALL.map(Some).into_iter().chain([None]) {
            let refused = |came| may_meet(policy, came, &wide, &narrow).is_err();
            let before = matches!(policy, Some(Evolution::Backward | Evolution::Full));
            let after = matches!(policy, Some(Evolution::Forward | Evolution::Full));
            assert_eq!(
                [refused(SchemaOrder::Before), refused(SchemaOrder::After)],
                [before, after]
            );
            assert_eq!(may_meet(policy, SchemaOrder::Before, &narrow, &wide), Ok(()));
            assert_eq!(may_meet(policy, SchemaOrder::After, &narrow, &wide), Ok(()));
        }
        let names = |names: &[&str]| {
            let add = |record: RecordSpec, name: &&str| record.field(name, int()).default(0);
            names.iter().fold(record("W"), add).schema().unwrap()
        };
        // More fields: a newer schema, or a reader of a removed field.
        let (less, more) = (names(&["a"]), names(&["a", "b"]));
        let full = |came| may_meet(Some(Evolution::Full), came, &less, &more).is_ok();
        assert!(
            full(SchemaOrder::Before) && full(SchemaOrder::Meanwhile) && !full(SchemaOrder::After)
        );
        assert!(may_meet(Some(Evolution::Full), SchemaOrder::Meanwhile, &wide, &narrow).is_err());
        let told = may_meet(Some(Evolution::Full), SchemaOrder::After, &wide, &narrow).unwrap_err();
        assert_eq!(told, "the policy is full, and it differs in a: type int -> double (backward)");
    }
}
