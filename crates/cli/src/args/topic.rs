//! The arguments of `helio topic`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use helio_bridge::Override;

use super::profiles::PROFILES;

/// `helio topic`.
#[derive(Debug, Subcommand)]
pub(crate) enum TopicCommand {
    /// Create a topic. An existing one of the same quality of service is no error.
    Create(CreateArgs),
    /// Change a topic's retention, at once for all processes that have it open.
    Alter(AlterArgs),
    /// Delete topics with all their samples. Programs that have them open receive an error.
    Delete(NamesArgs),
    /// Remove all samples of topics, which begin again under the same description. Programs that
    /// have them open receive an error.
    Purge(NamesArgs),
    /// Let a user read a topic, and nobody else: a user of this machine on a journal, a principal
    /// with a login (SCRAM) on Kafka. A generated password is printed, and stored nowhere.
    Grant(GrantArgs),
    /// End a user's grant of a topic.
    Revoke(RevokeArgs),
}

/// `helio topic create`.
#[derive(Debug, Args)]
pub(crate) struct CreateArgs {
    /// The topic.
    pub(crate) topic: String,
    /// The quality-of-service profile.
    #[arg(long, default_value = "stream", value_parser = PROFILES)]
    pub(crate) profile: String,
    /// Override a field of the profile, such as durability=transient_local or retention.age=30d;
    /// may be repeated.
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) qos: Vec<Override>,
    /// Partitions.
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) partitions: u32,
    /// The Avro schema of its values.
    #[arg(long, value_name = "AVSC", value_hint = ValueHint::FilePath)]
    pub(crate) schema: Option<PathBuf>,
}

/// `helio topic alter`.
#[derive(Debug, Args)]
pub(crate) struct AlterArgs {
    /// The topic.
    pub(crate) topic: String,
    /// Take the retention of this profile.
    #[arg(long, value_parser = PROFILES, required_unless_present = "qos")]
    pub(crate) profile: Option<String>,
    /// Set retention.bytes (of a partition, or none) or retention.age (such as 30d, or none); may
    /// be repeated.
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) qos: Vec<Override>,
}

/// `helio topic grant`.
#[derive(Debug, Args)]
pub(crate) struct GrantArgs {
    /// The user.
    pub(crate) user: String,
    /// The topic.
    pub(crate) topic: String,
    /// Give the user's login the password in this file's first line, instead of a generated one if
    /// the user has none.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) password_file: Option<PathBuf>,
    /// Print JSON: one object, or one per line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `helio topic revoke`.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    /// The user.
    pub(crate) user: String,
    /// The topic.
    pub(crate) topic: String,
}

/// `helio topic delete` and `purge`.
#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    /// The topics.
    #[arg(required = true, value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
}
